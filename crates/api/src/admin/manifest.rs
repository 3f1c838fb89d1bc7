//! A manifest as the Admin API shows and takes it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Owner;
use crate::work::WorkState;

/// A manifest: MIMO's members first, ours after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestForm {
    /// Its id.
    pub id: Uuid,
    /// The cluster; only on lists over the fleet and in events.
    #[serde(rename = "clusterResourceID", default, skip_serializing_if = "Option::is_none")]
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
    /// The schedule that made it; empty when a person did.
    #[serde(default)]
    pub created_by_schedule: String,
    /// Among those due at the same second, lower goes first.
    #[serde(default)]
    pub priority: i32,
    /// Not before, in Unix seconds.
    pub run_after: i64,
    /// Not begun at or after, in Unix seconds.
    pub run_before: i64,
    /// What the task is given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// A finer word for where it stands.
    pub phase: Phase,
    /// A code for why it waits or how it ended; empty when there is nothing to say.
    #[serde(default)]
    pub reason: String,
    /// Attempts so far.
    pub attempt: i32,
    /// Attempts at most.
    pub max_attempts: i32,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who asked for it.
    pub created_by: String,
    /// When it was first begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// The task's name.
    #[serde(default)]
    pub task_name: String,
    /// The version of the task that it began with; 0 until it has begun.
    #[serde(default)]
    pub task_version: u32,
    /// The step that it is in, or was in last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
}

/// A finer word for where a manifest stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Pending, never begun.
    Queued,
    /// Pending between two attempts, or parked.
    Waiting,
    /// At work.
    Running,
    /// At work, and asked to end.
    Cancelling,
    /// Taking back what its steps had done.
    Undoing,
    /// At its end.
    Finished,
}

/// The step that a manifest is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepProgress {
    /// Its name.
    pub name: String,
    /// Which one, from 1.
    pub index: u32,
    /// Of how many.
    pub of: u32,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// What is being done or waited for.
    #[serde(default)]
    pub message: String,
    /// When its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// The things that it waits for, as far as it names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
}

/// A thing that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingFor {
    /// Its kind and name: `PodDisruptionBudget shop/web`.
    pub what: String,
    /// What is missing: `allows no disruption`.
    pub message: String,
    /// Who can do something about it.
    pub owner: Owner,
    /// Since when the step waits for it.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// A wish for a manifest. Members that only we set (`id`, `state`, …) are accepted and passed over, as MIMO does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRequest {
    /// The task: its uuid. Required.
    #[serde(rename = "maintenanceTaskID", default, skip_serializing_if = "String::is_empty")]
    pub maintenance_task_id: String,
    /// Among those due at the same second, lower goes first; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Not before, in Unix seconds; now when absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_after: Option<i64>,
    /// Not begun at or after, in Unix seconds; 7 days after `runAfter` or now, whichever is later, when absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_before: Option<i64>,
    /// What the task is given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// The status text until the work has one of its own; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_text: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A wish for a manifest's end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
