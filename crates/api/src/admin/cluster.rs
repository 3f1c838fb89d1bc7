//! A cluster as operators see it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::doc::ProvisioningState;
use crate::secret::Secret;

/// A cluster in the admin form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminCluster {
    /// Its resource id, in the spelling of whoever created it.
    pub id: String,
    /// The last segment of the id.
    pub name: String,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it runs.
    pub location: String,
    /// The rest.
    pub properties: AdminClusterProperties,
    /// Tags and identity of a cluster that we made, as its customer sees them.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: BTreeMap<String, Value>,
}

/// What operators see of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminClusterProperties {
    /// Its identity, which no later cluster of the same name has.
    pub uuid: Uuid,
    /// Where its life stands.
    #[schema(value_type = String)]
    pub provisioning_state: ProvisioningState,
    /// What it was doing when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The Kubernetes version that was last seen in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// By which selections find it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it was imported by its kubeconfig.
    #[serde(default)]
    pub imported: bool,
    /// The address of its API server; only of imported clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,
    /// Whether its API server answers, and since when; absent until somebody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachability: Option<Reachability>,
    /// When it was created or imported.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// What a cluster that we made has besides: the profiles that its customer sees, and what we made for it.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: BTreeMap<String, Value>,
}

/// Whether a cluster's API server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reachability {
    /// Whether it answered when it was last asked.
    pub reachable: bool,
    /// Since when that is so.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it was last asked.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
    /// What went wrong, when it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A cluster to be imported.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportRequest {
    /// A kubeconfig whose data is all inline.
    pub kubeconfig: String,
    /// Which of its contexts; its current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Where the cluster runs; the first configured location when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ImportRequest {
    /// The kubeconfig, from now on kept out of logs.
    pub fn secret(&self) -> Secret<String> {
        Secret::new(self.kubeconfig.clone())
    }
}

impl fmt::Debug for ImportRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportRequest")
            .field("context", &self.context)
            .field("location", &self.location)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}
