//! Specification (`Spec`) and created or observed resources (`Record`) of a provisioned cluster; an imported one has
//! neither. The two have different writers: the API writes the first, the backend the second.
//!
//! Secrets are not in here. The store keeps them sealed beside the document, by the names in [`secrets`](super::super::secrets).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Specification and resources of a provisioned cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioned {
    /// The customer's tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Who created and changed it, as the resource manager reported.
    #[serde(default, skip_serializing_if = "SystemData::is_empty")]
    pub system_data: SystemData,
    /// Its specification, as its customer requested.
    pub spec: Spec,
    /// Its whole DNS name, if that is in the service's own zones ([`domain::managed`](crate::domain::managed)); decided once,
    /// when it is created. Unique among clusters.
    #[serde(default)]
    pub managed_domain: Option<String>,
    /// Created and observed resources.
    #[serde(default)]
    pub record: Record,
    /// Release of the service that accepted the request.
    #[serde(default)]
    pub created_by: String,
    /// Release of the service that last completed an operation on it.
    #[serde(default)]
    pub provisioned_by: String,
    /// Spreads the watching of clusters over processes; drawn once, from 0 to 255.
    #[serde(default)]
    pub bucket: u8,
    /// Error of the last update by an operator.
    #[serde(default)]
    pub last_admin_update_error: Option<String>,
}

impl Provisioned {
    /// Whether its names are in the service's own zones; otherwise its customer manages them, with their certificates. Builds
    /// before this one recorded nothing and treated bare labels as managed.
    pub fn is_domain_managed(&self) -> bool {
        self.managed_domain.is_some() || !self.spec.domain.contains('.')
    }
}

/// Who created and changed a resource, as the resource manager reported. Members that a request does not have keep their values.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemData {
    /// Who created it.
    pub created_by: Option<String>,
    /// Kind of that identity.
    pub created_by_type: Option<String>,
    /// When.
    pub created_at: Option<Timestamp>,
    /// Who changed it last.
    pub last_modified_by: Option<String>,
    /// Kind of that identity.
    pub last_modified_by_type: Option<String>,
    /// When.
    pub last_modified_at: Option<Timestamp>,
}

impl SystemData {
    /// Whether all members are absent.
    pub fn is_empty(&self) -> bool {
        *self == SystemData::default()
    }
}

/// Specification of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The DNS name under which it is reached: a label of the service's own zone, or a whole name.
    pub domain: String,
    /// The version to install, as `4.17.3`.
    pub version: String,
    /// Resource group that the service manages for it, as a resource id in lower case.
    pub resource_group_id: String,
    /// Whether only validated cryptographic modules are used.
    pub fips: Switch,
    /// Its identity in the cloud.
    pub identity: Identity,
    /// Its networks.
    pub network: NetworkSpec,
    /// Its control plane.
    pub master: MasterPool,
    /// Its workers as requested at creation.
    pub workers: Vec<WorkerPool>,
    /// Visibility of its API server.
    pub api_visibility: Visibility,
    /// Its ingresses.
    pub ingress: Vec<Ingress>,
}

/// On or off, as the contract spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Switch {
    /// On.
    Enabled,
    /// Off.
    #[default]
    Disabled,
}

/// Visibility of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Visibility {
    /// Reachable from everywhere.
    Public,
    /// Reachable from the customer's network only.
    Private,
}

/// Identity of a cluster in the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum Identity {
    /// A service principal with a secret; the secret is sealed beside the document.
    ServicePrincipal {
        /// Its client id.
        client_id: String,
    },
    /// Managed identities: one of the cluster, and one for each platform operator.
    Workload {
        /// The cluster's identity, as a resource id in the customer's spelling.
        resource_id: String,
        /// The tenant of that identity, once known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<String>,
        /// URL of its credentials, as the resource manager reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity_url: Option<String>,
        /// The platform operators' identities, by operator name.
        platform: BTreeMap<String, PlatformIdentity>,
        /// A further version whose role set the identities must satisfy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upgradeable_to: Option<String>,
    },
}

/// The identity of one platform operator.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformIdentity {
    /// Its resource id.
    pub resource_id: String,
    /// Its client id, once resolved.
    #[serde(default)]
    pub client_id: Option<String>,
    /// Its object id, once resolved.
    #[serde(default)]
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
    /// Type of outbound traffic.
    pub outbound_type: OutboundType,
    /// Whether the customer brings the security groups of the subnets.
    pub preconfigured_nsg: Switch,
    /// Number of public addresses of outbound traffic; none with user-defined routing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_outbound_ips: Option<u32>,
}

/// Type of a cluster's outbound traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OutboundType {
    /// Through the load balancer that the service creates. The spelling is the contract's.
    Loadbalancer,
    /// By routes that the customer defines.
    UserDefinedRouting,
}

/// The control plane: three machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterPool {
    /// The size of each machine.
    pub vm_size: String,
    /// Their subnet.
    pub subnet_id: String,
    /// Whether their disks are encrypted at the host.
    #[serde(default)]
    pub encryption_at_host: Switch,
    /// Disk encryption set of their disks.
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
    /// Their subnet.
    pub subnet_id: String,
    /// Number of machines.
    pub count: u32,
    /// Whether their disks are encrypted at the host.
    #[serde(default)]
    pub encryption_at_host: Switch,
    /// Disk encryption set of their disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_encryption_set_id: Option<String>,
}

/// An ingress of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// Its name.
    pub name: String,
    /// Its visibility.
    pub visibility: Visibility,
}

/// Resources that were created for a cluster, and what was observed of it. Only the backend (and the actuator, for some tasks) writes it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Prefix of the names of all its resources, generated once.
    pub infra_id: Option<String>,
    /// Suffix of the names of its storage accounts, generated once.
    pub storage_suffix: Option<String>,
    /// The storage account of its image registry.
    pub image_registry_storage_account: Option<String>,
    /// The object id of its service principal.
    pub service_principal_object_id: Option<String>,
    /// The zones that its machines are spread over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// MTU of its network.
    pub mtu: Option<u32>,
    /// Token with which it pulls images; its password is sealed beside the document.
    pub registry_token: Option<RegistryToken>,
    /// Issuer of its service accounts' tokens; only with workload identity.
    pub oidc_issuer: Option<String>,
    /// Expiry of the certificate of its own identity; only with workload identity.
    pub identity_certificate_expires: Option<Timestamp>,
    /// The URL of its API server.
    pub api_url: Option<String>,
    /// The address of its API server for its customer.
    pub api_ip: Option<String>,
    /// The address of its API server inside its network.
    pub api_internal_ip: Option<String>,
    /// Address at which the service reaches its API server.
    pub private_endpoint_ip: Option<String>,
    /// The address of its default ingress.
    pub ingress_ip: Option<String>,
    /// Public addresses of outbound traffic, as resource ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effective_outbound_ips: Vec<String>,
    /// The URL of its console.
    pub console_url: Option<String>,
    /// The last observed version.
    pub running_version: Option<String>,
    /// Its last observed pools of workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerPoolStatus>,
    /// Expiry of the certificate of its API server.
    pub api_certificate_expires: Option<Timestamp>,
    /// Expiry of the certificate of its ingress.
    pub ingress_certificate_expires: Option<Timestamp>,
}

/// Token with which a cluster pulls images.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryToken {
    /// The registry's host.
    pub registry: String,
    /// The token's name, which is recorded before the token is created.
    pub name: String,
    /// When its password was issued; none until it is.
    #[serde(default)]
    pub issued: Option<Timestamp>,
    /// Expiry of its password.
    #[serde(default)]
    pub expires: Option<Timestamp>,
}

/// A pool of workers as last observed in the cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPoolStatus {
    /// The machine set's name.
    pub name: String,
    /// The size of each machine.
    #[serde(default)]
    pub vm_size: Option<String>,
    /// The size of each disk.
    #[serde(default)]
    pub disk_size_gb: Option<u32>,
    /// Their subnet.
    #[serde(default)]
    pub subnet_id: Option<String>,
    /// Number of machines.
    pub count: u32,
}
