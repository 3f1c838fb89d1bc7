//! A schedule that has been read.

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

/// How long after its time a scheduled manifest may begin, unless the schedule says otherwise; as MIMO.
pub(super) const START_WITHIN: TimeSpan = TimeSpan::hours(1);

/// A schedule in typed form: nothing in it can fail any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The schedule's id.
    pub id: String,
    /// Whether it makes manifests.
    pub enabled: bool,
    /// The task to run.
    pub task: Uuid,
    /// When.
    pub calendars: Calendars,
    /// How many periods are made ahead of time; at least 1.
    pub look_forward: usize,
    /// Over how long the clusters of one period are spread.
    pub across: Duration,
    /// By what the place within the spread is chosen.
    pub spread_by: SpreadBy,
    /// How long after its time a manifest may still begin.
    pub start_within: Duration,
    /// What becomes of periods that nobody was there to make.
    pub missed: MissedPolicy,
    /// The priority of its manifests.
    pub priority: i32,
    /// Which clusters.
    pub selectors: Selectors,
    /// What the task is given.
    pub parameters: Map<String, Value>,
    /// Since when it is as it is; earlier periods were not missed, they were not wanted.
    pub since: Timestamp,
    /// By which the parameters are told from others.
    pub(super) parameters_hash: u64,
    /// Under which the ids of its manifests are made.
    pub(super) namespace: Uuid,
}

impl Rule {
    /// Reads a stored schedule, which is as it is since `since`.
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

    /// Whether it is for that cluster.
    pub fn selects(&self, member: &Member) -> bool {
        member.maintained && self.selectors.matches(&member.attributes)
    }

    /// The id of the manifest of a period on a cluster: the same for whoever computes it, whenever.
    pub(super) fn manifest_id(&self, period: Timestamp, cluster: Uuid) -> Uuid {
        let name = format!("{}|{}|{cluster}", self.id, period.as_second());
        Uuid::new_v5(&self.namespace, name.as_bytes())
    }

    /// The manifest of a slot, and the budgets that count its work.
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

/// By which parameters are told apart without keeping them; only within one process.
pub fn parameters_hash(parameters: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Objects are ordered by key in `serde_json` as we build it, so equal parameters give equal text.
    Value::Object(parameters.clone()).to_string().hash(&mut hasher);
    hasher.finish()
}

/// The refusal of calendars, with the member that they came in.
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
