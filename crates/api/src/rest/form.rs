//! Fragments of the cluster resource that all versions share. Every member is optional here: required members
//! are rules of `validate`, so that an error names the path of the missing one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::HiddenText;

/// Who created and changed a resource.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = SystemData)]
pub struct SystemDataForm {
    /// Who created it.
    pub created_by: Option<String>,
    /// `User`, `Application`, `ManagedIdentity` or `Key`.
    pub created_by_type: Option<String>,
    /// When.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
    /// Who changed it last.
    pub last_modified_by: Option<String>,
    /// `User`, `Application`, `ManagedIdentity` or `Key`.
    pub last_modified_by_type: Option<String>,
    /// When.
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
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePrincipalProfile {
    /// Its client id.
    pub client_id: Option<String>,
    /// Its secret; never in responses.
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
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProfile {
    /// Addresses of pods.
    pub pod_cidr: Option<String>,
    /// Addresses of services.
    pub service_cidr: Option<String>,
    /// `Loadbalancer` or `UserDefinedRouting`.
    pub outbound_type: Option<String>,
    /// Outbound traffic through the load balancer.
    pub load_balancer_profile: Option<LoadBalancerProfile>,
    /// `Enabled` or `Disabled`.
    #[serde(rename = "preconfiguredNSG")]
    pub preconfigured_nsg: Option<String>,
}

/// Outbound traffic through the load balancer.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerProfile {
    /// Public addresses that the service creates.
    pub managed_outbound_ips: Option<ManagedOutboundIps>,
    /// The existing public addresses; read-only.
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
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MasterProfile {
    /// The size of its machines.
    pub vm_size: Option<String>,
    /// Its subnet.
    pub subnet_id: Option<String>,
    /// `Enabled` or `Disabled`.
    pub encryption_at_host: Option<String>,
    /// Disk encryption set of its disks.
    pub disk_encryption_set_id: Option<String>,
}

/// A pool of workers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerProfile {
    /// Its name: `worker`.
    pub name: Option<String>,
    /// The size of its machines.
    pub vm_size: Option<String>,
    /// The size of each disk: 128 or more.
    #[serde(rename = "diskSizeGB")]
    pub disk_size_gb: Option<i64>,
    /// Its subnet.
    pub subnet_id: Option<String>,
    /// Number of workers: 2 to 50.
    pub count: Option<i64>,
    /// `Enabled` or `Disabled`.
    pub encryption_at_host: Option<String>,
    /// Disk encryption set of its disks.
    pub disk_encryption_set_id: Option<String>,
}

/// The API server.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiserverProfile {
    /// `Public` or `Private`.
    pub visibility: Option<String>,
    /// Its URL; read-only.
    pub url: Option<String>,
    /// Its address; read-only.
    pub ip: Option<String>,
}

/// An ingress.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressProfile {
    /// Its name: `default`.
    pub name: Option<String>,
    /// `Public` or `Private`.
    pub visibility: Option<String>,
    /// Its address; read-only.
    pub ip: Option<String>,
}

/// The managed identity of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = ManagedServiceIdentity)]
pub struct ManagedIdentity {
    /// `UserAssigned`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The principal; read-only.
    pub principal_id: Option<String>,
    /// The tenant; read-only.
    pub tenant_id: Option<String>,
    /// The identity, by its resource id; exactly one.
    #[schema(value_type = Option<BTreeMap<String, UserAssignedIdentity>>)]
    pub user_assigned_identities: Option<BTreeMap<String, Option<UserAssignedIdentity>>>,
}

/// Ids of a managed identity.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserAssignedIdentity {
    /// Its client id; read-only.
    pub client_id: Option<String>,
    /// Its principal; read-only.
    pub principal_id: Option<String>,
}

/// The managed identities of the platform's operators.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformWorkloadIdentityProfile {
    /// A further version whose role set the identities satisfy.
    pub upgradeable_to: Option<String>,
    /// The identities by the operators' names.
    #[schema(value_type = Option<BTreeMap<String, PlatformWorkloadIdentity>>)]
    pub platform_workload_identities: Option<BTreeMap<String, Option<PlatformWorkloadIdentity>>>,
}

/// The managed identity of an operator.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformWorkloadIdentity {
    /// Its resource id.
    pub resource_id: Option<String>,
    /// Its client id; read-only.
    pub client_id: Option<String>,
    /// Its object id; read-only.
    pub object_id: Option<String>,
}
