//! Fragments of the cluster resource that all versions share. Every member is optional here: required members
//! are rules of `validate`, so that an error names the path of the missing one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::HiddenText;

/// Who created and changed a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = SystemData)]
pub struct SystemDataForm {
    /// Who created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// `User`, `Application`, `ManagedIdentity` or `Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by_type: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
    /// Who changed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_by: Option<String>,
    /// `User`, `Application`, `ManagedIdentity` or `Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_by_type: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_modified_at: Option<Timestamp>,
}

/// The console.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsoleProfile {
    /// Its URL; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The service principal of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePrincipalProfile {
    /// Its client id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret; never in responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only)]
    pub client_secret: Option<HiddenText>,
}

impl ServicePrincipalProfile {
    /// Whether all members are absent.
    pub fn is_empty(&self) -> bool {
        self.client_id.as_deref().unwrap_or_default().is_empty()
            && self.client_secret.as_ref().is_none_or(|secret| secret.expose().is_empty())
    }
}

/// The networks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProfile {
    /// Addresses of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    /// Addresses of services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
    /// `Loadbalancer` or `UserDefinedRouting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound_type: Option<String>,
    /// Outbound traffic through the load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_profile: Option<LoadBalancerProfile>,
    /// `Enabled` or `Disabled`.
    #[serde(rename = "preconfiguredNSG", skip_serializing_if = "Option::is_none")]
    pub preconfigured_nsg: Option<String>,
}

/// Outbound traffic through the load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerProfile {
    /// Public addresses that the service creates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_outbound_ips: Option<ManagedOutboundIps>,
    /// The existing public addresses; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_outbound_ips: Option<Vec<EffectiveOutboundIp>>,
}

/// Public addresses that the service creates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedOutboundIps {
    /// Number of addresses: 1 to 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
}

/// A public address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveOutboundIp {
    /// Its resource id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MasterProfile {
    /// The size of its machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_size: Option<String>,
    /// Its subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// `Enabled` or `Disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption_at_host: Option<String>,
    /// Disk encryption set of its disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_encryption_set_id: Option<String>,
}

/// A pool of workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerProfile {
    /// Its name: `worker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The size of its machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_size: Option<String>,
    /// The size of each disk: 128 or more.
    #[serde(rename = "diskSizeGB", skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<i64>,
    /// Its subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// Number of workers: 2 to 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// `Enabled` or `Disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption_at_host: Option<String>,
    /// Disk encryption set of its disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_encryption_set_id: Option<String>,
}

/// The API server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiserverProfile {
    /// `Public` or `Private`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// Its URL; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its address; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// An ingress.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressProfile {
    /// Its name: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Public` or `Private`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// Its address; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// The managed identity of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = ManagedServiceIdentity)]
pub struct ManagedIdentity {
    /// `UserAssigned`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The principal; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal_id: Option<String>,
    /// The tenant; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The identity, by its resource id; exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, UserAssignedIdentity>>)]
    pub user_assigned_identities: Option<BTreeMap<String, Option<UserAssignedIdentity>>>,
}

/// Ids of a managed identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserAssignedIdentity {
    /// Its client id; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its principal; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal_id: Option<String>,
}

/// The managed identities of the platform's operators.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformWorkloadIdentityProfile {
    /// A further version whose role set the identities satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgradeable_to: Option<String>,
    /// The identities by the operators' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, PlatformWorkloadIdentity>>)]
    pub platform_workload_identities: Option<BTreeMap<String, Option<PlatformWorkloadIdentity>>>,
}

/// The managed identity of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformWorkloadIdentity {
    /// Its resource id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// Its client id; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its object id; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
}
