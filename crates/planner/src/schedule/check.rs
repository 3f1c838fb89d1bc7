//! Validation of a requested schedule, and its conversion to a document.

use std::time::Duration;

use api::admin::{ScheduleForm, ScheduleStatus};
use api::calendar::Calendars;
use api::doc::{MissedPolicy, Schedule, ScheduleState, SpreadBy};
use api::duration::{DurationText, TimeSpan};
use api::selector::Selectors;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::rule::{START_WITHIN, calendars_error};

/// Most periods ahead; each is a manifest for every cluster.
pub const LOOK_FORWARD_MAX: i64 = 100;

/// Longest id, which is a path segment and an index key.
const ID_BYTES_MAX: usize = 100;

/// Limits of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Shortest time between two periods.
    ///
    /// The default is five minutes: MIMO's finest calendar is every quarter of an hour, but its `*` for minutes means every
    /// minute, which is usually a mistake and would create a manifest for every cluster each time.
    pub shortest_interval: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { shortest_interval: Duration::from_secs(300) }
    }
}

/// Validation error of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScheduleError {
    /// Code of the error response.
    pub code: ScheduleErrorCode,
    /// Invalid member, such as `selectors[2].values`.
    pub target: String,
    /// Message.
    pub message: String,
}

/// Code of a [`ScheduleError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleErrorCode {
    /// The member is invalid.
    InvalidParameter,
    /// The member cannot be changed.
    PropertyChangeNotAllowed,
}

impl ScheduleErrorCode {
    /// Code in the error response.
    pub fn as_str(self) -> &'static str {
        match self {
            ScheduleErrorCode::InvalidParameter => "InvalidParameter",
            ScheduleErrorCode::PropertyChangeNotAllowed => "PropertyChangeNotAllowed",
        }
    }
}

impl ScheduleError {
    /// Error of an invalid member.
    pub fn invalid(target: impl Into<String>, message: impl Into<String>) -> ScheduleError {
        ScheduleError {
            code: ScheduleErrorCode::InvalidParameter,
            target: target.into(),
            message: message.into(),
        }
    }
}

/// Finds a task by id or name, validates the parameters, and returns the id of the task.
pub type FindTask<'a> = &'a (dyn Fn(&str, &Map<String, Value>) -> Result<Uuid, ScheduleError> + Sync);

/// Context of a validation.
#[derive(Clone, Copy)]
pub struct Check<'a> {
    /// Current time.
    pub now: Timestamp,
    /// Limits.
    pub limits: Limits,
    /// Id for a schedule that is sent without one.
    pub new_id: Uuid,
    /// Stored schedule with the same id.
    pub stored: Option<&'a Schedule>,
    /// Lookup of tasks.
    pub task: FindTask<'a>,
}

/// Validates a form and converts it to a document.
pub fn check(form: &ScheduleForm, check: &Check<'_>) -> Result<Schedule, ScheduleError> {
    let id = id(form, check)?;
    let state = match form.state.as_str() {
        "Enabled" => ScheduleState::Enabled,
        "Disabled" => ScheduleState::Disabled,
        other => return Err(invalid_value("state", other, "Enabled or Disabled")),
    };
    if form.maintenance_task_id.is_empty() {
        return Err(ScheduleError::invalid("maintenanceTaskID", "maintenanceTaskID must be provided"));
    }
    let task_id = (check.task)(&form.maintenance_task_id, &form.parameters)?;
    if check.stored.is_some_and(|stored| stored.task_id != task_id) {
        return Err(ScheduleError {
            code: ScheduleErrorCode::PropertyChangeNotAllowed,
            target: "maintenanceTaskID".to_owned(),
            message: "the task of a schedule cannot be changed; create another schedule".to_owned(),
        });
    }
    let calendars = calendars(form)?;
    let when = if form.calendars.len() > 1 { "calendars" } else { "schedule" };
    check_fires(form, &calendars, state, check)?;
    let interval = calendars.shortest_interval(check.now);
    if let Some(interval) = interval.filter(|interval| *interval < check.limits.shortest_interval) {
        let (least, found) = (TimeSpan::new(check.limits.shortest_interval), TimeSpan::new(interval));
        let message =
            format!("the calendar fires {found} after it has fired; at least {least} must lie between");
        return Err(ScheduleError::invalid(when, message));
    }
    Selectors::parse(&form.selectors)
        .map_err(|error| ScheduleError::invalid(error.place(), error.to_string()))?;
    Ok(Schedule {
        id,
        state,
        task_id,
        time_zone: calendars.zone().name().to_owned(),
        calendars: texts(form),
        look_forward_count: look_forward(form.look_forward_count)?,
        schedule_across: across(&form.schedule_across, interval)?,
        spread_by: match form.spread_by.as_str() {
            "" | "cluster" => SpreadBy::Cluster,
            "schedule" => SpreadBy::Schedule,
            other => return Err(invalid_value("spreadBy", other, "cluster or schedule")),
        },
        start_within: start_within(&form.start_within)?,
        missed_policy: match form.missed_policy.as_str() {
            "" | "skip" => MissedPolicy::Skip,
            "runOnce" => MissedPolicy::RunOnce,
            other => return Err(invalid_value("missedPolicy", other, "skip or runOnce")),
        },
        priority: form.priority,
        selectors: form.selectors.clone(),
        parameters: form.parameters.clone(),
    })
}

/// Converts a stored schedule to its form.
pub fn form(schedule: &Schedule, status: Option<ScheduleStatus>) -> ScheduleForm {
    let one = schedule.calendars.len() == 1;
    let state = match schedule.state {
        ScheduleState::Enabled => "Enabled",
        ScheduleState::Disabled => "Disabled",
    };
    ScheduleForm {
        id: schedule.id.clone(),
        state: state.to_owned(),
        maintenance_task_id: schedule.task_id.to_string(),
        schedule: if one { schedule.calendars[0].clone() } else { String::new() },
        calendars: if one { Vec::new() } else { schedule.calendars.clone() },
        time_zone: schedule.time_zone.clone(),
        look_forward_count: schedule.look_forward_count.into(),
        schedule_across: schedule.schedule_across.clone(),
        spread_by: match schedule.spread_by {
            SpreadBy::Cluster => "cluster".to_owned(),
            SpreadBy::Schedule => "schedule".to_owned(),
        },
        start_within: schedule
            .start_within
            .clone()
            .unwrap_or_else(|| DurationText::from(START_WITHIN).to_string()),
        missed_policy: match schedule.missed_policy {
            MissedPolicy::Skip => "skip".to_owned(),
            MissedPolicy::RunOnce => "runOnce".to_owned(),
        },
        priority: schedule.priority,
        selectors: schedule.selectors.clone(),
        parameters: schedule.parameters.clone(),
        status,
        reason: None,
    }
}

fn invalid_value(target: &str, found: &str, accepted: &str) -> ScheduleError {
    let found: String = found.chars().take(60).collect();
    ScheduleError::invalid(target, format!("{target} is {found:?}; it must be {accepted}"))
}

fn id(form: &ScheduleForm, check: &Check<'_>) -> Result<String, ScheduleError> {
    let id = form.id.as_str();
    if id.is_empty() {
        return Ok(check.new_id.to_string());
    }
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if id.len() > ID_BYTES_MAX || !id.bytes().all(is_allowed) || id.starts_with('.') {
        let message = format!(
            "id must have at most {ID_BYTES_MAX} characters, which are lower-case letters, digits, -, _ and . (no . in front)"
        );
        return Err(ScheduleError::invalid("id", message));
    }
    Ok(id.to_owned())
}

/// Calendar expressions, from either of the two members.
fn texts(form: &ScheduleForm) -> Vec<String> {
    if form.calendars.is_empty() { vec![form.schedule.clone()] } else { form.calendars.clone() }
}

fn calendars(form: &ScheduleForm) -> Result<Calendars, ScheduleError> {
    if form.schedule.is_empty() && form.calendars.is_empty() {
        return Err(ScheduleError::invalid("schedule", "schedule (or calendars) must be provided"));
    }
    let both = !form.schedule.is_empty() && !form.calendars.is_empty();
    if both && form.calendars != [form.schedule.as_str()] {
        return Err(ScheduleError::invalid("calendars", "give schedule or calendars, not both"));
    }
    let zone = Some(form.time_zone.as_str()).filter(|zone| !zone.is_empty());
    let texts = texts(form);
    Calendars::parse(&texts, zone).map_err(|error| calendars_error(error, texts.len()))
}

/// Rejects a calendar that never fires again. One that the stored schedule has may stay if another still fires or the schedule
/// is disabled, so that an old schedule can still be edited and disabled.
fn check_fires(
    form: &ScheduleForm,
    calendars: &Calendars,
    state: ScheduleState,
    check: &Check<'_>,
) -> Result<(), ScheduleError> {
    let texts = texts(form);
    let zone = calendars.zone();
    let is_spent: Vec<bool> =
        calendars.iter().map(|it| it.next_after(check.now, zone.time_zone()).is_none()).collect();
    let may_stay = state == ScheduleState::Disabled || is_spent.contains(&false);
    let is_stored = |text: &String| {
        check.stored.is_some_and(|stored| stored.time_zone == zone.name() && stored.calendars.contains(text))
    };
    let mut spent = texts.iter().enumerate().filter(|(index, _)| is_spent[*index]);
    let Some((index, text)) = spent.find(|(_, text)| !(may_stay && is_stored(text))) else { return Ok(()) };
    let target = if texts.len() > 1 { format!("calendars[{index}]") } else { "schedule".to_owned() };
    let now = check.now.strftime("%Y-%m-%dT%H:%M:%SZ");
    let message = format!("{target} is {text:?}, which never fires after {now}; use a date in the future");
    Err(ScheduleError::invalid(target, message))
}

fn look_forward(count: i64) -> Result<u32, ScheduleError> {
    match u32::try_from(count) {
        Ok(found) if count <= LOOK_FORWARD_MAX => Ok(found),
        _ => {
            let message = format!("lookForwardCount is {count}; it must be between 0 and {LOOK_FORWARD_MAX}");
            Err(ScheduleError::invalid("lookForwardCount", message))
        }
    }
}

/// Validates the spread and returns it unchanged: clients of the reference read it with a parser without days.
fn across(text: &str, interval: Option<Duration>) -> Result<String, ScheduleError> {
    let target = "scheduleAcross";
    if text.is_empty() {
        return Ok(DurationText::from(TimeSpan::default()).to_string());
    }
    let across: TimeSpan =
        text.parse().map_err(|error| ScheduleError::invalid(target, format!("{target}: {error}")))?;
    match interval.map(TimeSpan::new) {
        // Clusters of a period would still be waiting when the next one starts.
        Some(interval) if across > interval => {
            let message =
                format!("{target} is {text}, longer than the calendar's shortest interval, {interval}");
            Err(ScheduleError::invalid(target, message))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Validates the start window and returns it unchanged.
fn start_within(text: &str) -> Result<Option<String>, ScheduleError> {
    let target = "startWithin";
    if text.is_empty() {
        return Ok(None);
    }
    let span: TimeSpan =
        text.parse().map_err(|error| ScheduleError::invalid(target, format!("{target}: {error}")))?;
    if span < TimeSpan::seconds(1) || span > TimeSpan::days(366) {
        return Err(ScheduleError::invalid(
            target,
            format!("{target} is {text}; it must be between 1s and 366d"),
        ));
    }
    Ok(Some(text.to_owned()))
}
