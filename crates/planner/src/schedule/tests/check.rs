use super::super::{Check, LOOK_FORWARD_MAX, Limits, Rule, ScheduleError, ScheduleErrorCode, check, form};
use super::{TASK, at, schedule};
use api::admin::ScheduleForm;
use api::doc::{MissedPolicy, Schedule, ScheduleState, SpreadBy};
use serde_json::{Map, Value, json};
use uuid::Uuid;

fn find_task(name: &str, parameters: &Map<String, Value>) -> Result<Uuid, ScheduleError> {
    if name != TASK.to_string() && name != "restart" {
        return Err(ScheduleError::invalid("maintenanceTaskID", format!("there is no task {name}")));
    }
    match parameters.contains_key("bad") {
        true => Err(ScheduleError::invalid("parameters.bad", "the task has no such parameter")),
        false => Ok(TASK),
    }
}

fn sent(form: &ScheduleForm, stored: Option<&Schedule>) -> Result<Schedule, ScheduleError> {
    let given = Check {
        now: at("2026-03-01T12:00:00Z"),
        limits: Limits::default(),
        new_id: Uuid::from_u128(0xfeed),
        stored,
        task: &find_task,
    };
    check(form, &given)
}

/// What a client of MIMO sends.
fn mimo() -> ScheduleForm {
    serde_json::from_value(json!({
        "state": "Enabled",
        "maintenanceTaskID": TASK.to_string(),
        "schedule": "Mon *-*-* 00:00",
        "lookForwardCount": 2,
        "scheduleAcross": "24h",
        "selectors": [{ "key": "subscriptionState", "operator": "in", "values": ["Registered", "Warned"] }],
    }))
    .unwrap()
}

#[test]
fn a_schedule_of_a_mimo_client_is_accepted() {
    let stored = sent(&mimo(), None).unwrap();
    assert_eq!(stored.id, Uuid::from_u128(0xfeed).to_string());
    assert_eq!((stored.state, stored.task_id), (ScheduleState::Enabled, TASK));
    assert_eq!(
        (stored.calendars.as_slice(), stored.time_zone.as_str()),
        (&["Mon *-*-* 00:00".to_owned()][..], "UTC")
    );
    assert_eq!((stored.schedule_across.as_str(), stored.look_forward_count), ("24h", 2));
    assert_eq!(
        (stored.spread_by, stored.missed_policy, stored.start_within),
        (SpreadBy::Cluster, MissedPolicy::Skip, None)
    );
}

#[test]
fn a_returned_schedule_can_be_sent_again_unchanged() {
    let mut full = mimo();
    full.id = "weekly-restart".to_owned();
    full.schedule.clear();
    full.calendars = vec!["Mon 02:00".to_owned(), "Thu 03:00".to_owned()];
    full.time_zone = "europe/berlin".to_owned();
    (full.spread_by, full.missed_policy, full.start_within) =
        ("schedule".into(), "runOnce".into(), "2h".into());
    full.maintenance_task_id = "restart".to_owned();
    full.priority = -3;
    full.parameters = Map::from_iter([("name".to_owned(), json!("web"))]);
    for form_sent in [mimo(), full] {
        let stored = sent(&form_sent, None).unwrap();
        let answered = form(&stored, None);
        let again = sent(
            &ScheduleForm { status: Some(api::admin::ScheduleStatus::default()), ..answered },
            Some(&stored),
        );
        let again = Schedule { start_within: stored.start_within.clone(), ..again.unwrap() };
        assert_eq!(again, stored);
        Rule::read(&stored, at("2026-03-01T12:00:00Z")).unwrap();
    }
}

#[test]
fn a_time_zone_in_the_expression_becomes_that_of_the_schedule() {
    let stored = sent(&ScheduleForm { schedule: "daily Europe/Berlin".to_owned(), ..mimo() }, None).unwrap();
    assert_eq!(stored.time_zone, "Europe/Berlin");
    Rule::read(&stored, at("2026-03-01T12:00:00Z")).unwrap();
}

#[test]
fn errors_name_the_member_and_have_a_message() {
    let refused = |target: &str, begins: &str, change: &dyn Fn(&mut ScheduleForm)| {
        let mut form = mimo();
        change(&mut form);
        let refusal = sent(&form, None).expect_err(begins);
        assert_eq!(
            (refusal.target.as_str(), refusal.code),
            (target, ScheduleErrorCode::InvalidParameter),
            "{refusal}"
        );
        assert!(refusal.message.starts_with(begins), "{refusal}");
        assert!(!refusal.message.contains('\n'), "{refusal}");
    };
    refused("state", "state is \"\"; it must be Enabled or Disabled", &|it| it.state.clear());
    refused("state", "state is \"enabled\"", &|it| it.state = "enabled".into());
    refused("maintenanceTaskID", "maintenanceTaskID must be provided", &|it| it.maintenance_task_id.clear());
    refused("maintenanceTaskID", "there is no task x", &|it| it.maintenance_task_id = "x".into());
    refused("parameters.bad", "the task has no such parameter", &|it| {
        drop(it.parameters.insert("bad".into(), json!(1)));
    });
    refused("schedule", "schedule (or calendars) must be provided", &|it| it.schedule.clear());
    refused("schedule", "\"every day\" is no calendar", &|it| it.schedule = "every day".into());
    refused("calendars", "give schedule or calendars, not both", &|it| it.calendars = vec!["daily".into()]);
    refused("calendars[1]", "\"25:00\" is no calendar: 25 is no hour", &|it| {
        it.schedule.clear();
        it.calendars = vec!["daily".into(), "25:00".into()];
    });
    let never = |text: &str| {
        format!("schedule is {text:?}, which never fires after 2026-03-01T12:00:00Z; use a date")
    };
    refused("schedule", &never("*-2-30"), &|it| it.schedule = "*-2-30".into());
    refused("schedule", &never("2025-1-1"), &|it| it.schedule = "2025-1-1".into());
    refused("schedule", &never("2025-*-* 00:00"), &|it| it.schedule = "2025-*-* 00:00".into());
    refused("schedule", &never("2025-*-* 00:00"), &|it| {
        (it.schedule, it.state) = ("2025-*-* 00:00".into(), "Disabled".into());
    });
    refused("calendars[1]", "calendars[1] is \"2026-2-28\", which never fires after", &|it| {
        it.schedule.clear();
        it.calendars = vec!["daily".into(), "2026-2-28".into()];
    });
    refused("schedule", "the calendar fires 1m after it has fired; at least 5m must lie between", &|it| {
        (it.schedule, it.schedule_across) = ("*-*-* *:*".into(), "0s".into());
    });
    refused("timeZone", "\"Mars\" is no time zone", &|it| it.time_zone = "Mars".into());
    refused("lookForwardCount", "lookForwardCount is -1", &|it| it.look_forward_count = -1);
    refused("lookForwardCount", "lookForwardCount is 101", &|it| {
        it.look_forward_count = LOOK_FORWARD_MAX + 1;
    });
    refused("scheduleAcross", "scheduleAcross: \"-1h\" is not a duration: it must not be negative", &|it| {
        it.schedule_across = "-1h".into();
    });
    refused(
        "scheduleAcross",
        "scheduleAcross is 168h1s, longer than the calendar's shortest interval, 7d",
        &|it| it.schedule_across = "168h1s".into(),
    );
    refused("scheduleAcross", "scheduleAcross: \"soon\" is not a duration", &|it| {
        it.schedule_across = "soon".into();
    });
    refused("startWithin", "startWithin is 0s; it must be between 1s and 366d", &|it| {
        it.start_within = "0s".into();
    });
    refused("startWithin", "startWithin: \"1\" is not a duration", &|it| it.start_within = "1".into());
    refused("missedPolicy", "missedPolicy is \"runAll\"; it must be skip or runOnce", &|it| {
        it.missed_policy = "runAll".into();
    });
    refused("spreadBy", "spreadBy is \"task\"; it must be cluster or schedule", &|it| {
        it.spread_by = "task".into();
    });
    refused("selectors", "there must be at least one selector", &|it| it.selectors.clear());
    refused("selectors[0].key", "\"x\" is no key", &|it| it.selectors[0]["key"] = json!("x"));
    refused("id", "id must have at most 100 characters", &|it| it.id = "Nightly".into());
    for hostile in ["../x", "a/b", "a b", "ü", ".hidden", "a\0b", &"x".repeat(101)] {
        refused("id", "id must have", &|it| it.id = hostile.into());
    }
}

#[test]
fn a_schedule_that_never_fires_again_can_still_be_disabled() {
    let done = Schedule { calendars: vec!["2025-1-1".into()], ..schedule() };
    let disabled = ScheduleForm { state: "Disabled".into(), priority: 7, ..form(&done, None) };
    assert_eq!(sent(&disabled, Some(&done)).unwrap().priority, 7);
    assert_eq!(sent(&form(&done, None), Some(&done)).unwrap_err().target, "schedule", "it is enabled");
    assert_eq!(sent(&disabled, None).unwrap_err().target, "schedule", "it is new");
    let other = ScheduleForm { schedule: "2025-1-2".into(), ..disabled.clone() };
    assert_eq!(sent(&other, Some(&done)).unwrap_err().target, "schedule", "it is another calendar");
}

#[test]
fn a_past_date_may_stay_beside_a_future_one() {
    let both = vec!["2026-2-28".to_owned(), "2026-12-24".to_owned()];
    let stored = Schedule { calendars: both, ..schedule() };
    let edited = ScheduleForm { priority: 7, ..form(&stored, None) };
    assert_eq!(sent(&edited, Some(&stored)).unwrap().priority, 7);
    assert_eq!(sent(&edited, None).unwrap_err().target, "calendars[0]");
}

#[test]
fn a_stored_schedule_that_never_fires_again_is_valid_and_creates_nothing() {
    let now = at("2026-03-01T12:00:00Z");
    for calendars in [vec!["2025-*-* 00:00".to_owned()], vec!["*-2-30".to_owned(), "2025-1-1".to_owned()]] {
        let rule = Rule::read(&Schedule { calendars, ..schedule() }, now).unwrap();
        assert_eq!(rule.calendars.next_after(now), None);
        assert!(rule.horizon(now).periods.is_empty());
        let shown = super::super::preview(&rule, [], now, 3, 3);
        assert!(shown.periods.is_empty());
        assert!(shown.warnings.contains(&"the calendar never fires again".to_owned()), "{shown:?}");
    }
}

#[test]
fn durations_are_stored_and_returned_unchanged_and_compared_by_value() {
    let of = |across: &str, within: &str| {
        let given = ScheduleForm { schedule_across: across.into(), start_within: within.into(), ..mimo() };
        let stored = sent(&given, None).unwrap();
        assert_eq!((stored.schedule_across.as_str(), stored.start_within.as_deref()), (across, Some(within)));
        let answered = form(&stored, None);
        assert_eq!((answered.schedule_across.as_str(), answered.start_within.as_str()), (across, within));
        let rule = Rule::read(&stored, at("2026-03-01T12:00:00Z")).unwrap();
        (rule.across, rule.start_within)
    };
    let expect = of("24h", "90m");
    for (across, within) in [("1d", "1h30m"), ("24h0m0s", "1.5h"), ("1440m", "5400s"), ("0024h", "90.0m")] {
        assert_eq!(of(across, within), expect, "{across} {within}");
    }
    // What nobody gave is in a form that the reference's clients read.
    let silent = ScheduleForm { schedule_across: String::new(), ..mimo() };
    let answered = form(&sent(&silent, None).unwrap(), None);
    assert_eq!((answered.schedule_across.as_str(), answered.start_within.as_str()), ("0s", "1h"));
}

#[test]
fn the_task_of_a_schedule_never_changes() {
    let stored = Schedule { task_id: Uuid::from_u128(99), ..schedule() };
    let refusal = sent(&mimo(), Some(&stored)).unwrap_err();
    assert_eq!(
        (refusal.code.as_str(), refusal.target.as_str()),
        ("PropertyChangeNotAllowed", "maintenanceTaskID")
    );
}
