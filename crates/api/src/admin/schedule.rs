//! A schedule as the Admin API shows and takes it, and what it would make.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A schedule: MIMO's members, and ours. The same form is sent and answered; `status` is ours alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleForm {
    /// Its id; a new one is made when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// `Enabled` or `Disabled`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The task's id; never changed.
    #[serde(rename = "maintenanceTaskID", default, skip_serializing_if = "String::is_empty")]
    pub maintenance_task_id: String,
    /// When: a calendar expression. This or `calendars`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// When: several calendar expressions, of which any may fire.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<String>,
    /// The IANA zone in which they are read; UTC when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// How many periods are made ahead of time; 0 is 1.
    #[serde(default)]
    pub look_forward_count: i64,
    /// Over how long the clusters of one period are spread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule_across: String,
    /// `cluster` or `schedule`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spread_by: String,
    /// How long after its time a manifest may still begin; 1h when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start_within: String,
    /// `skip` or `runOnce`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missed_policy: String,
    /// The priority of its manifests.
    #[serde(default)]
    pub priority: i32,
    /// Which clusters: all of them must match.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub selectors: Vec<Value>,
    /// What the task is given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// How it fares; passed over when sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ScheduleStatus>,
    /// Why it is changed; never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a schedule fares.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// When it was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_planned_at: Option<Timestamp>,
    /// How many clusters it matches.
    pub matched: u64,
    /// How many manifests the last pass that changed something made.
    pub created: u64,
    /// How many manifests that pass withdrew.
    pub cancelled: u64,
    /// What stood in the way.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The next periods.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub next_periods: Vec<Timestamp>,
}

/// What a schedule would make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewForm {
    /// The next periods.
    #[schema(value_type = Vec<String>)]
    pub periods: Vec<Timestamp>,
    /// So many clusters match,
    pub matched: u64,
    /// of so many.
    pub of: u64,
    /// The first of them, with the times of their manifests.
    pub clusters: Vec<PreviewCluster>,
    /// What its author may not have meant.
    pub warnings: Vec<String>,
}

/// What a schedule would make for one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewCluster {
    /// The cluster's resource id.
    pub id: String,
    /// When its manifests may begin, in Unix seconds.
    pub run_after: Vec<i64>,
}
