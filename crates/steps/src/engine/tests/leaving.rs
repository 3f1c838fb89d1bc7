use std::sync::Arc;
use std::time::Duration;

use api::admin::EntryEvent;
use api::work::{Ending, WorkKind, WorkState};
use serde_json::json;
use store::{NewWork, StoreError};
use uuid::Uuid;

use super::bed::{Bed, World, endless, finished, handed_back, mark, plan};
use crate::engine::{
    CompletedStep, Journal, PlanError, PollStatus, RunControl, RunOutcome, Step, StepError, StepErrorKind,
    StepOutcome, WaitingCode, finish_without_plan,
};

fn wait_for_ever(name: &'static str) -> Step<World> {
    Step::wait(name, Duration::from_secs(600), |_, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    })
}

/// A step that marks the world and pulls a rein.
fn pulling(
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
async fn a_preempted_plan_leaves_at_the_next_safe_point_and_goes_on_later() {
    let mut bed = Bed::new().await;
    let unsafe_step = Step { safe_point: false, ..pulling("a", |it| it.preempt.cancel(), &bed.control) };
    let yielding = handed_back(bed.attempt(&plan([unsafe_step, mark("b"), mark("c")])).await);
    assert!(!yielding.attempt_spent && yielding.delay.is_zero());
    assert_eq!(bed.world.marks(), ["a", "b"], "the region between a and b is not left");
    assert_eq!(bed.journal().await.waiting.unwrap().code, WaitingCode::Preempted);
    assert_eq!(bed.work().await.attempt, 0);
    bed.control = RunControl::new();
    let completion = finished(bed.attempt(&plan([mark("a"), mark("b"), mark("c")])).await);
    assert_eq!(completion.ending, Ending::Completed);
    assert_eq!(bed.world.marks(), ["a", "b", "c"], "no done step ran again");
    assert!(bed.events().await.contains(&EntryEvent::Yielded));
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_the_lane_is_heard_with_the_next_checkpoint() {
    let bed = Bed::new().await;
    let claimed = bed.claim().await;
    let (store, lane) = (bed.store.clone(), claimed.lease.lane);
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
    let ended = bed.walk(&claimed, &plan([meets, mark("b")])).await;
    assert!(matches!(ended, RunOutcome::Released { reason: WaitingCode::Preempted, .. }), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_left_at_once_for_an_operation_or_a_shutdown() {
    for pull in [|it: &RunControl| it.preempt.cancel(), |it: &RunControl| it.shutdown.cancel()] {
        let bed = Bed::new().await;
        let steps = plan([mark("a"), wait_for_ever("b")]);
        let begun = tokio::time::Instant::now();
        let control = bed.control.clone();
        let (ended, ()) = tokio::join!(bed.attempt(&steps), async {
            tokio::time::sleep(Duration::from_millis(4321)).await;
            pull(&control);
        });
        assert!(!handed_back(ended).attempt_spent);
        assert_eq!(begun.elapsed().as_millis(), 4321);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_an_action_end_and_a_halt_does_not() {
    let bed = Bed::new().await;
    let steps = plan([mark("a"), endless("b").undo(|_, _, _| async { Ok(Some("undone".to_owned())) })]);
    let control = bed.control.clone();
    let begun = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(bed.attempt(&steps), async {
        control.shutdown.cancel();
        tokio::time::sleep(Duration::from_secs(25)).await;
        control.halt.cancel();
    });
    assert_eq!(begun.elapsed().as_secs(), 25);
    assert!(!handed_back(ended).attempt_spent);
    let journal = bed.journal().await;
    assert!(journal.is_open("b") && !journal.is_undoing());
    assert_eq!(bed.work().await.attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_holder_ends_at_once_and_writes_nothing() {
    let bed = Bed::new().await;
    let claimed = bed.claim().await;
    let before = bed.work().await;
    let control = bed.control.clone();
    let steps = plan([endless("a")]);
    let (ended, ()) = tokio::join!(bed.walk(&claimed, &steps), async { control.lost.cancel() });
    assert_eq!(ended, RunOutcome::LeaseLost);
    assert_eq!(bed.work().await, before);
    assert!(bed.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stale_fence_writes_nothing_and_starts_no_further_step() {
    let bed = Bed::new().await;
    let old = bed.claim().await;
    let new = bed.take_over().await;
    assert_eq!(bed.walk(&old, &plan([mark("a"), mark("b")])).await, RunOutcome::LeaseLost);
    assert_eq!(bed.world.marks(), ["a"], "the first checkpoint is refused");
    assert!(bed.log().await.is_empty());
    let refused = bed.store.checkpoint(old.lease, "x", json!({})).await;
    assert!(matches!(refused, Err(StoreError::LostLease { .. })));
    let ended = bed.walk(&new, &plan([mark("a"), mark("b")])).await;
    bed.write(ended).await;
    assert_eq!(bed.events().await[0], EntryEvent::TakenOver);
}

#[tokio::test(start_paused = true)]
async fn a_changed_plan_is_matched_by_its_names() {
    let mut bed = Bed::new().await;
    let stops = pulling("b", |it| it.preempt.cancel(), &bed.control);
    handed_back(bed.attempt(&plan([mark("a"), stops, mark("old")])).await);
    bed.control = RunControl::new();
    finished(bed.attempt(&plan([mark("new"), mark("b"), mark("c")])).await);
    assert_eq!(bed.world.marks(), ["a", "b", "new", "c"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_members_of_a_checkpoint_stay() {
    let mut bed = Bed::new().await;
    let claimed = bed.claim().await;
    let checkpoint =
        json!({"done": [CompletedStep { name: "a".into(), memory: json!(1) }], "tomorrow": [1, 2]});
    bed.store.checkpoint(claimed.lease, "a", checkpoint).await.unwrap();
    let claimed = bed.take_over().await;
    bed.control = RunControl::new();
    bed.control.preempt.cancel();
    let ended = bed.walk(&claimed, &plan([mark("a"), mark("b"), mark("c")])).await;
    bed.write(ended).await;
    let stored = bed.work().await.checkpoint.unwrap();
    assert_eq!(stored["tomorrow"], json!([1, 2]));
    assert_eq!(bed.world.marks(), ["b"], "what a lost holder may have left half way is ended first");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_not_understood_is_set_aside_at_no_cost_even_when_somebody_asks_for_its_end() {
    let bed = Bed::new().await;
    bed.control.cancel.cancel();
    for _ in 0..7 {
        let claimed = bed.claim().await;
        let journal = Journal::read(claimed.checkpoint.as_ref());
        let error = StepError::new(StepErrorKind::Precondition, "Unreadable", "this is from tomorrow");
        let (control, clock) = (bed.control.clone(), bed.clock.clone());
        let refusal = PlanError::Unsupported(error);
        let ended =
            finish_without_plan(&bed.store, &claimed, journal, control, clock, "service:test", &refusal)
                .await;
        let yielding = handed_back(ended.clone());
        assert_eq!((yielding.attempt_spent, yielding.unless_cancelled), (false, false));
        bed.write(ended).await;
        tokio::time::sleep(yielding.delay).await;
    }
    let work = bed.work().await;
    assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
    assert_eq!(bed.journal().await.waiting.unwrap().message, "this is from tomorrow");
}
