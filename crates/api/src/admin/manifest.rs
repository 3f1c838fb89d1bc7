//! Manifests in the Admin API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Owner;
use crate::doc::StepName;
use crate::work::WorkState;

/// A manifest: MIMO's members, followed by our own.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestForm {
    /// Its id.
    pub id: Uuid,
    /// The cluster's resource id; only in lists over the fleet and in events.
    #[serde(rename = "clusterResourceID", default)]
    pub cluster_resource_id: Option<String>,
    /// One of MIMO's seven states.
    #[schema(value_type = String)]
    pub state: WorkState,
    /// The result, or why it waits or failed, in a sentence.
    #[serde(default)]
    pub status_text: String,
    /// The task.
    #[serde(rename = "maintenanceTaskID")]
    pub maintenance_task_id: Uuid,
    /// The schedule that created it; empty when a person did.
    #[serde(default)]
    pub created_by_schedule: String,
    /// Of manifests that are due in the same second, the lowest value starts first.
    #[serde(default)]
    pub priority: i32,
    /// Earliest start, in Unix seconds.
    pub run_after: i64,
    /// It must not start at or after this time, in Unix seconds.
    pub run_before: i64,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// Its phase, more detailed than the state.
    pub phase: Phase,
    /// Code of the reason why it waits or how it finished; empty when there is none.
    #[serde(default)]
    pub reason: String,
    /// Attempts so far.
    pub attempt: i32,
    /// Maximum number of attempts.
    pub max_attempts: i32,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// When it first started.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it finished.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// The task's name.
    #[serde(default)]
    pub task_name: String,
    /// The version of the task that it started with; 0 until it has started.
    #[serde(default)]
    pub task_version: u32,
    /// The current or last step.
    #[serde(default)]
    pub step: Option<StepProgress>,
}

/// Phase of a manifest, more detailed than its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Pending, not started yet.
    Queued,
    /// Pending between two attempts, or parked.
    Waiting,
    /// Running.
    Running,
    /// Running, and cancellation was requested.
    Cancelling,
    /// Undoing its steps.
    Undoing,
    /// Finished.
    Finished,
}

/// Progress of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepProgress {
    /// Its name.
    #[schema(value_type = String)]
    pub name: StepName,
    /// Its position, from 1.
    pub index: u32,
    /// Number of steps.
    pub of: u32,
    /// When it started.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// What it does or waits for.
    #[serde(default)]
    pub message: String,
    /// Its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// Objects that it waits for, as far as it names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
}

/// An object that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingFor {
    /// Its kind and name: `PodDisruptionBudget shop/web`.
    pub what: String,
    /// What is missing: `allows no disruption`.
    pub message: String,
    /// Who can resolve it.
    pub owner: Owner,
    /// Since when the step waits for it.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Request to create a manifest. Members that only the service sets (`id`, `state`, …) are accepted and ignored, as in MIMO.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRequest {
    /// The task: its uuid. Required.
    #[serde(rename = "maintenanceTaskID", default, skip_serializing_if = "String::is_empty")]
    pub maintenance_task_id: String,
    /// Of manifests that are due in the same second, the lowest value starts first; 0 when absent.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Earliest start, in Unix seconds; now when absent or 0.
    #[serde(default)]
    pub run_after: Option<i64>,
    /// It must not start at or after this time, in Unix seconds; 7 days after `runAfter` or now, the later of the two, when absent or 0.
    #[serde(default)]
    pub run_before: Option<i64>,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// The status text until the work has one of its own; none when absent.
    #[serde(default)]
    pub status_text: Option<String>,
    /// Reason, for the history and the audit log.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Request to cancel a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Reason, for the history and the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
