//! The resource in the form of this version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::rest::{
    ApiserverProfile, ConsoleProfile, HiddenText, IngressProfile, MasterProfile, NetworkProfile,
    ServicePrincipalProfile, SystemDataForm, WorkerProfile,
};

/// A cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = OpenShiftCluster20231122)]
pub struct OpenShiftCluster {
    /// Its resource id.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// `Microsoft.RedHatOpenShift/openShiftClusters`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its location.
    pub location: Option<String>,
    /// The customer's tags.
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// Who created and changed it; read-only.
    pub system_data: Option<SystemDataForm>,
    /// Its properties.
    pub properties: Option<OpenShiftClusterProperties>,
}

/// Properties of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = OpenShiftClusterProperties20231122)]
pub struct OpenShiftClusterProperties {
    /// Its provisioning state; read-only.
    pub provisioning_state: Option<String>,
    /// Its profile.
    pub cluster_profile: Option<ClusterProfile>,
    /// Its console.
    pub console_profile: Option<ConsoleProfile>,
    /// Its service principal.
    pub service_principal_profile: Option<ServicePrincipalProfile>,
    /// Its networks.
    pub network_profile: Option<NetworkProfile>,
    /// Its control plane.
    pub master_profile: Option<MasterProfile>,
    /// Its workers as requested.
    pub worker_profiles: Option<Vec<WorkerProfile>>,
    /// Its observed workers; read-only.
    pub worker_profiles_status: Option<Vec<WorkerProfile>>,
    /// Its API server.
    pub apiserver_profile: Option<ApiserverProfile>,
    /// Its ingresses.
    pub ingress_profiles: Option<Vec<IngressProfile>>,
}

/// Profile of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = ClusterProfile20231122)]
pub struct ClusterProfile {
    /// The customer's pull secret; never in responses.
    #[schema(value_type = Option<String>, write_only)]
    pub pull_secret: Option<HiddenText>,
    /// The DNS name under which it is reached.
    pub domain: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The resource group that the service manages for it.
    pub resource_group_id: Option<String>,
    /// `Enabled` or `Disabled`.
    pub fips_validated_modules: Option<String>,
}
