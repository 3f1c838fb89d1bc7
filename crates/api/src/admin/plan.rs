//! What will run where and when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The maintenance of the coming time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanForm {
    /// From when.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// When it was computed.
    #[schema(value_type = String, format = DateTime)]
    pub generated_at: Timestamp,
    /// How many will not begin in time.
    pub misses: u64,
    /// What runs, in the order of its start.
    pub entries: Vec<PlanEntry>,
    /// Where the next page is; empty at the end.
    #[serde(default)]
    pub next_link: String,
}

/// One run of a task on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntry {
    /// The cluster's resource id.
    pub cluster: String,
    /// The schedule that wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The task's id.
    pub task: Uuid,
    /// The manifest, if it is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Uuid>,
    /// Not before, in Unix seconds.
    pub run_after: i64,
    /// When it will begin.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// When it will end.
    #[schema(value_type = String, format = DateTime)]
    pub end: Timestamp,
    /// Where the length is from.
    pub duration_from: DurationFrom,
    /// Whether it begins in time.
    pub outcome: PlanOutcome,
    /// Why it does not, or begins late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where the length of a planned run is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum DurationFrom {
    /// 95 of 100 past runs were not longer.
    History,
    /// The task's time limit.
    Limit,
}

/// Whether a planned run begins in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlanOutcome {
    /// It does.
    Runs,
    /// It does not.
    Misses,
}
