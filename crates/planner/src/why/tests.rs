//! Each blocker alone, and every set of them together.

use api::admin::{BlockerCode, Owner, Verdict};
use api::doc::{HealthDetails, Manifest};
use api::health::HealthSample;
use api::queue::{Budget, WorkView};
use api::work::{WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, json};
use uuid::Uuid;

use super::{ManifestFacts, OtherWork, decide};

const NOW: i64 = 1_800_000_000;

fn at(offset: i64) -> Timestamp {
    Timestamp::from_second(NOW + offset).unwrap()
}

/// A manifest that nothing keeps from beginning.
fn ready() -> ManifestFacts {
    let (id, cluster) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let keys = ["fleet", "region/west", "task/t"].map(str::to_owned).to_vec();
    ManifestFacts {
        manifest: Manifest {
            id,
            cluster,
            cluster_path: "/subscriptions/s/c".to_owned(),
            task_id: Uuid::from_u128(3),
            created_by_schedule: None,
            priority: 0,
            run_after: at(-60),
            run_before: at(3600),
            parameters: Map::new(),
            created_by: "someone".to_owned(),
            status_text: String::new(),
        },
        work: WorkView {
            id,
            lane: cluster,
            kind: WorkKind::Manifest,
            state: WorkState::Pending,
            attempt: 0,
            run_after: at(-60),
            due_at: at(-60),
            run_before: Some(at(3600)),
            priority: 0,
            step: None,
            checkpoint: None,
            fence: 0,
            created: at(-120),
            started: None,
            finished: None,
            result: None,
            origin: None,
            budgets: keys.clone(),
            ending: false,
            cancellation: None,
        },
        running: None,
        ahead: Vec::new(),
        more_ahead: false,
        budgets: keys.into_iter().map(|key| Budget { key, limit: 5, used: 1, parked: 0 }).collect(),
        task_budget: "task/tidy-up".to_owned(),
        health: Some(HealthSample {
            cluster,
            at: at(-5),
            reachable: true,
            since: at(-5000),
            details: HealthDetails::default(),
        }),
        unmet: None,
        actuators: 1,
    }
}

fn other(id: u128, kind: WorkKind) -> OtherWork {
    OtherWork { id: Uuid::from_u128(id), kind, due_at: at(-100), started: Some(at(-30)), is_aside: false }
}

type Change = fn(&mut ManifestFacts);

/// What each blocker comes from.
fn causes() -> Vec<(BlockerCode, Change)> {
    vec![
        (BlockerCode::NotDue, |facts| facts.work.due_at = at(600)),
        (BlockerCode::ClusterBusy, |facts| facts.running = Some(other(7, WorkKind::Manifest))),
        (BlockerCode::OperationPending, |facts| facts.ahead.push(other(8, WorkKind::Operation))),
        (BlockerCode::BudgetFull, |facts| facts.budgets[1].used = 5),
        (BlockerCode::Unreachable, |facts| facts.health.as_mut().unwrap().reachable = false),
        (BlockerCode::Precondition, |facts| facts.unmet = Some("the cluster is Creating".to_owned())),
        (BlockerCode::NoActuator, |facts| facts.actuators = 0),
    ]
}

#[test]
fn every_set_of_blockers_is_complete() {
    let causes = causes();
    for set in 0..1_usize << causes.len() {
        let mut facts = ready();
        let mut expected = Vec::new();
        for (number, (code, change)) in causes.iter().enumerate() {
            if set & (1 << number) != 0 {
                change(&mut facts);
                expected.push(*code);
            }
        }
        let why = decide(&facts, at(0));
        let codes: Vec<BlockerCode> = why.blockers.iter().map(|it| it.code).collect();
        assert_eq!(codes, expected, "of the set {set:b}");
        let verdict = if expected.is_empty() { Verdict::Ready } else { Verdict::Blocked };
        assert_eq!(why.verdict, verdict);
        let known = expected == [BlockerCode::NotDue];
        assert_eq!(why.earliest_start, known.then(|| at(600)), "of the set {set:b}");
    }
}

#[test]
fn a_failed_attempt_has_its_error_and_the_time_of_the_next() {
    let mut facts = ready();
    facts.work.attempt = 2;
    facts.work.due_at = at(90);
    facts.work.checkpoint = Some(json!({
        "taskVersion": 1,
        "waiting": {"code": "BackingOff", "message": "node worker-1 is gone", "since": at(-10)}
    }));
    let why = decide(&facts, at(0));
    assert_eq!(why.blockers.len(), 1);
    let blocker = &why.blockers[0];
    assert_eq!((blocker.code, blocker.owner), (BlockerCode::BackingOff, Owner::System));
    assert!(blocker.message.contains("attempt 2 failed (node worker-1 is gone)"), "{}", blocker.message);
    assert_eq!((why.earliest_start, blocker.since), (Some(at(90)), Some(at(-10))));
}

#[test]
fn a_waiting_manifest_shows_its_cause_and_not_the_retry_interval() {
    let mut facts = ready();
    facts.work.due_at = at(25);
    facts.work.checkpoint = Some(json!({
        "waiting": {"code": "Unreachable", "message": "no route", "since": at(-300)}
    }));
    facts.health.as_mut().unwrap().reachable = false;
    let codes = |facts: &ManifestFacts| -> Vec<BlockerCode> {
        decide(facts, at(0)).blockers.iter().map(|it| it.code).collect()
    };
    assert_eq!(codes(&facts), [BlockerCode::Unreachable]);
    // It answers again; the next look is all that is waited for.
    facts.health.as_mut().unwrap().reachable = true;
    assert_eq!(codes(&facts), [BlockerCode::BackingOff]);
    assert_eq!(decide(&facts, at(0)).earliest_start, Some(at(25)));
}

#[test]
fn the_blocking_work_is_named_and_other_work_ahead_is_counted() {
    let mut facts = ready();
    facts.running = Some(other(7, WorkKind::Operation));
    facts.ahead = vec![other(9, WorkKind::Manifest), other(10, WorkKind::Manifest)];
    let message = decide(&facts, at(0)).blockers[0].message.clone();
    assert!(message.contains(&Uuid::from_u128(7).to_string()), "{message}");
    assert!(message.contains("2 more manifests"), "{message}");
    facts.running = None;
    let message = decide(&facts, at(0)).blockers[0].message.clone();
    assert!(message.contains(&Uuid::from_u128(9).to_string()), "{message}");
    assert!(message.contains("1 more manifest is ahead"), "{message}");
}

#[test]
fn manifests_ahead_that_are_not_due_themselves_are_no_blocker() {
    let mut facts = ready();
    facts.ahead = vec![OtherWork { due_at: at(5000), ..other(9, WorkKind::Manifest) }];
    assert_eq!(decide(&facts, at(0)).verdict, Verdict::Ready);
}

#[test]
fn manifests_ahead_that_wait_for_their_tasks_budget_are_no_blocker() {
    let mut facts = ready();
    let ahead = WorkView {
        id: Uuid::from_u128(9),
        budgets: vec!["fleet".to_owned(), "task/bad".to_owned()],
        ..facts.work.clone()
    };
    facts.budgets.push(Budget { key: "task/bad".to_owned(), limit: 0, used: 0, parked: 0 });
    let aside = |work: &WorkView, facts: &ManifestFacts| OtherWork::new(work, &facts.budgets).is_aside;
    assert!(aside(&ahead, &facts));
    facts.ahead = vec![OtherWork::new(&ahead, &facts.budgets)];
    assert_eq!(decide(&facts, at(0)).verdict, Verdict::Ready);
    // Begun work keeps its place, and a limit of the fleet holds all.
    let begun = WorkView { checkpoint: Some(json!({"done": [{"name": "cordon"}]})), ..ahead.clone() };
    assert!(!aside(&begun, &facts));
    facts.budgets[0].limit = 0;
    assert!(!aside(&ahead, &facts));
    facts.budgets[0].limit = 5;
    facts.budgets[3].limit = 1;
    assert!(!aside(&ahead, &facts));
}

#[test]
fn a_budget_of_zero_belongs_to_the_operator_and_each_full_budget_is_named() {
    let mut facts = ready();
    facts.budgets[0].limit = 0;
    facts.budgets[2].used = 5;
    let why = decide(&facts, at(0));
    let owners: Vec<(Owner, bool)> =
        why.blockers.iter().map(|it| (it.owner, it.message.contains("no new run starts"))).collect();
    assert_eq!(owners, [(Owner::Operator, true), (Owner::System, false)]);
    assert_eq!(
        why.blockers[1].message, "budget task/tidy-up is full: 5 of 5 run",
        "the key has the name of the task"
    );
    // A limit that does not count this manifest says nothing.
    facts.budgets.push(Budget { key: "region/east".to_owned(), limit: 0, used: 0, parked: 0 });
    assert_eq!(decide(&facts, at(0)).blockers.len(), 2);
}

#[test]
fn a_schedule_owns_the_due_time_of_its_manifests() {
    let mut facts = ready();
    facts.manifest.created_by_schedule = Some("weekly".to_owned());
    facts.work.due_at = at(0) + SignedDuration::from_secs(1);
    assert_eq!(decide(&facts, at(0)).blockers[0].owner, Owner::Schedule);
}

#[test]
fn running_work_is_blocked_only_by_an_operation_and_finished_work_by_nothing() {
    let mut facts = ready();
    for (_, change) in causes() {
        change(&mut facts);
    }
    for state in WorkState::ALL {
        facts.work.state = state;
        let why = decide(&facts, at(0));
        let verdict = match state {
            WorkState::Pending => Verdict::Blocked,
            WorkState::InProgress => Verdict::Running,
            _ => Verdict::Finished,
        };
        assert_eq!(why.verdict, verdict);
        let codes: Vec<BlockerCode> = why.blockers.iter().map(|it| it.code).collect();
        match state {
            WorkState::Pending => assert_eq!(codes.len(), causes().len()),
            WorkState::InProgress => assert_eq!(codes, [BlockerCode::OperationPending]),
            _ => assert!(codes.is_empty()),
        }
    }
}

#[test]
fn running_work_names_its_step_what_it_waits_for_and_its_owner() {
    let mut facts = ready();
    facts.work.state = WorkState::InProgress;
    facts.work.checkpoint = Some(json!({
        "done": [{"name": "cordon"}],
        "step": {
            "name": "drain", "index": 2, "of": 5, "since": at(-240), "deadline": at(3360),
            "message": "Waiting for 2 pods on node worker-1; PodDisruptionBudget shop/web allows no disruption",
            "waitingFor": [{
                "what": "PodDisruptionBudget shop/web", "message": "allows no disruption of shop/web-1, shop/web-2",
                "owner": "customer", "since": at(-200),
            }],
        },
    }));
    let why = decide(&facts, at(0));
    assert_eq!((why.verdict, why.earliest_start, why.undoing), (Verdict::Running, None, false));
    let step = why.step.unwrap();
    assert_eq!((step.name.as_str(), step.since, step.deadline), ("drain", at(-240), Some(at(3360))));
    assert!(step.message.starts_with("Waiting for 2 pods on node worker-1; PodDisruptionBudget shop/web"));
    let blocker = &why.blockers[0];
    assert_eq!((blocker.code, blocker.owner), (BlockerCode::StepWaiting, Owner::Customer));
    assert_eq!(blocker.since, Some(at(-200)));
    assert_eq!(
        blocker.message,
        "PodDisruptionBudget shop/web allows no disruption of shop/web-1, shop/web-2"
    );
    // At its end nothing of it is left to be waited for.
    facts.work.state = WorkState::Completed;
    let why = decide(&facts, at(0));
    assert_eq!((why.step, why.blockers.len()), (None, 0));
}

#[test]
fn work_that_is_ending_is_blocked_by_no_budget() {
    let mut facts = ready();
    facts.budgets[0].limit = 0;
    assert_eq!(decide(&facts, at(0)).verdict, Verdict::Blocked);
    facts.work.ending = true;
    assert_eq!(decide(&facts, at(0)).verdict, Verdict::Ready);
}

#[test]
fn requirements_do_not_block_started_work() {
    let mut facts = ready();
    facts.unmet = Some("the cluster is Updating".to_owned());
    facts.work.checkpoint = Some(json!({"waiting": {"code": "Precondition", "since": at(-10)}}));
    assert_eq!(decide(&facts, at(0)).blockers[0].code, BlockerCode::Precondition);
    facts.work.checkpoint = Some(json!({"done": [{"name": "cordon"}]}));
    assert_eq!(decide(&facts, at(0)).verdict, Verdict::Ready);
}

#[test]
fn more_work_ahead_than_was_read_is_shown_as_at_least() {
    let mut facts = ready();
    facts.ahead = (10..110).map(|id| other(id, WorkKind::Manifest)).collect();
    facts.more_ahead = true;
    let message = decide(&facts, at(0)).blockers[0].message.clone();
    assert!(message.contains("at least 99 more manifests"), "{message}");
}
