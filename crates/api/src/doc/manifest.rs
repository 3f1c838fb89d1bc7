//! A work order: one task, on one cluster, within a window.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Document;

/// What was asked for. How it fares (state, attempt, step) is in the work of the same id, not here: the order does
/// not change while it is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The manifest's own uuid, which is also that of its work.
    pub id: Uuid,
    /// The cluster that it is for: this very one, not a later one of the same name.
    pub cluster: Uuid,
    /// That cluster's path.
    pub cluster_path: String,
    /// The task to run.
    pub task_id: Uuid,
    /// The schedule that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by_schedule: Option<String>,
    /// Among those due at the same second, lower goes first.
    #[serde(default)]
    pub priority: i32,
    /// Not before.
    pub run_after: Timestamp,
    /// Not begun at or after.
    pub run_before: Timestamp,
    /// What the task is given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Who asked for it.
    pub created_by: String,
    /// The status text that was given with the request, shown until the work has one of its own.
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
