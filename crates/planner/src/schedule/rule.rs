//! Parsed form of a schedule.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use api::calendar::{Calendars, CalendarsError};
use api::doc::{Manifest, MissedPolicy, Schedule, ScheduleState, SpreadBy};
use api::duration::TimeSpan;
use api::selector::Selectors;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::check::ScheduleError;
use super::{Member, Slot};

/// Default start window of a scheduled manifest, as in MIMO.
pub(super) const START_WITHIN: TimeSpan = TimeSpan::hours(1);

/// Validated schedule in typed form.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Id of the schedule.
    pub id: String,
    /// Whether it creates manifests.
    pub enabled: bool,
    /// Task to run.
    pub task: Uuid,
    /// Calendars of its periods.
    pub calendars: Calendars,
    /// Number of future periods with manifests; at least 1.
    pub look_forward: usize,
    /// Time over which the clusters of one period are spread.
    pub across: Duration,
    /// Basis of the position within the spread.
    pub spread_by: SpreadBy,
    /// Start window of a manifest.
    pub start_within: Duration,
    /// Handling of periods that no scheduler created in time.
    pub missed: MissedPolicy,
    /// Priority of its manifests.
    pub priority: i32,
    /// Selectors of clusters.
    pub selectors: Selectors,
    /// Parameters of the task.
    pub parameters: Map<String, Value>,
    /// Time of the last change; earlier periods do not count as missed.
    pub since: Timestamp,
    /// Hash of the parameters.
    pub(super) parameters_hash: u64,
    /// Namespace of the manifest ids.
    pub(super) namespace: Uuid,
}

impl Rule {
    /// Parses a stored schedule that was last changed at `since`.
    pub fn read(schedule: &Schedule, since: Timestamp) -> Result<Rule, ScheduleError> {
        let span = |target: &str, text: &str| {
            text.parse::<TimeSpan>().map_err(|error| ScheduleError::invalid(target, error.to_string()))
        };
        let start_within =
            schedule.start_within.as_deref().map(|text| span("startWithin", text)).transpose()?;
        Ok(Rule {
            enabled: schedule.state == ScheduleState::Enabled,
            task: schedule.task_id,
            calendars: Calendars::parse(&schedule.calendars, Some(&schedule.time_zone))
                .map_err(|error| calendars_error(error, schedule.calendars.len()))?,
            look_forward: usize::try_from(schedule.look_forward_count).unwrap_or(usize::MAX).max(1),
            across: span("scheduleAcross", &schedule.schedule_across)?.duration(),
            spread_by: schedule.spread_by,
            start_within: start_within.unwrap_or(START_WITHIN).duration(),
            missed: schedule.missed_policy,
            priority: schedule.priority,
            selectors: Selectors::parse(&schedule.selectors)
                .map_err(|error| ScheduleError::invalid(error.place(), error.to_string()))?,
            parameters: schedule.parameters.clone(),
            since,
            parameters_hash: parameters_hash(&schedule.parameters),
            namespace: Uuid::parse_str(&schedule.id)
                .unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, schedule.id.as_bytes())),
            id: schedule.id.clone(),
        })
    }

    /// Whether it selects the cluster.
    pub fn selects(&self, member: &Member) -> bool {
        member.maintained && self.selectors.matches(&member.attributes)
    }

    /// Deterministic id of the manifest of a period on a cluster.
    pub(super) fn manifest_id(&self, period: Timestamp, cluster: Uuid) -> Uuid {
        let name = format!("{}|{}|{cluster}", self.id, period.as_second());
        Uuid::new_v5(&self.namespace, name.as_bytes())
    }

    /// Manifest of a slot, and its budgets.
    pub fn manifest(&self, slot: &Slot, member: &Member) -> (Manifest, Vec<String>) {
        let manifest = Manifest {
            id: slot.id,
            cluster: member.uuid,
            cluster_path: member.path.clone(),
            task_id: self.task,
            created_by_schedule: Some(self.id.clone()),
            priority: self.priority,
            run_after: slot.run_after,
            run_before: slot.run_before,
            parameters: self.parameters.clone(),
            created_by: "service:scheduler".to_owned(),
            status_text: String::new(),
        };
        (manifest, member.budgets(self.task))
    }
}

/// Hash to compare parameters without storing them; valid only within one process.
pub fn parameters_hash(parameters: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    // The features of `serde_json` here keep objects ordered by key, so equal parameters give equal text.
    Value::Object(parameters.clone()).to_string().hash(&mut hasher);
    hasher.finish()
}

/// Error of calendars, with the member that contains them.
pub(super) fn calendars_error(error: CalendarsError, count: usize) -> ScheduleError {
    let target = match &error {
        CalendarsError::Zone { .. } => "timeZone".to_owned(),
        CalendarsError::Calendar { index, .. } | CalendarsError::TwoZones { index, .. } if count > 1 => {
            format!("calendars[{index}]")
        }
        CalendarsError::TooMany { .. } => "calendars".to_owned(),
        CalendarsError::None | CalendarsError::Calendar { .. } | CalendarsError::TwoZones { .. } => {
            "schedule".to_owned()
        }
    };
    ScheduleError::invalid(target, error.to_string())
}
