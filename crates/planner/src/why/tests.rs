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
        (BlockerCode::NotDue, |seen| seen.work.due_at = at(600)),
        (BlockerCode::ClusterBusy, |seen| seen.running = Some(other(7, WorkKind::Manifest))),
        (BlockerCode::OperationPending, |seen| seen.ahead.push(other(8, WorkKind::Operation))),
        (BlockerCode::BudgetFull, |seen| seen.budgets[1].used = 5),
        (BlockerCode::Unreachable, |seen| seen.health.as_mut().unwrap().reachable = false),
        (BlockerCode::Precondition, |seen| seen.unmet = Some("the cluster is Creating".to_owned())),
        (BlockerCode::NoActuator, |seen| seen.actuators = 0),
    ]
}

#[test]
fn every_set_of_blockers_is_shown_whole() {
    let causes = causes();
    for set in 0..1_usize << causes.len() {
        let mut seen = ready();
        let mut expected = Vec::new();
        for (number, (code, change)) in causes.iter().enumerate() {
            if set & (1 << number) != 0 {
                change(&mut seen);
                expected.push(*code);
            }
        }
        let answer = decide(&seen, at(0));
        let codes: Vec<BlockerCode> = answer.blockers.iter().map(|it| it.code).collect();
        assert_eq!(codes, expected, "of the set {set:b}");
        let verdict = if expected.is_empty() { Verdict::Ready } else { Verdict::Blocked };
        assert_eq!(answer.verdict, verdict);
        let known = expected == [BlockerCode::NotDue];
        assert_eq!(answer.earliest_start, known.then(|| at(600)), "of the set {set:b}");
    }
}

#[test]
fn a_failed_attempt_is_told_with_its_error_and_the_time_of_the_next() {
    let mut seen = ready();
    seen.work.attempt = 2;
    seen.work.due_at = at(90);
    seen.work.checkpoint = Some(json!({
        "taskVersion": 1,
        "waiting": {"code": "BackingOff", "message": "node worker-1 is gone", "since": at(-10)}
    }));
    let answer = decide(&seen, at(0));
    assert_eq!(answer.blockers.len(), 1);
    let blocker = &answer.blockers[0];
    assert_eq!((blocker.code, blocker.owner), (BlockerCode::BackingOff, Owner::System));
    assert!(blocker.message.contains("attempt 2 failed (node worker-1 is gone)"), "{}", blocker.message);
    assert_eq!((answer.earliest_start, blocker.since), (Some(at(90)), Some(at(-10))));
}

#[test]
fn a_parked_manifest_shows_what_it_is_parked_for_and_not_the_pause_between_two_looks() {
    let mut seen = ready();
    seen.work.due_at = at(25);
    seen.work.checkpoint = Some(json!({
        "waiting": {"code": "Unreachable", "message": "no route", "since": at(-300)}
    }));
    seen.health.as_mut().unwrap().reachable = false;
    let codes = |seen: &ManifestFacts| -> Vec<BlockerCode> {
        decide(seen, at(0)).blockers.iter().map(|it| it.code).collect()
    };
    assert_eq!(codes(&seen), [BlockerCode::Unreachable]);
    // It answers again; the next look is all that is waited for.
    seen.health.as_mut().unwrap().reachable = true;
    assert_eq!(codes(&seen), [BlockerCode::BackingOff]);
    assert_eq!(decide(&seen, at(0)).earliest_start, Some(at(25)));
}

#[test]
fn the_work_in_the_way_is_named_and_what_else_goes_before_is_counted() {
    let mut seen = ready();
    seen.running = Some(other(7, WorkKind::Operation));
    seen.ahead = vec![other(9, WorkKind::Manifest), other(10, WorkKind::Manifest)];
    let message = decide(&seen, at(0)).blockers[0].message.clone();
    assert!(message.contains(&Uuid::from_u128(7).to_string()), "{message}");
    assert!(message.contains("2 more manifests"), "{message}");
    seen.running = None;
    let message = decide(&seen, at(0)).blockers[0].message.clone();
    assert!(message.contains(&Uuid::from_u128(9).to_string()), "{message}");
    assert!(message.contains("1 more manifest goes"), "{message}");
}

#[test]
fn manifests_ahead_that_are_not_due_themselves_are_no_blocker() {
    let mut seen = ready();
    seen.ahead = vec![OtherWork { due_at: at(5000), ..other(9, WorkKind::Manifest) }];
    assert_eq!(decide(&seen, at(0)).verdict, Verdict::Ready);
}

#[test]
fn manifests_ahead_that_wait_for_their_tasks_budget_are_no_blocker() {
    let mut seen = ready();
    let ahead = WorkView {
        id: Uuid::from_u128(9),
        budgets: vec!["fleet".to_owned(), "task/bad".to_owned()],
        ..seen.work.clone()
    };
    seen.budgets.push(Budget { key: "task/bad".to_owned(), limit: 0, used: 0, parked: 0 });
    let aside = |work: &WorkView, seen: &ManifestFacts| OtherWork::new(work, &seen.budgets).is_aside;
    assert!(aside(&ahead, &seen));
    seen.ahead = vec![OtherWork::new(&ahead, &seen.budgets)];
    assert_eq!(decide(&seen, at(0)).verdict, Verdict::Ready);
    // Begun work keeps its place, and a limit of the fleet holds all.
    let begun = WorkView { checkpoint: Some(json!({"done": [{"name": "cordon"}]})), ..ahead.clone() };
    assert!(!aside(&begun, &seen));
    seen.budgets[0].limit = 0;
    assert!(!aside(&ahead, &seen));
    seen.budgets[0].limit = 5;
    seen.budgets[3].limit = 1;
    assert!(!aside(&ahead, &seen));
}

#[test]
fn a_stopped_budget_is_the_operators_and_each_full_one_is_named() {
    let mut seen = ready();
    seen.budgets[0].limit = 0;
    seen.budgets[2].used = 5;
    let answer = decide(&seen, at(0));
    let told: Vec<(Owner, bool)> =
        answer.blockers.iter().map(|it| (it.owner, it.message.contains("stopped"))).collect();
    assert_eq!(told, [(Owner::Operator, true), (Owner::System, false)]);
    assert_eq!(answer.blockers[1].message, "budget task/tidy-up is full: 5 of 5 run", "as people write it");
    // A limit that does not count this manifest says nothing.
    seen.budgets.push(Budget { key: "region/east".to_owned(), limit: 0, used: 0, parked: 0 });
    assert_eq!(decide(&seen, at(0)).blockers.len(), 2);
}

#[test]
fn a_schedule_owns_the_time_of_what_it_made() {
    let mut seen = ready();
    seen.manifest.created_by_schedule = Some("weekly".to_owned());
    seen.work.due_at = at(0) + SignedDuration::from_secs(1);
    assert_eq!(decide(&seen, at(0)).blockers[0].owner, Owner::Schedule);
}

#[test]
fn of_what_would_hold_up_a_start_running_work_only_knows_the_customers_operation_and_ended_work_nothing() {
    let mut seen = ready();
    for (_, change) in causes() {
        change(&mut seen);
    }
    for state in WorkState::ALL {
        seen.work.state = state;
        let answer = decide(&seen, at(0));
        let verdict = match state {
            WorkState::Pending => Verdict::Blocked,
            WorkState::InProgress => Verdict::Running,
            _ => Verdict::Finished,
        };
        assert_eq!(answer.verdict, verdict);
        let codes: Vec<BlockerCode> = answer.blockers.iter().map(|it| it.code).collect();
        match state {
            WorkState::Pending => assert_eq!(codes.len(), causes().len()),
            WorkState::InProgress => assert_eq!(codes, [BlockerCode::OperationPending]),
            _ => assert!(codes.is_empty()),
        }
    }
}

#[test]
fn running_work_names_its_step_what_that_waits_for_and_whose_it_is() {
    let mut seen = ready();
    seen.work.state = WorkState::InProgress;
    seen.work.checkpoint = Some(json!({
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
    let answer = decide(&seen, at(0));
    assert_eq!((answer.verdict, answer.earliest_start, answer.undoing), (Verdict::Running, None, false));
    let step = answer.step.unwrap();
    assert_eq!((step.name.as_str(), step.since, step.deadline), ("drain", at(-240), Some(at(3360))));
    assert!(step.message.starts_with("Waiting for 2 pods on node worker-1; PodDisruptionBudget shop/web"));
    let blocker = &answer.blockers[0];
    assert_eq!((blocker.code, blocker.owner), (BlockerCode::StepWaiting, Owner::Customer));
    assert_eq!(blocker.since, Some(at(-200)));
    assert_eq!(
        blocker.message,
        "PodDisruptionBudget shop/web allows no disruption of shop/web-1, shop/web-2"
    );
    // At its end nothing of it is left to be waited for.
    seen.work.state = WorkState::Completed;
    let answer = decide(&seen, at(0));
    assert_eq!((answer.step, answer.blockers.len()), (None, 0));
}

#[test]
fn work_on_its_way_to_its_end_is_held_up_by_no_budget() {
    let mut seen = ready();
    seen.budgets[0].limit = 0;
    assert_eq!(decide(&seen, at(0)).verdict, Verdict::Blocked);
    seen.work.ending = true;
    assert_eq!(decide(&seen, at(0)).verdict, Verdict::Ready);
}

#[test]
fn what_a_task_requires_is_no_blocker_of_begun_work() {
    let mut seen = ready();
    seen.unmet = Some("the cluster is Updating".to_owned());
    seen.work.checkpoint = Some(json!({"waiting": {"code": "Precondition", "since": at(-10)}}));
    assert_eq!(decide(&seen, at(0)).blockers[0].code, BlockerCode::Precondition);
    seen.work.checkpoint = Some(json!({"done": [{"name": "cordon"}]}));
    assert_eq!(decide(&seen, at(0)).verdict, Verdict::Ready);
}

#[test]
fn more_work_ahead_than_was_looked_at_is_told_as_at_least_so_many() {
    let mut seen = ready();
    seen.ahead = (10..110).map(|id| other(id, WorkKind::Manifest)).collect();
    seen.more_ahead = true;
    let message = decide(&seen, at(0)).blockers[0].message.clone();
    assert!(message.contains("at least 99 more manifests"), "{message}");
}
