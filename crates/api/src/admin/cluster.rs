//! Clusters in the Admin API.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use super::ClusterHealth;
use crate::doc::ProvisioningState;
use crate::secret::Secret;

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminCluster {
    /// Its resource id, as spelled at its creation.
    pub id: String,
    /// The last segment of the id.
    pub name: String,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its location.
    pub location: String,
    /// Its properties.
    pub properties: AdminClusterProperties,
    /// Tags and identity of a provisioned cluster, as its customer sees them.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: BTreeMap<String, Value>,
}

/// Properties of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminClusterProperties {
    /// Its unique id; a later cluster of the same name has another.
    pub uuid: Uuid,
    /// Its provisioning state.
    #[schema(value_type = String)]
    pub provisioning_state: ProvisioningState,
    /// The provisioning state in which it failed.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The last observed Kubernetes version.
    #[serde(default)]
    pub version: Option<String>,
    /// Labels for selectors.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it was imported by its kubeconfig.
    #[serde(default)]
    pub imported: bool,
    /// The address of its API server; only of imported clusters.
    #[serde(default)]
    pub api_server: Option<String>,
    /// Whether its API server responds, and since when; absent until it was contacted.
    #[serde(default)]
    pub reachability: Option<Reachability>,
    /// Its health; absent until it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ClusterHealth>,
    /// When it was created or imported.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Further properties of a provisioned cluster: the profiles that its customer sees, and the resources that were created for it.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: BTreeMap<String, Value>,
}

/// Whether a cluster's API server responds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reachability {
    /// Whether it responded to the last request.
    pub reachable: bool,
    /// Since when `reachable` has this value.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Time of the last request.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
    /// Error of the last request, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Request to import a cluster.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportRequest {
    /// A kubeconfig with inline data only.
    pub kubeconfig: String,
    /// The context to use; the current one when absent.
    #[serde(default)]
    pub context: Option<String>,
    /// The cluster's location; the first configured one when absent.
    #[serde(default)]
    pub location: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Reason, for the audit log.
    #[serde(default)]
    pub reason: Option<String>,
}

impl ImportRequest {
    /// The kubeconfig as a secret, so that it is not logged.
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
