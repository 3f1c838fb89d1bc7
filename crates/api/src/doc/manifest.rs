//! Manifest: the request to run one task on one cluster within a window.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Document;

/// A manifest. Its state, attempt and step are in the work of the same id, not here: the manifest does
/// not change while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The manifest's own uuid, which is also that of its work.
    pub id: Uuid,
    /// Uuid of the cluster; a later cluster of the same name has another.
    pub cluster: Uuid,
    /// That cluster's path.
    pub cluster_path: String,
    /// The task to run.
    pub task_id: Uuid,
    /// The schedule that created it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by_schedule: Option<String>,
    /// Of manifests that are due in the same second, the lowest value starts first.
    #[serde(default)]
    pub priority: i32,
    /// Earliest start.
    pub run_after: Timestamp,
    /// It must not start at or after this time.
    pub run_before: Timestamp,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Who created it.
    pub created_by: String,
    /// Status text of the request, shown until the work has one of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status_text: String,
}

impl Document for Manifest {
    const KIND: &'static str = "manifest";

    fn path(&self) -> String {
        format!("/maintenancemanifests/{}", self.id)
    }

    fn scope(&self) -> String {
        self.cluster.to_string()
    }
}
