//! Plan of coming maintenance.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::duration::TimeSpan;

/// Plan of coming maintenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanForm {
    /// Start of the planned period.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// End of the planned period.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// When it was computed.
    #[schema(value_type = String, format = DateTime)]
    pub generated_at: Timestamp,
    /// Number of runs on all pages.
    #[serde(default)]
    pub runs: u64,
    /// Number of runs on all pages that will not start in time.
    pub misses: u64,
    /// Number of entries on all pages.
    #[serde(default)]
    pub total: u64,
    /// Set when the plan ends earlier than requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<PlanTruncation>,
    /// Entries, in the order of their first start.
    pub entries: Vec<PlanEntry>,
    /// URL of the next page; empty on the last page.
    #[serde(default)]
    pub next_link: String,
}

/// Reason why a plan ends earlier than requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanTruncation {
    /// The requested end.
    #[schema(value_type = String, format = DateTime)]
    pub requested_to: Timestamp,
    /// Maximum number of runs in a plan.
    pub runs_max: u64,
    /// Message for people.
    pub message: String,
}

/// Grouping of runs into entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlanGrouping {
    /// The runs of one schedule are one entry. Other manifests have an entry each.
    #[default]
    Schedule,
    /// The runs of one schedule on one cluster are one entry. Other manifests have an entry each.
    Cluster,
    /// Each run is an entry.
    Run,
}

impl PlanGrouping {
    /// Name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanGrouping::Schedule => "schedule",
            PlanGrouping::Cluster => "cluster",
            PlanGrouping::Run => "run",
        }
    }
}

/// A run of a task on a cluster, or all runs of one schedule.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntry {
    /// The cluster's resource id; absent when the runs are on several clusters.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Number of clusters.
    #[serde(default = "one")]
    pub clusters: u64,
    /// The schedule.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The task's id.
    pub task: Uuid,
    /// The manifest, if it exists already.
    #[serde(default)]
    pub manifest: Option<Uuid>,
    /// Earliest start of the first run, in Unix seconds.
    pub run_after: i64,
    /// Start of the first run.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// End of the last run.
    #[schema(value_type = String, format = DateTime)]
    pub end: Timestamp,
    /// Number of runs.
    #[serde(default = "one")]
    pub runs: u64,
    /// Number of runs that do not start in time.
    #[serde(default)]
    pub misses: u64,
    /// Time between two runs of the schedule on a cluster, where it is always the same.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub every: Option<TimeSpan>,
    /// The schedule's calendars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<String>,
    /// Expected duration of one run.
    pub duration: PlanDuration,
    /// Whether all runs start in time.
    pub outcome: PlanOutcome,
    /// The most frequent reason why runs do not start in time or start late.
    #[serde(default)]
    pub reason: Option<String>,
    /// The first of several runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<PlanRun>,
}

fn one() -> u64 {
    1
}

impl PlanEntry {
    /// Interval and number of runs for people: `every 5 min, 288 runs`.
    pub fn rhythm(&self) -> String {
        let runs = match self.runs {
            1 => return "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        match (self.every, self.calendars.as_slice()) {
            (Some(every), _) => format!("every {}, {runs}", spelled(every)),
            (None, []) => runs,
            (None, calendars) => format!("{}, {runs}", calendars.join(", ")),
        }
    }
}

/// A length in its largest whole unit: `5 min`, `1 h`, `7 days`.
fn spelled(span: TimeSpan) -> String {
    let seconds = span.duration().as_secs();
    match seconds {
        86_400 => "day".to_owned(),
        _ if seconds > 0 && seconds.is_multiple_of(86_400) => format!("{} days", seconds / 86_400),
        _ if seconds > 0 && seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds > 0 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => span.to_string(),
    }
}

/// One run among several of an entry.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanRun {
    /// The cluster's resource id.
    pub cluster: String,
    /// The manifest, if it exists already.
    #[serde(default)]
    pub manifest: Option<Uuid>,
    /// Expected start.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// Expected end.
    #[schema(value_type = String, format = DateTime)]
    pub end: Timestamp,
    /// Whether it starts in time.
    pub outcome: PlanOutcome,
    /// Reason why it does not, or starts late.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Expected duration of a run, with its confidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanDuration {
    /// Median duration.
    #[schema(value_type = String)]
    pub p50: TimeSpan,
    /// 95th percentile of the duration; the plan uses it for each run.
    #[schema(value_type = String)]
    pub p95: TimeSpan,
    /// Number of observed runs.
    pub runs: u64,
    /// Confidence of the estimate.
    pub confidence: Confidence,
}

impl PlanDuration {
    /// Summary for people: `1s..2s, measured in 40 runs`.
    pub fn summary(&self) -> String {
        let range = match self.p50 == self.p95 {
            true => self.p50.to_string(),
            false => format!("{}..{}", self.p50, self.p95),
        };
        match (self.confidence, self.runs) {
            (Confidence::Measured, runs) => format!("{range}, measured in {runs} runs"),
            (Confidence::FewRuns, runs) => format!("{range}, few runs ({runs})"),
            (Confidence::Declared, _) => format!("{range}, declared"),
            (Confidence::Assumed, _) => format!("{range}, assumed"),
        }
    }
}

/// Confidence of an expected duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Confidence {
    /// Enough runs were observed.
    Measured,
    /// A few runs were observed; the duration that the task declares counts too.
    FewRuns,
    /// Declared by the task; no run was observed.
    Declared,
    /// Derived from the task's steps: it declares no duration, and no run was observed.
    Assumed,
}

/// Whether planned runs start in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlanOutcome {
    /// All do.
    Runs,
    /// At least one does not.
    Misses,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_recurrence_is_described_as_text() {
        let check = |more: serde_json::Value, expect: &str| {
            let mut whole = json!({
                "task": Uuid::nil(), "runAfter": 0, "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z",
                "duration": {"p50": "1s", "p95": "2s", "runs": 40, "confidence": "measured"}, "outcome": "runs",
            });
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let entry: PlanEntry = serde_json::from_value(whole).unwrap();
            assert_eq!(entry.rhythm(), expect);
            assert_eq!(entry.duration.summary(), "1s..2s, measured in 40 runs");
        };
        check(json!({"schedule": "s", "every": "5m", "runs": 288}), "every 5 min, 288 runs");
        check(json!({"schedule": "s", "every": "1d", "runs": 7}), "every day, 7 runs");
        check(json!({"schedule": "s", "every": "1d", "runs": 1}), "1 run");
        check(json!({"schedule": "s", "every": "90m", "runs": 2}), "every 90 min, 2 runs");
        check(
            json!({"schedule": "s", "calendars": ["Mon,Thu *-*-* 03:00:00"], "runs": 2}),
            "Mon,Thu *-*-* 03:00:00, 2 runs",
        );
        check(json!({}), "1 run");
    }

    #[test]
    fn how_sure_a_duration_is_goes_with_it() {
        let check = |p95: &str, runs: u64, confidence: Confidence, expect: &str| {
            let (p50, p95) = (TimeSpan::seconds(5), p95.parse().unwrap());
            assert_eq!(PlanDuration { p50, p95, runs, confidence }.summary(), expect);
        };
        check("5s", 0, Confidence::Declared, "5s, declared");
        check("5s", 0, Confidence::Assumed, "5s, assumed");
        check("8s", 3, Confidence::FewRuns, "5s..8s, few runs (3)");
    }
}
