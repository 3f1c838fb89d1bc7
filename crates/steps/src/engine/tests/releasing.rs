use std::sync::Arc;
use std::time::Duration;

use api::admin::EntryEvent;
use api::work::{Ending, WorkKind, WorkState};
use serde_json::json;
use store::{NewWork, StoreError};
use uuid::Uuid;

use super::fixture::{TestRun, World, endless, finished, mark, plan, released};
use crate::engine::{
    CompletedStep, Journal, PlanError, PollStatus, RunControl, RunOutcome, Step, StepError, StepErrorKind,
    StepOutcome, WaitingCode, finish_without_plan,
};

fn wait_forever(name: &'static str) -> Step<World> {
    Step::wait(name, Duration::from_secs(600), |_, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    })
}

/// A step that marks the world and sends a signal.
fn signalling(
    name: &'static str,
    pull: impl Fn(&RunControl) + Send + Sync + 'static,
    control: &RunControl,
) -> Step<World> {
    let control = control.clone();
    Step::action(name, move |world: Arc<World>, _| {
        world.mark(name);
        pull(&control);
        async { Ok(StepOutcome::default()) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_preempted_plan_is_released_at_the_next_safe_point_and_continues_later() {
    let mut test = TestRun::new().await;
    let unsafe_step = Step { safe_point: false, ..signalling("a", |it| it.preempt.cancel(), &test.control) };
    let yielding = released(test.attempt(&plan([unsafe_step, mark("b"), mark("c")])).await);
    assert!(!yielding.attempt_spent && yielding.delay.is_zero());
    assert_eq!(test.world.marks(), ["a", "b"], "the region between a and b is not left");
    assert_eq!(test.journal().await.waiting.unwrap().code, WaitingCode::Preempted);
    assert_eq!(test.work().await.attempt, 0);
    test.control = RunControl::new();
    let completion = finished(test.attempt(&plan([mark("a"), mark("b"), mark("c")])).await);
    assert_eq!(completion.ending, Ending::Completed);
    assert_eq!(test.world.marks(), ["a", "b", "c"], "no done step ran again");
    assert!(test.events().await.contains(&EntryEvent::Yielded));
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_the_lane_is_noticed_at_the_next_checkpoint() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let (store, lane) = (test.store.clone(), claimed.lease.lane);
    let meets = Step::action("a", move |_: Arc<World>, _| {
        let store = store.clone();
        async move {
            let operation = NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation);
            store
                .enqueue(vec![operation])
                .await
                .map_err(|error| StepError::transient("Store", "no").with_source(error))?;
            Ok(StepOutcome::default())
        }
    });
    let ended = test.run(&claimed, &plan([meets, mark("b")])).await;
    assert!(matches!(ended, RunOutcome::Released { reason: WaitingCode::Preempted, .. }), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_released_at_once_for_an_operation_or_a_shutdown() {
    for pull in [|it: &RunControl| it.preempt.cancel(), |it: &RunControl| it.shutdown.cancel()] {
        let test = TestRun::new().await;
        let steps = plan([mark("a"), wait_forever("b")]);
        let begun = tokio::time::Instant::now();
        let control = test.control.clone();
        let (ended, ()) = tokio::join!(test.attempt(&steps), async {
            tokio::time::sleep(Duration::from_millis(4321)).await;
            pull(&control);
        });
        assert!(!released(ended).attempt_spent);
        assert_eq!(begun.elapsed().as_millis(), 4321);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_an_action_and_a_halt_does_not() {
    let test = TestRun::new().await;
    let steps = plan([mark("a"), endless("b").undo(|_, _, _| async { Ok(Some("undone".to_owned())) })]);
    let control = test.control.clone();
    let begun = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(test.attempt(&steps), async {
        control.shutdown.cancel();
        tokio::time::sleep(Duration::from_secs(25)).await;
        control.halt.cancel();
    });
    assert_eq!(begun.elapsed().as_secs(), 25);
    assert!(!released(ended).attempt_spent);
    let journal = test.journal().await;
    assert!(journal.is_open("b") && !journal.is_undoing());
    assert_eq!(test.work().await.attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_lost_lease_stops_at_once_and_writes_nothing() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let before = test.work().await;
    let control = test.control.clone();
    let steps = plan([endless("a")]);
    let (ended, ()) = tokio::join!(test.run(&claimed, &steps), async { control.lost.cancel() });
    assert_eq!(ended, RunOutcome::LeaseLost);
    assert_eq!(test.work().await, before);
    assert!(test.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stale_fence_writes_nothing_and_starts_no_further_step() {
    let test = TestRun::new().await;
    let old = test.claim().await;
    let new = test.take_over().await;
    assert_eq!(test.run(&old, &plan([mark("a"), mark("b")])).await, RunOutcome::LeaseLost);
    assert_eq!(test.world.marks(), ["a"], "the first checkpoint is refused");
    assert!(test.log().await.is_empty());
    let refused = test.store.checkpoint(old.lease, "x", json!({})).await;
    assert!(matches!(refused, Err(StoreError::LostLease { .. })));
    let ended = test.run(&new, &plan([mark("a"), mark("b")])).await;
    test.write(ended).await;
    assert_eq!(test.events().await[0], EntryEvent::TakenOver);
}

#[tokio::test(start_paused = true)]
async fn a_changed_plan_is_matched_by_step_names() {
    let mut test = TestRun::new().await;
    let stops = signalling("b", |it| it.preempt.cancel(), &test.control);
    released(test.attempt(&plan([mark("a"), stops, mark("old")])).await);
    test.control = RunControl::new();
    finished(test.attempt(&plan([mark("new"), mark("b"), mark("c")])).await);
    assert_eq!(test.world.marks(), ["a", "b", "new", "c"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_members_of_a_checkpoint_are_preserved() {
    let mut test = TestRun::new().await;
    let claimed = test.claim().await;
    let checkpoint =
        json!({"done": [CompletedStep { name: "a".into(), memory: json!(1) }], "tomorrow": [1, 2]});
    test.store.checkpoint(claimed.lease, "a", checkpoint).await.unwrap();
    let claimed = test.take_over().await;
    test.control = RunControl::new();
    test.control.preempt.cancel();
    let ended = test.run(&claimed, &plan([mark("a"), mark("b"), mark("c")])).await;
    test.write(ended).await;
    let stored = test.work().await.checkpoint.unwrap();
    assert_eq!(stored["tomorrow"], json!([1, 2]));
    assert_eq!(test.world.marks(), ["b"], "what a lost holder may have left half way is ended first");
}

#[tokio::test(start_paused = true)]
async fn unsupported_work_is_parked_without_using_up_attempts_even_when_a_cancel_is_requested() {
    let test = TestRun::new().await;
    test.control.cancel.cancel();
    for _ in 0..7 {
        let claimed = test.claim().await;
        let journal = Journal::read(claimed.checkpoint.as_ref());
        let error = StepError::new(StepErrorKind::Precondition, "Unreadable", "this is from tomorrow");
        let (control, clock) = (test.control.clone(), test.clock.clone());
        let refusal = PlanError::Unsupported(error);
        let ended =
            finish_without_plan(&test.store, &claimed, journal, control, clock, "service:test", &refusal)
                .await;
        let yielding = released(ended.clone());
        assert_eq!((yielding.attempt_spent, yielding.unless_cancelled), (false, false));
        test.write(ended).await;
        tokio::time::sleep(yielding.delay).await;
    }
    let work = test.work().await;
    assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
    assert_eq!(test.journal().await.waiting.unwrap().message, "this is from tomorrow");
}
