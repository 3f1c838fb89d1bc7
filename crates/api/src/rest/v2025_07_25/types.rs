//! The resource, as this version spells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rest::{
    ApiserverProfile, ConsoleProfile, HiddenText, IngressProfile, ManagedIdentity, MasterProfile,
    NetworkProfile, PlatformWorkloadIdentityProfile, ServicePrincipalProfile, SystemDataForm, WorkerProfile,
};

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenShiftCluster {
    /// Its resource id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Microsoft.RedHatOpenShift/openShiftClusters`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The customer's tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// Its managed identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<ManagedIdentity>,
    /// Who created and changed it; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataForm>,
    /// The rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<OpenShiftClusterProperties>,
}

/// What a cluster is and shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenShiftClusterProperties {
    /// Where its life stands; driven by us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<String>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile: Option<ClusterProfile>,
    /// Where its console is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_profile: Option<ConsoleProfile>,
    /// As whom it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_principal_profile: Option<ServicePrincipalProfile>,
    /// The managed identities of its platform's operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_workload_identity_profile: Option<PlatformWorkloadIdentityProfile>,
    /// Its networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_profile: Option<NetworkProfile>,
    /// Its control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_profile: Option<MasterProfile>,
    /// Its workers as they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_profiles: Option<Vec<WorkerProfile>>,
    /// Its workers as they were last seen; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_profiles_status: Option<Vec<WorkerProfile>>,
    /// Its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apiserver_profile: Option<ApiserverProfile>,
    /// Its ways in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_profiles: Option<Vec<IngressProfile>>,
}

/// What a cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfile {
    /// The customer's pull secret; never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only)]
    pub pull_secret: Option<HiddenText>,
    /// The DNS name under which it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The resource group that we manage for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_group_id: Option<String>,
    /// `Enabled` or `Disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fips_validated_modules: Option<String>,
    /// Where tokens of its service accounts are issued; read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_issuer: Option<String>,
}
