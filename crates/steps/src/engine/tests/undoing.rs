use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::work::{Ending, WorkState};
use serde_json::json;
use store::Transaction;

use super::bed::{Bed, World, endless, failing, finished, handed_back, mark, plan, texts};
use crate::engine::{PollStatus, RunControl, RunOutcome, Step, StepError, StepErrorKind, StepOutcome};

/// Cancels after `pause`, as a person would through the store.
async fn cancel_after(bed: &Bed, pause: Duration) {
    tokio::time::sleep(pause).await;
    let asked = Entry {
        message: Some("wrong cluster".to_owned()),
        ..Entry::new(bed.clock.now(), EntryEvent::CancelRequested, "ada", 1)
    };
    let ask = Transaction::new().request_cancel(bed.id).record(bed.id, asked);
    bed.store.commit(ask).await.unwrap();
    bed.control.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_stops_the_step_in_hand_and_undoes_from_the_last_to_the_first() {
    let bed = Bed::new().await;
    let hangs = Step::action("c", |world: Arc<World>, _| async move {
        world.mark("c");
        std::future::pending::<Result<StepOutcome, StepError>>().await
    })
    .undo(|world, _, memory| async move {
        assert!(memory.is_null(), "it did not come to its end");
        Ok(world.unmark("c").then(|| "c was taken away".to_owned()))
    });
    let steps = plan([mark("a"), mark("b"), hangs, mark("never")]);
    let begun = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(bed.attempt(&steps), cancel_after(&bed, Duration::from_secs(5)));
    assert_eq!(begun.elapsed().as_secs(), 5 + 2, "two seconds to put things in order");
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert!(bed.world.marks().is_empty());
    let result = bed.work().await.result.unwrap().to_json();
    assert_eq!(texts(&result["undone"]), ["c was taken away", "b was taken away", "a was taken away"]);
    assert_eq!((&result["code"], &result["step"]), (&json!("Cancelled"), &json!("c")));
    assert_eq!((&result["by"], &result["reason"]), (&json!("ada"), &json!("wrong cluster")));
    assert_eq!(result["message"], "cancelled by ada: wrong cluster");
    let undone = bed.events().await.into_iter().filter(|it| *it == EntryEvent::Undone).count();
    assert_eq!(undone, 3);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_wait_at_once_when_its_body_looks_at_the_signal() {
    let bed = Bed::new().await;
    let polite = Step::action("a", |_: Arc<World>, cx| async move {
        cx.stop.cancelled().await;
        Err(StepError::transient("Stopped", "as asked"))
    });
    let begun = tokio::time::Instant::now();
    let steps = plan([polite]);
    let (ended, ()) = tokio::join!(bed.attempt(&steps), cancel_after(&bed, Duration::from_secs(5)));
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_looks_ends_the_wait() {
    let bed = Bed::new().await;
    let wait = Step::wait("w", Duration::from_secs(600), |_: Arc<World>, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    let begun = tokio::time::Instant::now();
    let steps = plan([mark("a"), wait]);
    let (ended, ()) = tokio::join!(bed.attempt(&steps), cancel_after(&bed, Duration::from_secs(3)));
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert_eq!(begun.elapsed().as_secs(), 3, "nobody waits for the next look");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_after_the_last_step_comes_too_late() {
    let bed = Bed::new().await;
    let control = bed.control.clone();
    let last = Step::action("last", move |world: Arc<World>, _| {
        control.cancel.cancel();
        world.mark("last");
        async { Ok(StepOutcome::default()) }
    });
    assert_eq!(finished(bed.attempt(&plan([mark("a"), last])).await).ending, Ending::Completed);
    assert_eq!(bed.world.marks(), ["a", "last"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_cancelled_before_its_first_step_ends_without_one() {
    let bed = Bed::new().await;
    bed.control.cancel.cancel();
    assert_eq!(finished(bed.attempt(&plan([mark("a")])).await).ending, Ending::Cancelled);
    assert!(!bed.events().await.contains(&EntryEvent::StepStarted));
    assert!(!bed.events().await.contains(&EntryEvent::Undone));
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_tried_until_its_time_is_over_and_then_told_truthfully() {
    let bed = Bed::new().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let mut stuck = mark("b").undo(move |_, _, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(StepError::transient("Busy", "b does not let go")) }
    });
    stuck.undo.as_mut().unwrap().timeout = Duration::from_secs(60);
    let steps = plan([mark("a"), stuck, failing("c", || StepError::terminal("No", "no"))]);
    assert_eq!(finished(bed.attempt(&steps).await).ending, Ending::Failed);
    assert_eq!(tries.load(Ordering::SeqCst), 6, "after 1, 2, 4, 8 and 16 seconds");
    let result = bed.work().await.result.unwrap().to_json();
    assert_eq!(result["undoFailed"], json!(["b: b does not let go, for 60s"]));
    assert_eq!(result["undone"], json!(["a was taken away"]));
    assert_eq!(bed.world.marks(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_panics_or_hangs_is_a_failed_one() {
    let bed = Bed::new().await;
    let panics = mark("a").undo(|_, _, _| async { panic!("no way back") });
    let mut hangs = mark("b").undo(|_, _, _| std::future::pending::<Result<Option<String>, StepError>>());
    hangs.undo.as_mut().unwrap().timeout = Duration::from_secs(4);
    let steps = plan([panics, hangs, failing("c", || StepError::terminal("No", "no"))]);
    let begun = tokio::time::Instant::now();
    finished(bed.attempt(&steps).await);
    assert_eq!(begun.elapsed().as_secs(), 4);
    let result = bed.work().await.result.unwrap().to_json();
    assert_eq!(
        texts(&result["undoFailed"]),
        ["b: undoing took longer than 4s", "a: step a panicked: no way back"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_undoing_goes_on_undoing() {
    let mut bed = Bed::new().await;
    let steps = || {
        let slow = mark("a").undo(|world: Arc<World>, _, _| async move {
            if world.unmark("first-time") {
                std::future::pending::<()>().await;
            }
            Ok(world.unmark("a").then(|| "a was taken away".to_owned()))
        });
        plan([slow, mark("b"), failing("c", || StepError::terminal("No", "the first cause"))])
    };
    bed.world.mark("first-time");
    let claimed = bed.claim().await;
    let lost = steps();
    tokio::select! {
        ended = bed.walk(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let journal = bed.journal().await;
    assert!(journal.is_undoing());
    assert_eq!(journal.undo.unwrap().settled, ["b"]);
    let claimed = bed.take_over().await;
    bed.control = RunControl::new();
    let ended = bed.walk(&claimed, &steps()).await;
    bed.write(ended).await;
    let work = bed.work().await;
    assert_eq!(work.state, WorkState::Failed);
    let result = work.result.unwrap().to_json();
    assert_eq!(result["message"], "the first cause");
    assert_eq!(texts(&result["undone"]), ["b was taken away", "a was taken away"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_undoing_hands_the_rest_of_it_on() {
    let mut bed = Bed::new().await;
    let control = bed.control.clone();
    let pulls = mark("b").undo(move |world: Arc<World>, _, _| {
        control.shutdown.cancel();
        async move { Ok(world.unmark("b").then(|| "b was taken away".to_owned())) }
    });
    let steps = plan([mark("a"), pulls, failing("c", || StepError::terminal("No", "no"))]);
    let yielding = handed_back(bed.attempt(&steps).await);
    assert!(!yielding.attempt_spent);
    assert_eq!(bed.world.marks(), ["a"]);
    bed.control = RunControl::new();
    assert_eq!(finished(bed.attempt(&steps).await).ending, Ending::Failed);
    assert!(bed.world.marks().is_empty());
    assert_eq!(
        texts(&bed.work().await.result.unwrap().to_json()["undone"]),
        ["b was taken away", "a was taken away"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_taken_over_step_counts_as_begun_when_it_is_cancelled() {
    let bed = Bed::new().await;
    let steps = || plan([endless("a").undo(|_, _, _| async { Ok(Some("a was looked after".to_owned())) })]);
    let claimed = bed.claim().await;
    let lost = steps();
    tokio::select! {
        ended = bed.walk(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    assert!(bed.journal().await.step.is_none(), "the holder was lost before it could say so");
    let claimed = bed.take_over().await;
    bed.control.cancel.cancel();
    let ended = bed.walk(&claimed, &steps()).await;
    assert!(matches!(ended, RunOutcome::Finished(_)));
    assert_eq!(texts(&finished(ended).result.to_json()["undone"]), ["a was looked after"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_asked_to_end_while_it_rests_is_undone_when_it_is_taken_up() {
    let mut bed = Bed::new().await;
    let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    let back = handed_back(bed.attempt(&steps()).await);
    assert!(back.started && back.delay > Duration::from_secs(10));
    cancel_after(&bed, Duration::from_secs(1)).await;
    // Another process takes it up, before its rest is over.
    bed.control = RunControl::new();
    let completion = finished(bed.attempt(&steps()).await);
    assert_eq!(completion.ending, Ending::Cancelled);
    assert!(bed.world.marks().is_empty());
    assert_eq!(texts(&bed.work().await.result.unwrap().to_json()["undone"]), ["a was taken away"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_waits_for_a_cluster_that_does_not_answer_and_says_so() {
    let bed = Bed::new().await;
    let begun = tokio::time::Instant::now();
    let away = mark("a").undo(move |world: Arc<World>, _, _| async move {
        match begun.elapsed() < Duration::from_secs(300) {
            true => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
            false => Ok(world.unmark("a").then(|| "a was taken away".to_owned())),
        }
    });
    let steps = plan([away, failing("b", || StepError::terminal("No", "no"))]);
    let (ended, ()) = tokio::join!(bed.attempt(&steps), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let step = bed.journal().await.step.unwrap();
        assert_eq!(step.name, "a");
        assert!(step.message.contains("no answer"), "{}", step.message);
    });
    assert_eq!(texts(&finished(ended).result.to_json()["undone"]), ["a was taken away"]);
    assert!(bed.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_between_two_tries_of_an_undo_hands_it_on() {
    let mut bed = Bed::new().await;
    let away = Arc::new(AtomicBool::new(true));
    let seen = away.clone();
    let stuck = mark("a").undo(move |world: Arc<World>, _, _| {
        let away = seen.load(Ordering::SeqCst);
        async move {
            match away {
                true => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
                false => Ok(world.unmark("a").then(|| "a was taken away".to_owned())),
            }
        }
    });
    let steps = plan([stuck, failing("b", || StepError::terminal("No", "no"))]);
    let control = bed.control.clone();
    let begun = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(bed.attempt(&steps), async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        control.shutdown.cancel();
    });
    handed_back(ended);
    assert_eq!(begun.elapsed().as_secs(), 100, "nobody waits for the next try");
    assert!(bed.work().await.ending, "no budget holds it up");
    away.store(false, Ordering::SeqCst);
    bed.control = RunControl::new();
    assert_eq!(finished(bed.attempt(&steps).await).ending, Ending::Failed);
    assert!(bed.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_the_end_is_not_passed_over_while_the_log_cannot_be_read() {
    let mut bed = Bed::mutable().await;
    let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    handed_back(bed.attempt(&steps()).await);
    cancel_after(&bed, Duration::from_secs(1)).await;
    bed.control = RunControl::new();
    let claimed = bed.claim().await;
    bed.mute.store(true, Ordering::SeqCst);
    let (mute, again) = (bed.mute.clone(), steps());
    let (ended, ()) = tokio::join!(bed.walk(&claimed, &again), async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        mute.store(false, Ordering::SeqCst);
    });
    let completion = finished(ended);
    assert_eq!((completion.ending, &completion.result.to_json()["by"]), (Ending::Cancelled, &json!("ada")));
    assert!(bed.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_does_not_keep_a_worker_that_is_lost_or_halted() {
    for pull in [|it: &RunControl| it.lost.cancel(), |it: &RunControl| it.halt.cancel()] {
        let mut bed = Bed::mutable().await;
        let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
        let rest = handed_back(bed.attempt(&steps()).await).delay;
        tokio::time::sleep(rest).await;
        bed.control = RunControl::new();
        let claimed = bed.claim().await;
        bed.mute.store(true, Ordering::SeqCst);
        let (control, again) = (bed.control.clone(), steps());
        let (ended, ()) = tokio::join!(bed.walk(&claimed, &again), async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            pull(&control);
        });
        assert_eq!(ended, RunOutcome::LeaseLost);
    }
}

/// Work whose first step is done and which rests after its second failed; somebody has asked for its end.
async fn asked_to_end_at_rest() -> Bed {
    let mut bed = Bed::new().await;
    let steps = plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    handed_back(bed.attempt(&steps).await);
    cancel_after(&bed, Duration::from_secs(1)).await;
    bed.control = RunControl::new();
    bed
}

#[tokio::test(start_paused = true)]
async fn begun_work_whose_plan_cannot_be_made_for_now_keeps_the_wish_for_its_end_and_is_undone_later() {
    for pulled in [false, true] {
        let mut bed = asked_to_end_at_rest().await;
        let claimed = bed.claim().await;
        if pulled {
            bed.control.cancel.cancel();
        }
        let back = handed_back(bed.refused(&claimed, StepError::transient("Store", "no answer")).await);
        assert!(back.started && bed.work().await.ending);
        tokio::time::sleep(back.delay).await;
        bed.control = RunControl::new();
        let completion = finished(bed.attempt(&plan([mark("a"), mark("b")])).await);
        assert_eq!(
            (completion.ending, &completion.result.to_json()["by"]),
            (Ending::Cancelled, &json!("ada"))
        );
        assert_eq!(completion.result.to_json()["reason"], "wrong cluster");
        assert!(bed.world.marks().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn begun_work_whose_plan_can_never_be_made_ends_and_says_what_was_not_taken_back() {
    let bed = asked_to_end_at_rest().await;
    let claimed = bed.claim().await;
    let completion =
        finished(bed.refused(&claimed, StepError::terminal("UnknownTask", "no such task")).await);
    assert_eq!((completion.ending, &completion.result.to_json()["by"]), (Ending::Cancelled, &json!("ada")));
    let result = completion.result.to_json();
    let left = texts(&result["undoFailed"]);
    assert_eq!(left, ["b: not undone: no such task", "a: not undone: no such task"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_find_no_plan_do_not_end_begun_work_without_its_undo() {
    let mut bed = Bed::new().await;
    let steps = plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    let mut rest = handed_back(bed.attempt(&steps).await).delay;
    for _ in 0..8 {
        tokio::time::sleep(rest).await;
        let claimed = bed.claim().await;
        let back = handed_back(bed.refused(&claimed, StepError::transient("Store", "no answer")).await);
        assert!(back.unless_cancelled, "nobody has asked for its end");
        rest = back.delay;
    }
    tokio::time::sleep(rest).await;
    bed.control = RunControl::new();
    assert_eq!(finished(bed.attempt(&steps).await).ending, Ending::RetriesExceeded);
    assert!(bed.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_step_that_a_lost_holder_may_have_begun_is_undone_though_its_plan_was_not_made_at_first() {
    let mut bed = Bed::new().await;
    let steps = || plan([endless("a").undo(|_, _, _| async { Ok(Some("a was looked after".to_owned())) })]);
    let claimed = bed.claim().await;
    let lost = steps();
    tokio::select! {
        ended = bed.walk(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    let claimed = bed.take_over().await;
    cancel_after(&bed, Duration::ZERO).await;
    let back = handed_back(bed.refused(&claimed, StepError::transient("Store", "no answer")).await);
    tokio::time::sleep(back.delay).await;
    bed.control = RunControl::new();
    let completion = finished(bed.attempt(&steps()).await);
    assert_eq!(completion.ending, Ending::Cancelled);
    assert_eq!(texts(&completion.result.to_json()["undone"]), ["a was looked after"]);
}
