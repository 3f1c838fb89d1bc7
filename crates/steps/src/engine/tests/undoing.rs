use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::work::{Ending, WorkState};
use serde_json::json;
use store::Transaction;

use super::fixture::{TestRun, World, endless, failing, finished, mark, plan, released, texts};
use crate::engine::{PollStatus, RunControl, RunOutcome, Step, StepError, StepErrorKind, StepOutcome};

/// Requests a cancel through the store after `pause`.
async fn cancel_after(test: &TestRun, pause: Duration) {
    tokio::time::sleep(pause).await;
    let asked = Entry {
        message: Some("wrong cluster".to_owned()),
        ..Entry::new(test.clock.now(), EntryEvent::CancelRequested, "ada", 1)
    };
    let ask = Transaction::new().request_cancel(test.id).record(test.id, asked);
    test.store.commit(ask).await.unwrap();
    test.control.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_stops_the_current_step_and_undoes_from_last_to_first() {
    let test = TestRun::new().await;
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
    let (ended, ()) = tokio::join!(test.attempt(&steps), cancel_after(&test, Duration::from_secs(5)));
    assert_eq!(begun.elapsed().as_secs(), 5 + 2, "two seconds to put things in order");
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert!(test.world.marks().is_empty());
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(texts(&result["undone"]), ["c was taken away", "b was taken away", "a was taken away"]);
    assert_eq!((&result["code"], &result["step"]), (&json!("Cancelled"), &json!("c")));
    assert_eq!((&result["by"], &result["reason"]), (&json!("ada"), &json!("wrong cluster")));
    assert_eq!(result["message"], "cancelled by ada: wrong cluster");
    let undone = test.events().await.into_iter().filter(|it| *it == EntryEvent::Undone).count();
    assert_eq!(undone, 3);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_wait_at_once_when_its_body_watches_the_signal() {
    let test = TestRun::new().await;
    let polite = Step::action("a", |_: Arc<World>, cx| async move {
        cx.stop.cancelled().await;
        Err(StepError::transient("Stopped", "as asked"))
    });
    let begun = tokio::time::Instant::now();
    let steps = plan([polite]);
    let (ended, ()) = tokio::join!(test.attempt(&steps), cancel_after(&test, Duration::from_secs(5)));
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_polls_ends_the_wait() {
    let test = TestRun::new().await;
    let wait = Step::wait("w", Duration::from_secs(600), |_: Arc<World>, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    let begun = tokio::time::Instant::now();
    let steps = plan([mark("a"), wait]);
    let (ended, ()) = tokio::join!(test.attempt(&steps), cancel_after(&test, Duration::from_secs(3)));
    assert_eq!(finished(ended).ending, Ending::Cancelled);
    assert_eq!(begun.elapsed().as_secs(), 3, "nobody waits for the next look");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_the_last_step_has_no_effect() {
    let test = TestRun::new().await;
    let control = test.control.clone();
    let last = Step::action("last", move |world: Arc<World>, _| {
        control.cancel.cancel();
        world.mark("last");
        async { Ok(StepOutcome::default()) }
    });
    assert_eq!(finished(test.attempt(&plan([mark("a"), last])).await).ending, Ending::Completed);
    assert_eq!(test.world.marks(), ["a", "last"]);
}

#[tokio::test(start_paused = true)]
async fn work_cancelled_before_its_first_step_runs_none() {
    let test = TestRun::new().await;
    test.control.cancel.cancel();
    assert_eq!(finished(test.attempt(&plan([mark("a")])).await).ending, Ending::Cancelled);
    assert!(!test.events().await.contains(&EntryEvent::StepStarted));
    assert!(!test.events().await.contains(&EntryEvent::Undone));
}

#[tokio::test(start_paused = true)]
async fn a_failing_undo_is_retried_until_its_timeout_and_then_reported() {
    let test = TestRun::new().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let mut stuck = mark("b").undo(move |_, _, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(StepError::transient("Busy", "b does not let go")) }
    });
    stuck.undo.as_mut().unwrap().timeout = Duration::from_secs(60);
    let steps = plan([mark("a"), stuck, failing("c", || StepError::terminal("No", "no"))]);
    assert_eq!(finished(test.attempt(&steps).await).ending, Ending::Failed);
    assert_eq!(tries.load(Ordering::SeqCst), 6, "after 1, 2, 4, 8 and 16 seconds");
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(result["undoFailed"], json!(["b: b does not let go, for 60s"]));
    assert_eq!(result["undone"], json!(["a was taken away"]));
    assert_eq!(test.world.marks(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_panics_or_hangs_fails() {
    let test = TestRun::new().await;
    let panics = mark("a").undo(|_, _, _| async { panic!("no way back") });
    let mut hangs = mark("b").undo(|_, _, _| std::future::pending::<Result<Option<String>, StepError>>());
    hangs.undo.as_mut().unwrap().timeout = Duration::from_secs(4);
    let steps = plan([panics, hangs, failing("c", || StepError::terminal("No", "no"))]);
    let begun = tokio::time::Instant::now();
    finished(test.attempt(&steps).await);
    assert_eq!(begun.elapsed().as_secs(), 4);
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(
        texts(&result["undoFailed"]),
        ["b: undoing took longer than 4s", "a: step a panicked: no way back"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_undo_continues_after_a_crash() {
    let mut test = TestRun::new().await;
    let steps = || {
        let slow = mark("a").undo(|world: Arc<World>, _, _| async move {
            if world.unmark("first-time") {
                std::future::pending::<()>().await;
            }
            Ok(world.unmark("a").then(|| "a was taken away".to_owned()))
        });
        plan([slow, mark("b"), failing("c", || StepError::terminal("No", "the first cause"))])
    };
    test.world.mark("first-time");
    let claimed = test.claim().await;
    let lost = steps();
    tokio::select! {
        ended = test.run(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let journal = test.journal().await;
    assert!(journal.is_undoing());
    assert_eq!(journal.undo.unwrap().settled, ["b"]);
    let claimed = test.take_over().await;
    test.control = RunControl::new();
    let ended = test.run(&claimed, &steps()).await;
    test.write(ended).await;
    let work = test.work().await;
    assert_eq!(work.state, WorkState::Failed);
    let result = work.result.unwrap().to_json();
    assert_eq!(result["message"], "the first cause");
    assert_eq!(texts(&result["undone"]), ["b was taken away", "a was taken away"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_during_an_undo_releases_the_rest_of_it() {
    let mut test = TestRun::new().await;
    let control = test.control.clone();
    let pulls = mark("b").undo(move |world: Arc<World>, _, _| {
        control.shutdown.cancel();
        async move { Ok(world.unmark("b").then(|| "b was taken away".to_owned())) }
    });
    let steps = plan([mark("a"), pulls, failing("c", || StepError::terminal("No", "no"))]);
    let yielding = released(test.attempt(&steps).await);
    assert!(!yielding.attempt_spent);
    assert_eq!(test.world.marks(), ["a"]);
    test.control = RunControl::new();
    assert_eq!(finished(test.attempt(&steps).await).ending, Ending::Failed);
    assert!(test.world.marks().is_empty());
    assert_eq!(
        texts(&test.work().await.result.unwrap().to_json()["undone"]),
        ["b was taken away", "a was taken away"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_taken_over_step_counts_as_started_when_it_is_cancelled() {
    let test = TestRun::new().await;
    let steps = || plan([endless("a").undo(|_, _, _| async { Ok(Some("a was looked after".to_owned())) })]);
    let claimed = test.claim().await;
    let lost = steps();
    tokio::select! {
        ended = test.run(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    assert!(test.journal().await.step.is_none(), "the holder was lost before it could say so");
    let claimed = test.take_over().await;
    test.control.cancel.cancel();
    let ended = test.run(&claimed, &steps()).await;
    assert!(matches!(ended, RunOutcome::Finished(_)));
    assert_eq!(texts(&finished(ended).result.to_json()["undone"]), ["a was looked after"]);
}

#[tokio::test(start_paused = true)]
async fn work_cancelled_while_it_waits_is_undone_when_it_is_claimed() {
    let mut test = TestRun::new().await;
    let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    let back = released(test.attempt(&steps()).await);
    assert!(back.started && back.delay > Duration::from_secs(10));
    cancel_after(&test, Duration::from_secs(1)).await;
    // Another process claims it before its delay is over.
    test.control = RunControl::new();
    let completion = finished(test.attempt(&steps()).await);
    assert_eq!(completion.ending, Ending::Cancelled);
    assert!(test.world.marks().is_empty());
    assert_eq!(texts(&test.work().await.result.unwrap().to_json()["undone"]), ["a was taken away"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_waits_for_an_unreachable_cluster_and_reports_it() {
    let test = TestRun::new().await;
    let begun = tokio::time::Instant::now();
    let away = mark("a").undo(move |world: Arc<World>, _, _| async move {
        match begun.elapsed() < Duration::from_secs(300) {
            true => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
            false => Ok(world.unmark("a").then(|| "a was taken away".to_owned())),
        }
    });
    let steps = plan([away, failing("b", || StepError::terminal("No", "no"))]);
    let (ended, ()) = tokio::join!(test.attempt(&steps), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let step = test.journal().await.step.unwrap();
        assert_eq!(step.name, "a");
        assert!(step.message.contains("no answer"), "{}", step.message);
    });
    assert_eq!(texts(&finished(ended).result.to_json()["undone"]), ["a was taken away"]);
    assert!(test.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_between_two_tries_of_an_undo_releases_it() {
    let mut test = TestRun::new().await;
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
    let control = test.control.clone();
    let begun = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(test.attempt(&steps), async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        control.shutdown.cancel();
    });
    released(ended);
    assert_eq!(begun.elapsed().as_secs(), 100, "nobody waits for the next try");
    assert!(test.work().await.ending, "no budget holds it up");
    away.store(false, Ordering::SeqCst);
    test.control = RunControl::new();
    assert_eq!(finished(test.attempt(&steps).await).ending, Ending::Failed);
    assert!(test.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_request_is_not_ignored_while_the_history_cannot_be_read() {
    let mut test = TestRun::unreadable().await;
    let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    released(test.attempt(&steps()).await);
    cancel_after(&test, Duration::from_secs(1)).await;
    test.control = RunControl::new();
    let claimed = test.claim().await;
    test.unreadable.store(true, Ordering::SeqCst);
    let (unreadable, again) = (test.unreadable.clone(), steps());
    let (ended, ()) = tokio::join!(test.run(&claimed, &again), async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        unreadable.store(false, Ordering::SeqCst);
    });
    let completion = finished(ended);
    assert_eq!((completion.ending, &completion.result.to_json()["by"]), (Ending::Cancelled, &json!("ada")));
    assert!(test.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_cancel_request_does_not_delay_a_lost_or_halted_worker() {
    for pull in [|it: &RunControl| it.lost.cancel(), |it: &RunControl| it.halt.cancel()] {
        let mut test = TestRun::unreadable().await;
        let steps = || plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
        let rest = released(test.attempt(&steps()).await).delay;
        tokio::time::sleep(rest).await;
        test.control = RunControl::new();
        let claimed = test.claim().await;
        test.control.cancel.cancel();
        test.unreadable.store(true, Ordering::SeqCst);
        let (control, again) = (test.control.clone(), steps());
        let (ended, ()) = tokio::join!(test.run(&claimed, &again), async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            pull(&control);
        });
        assert_eq!(ended, RunOutcome::LeaseLost);
    }
}

/// Work that waits after its second step failed, with a cancel requested.
async fn cancelled_while_waiting() -> TestRun {
    let mut test = TestRun::new().await;
    let steps = plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    released(test.attempt(&steps).await);
    cancel_after(&test, Duration::from_secs(1)).await;
    test.control = RunControl::new();
    test
}

#[tokio::test(start_paused = true)]
async fn started_work_without_a_plan_keeps_its_cancel_request_and_is_undone_later() {
    for pulled in [false, true] {
        let mut test = cancelled_while_waiting().await;
        let claimed = test.claim().await;
        if pulled {
            test.control.cancel.cancel();
        }
        let back =
            released(test.finish_without_plan(&claimed, StepError::transient("Store", "no answer")).await);
        assert!(back.started && test.work().await.ending);
        tokio::time::sleep(back.delay).await;
        test.control = RunControl::new();
        let completion = finished(test.attempt(&plan([mark("a"), mark("b")])).await);
        assert_eq!(
            (completion.ending, &completion.result.to_json()["by"]),
            (Ending::Cancelled, &json!("ada"))
        );
        assert_eq!(completion.result.to_json()["reason"], "wrong cluster");
        assert!(test.world.marks().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn started_work_that_never_has_a_plan_finishes_and_lists_what_was_not_undone() {
    let test = cancelled_while_waiting().await;
    let claimed = test.claim().await;
    let completion = finished(
        test.finish_without_plan(&claimed, StepError::terminal("UnknownTask", "no such task")).await,
    );
    assert_eq!((completion.ending, &completion.result.to_json()["by"]), (Ending::Cancelled, &json!("ada")));
    let result = completion.result.to_json();
    let left = texts(&result["undoFailed"]);
    assert_eq!(left, ["b: not undone: no such task", "a: not undone: no such task"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_without_a_plan_do_not_finish_started_work_without_its_undo() {
    let mut test = TestRun::new().await;
    let steps = plan([mark("a"), failing("b", || StepError::transient("Hiccup", "not now"))]);
    let mut rest = released(test.attempt(&steps).await).delay;
    for _ in 0..8 {
        tokio::time::sleep(rest).await;
        let claimed = test.claim().await;
        let back =
            released(test.finish_without_plan(&claimed, StepError::transient("Store", "no answer")).await);
        assert!(back.unless_cancelled, "nobody has asked for its end");
        rest = back.delay;
    }
    tokio::time::sleep(rest).await;
    test.control = RunControl::new();
    assert_eq!(finished(test.attempt(&steps).await).ending, Ending::RetriesExceeded);
    assert!(test.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_step_that_a_lost_worker_may_have_started_is_undone_once_there_is_a_plan() {
    let mut test = TestRun::new().await;
    let steps = || plan([endless("a").undo(|_, _, _| async { Ok(Some("a was looked after".to_owned())) })]);
    let claimed = test.claim().await;
    let lost = steps();
    tokio::select! {
        ended = test.run(&claimed, &lost) => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    let claimed = test.take_over().await;
    cancel_after(&test, Duration::ZERO).await;
    let back = released(test.finish_without_plan(&claimed, StepError::transient("Store", "no answer")).await);
    tokio::time::sleep(back.delay).await;
    test.control = RunControl::new();
    let completion = finished(test.attempt(&steps()).await);
    assert_eq!(completion.ending, Ending::Cancelled);
    assert_eq!(texts(&completion.result.to_json()["undone"]), ["a was looked after"]);
}
