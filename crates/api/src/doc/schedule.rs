//! Schedule: a rule that creates manifests.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Document;
use crate::admin::ScheduleStatus;

/// A task, the times at which it runs, and the clusters on which it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// The schedule's id: a uuid, or what its author chose, in lower case.
    pub id: String,
    /// Whether it creates manifests.
    pub state: ScheduleState,
    /// The task to run.
    pub task_id: Uuid,
    /// Calendar expressions; a period starts when any of them matches.
    pub calendars: Vec<String>,
    /// IANA time zone of the calendars.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// Number of periods whose manifests are created in advance.
    #[serde(default)]
    pub look_forward_count: u32,
    /// Duration over which the clusters of one period are spread, as text (`90m`).
    #[serde(default = "zero")]
    pub schedule_across: String,
    /// How a cluster's offset within the spread is chosen.
    #[serde(default)]
    pub spread_by: SpreadBy,
    /// Window after its time in which a manifest may start, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within: Option<String>,
    /// Policy for missed periods.
    #[serde(default)]
    pub missed_policy: MissedPolicy,
    /// Priority of its manifests.
    #[serde(default)]
    pub priority: i32,
    /// Selectors of clusters; all must match.
    pub selectors: Vec<Value>,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// Whether a schedule creates manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScheduleState {
    /// It creates manifests.
    Enabled,
    /// It creates none, and its manifests that have not started are withdrawn.
    Disabled,
}

/// Policy for missed periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MissedPolicy {
    /// Skip them.
    #[default]
    Skip,
    /// Run the latest of them once.
    RunOnce,
}

/// How a cluster's offset within the spread is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SpreadBy {
    /// By the cluster alone: the same offset in every schedule.
    #[default]
    Cluster,
    /// By schedule and cluster: a different offset in each schedule.
    Schedule,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn zero() -> String {
    "0s".to_owned()
}

impl Document for Schedule {
    const KIND: &'static str = "schedule";

    fn path(&self) -> String {
        format!("/maintenanceschedules/{}", self.id.to_lowercase())
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}

/// Status of a schedule, written by the scheduler. It is a document of its own: in the schedule's document it would change the etag by
/// which editors detect concurrent changes, and the time of the last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleOutlook {
    /// The schedule's id.
    pub schedule: String,
    /// The status.
    pub status: ScheduleStatus,
    /// Whether the manifests of a deleted schedule are kept.
    #[serde(default)]
    pub keep_pending: bool,
}

impl ScheduleOutlook {
    /// The path of the outlook of a schedule.
    pub fn path_of(schedule: &str) -> String {
        format!("/maintenanceschedules/{}/outlook", schedule.to_lowercase())
    }
}

impl Document for ScheduleOutlook {
    const KIND: &'static str = "outlook";

    fn path(&self) -> String {
        ScheduleOutlook::path_of(&self.schedule)
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}
