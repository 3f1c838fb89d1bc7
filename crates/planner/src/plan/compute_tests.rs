//! What is answered of a plan: entries for schedules, how sure it is, its bounds, and its end when nobody waits.

use std::time::Duration;

use api::admin::{Confidence, PlanForm, PlanGrouping, PlanOutcome};
use api::doc::{Cluster, MissedPolicy, Schedule, ScheduleState, SpreadBy, TaskStats};
use api::work::{WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, json};
use uuid::Uuid;

use super::{PlanInput, PlanRequest, compute, compute_within};
use crate::schedule::tests::cluster;
use crate::schedule::{Member, Rule};
use crate::task::Catalogue;

fn now() -> Timestamp {
    "2026-03-02T00:00:07Z".parse().unwrap()
}

fn request(hours: u64, grouping: PlanGrouping) -> PlanRequest {
    PlanRequest {
        horizon: Duration::from_secs(hours * 3600),
        cluster: None,
        schedule: None,
        task: None,
        outcome: None,
        grouping,
        skip: 0,
        limit: 1000,
    }
}

/// A task that is built in, and declares how long it takes.
fn task() -> Uuid {
    Catalogue::builtin().find("cluster-health").unwrap().id()
}

fn fleet(clusters: usize, calendars: &[&str]) -> PlanInput {
    let mut input = PlanInput { actuators: 1, ..PlanInput::default() };
    for number in 0..clusters {
        let id = format!("/subscriptions/s/resourcegroups/g/providers/p/openshiftclusters/c{number}");
        let cluster = Cluster {
            id: id.clone(),
            subscription_id: "s".to_owned(),
            location: "west".to_owned(),
            imported: false,
            ..cluster(&format!("c{number}"))
        };
        input.clusters.push((Member::new(Uuid::from_u128(1 + number as u128), &cluster, None, None), id));
    }
    for (number, calendar) in calendars.iter().enumerate() {
        let schedule = Schedule {
            id: format!("schedule-{number}"),
            state: ScheduleState::Enabled,
            task_id: task(),
            calendars: vec![(*calendar).to_owned()],
            time_zone: "UTC".to_owned(),
            look_forward_count: 1,
            schedule_across: "0s".to_owned(),
            spread_by: SpreadBy::Cluster,
            start_within: None,
            missed_policy: MissedPolicy::Skip,
            priority: 0,
            selectors: vec![json!({"key": "provisioningState", "operator": "eq", "value": "Succeeded"})],
            parameters: Map::new(),
        };
        input.rules.push(Rule::read(&schedule, now()).unwrap());
    }
    input
}

fn plan(input: &PlanInput, request: &PlanRequest) -> PlanForm {
    compute(input, &Catalogue::builtin(), request, now(), &|| false).unwrap().0
}

#[test]
fn runs_of_one_schedule_are_one_entry_and_nothing_is_late_before_any_run_was_observed() {
    let input = fleet(3, &["*-*-* *:00/5"]);
    let found = plan(&input, &request(24, PlanGrouping::Schedule));
    assert_eq!((found.runs, found.misses, found.total, found.entries.len()), (3 * 288, 0, 1, 1));
    let entry = &found.entries[0];
    assert_eq!((entry.rhythm().as_str(), entry.clusters), ("every 5 min, 864 runs", 3));
    assert_eq!((entry.outcome, entry.cluster.as_ref(), entry.first.len()), (PlanOutcome::Runs, None, 5));
    assert_eq!((entry.duration.confidence, entry.duration.runs), (Confidence::Declared, 0));

    let by_cluster = plan(&input, &request(24, PlanGrouping::Cluster));
    assert_eq!(by_cluster.entries.len(), 3);
    assert!(by_cluster.entries.iter().all(|it| it.runs == 288 && it.cluster.is_some()));
    let by_run = plan(&input, &request(24, PlanGrouping::Run));
    assert_eq!((by_run.total, by_run.entries.len()), (864, 864));
    assert!(by_run.entries.iter().all(|it| it.runs == 1 && it.first.is_empty()));
}

#[test]
fn the_first_observed_run_changes_the_plan() {
    let mut input = fleet(1, &["*-*-* *:00/5"]);
    let declared = plan(&input, &request(1, PlanGrouping::Schedule)).entries.remove(0).duration;
    let mut stats = TaskStats::of(task());
    stats.add([Duration::from_secs(300)]);
    input.stats.insert(task(), stats.clone());
    let once = plan(&input, &request(1, PlanGrouping::Schedule)).entries.remove(0).duration;
    assert!(once.p95 > declared.p95, "{declared:?} {once:?}");
    assert_eq!((once.confidence, once.runs), (Confidence::FewRuns, 1));
    stats.add([Duration::from_secs(300); 200]);
    input.stats.insert(task(), stats);
    let often = plan(&input, &request(1, PlanGrouping::Schedule)).entries.remove(0).duration;
    assert!(often.p95 > once.p95 && often.confidence == Confidence::Measured, "{often:?}");
}

/// A manifest that runs on the first cluster for ten minutes, in a step that may take three hours more.
fn hanging() -> api::queue::WorkView {
    let (begun, deadline) = (now() - SignedDuration::from_mins(10), now() + SignedDuration::from_hours(3));
    let step = json!({"name": "drain", "index": 1, "of": 1, "since": begun, "deadline": deadline});
    api::queue::WorkView {
        id: Uuid::from_u128(99),
        lane: Uuid::from_u128(1),
        kind: WorkKind::Manifest,
        state: WorkState::InProgress,
        attempt: 1,
        run_after: begun,
        due_at: begun,
        run_before: None,
        priority: 0,
        step: None,
        checkpoint: Some(json!({"step": step})),
        fence: 1,
        created: begun,
        started: Some(begun),
        finished: None,
        result: None,
        origin: None,
        budgets: vec![format!("task/{}", task())],
        ending: false,
        cancellation: None,
    }
}

#[test]
fn runs_behind_work_that_takes_longer_than_usual_are_late_until_its_step_must_end() {
    let mut input = fleet(1, &["*-*-* *:00/5"]);
    input.live.push(hanging());
    let found = plan(&input, &request(2, PlanGrouping::Schedule));
    assert_eq!((found.runs, found.misses), (12, 12), "those whose hour ends within the plan's two");
    assert_eq!(found.entries[0].reason.as_deref(), Some("other work of the cluster runs first"));
    // Once the step has had to end, what is due then begins.
    let longer = plan(&input, &request(6, PlanGrouping::Schedule));
    assert!(longer.misses > 12 && longer.misses < longer.runs, "{} of {}", longer.misses, longer.runs);
    // Work that is not over its usual time ends when it usually does.
    input.live[0].started = Some(now());
    assert_eq!(plan(&input, &request(2, PlanGrouping::Schedule)).misses, 0);
}

#[test]
fn no_run_starts_on_an_unreachable_cluster() {
    let mut input = fleet(2, &["*-*-* *:00/5"]);
    input.unreachable.insert(Uuid::from_u128(1));
    let found = plan(&input, &request(24, PlanGrouping::Cluster));
    let (away, there): (Vec<_>, Vec<_>) =
        found.entries.iter().partition(|it| it.cluster.as_ref().is_some_and(|it| it.ends_with("c0")));
    assert!(away.iter().all(|it| it.misses == it.runs && it.misses > 0), "{away:?}");
    assert_eq!(away[0].reason.as_deref(), Some("the cluster is unreachable"));
    assert!(there.iter().all(|it| it.misses == 0), "{there:?}");
}

#[test]
fn an_entry_names_why_most_of_its_runs_do_not_start() {
    let mut input = fleet(2, &["*-*-* *:00"]);
    input.budgets.push(api::queue::Budget { key: "fleet".to_owned(), limit: 0, used: 0, parked: 0 });
    let entry = plan(&input, &request(24, PlanGrouping::Schedule)).entries.remove(0);
    assert_eq!((entry.outcome, entry.misses), (PlanOutcome::Misses, 2 * 23));
    assert_eq!(entry.reason.as_deref(), Some("budget fleet allows 0 concurrent runs"));
    let only = |outcome: PlanOutcome| {
        plan(&input, &PlanRequest { outcome: Some(outcome), ..request(24, PlanGrouping::Run) }).runs
    };
    assert_eq!((only(PlanOutcome::Misses), only(PlanOutcome::Runs)), (2 * 23, 0));
}

#[test]
fn a_page_continues_after_the_last_one() {
    let input = fleet(2, &["*-*-* *:00", "*-*-* *:30"]);
    let asked = PlanRequest { limit: 3, ..request(3, PlanGrouping::Cluster) };
    let (first, next) = compute(&input, &Catalogue::builtin(), &asked, now(), &|| false).unwrap();
    assert_eq!((first.entries.len(), first.total, next), (3, 4, Some(3)));
    let (rest, next) =
        compute(&input, &Catalogue::builtin(), &PlanRequest { skip: 3, ..asked }, now(), &|| false).unwrap();
    assert_eq!((rest.entries.len(), next), (1, None));
}

#[test]
fn a_plan_of_too_many_runs_is_truncated_with_a_message() {
    let input = fleet(4, &["*-*-* *:00", "*-*-* *:00/10"]);
    let within = |runs_max: u64| {
        let asked = request(24, PlanGrouping::Run);
        compute_within(&input, &Catalogue::builtin(), &asked, now(), &|| false, runs_max).unwrap().0
    };
    let whole = within(10_000);
    assert_eq!((whole.runs, whole.truncated), (4 * (24 + 144), None));
    let cut = within(100);
    assert!(cut.runs <= 100 && cut.runs >= 80, "{}", cut.runs);
    let truncation = cut.truncated.unwrap();
    assert_eq!((truncation.requested_to, truncation.runs_max), (whole.to, 100));
    assert!(cut.to < whole.to && truncation.message.contains("at most 100 runs"), "{truncation:?}");
    // What it still holds is what the whole one begins with.
    assert_eq!(cut.entries, whole.entries[..cut.entries.len()]);
    // A second's calendar over a year is no more than that.
    let every_second =
        PlanRequest { horizon: Duration::from_secs(400 * 86_400), ..request(1, PlanGrouping::Schedule) };
    let seconds = fleet(4, &["*-*-* *:*:*"]);
    let cut =
        compute_within(&seconds, &Catalogue::builtin(), &every_second, now(), &|| false, 1000).unwrap().0;
    assert!(cut.runs <= 1000 && cut.truncated.is_some());
}

#[test]
fn a_calendar_that_selects_no_cluster_costs_nothing() {
    let input = fleet(0, &["*-*-* *:*:*"]);
    let asked =
        PlanRequest { horizon: Duration::from_secs(400 * 86_400), ..request(1, PlanGrouping::Schedule) };
    let found = plan(&input, &asked);
    assert_eq!((found.runs, found.truncated), (0, None));
}

#[test]
fn a_plan_can_be_cancelled() {
    let input = fleet(4, &["*-*-* *:00/5"]);
    assert_eq!(
        compute(&input, &Catalogue::builtin(), &request(24, PlanGrouping::Schedule), now(), &|| true),
        None
    );
}
