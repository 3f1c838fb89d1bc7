//! What a cluster of ours has and an imported one has not: what its customer asked for (`Spec`), and what we made and saw
//! (`Record`). The two have different writers: the API writes the first, the backend the second.
//!
//! Secrets are not in here. The store keeps them sealed beside the document, by the names in [`secrets`](super::super::secrets).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Everything about a cluster of ours that an imported one has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioned {
    /// The customer's tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Who created and changed it, as the resource manager told us.
    #[serde(default, skip_serializing_if = "SystemData::is_empty")]
    pub system_data: SystemData,
    /// What its customer asked for.
    pub spec: Spec,
    /// Its whole DNS name, if that is in the service's own zones ([`domain::managed`](crate::domain::managed)); decided once,
    /// when it is taken in. No two living clusters may share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_domain: Option<String>,
    /// What we made and saw.
    #[serde(default)]
    pub record: Record,
    /// The release of this service that took the request.
    #[serde(default)]
    pub created_by: String,
    /// The release of this service that last ran the whole of an operation on it.
    #[serde(default)]
    pub provisioned_by: String,
    /// Spreads the watching of clusters over processes; drawn once, from 0 to 255.
    #[serde(default)]
    pub bucket: u8,
    /// What the last operator's update failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_admin_update_error: Option<String>,
}

impl Provisioned {
    /// Whether its names are in the service's own zones; otherwise its customer keeps them, with their certificates. Builds
    /// before this one recorded nothing and took bare labels for managed.
    pub fn is_domain_managed(&self) -> bool {
        self.managed_domain.is_some() || !self.spec.domain.contains('.')
    }
}

/// Who created and changed a resource, as the resource manager told us. What it did not say is kept as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemData {
    /// Who created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// What kind of identity that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by_type: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Who changed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_by: Option<String>,
    /// What kind of identity that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_by_type: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_at: Option<Timestamp>,
}

impl SystemData {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == SystemData::default()
    }
}

/// What a customer asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The DNS name under which it is reached: a label of the service's own zone, or a whole name.
    pub domain: String,
    /// The version to install, as `4.17.3`.
    pub version: String,
    /// The resource group that we manage for it, as a resource id in lower case.
    pub resource_group_id: String,
    /// Whether only validated cryptographic modules are used.
    pub fips: Switch,
    /// As whom it works in the cloud.
    pub identity: Identity,
    /// Its networks.
    pub network: NetworkSpec,
    /// Its control plane.
    pub master: MasterPool,
    /// Its workers as they were asked for at creation.
    pub workers: Vec<WorkerPool>,
    /// From where its API server is reached.
    pub api_visibility: Visibility,
    /// Its ways in.
    pub ingress: Vec<Ingress>,
}

/// On or off, in the words of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Switch {
    /// On.
    Enabled,
    /// Off.
    #[default]
    Disabled,
}

/// From where something is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Visibility {
    /// From everywhere.
    Public,
    /// From the customer's network only.
    Private,
}

/// As whom a cluster works in the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum Identity {
    /// As one principal with a secret; the secret is sealed beside the document.
    ServicePrincipal {
        /// Its client id.
        client_id: String,
    },
    /// As managed identities: one of the cluster, and one for each platform operator.
    Workload {
        /// The cluster's identity, as a resource id in the customer's spelling.
        resource_id: String,
        /// The tenant of that identity, once known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<String>,
        /// Where its credentials are fetched, as the resource manager told us.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity_url: Option<String>,
        /// The platform operators' identities, by operator name.
        platform: BTreeMap<String, PlatformIdentity>,
        /// The version whose role set the identities are made for besides the present one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upgradeable_to: Option<String>,
    },
}

/// The identity of one platform operator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformIdentity {
    /// Its resource id.
    pub resource_id: String,
    /// Its client id, once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its object id, once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
}

/// The networks of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// Addresses of pods.
    pub pod_cidr: String,
    /// Addresses of services.
    pub service_cidr: String,
    /// How its traffic leaves.
    pub outbound_type: OutboundType,
    /// Whether the customer brings the security groups of the subnets.
    pub preconfigured_nsg: Switch,
    /// How many public addresses its traffic leaves from; none with routing of the customer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_outbound_ips: Option<u32>,
}

/// How a cluster's traffic leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OutboundType {
    /// Through the load balancer that we make. The spelling is the contract's.
    Loadbalancer,
    /// By routes that the customer makes.
    UserDefinedRouting,
}

/// The control plane: three machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterPool {
    /// The size of each machine.
    pub vm_size: String,
    /// The subnet that they are in.
    pub subnet_id: String,
    /// Whether their disks are encrypted where they run.
    #[serde(default)]
    pub encryption_at_host: Switch,
    /// The keys of their disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_encryption_set_id: Option<String>,
}

/// A pool of workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPool {
    /// Its name.
    pub name: String,
    /// The size of each machine.
    pub vm_size: String,
    /// The size of each disk.
    pub disk_size_gb: u32,
    /// The subnet that they are in.
    pub subnet_id: String,
    /// How many.
    pub count: u32,
    /// Whether their disks are encrypted where they run.
    #[serde(default)]
    pub encryption_at_host: Switch,
    /// The keys of their disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_encryption_set_id: Option<String>,
}

/// A way into a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// Its name.
    pub name: String,
    /// From where it is reached.
    pub visibility: Visibility,
}

/// What we made for a cluster and saw of it. Only the backend (and, where a task says so, the actuator) writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The prefix of the names of all that belongs to it, drawn once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_id: Option<String>,
    /// The end of the names of its storage accounts, drawn once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_suffix: Option<String>,
    /// The storage account of its image registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_registry_storage_account: Option<String>,
    /// The object id of its service principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_principal_object_id: Option<String>,
    /// The zones that its machines are spread over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The largest packet of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The token by which it pulls images; its password is sealed beside the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_token: Option<RegistryToken>,
    /// Where its service accounts' tokens are issued; only with workload identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_issuer: Option<String>,
    /// Until when the certificate of its own identity is good; only with workload identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_certificate_expires: Option<Timestamp>,
    /// The URL of its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// The address of its API server for its customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_ip: Option<String>,
    /// The address of its API server inside its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_internal_ip: Option<String>,
    /// The address at which this service reaches its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_endpoint_ip: Option<String>,
    /// The address of its default ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_ip: Option<String>,
    /// The public addresses that its traffic leaves from, as resource ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effective_outbound_ips: Vec<String>,
    /// The URL of its console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_url: Option<String>,
    /// The version that it was last seen to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_version: Option<String>,
    /// Its pools of workers as they were last seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerPoolStatus>,
    /// Until when the certificate of its API server is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_certificate_expires: Option<Timestamp>,
    /// Until when the certificate of its ingress is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_certificate_expires: Option<Timestamp>,
}

/// The token by which a cluster pulls images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryToken {
    /// The registry's host.
    pub registry: String,
    /// The token's name, which is recorded before it is made.
    pub name: String,
    /// When its password was issued; none until it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// Until when its password is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A pool of workers as it was last seen in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPoolStatus {
    /// The machine set's name.
    pub name: String,
    /// The size of each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_size: Option<String>,
    /// The size of each disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<u32>,
    /// The subnet that they are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// How many.
    pub count: u32,
}
