//! Schedules and their previews in the Admin API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// A schedule: MIMO's members, and our own. Requests and responses have the same form; only the service sets `status`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleForm {
    /// Its id; generated when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// `Enabled` or `Disabled`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The task's id; immutable.
    #[serde(rename = "maintenanceTaskID", default, skip_serializing_if = "String::is_empty")]
    pub maintenance_task_id: String,
    /// A calendar expression. Either this or `calendars`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// Several calendar expressions; a period starts when any of them matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<String>,
    /// IANA time zone of the calendars; UTC when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// Number of periods whose manifests are created in advance; 0 is 1.
    #[serde(default)]
    pub look_forward_count: i64,
    /// Duration over which the clusters of one period are spread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule_across: String,
    /// `cluster` or `schedule`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spread_by: String,
    /// Window after its time in which a manifest may start; 1h when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start_within: String,
    /// `skip` or `runOnce`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missed_policy: String,
    /// Priority of its manifests.
    #[serde(default)]
    pub priority: i32,
    /// Selectors of clusters; all of them must match.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub selectors: Vec<Value>,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// Its status; ignored in requests.
    #[serde(default)]
    pub status: Option<ScheduleStatus>,
    /// Reason of a change; never in responses.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Status of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// When the scheduler last evaluated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_planned_at: Option<Timestamp>,
    /// Number of clusters that it matches.
    pub matched: u64,
    /// Number of manifests that the last evaluation with changes created.
    pub created: u64,
    /// Number of manifests that that evaluation withdrew.
    pub cancelled: u64,
    /// Error of the last evaluation.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The next periods.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub next_periods: Vec<Timestamp>,
}

/// Preview of the manifests that a schedule would create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewForm {
    /// The next periods.
    #[schema(value_type = Vec<String>)]
    pub periods: Vec<Timestamp>,
    /// Number of clusters that match.
    pub matched: u64,
    /// Number of clusters.
    pub of: u64,
    /// The first matching clusters, with the times of their manifests.
    pub clusters: Vec<PreviewCluster>,
    /// Warnings about what its author may not have intended.
    pub warnings: Vec<String>,
}

/// Preview of the manifests of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewCluster {
    /// The cluster's resource id.
    pub id: String,
    /// Earliest starts of its manifests, in Unix seconds.
    pub run_after: Vec<i64>,
}
