//! The play against what is expected of it, and against a slower one that only looks at the clock.

use proptest::prelude::*;
use uuid::Uuid;

use super::simulate::{
    BudgetKeys, FleetModel, Lane, Micros, PlannedRun, QueuedRun, RunPhase, Running, WaitCause, simulate,
    simulate_unless,
};

const HOUR: Micros = 3600;

fn run(id: u128, due: Micros, duration: Micros) -> QueuedRun {
    QueuedRun {
        id: Uuid::from_u128(id),
        phase: RunPhase::Fresh,
        due,
        before: due + HOUR,
        priority: 0,
        duration,
        keys: BudgetKeys::default(),
        tag: 0,
    }
}

fn lane(id: u128, queue: Vec<QueuedRun>) -> Lane {
    Lane { id: Uuid::from_u128(id), queue, ..Lane::default() }
}

fn outcomes(planned: &[PlannedRun]) -> Vec<(u128, Micros, Micros, bool, WaitCause)> {
    planned.iter().map(|it| (it.run.id.as_u128(), it.start, it.end, it.runs, it.cause)).collect()
}

#[test]
fn a_cluster_runs_one_manifest_at_a_time_by_due_time_priority_and_id() {
    let urgent = QueuedRun { priority: -1, ..run(3, 10, 5) };
    let fleet_model = FleetModel {
        lanes: vec![lane(1, vec![run(2, 10, 5), run(1, 10, 5), urgent, run(4, 0, 12)])],
        budgets: vec![],
        slots: 10,
    };
    let expected = [
        (4, 0, 12, true, WaitCause::Nothing),
        (3, 12, 17, true, WaitCause::Lane),
        (1, 17, 22, true, WaitCause::Lane),
        (2, 22, 27, true, WaitCause::Lane),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn a_run_that_cannot_start_in_its_window_is_missed_and_the_next_one_starts() {
    let narrow = QueuedRun { before: 12, ..run(2, 10, 5) };
    let fleet_model = FleetModel {
        lanes: vec![lane(1, vec![run(1, 0, 20), narrow, run(3, 15, 5)])],
        budgets: vec![],
        slots: 1,
    };
    let expected = [
        (1, 0, 20, true, WaitCause::Nothing),
        (2, 12, 12, false, WaitCause::Lane),
        (3, 20, 25, true, WaitCause::Lane),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn started_work_goes_first_and_has_no_window() {
    let begun = QueuedRun { phase: RunPhase::Started, before: 5, ..run(9, 20, 5) };
    let fleet_model =
        FleetModel { lanes: vec![lane(1, vec![run(1, 10, 5), begun])], budgets: vec![], slots: 1 };
    let expected = [(9, 20, 25, true, WaitCause::Nothing), (1, 25, 30, true, WaitCause::Lane)];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn a_budget_limits_concurrent_runs() {
    let key = BudgetKeys::default().with(0);
    let of = |id: u128| lane(id, vec![QueuedRun { keys: key, ..run(id, 0, 10) }]);
    let fleet_model = FleetModel { lanes: vec![of(1), of(2), of(3)], budgets: vec![2], slots: 10 };
    let expected = [
        (1, 0, 10, true, WaitCause::Nothing),
        (2, 0, 10, true, WaitCause::Nothing),
        (3, 10, 20, true, WaitCause::Budget(0)),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn runs_of_a_budget_of_zero_are_missed() {
    let stopped = QueuedRun { keys: BudgetKeys::default().with(0), ..run(1, 0, 10) };
    let fleet_model = FleetModel { lanes: vec![lane(1, vec![stopped])], budgets: vec![0], slots: 10 };
    assert_eq!(
        outcomes(&simulate(fleet_model.clone(), 0, 2 * HOUR)),
        [(1, HOUR, HOUR, false, WaitCause::Budget(0))]
    );
    assert_eq!(outcomes(&simulate(fleet_model, 0, HOUR / 2)), []);
}

#[test]
fn a_current_run_occupies_its_lane_and_budget_until_its_end() {
    let key = BudgetKeys::default().with(0);
    let busy = Lane {
        id: Uuid::from_u128(1),
        running: Some(Running { end: 30, keys: key, is_operation: false }),
        queue: vec![QueuedRun { keys: key, ..run(1, 0, 10) }],
        ..Lane::default()
    };
    let other = lane(2, vec![QueuedRun { keys: key, ..run(2, 5, 10) }]);
    let fleet_model = FleetModel { lanes: vec![busy, other], budgets: vec![1], slots: 10 };
    // Both may begin at 30; the longest due goes first.
    let expected = [(1, 30, 40, true, WaitCause::Lane), (2, 40, 50, true, WaitCause::Budget(0))];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn runs_wait_for_free_slots() {
    let of = |id: u128| lane(id, vec![run(id, 0, 10)]);
    let fleet_model = FleetModel { lanes: vec![of(1), of(2)], budgets: vec![], slots: 1 };
    assert_eq!(
        outcomes(&simulate(fleet_model, 0, 1000)),
        [(1, 0, 10, true, WaitCause::Nothing), (2, 10, 20, true, WaitCause::Slots)]
    );
}

#[test]
fn operations_need_no_slot_of_an_actuator() {
    let operation = QueuedRun { phase: RunPhase::Operation, before: Micros::MAX, ..run(1, 0, 10) };
    let running = Some(Running { end: 30, keys: BudgetKeys::default(), is_operation: true });
    let busy = Lane { id: Uuid::from_u128(3), running, ..Lane::default() };
    let lanes =
        vec![lane(1, vec![operation]), lane(2, vec![run(2, 0, 10)]), busy, lane(4, vec![run(4, 0, 10)])];
    let fleet_model = FleetModel { lanes, budgets: vec![], slots: 1 };
    let expected = [
        (1, 0, 10, true, WaitCause::Nothing),
        (2, 0, 10, true, WaitCause::Nothing),
        (4, 10, 20, true, WaitCause::Slots),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn work_that_is_ending_ignores_a_full_budget_and_counts_in_it() {
    let keys = BudgetKeys::default().with(0);
    let ending = QueuedRun { phase: RunPhase::Ending, keys, ..run(1, 0, 10) };
    let begun = QueuedRun { phase: RunPhase::Started, keys, ..run(2, 0, 10) };
    let fleet_model =
        FleetModel { lanes: vec![lane(1, vec![ending]), lane(2, vec![begun])], budgets: vec![0], slots: 9 };
    assert_eq!(outcomes(&simulate(fleet_model.clone(), 0, 1000)), [(1, 0, 10, true, WaitCause::Nothing)]);
    let fleet_model = FleetModel { budgets: vec![1], ..fleet_model };
    let expected = [(1, 0, 10, true, WaitCause::Nothing), (2, 10, 20, true, WaitCause::Budget(0))];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 1000)), expected);
}

#[test]
fn a_full_budget_of_a_task_blocks_only_that_task() {
    let own = BudgetKeys::default().with_own(0);
    let stopped = |id, due| QueuedRun { keys: own, ..run(id, due, 10) };
    let others = |id, due| run(id, due, 10);
    let queue = vec![stopped(1, 0), others(2, 1), stopped(3, 2), others(4, 3)];
    let fleet_model = FleetModel { lanes: vec![lane(1, queue.clone())], budgets: vec![0], slots: 9 };
    let expected = [(2, 1, 11, true, WaitCause::Nothing), (4, 11, 21, true, WaitCause::Lane)];
    let planned = simulate(fleet_model.clone(), 0, 50);
    assert_eq!(outcomes(&planned), expected);
    // Room that another lane frees goes to the longest waiting, which has its place before younger work.
    let running = Some(Running { end: 5, keys: own, is_operation: false });
    let busy = Lane { id: Uuid::from_u128(2), running, ..Lane::default() };
    let fleet_model = FleetModel { lanes: vec![lane(1, queue), busy], budgets: vec![1], slots: 9 };
    let expected = [
        (2, 1, 11, true, WaitCause::Nothing),
        (1, 11, 21, true, WaitCause::Budget(0)),
        (3, 21, 31, true, WaitCause::Lane),
        (4, 31, 41, true, WaitCause::Lane),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 50)), expected);
}

#[test]
fn a_late_run_in_a_side_queue_does_not_keep_the_order_of_its_lane() {
    let keys = BudgetKeys::default().with_own(0);
    let own = |id, due, before| QueuedRun { keys, before, ..run(id, due, 10) };
    let running = Some(Running { end: 20, keys, is_operation: false });
    let busy = Lane { id: Uuid::from_u128(3), running, ..Lane::default() };
    let lanes = vec![lane(1, vec![own(1, 0, 15), own(2, 5, 99)]), lane(2, vec![own(3, 3, 99)]), busy];
    let fleet_model = FleetModel { lanes, budgets: vec![1], slots: 9 };
    let expected = [
        (1, 15, 15, false, WaitCause::Budget(0)),
        (3, 20, 30, true, WaitCause::Budget(0)),
        (2, 30, 40, true, WaitCause::Budget(0)),
    ];
    assert_eq!(outcomes(&simulate(fleet_model, 0, 50)), expected);
}

#[test]
fn a_budget_of_the_fleet_blocks_the_lane_and_so_does_started_work() {
    let (fleet, own) = (BudgetKeys::default().with(0), BudgetKeys::default().with_own(0));
    for keys in [
        QueuedRun { keys: fleet, ..run(1, 0, 10) },
        QueuedRun { keys: own, phase: RunPhase::Started, ..run(1, 0, 10) },
    ] {
        let fleet_model =
            FleetModel { lanes: vec![lane(1, vec![keys, run(2, 1, 10)])], budgets: vec![0], slots: 9 };
        assert_eq!(outcomes(&simulate(fleet_model, 0, 50)), []);
    }
}

fn fleet_models() -> impl Strategy<Value = FleetModel> {
    let phase = prop::sample::select(vec![
        RunPhase::Fresh,
        RunPhase::Fresh,
        RunPhase::Started,
        RunPhase::Ending,
        RunPhase::Operation,
    ]);
    let one = (0_i64..60, 1_i64..20, 1_i64..40, -2_i32..3, phase, prop::bits::u8::between(0, 2));
    let queue = prop::collection::vec(one, 0..6);
    let budgets = prop::collection::vec(0_u32..4, 2);
    (prop::collection::vec(queue, 1..6), budgets, 1_usize..5).prop_map(|(queues, budgets, slots)| {
        let mut next = 0;
        let lanes = (1_u128..).zip(queues).map(|(id, queue)| {
            let runs = queue.into_iter().map(|(due, duration, window, priority, phase, bits)| {
                next += 1;
                // No budget counts an operation.
                let bits = if phase == RunPhase::Operation { 0 } else { bits };
                // The second budget is one of a task.
                let keys = (0..2_u16).filter(|bit| bits & (1 << bit) != 0).fold(
                    BudgetKeys::default(),
                    |keys, key| match key {
                        1 => keys.with_own(key),
                        _ => keys.with(key),
                    },
                );
                let before = due + window;
                QueuedRun { phase, before, priority, duration, keys, ..run(next, due, duration) }
            });
            Lane { id: Uuid::from_u128(id), queue: runs.collect(), ..Lane::default() }
        });
        FleetModel { lanes: lanes.collect(), budgets, slots }
    })
}

proptest! {
    #[test]
    fn no_promise_of_the_queue_is_broken_in_any_world(fleet_model in fleet_models()) {
        let until = 400;
        let planned = simulate(fleet_model.clone(), 0, until);
        let all: usize = fleet_model.lanes.iter().map(|it| it.queue.len()).sum();
        prop_assert!(planned.len() <= all);
        for one in &planned {
            let run = one.run;
            prop_assert!(one.start >= run.due);
            prop_assert_eq!(one.runs, one.end > one.start);
            if one.runs && run.phase == RunPhase::Fresh {
                prop_assert!(one.start < run.before);
            }
        }
        for time in 0..until {
            let running: Vec<&PlannedRun> =
                planned.iter().filter(|it| it.runs && it.start <= time && time < it.end).collect();
            let by_actuators = running.iter().filter(|it| it.run.phase != RunPhase::Operation).count();
            prop_assert!(by_actuators <= fleet_model.slots);
            for (lane, _) in (0_u32..).zip(&fleet_model.lanes) {
                prop_assert!(running.iter().filter(|it| it.lane == lane).count() <= 1);
            }
            for (key, limit) in (0_u16..).zip(&fleet_model.budgets) {
                let of_key = |it: &&&PlannedRun| it.run.keys.has(key) && it.run.phase != RunPhase::Ending;
                prop_assert!(running.iter().filter(of_key).count() <= *limit as usize);
            }
        }
        // Whatever has no stopped budget and no end of time comes to its end or is missed.
        let stopped = fleet_model.budgets.contains(&0);
        if !stopped {
            prop_assert_eq!(planned.len(), all);
        }
    }
}

#[test]
fn a_simulation_can_be_stopped() {
    use std::cell::Cell;

    let queue = |lane: u128| {
        (0_u8..100).map(move |number| run(lane * 1000 + u128::from(number), i64::from(number) * 10, 5))
    };
    let fleet_model = FleetModel {
        lanes: (1..4).map(|id| lane(id, queue(id).collect())).collect(),
        budgets: vec![],
        slots: 9,
    };
    let looks = Cell::new(0);
    let stopped = simulate_unless(fleet_model.clone(), 0, 10_000, || {
        looks.set(looks.get() + 1);
        looks.get() > 10
    });
    assert_eq!((stopped, looks.get()), (None, 11));
    assert_eq!(
        simulate_unless(fleet_model.clone(), 0, 10_000, || false),
        Some(simulate(fleet_model, 0, 10_000))
    );
}
