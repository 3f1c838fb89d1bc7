//! A rule of the fleet that makes manifests.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Document;
use crate::admin::ScheduleStatus;

/// Which task runs when on which clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// The schedule's id: a uuid, or what its author chose, in lower case.
    pub id: String,
    /// Whether it makes manifests.
    pub state: ScheduleState,
    /// The task to run.
    pub task_id: Uuid,
    /// When: calendar expressions, of which any may fire.
    pub calendars: Vec<String>,
    /// The IANA zone in which the calendars are read.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// How many periods are made ahead of time.
    #[serde(default)]
    pub look_forward_count: u32,
    /// Over how long the clusters of one period are spread, as text (`90m`).
    #[serde(default = "zero")]
    pub schedule_across: String,
    /// By what the place within the spread is chosen.
    #[serde(default)]
    pub spread_by: SpreadBy,
    /// How long after its time a manifest may still begin, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within: Option<String>,
    /// What becomes of periods that nobody was there to make.
    #[serde(default)]
    pub missed_policy: MissedPolicy,
    /// The priority of its manifests.
    #[serde(default)]
    pub priority: i32,
    /// Which clusters; all must match.
    pub selectors: Vec<Value>,
    /// What the task is given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// Whether a schedule makes manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScheduleState {
    /// It does.
    Enabled,
    /// It does not; what it had made and is not begun is withdrawn.
    Disabled,
}

/// What becomes of missed periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MissedPolicy {
    /// They are passed over.
    #[default]
    Skip,
    /// The latest of them is run once.
    RunOnce,
}

/// By what a cluster's place within the spread is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SpreadBy {
    /// By the cluster alone: the same place in every schedule.
    #[default]
    Cluster,
    /// By schedule and cluster: a different place in each schedule.
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

/// How a schedule fares. A document of its own, written by the scheduler: in the schedule's it would raise the etag by
/// which those who edit the schedule tell that nobody else has, and the time since which it is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleOutlook {
    /// The schedule's id.
    pub schedule: String,
    /// What is told of it.
    pub status: ScheduleStatus,
    /// Whether what a deleted schedule has made is to stay.
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
