use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::admin::EntryEvent;
use api::work::{Ending, WorkState};
use serde_json::{Value, json};

use super::fixture::{TestRun, World, endless, failing, finished, mark, plan, released};
use crate::engine::{
    PollStatus, Retry, RunOutcome, Step, StepError, StepErrorKind, StepOutcome, WaitingCode,
};

#[tokio::test(start_paused = true)]
async fn a_plan_completes_with_the_last_steps_message_and_every_entry_in_order() {
    let test = TestRun::new().await;
    let completion = finished(test.attempt(&plan([mark("a"), mark("b")])).await);
    assert_eq!(completion.ending, Ending::Completed);
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(result, json!({"code": "Completed", "message": "b is marked", "step": "b", "undone": []}));
    use EntryEvent::{Claimed, Finished, StepFinished, StepStarted};
    let expect = [Claimed, StepStarted, StepFinished, StepStarted, StepFinished, Finished];
    assert_eq!(test.events().await, expect);
    let log = test.log().await;
    assert!(log[2].duration_ms.is_some() && log[2].step.as_deref() == Some("a"));
    assert_eq!((log[5].from, log[5].to), (Some(WorkState::InProgress), Some(WorkState::Completed)));
}

#[tokio::test(start_paused = true)]
async fn a_plan_without_steps_completes() {
    let test = TestRun::new().await;
    assert_eq!(finished(test.attempt(&plan([])).await).ending, Ending::Completed);
}

#[tokio::test(start_paused = true)]
async fn later_steps_receive_the_memory_of_earlier_ones() {
    let test = TestRun::new().await;
    let reads = Step::action("reads", |_, cx| async move {
        let left = cx.memory.get("a").cloned().unwrap_or_default();
        Ok(StepOutcome::with_message(left.to_string()))
    });
    let completion = finished(test.attempt(&plan([mark("a"), reads])).await);
    assert_eq!(completion.result.to_json()["message"], json!(r#"{"left":"a"}"#));
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_retried_within_the_step_with_doubling_delays() {
    let test = TestRun::new().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let step = Step::action("flaky", move |_, _| {
        let tried = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if tried < 2 { Err(StepError::transient("Busy", "busy")) } else { Ok(StepOutcome::default()) }
        }
    });
    let step = Step { retry: Retry { attempts: 3, backoff: Duration::from_secs(2) }, ..step };
    let begun = tokio::time::Instant::now();
    assert_eq!(finished(test.attempt(&plan([step])).await).ending, Ending::Completed);
    assert_eq!(begun.elapsed().as_secs(), 2 + 4);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    let failed = test.log().await.into_iter().filter(|it| it.event == EntryEvent::StepFailed);
    let messages: Vec<_> = failed.filter_map(|it| it.message).collect();
    assert_eq!(messages, ["busy; retrying after 2s", "busy; retrying after 4s"]);
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_repeated_up_to_the_limit_and_then_undone() {
    let test = TestRun::new().await;
    let steps = || plan([mark("a"), failing("b", || StepError::transient("Busy", "busy"))]);
    let mut rests = Vec::new();
    for attempt in 1..5 {
        let yielding = released(test.attempt(&steps()).await);
        assert!(yielding.attempt_spent);
        assert_eq!(test.work().await.attempt, attempt);
        let journal = test.journal().await;
        assert_eq!(journal.waiting().map(|it| it.code), Some(WaitingCode::BackingOff));
        assert_eq!(
            test.world.marks(),
            ["a"],
            "nothing is undone between attempts, and no done step runs again"
        );
        rests.push(yielding.delay);
        tokio::time::sleep(yielding.delay).await;
    }
    assert!(rests.is_sorted() && rests[0] >= Duration::from_secs(24), "{rests:?}");
    assert_eq!(finished(test.attempt(&steps()).await).ending, Ending::RetriesExceeded);
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(result["message"], "did not succeed after 5 times, failing -- busy");
    assert_eq!((&result["code"], &result["step"]), (&json!("Busy"), &json!("b")));
    assert_eq!(result["undone"], json!(["a was taken away"]));
    assert!(test.world.marks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_or_an_unmet_precondition_uses_up_no_attempt() {
    for (kind, code, rests) in [
        (StepErrorKind::Unreachable, WaitingCode::Unreachable, [30, 60, 120]),
        (StepErrorKind::Precondition, WaitingCode::Precondition, [60, 60, 60]),
    ] {
        let test = TestRun::new().await;
        for (times, rest) in rests.into_iter().enumerate() {
            let error = move || StepError::new(kind, "X", "not now");
            let yielding = released(test.attempt(&plan([failing("a", error)])).await);
            assert_eq!((yielding.delay.as_secs(), yielding.attempt_spent), (rest, false));
            assert_eq!(test.work().await.attempt, 0);
            let waiting = test.journal().await.waiting.unwrap();
            assert_eq!((waiting.code, waiting.times), (code, u32::try_from(times + 1).unwrap()));
            assert_eq!(waiting.since.as_second(), 0, "since the first time");
            tokio::time::sleep(yielding.delay).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parked_work_has_one_entry_for_each_new_reason() {
    let test = TestRun::new().await;
    let park = async |times: usize, words: &'static str| {
        for _ in 0..times {
            let error = move || StepError::new(StepErrorKind::Unreachable, "X", words);
            // Slow enough that its progress is written, which adds no entries either.
            let slow = Step::action("b", move |_, _| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err::<StepOutcome, _>(error())
            });
            let yielding = released(test.attempt(&plan([mark("a"), slow])).await);
            tokio::time::sleep(yielding.delay).await;
        }
    };
    park(300, "no answer").await;
    let first = test.events().await;
    use EntryEvent as E;
    let expect =
        [E::Claimed, E::StepStarted, E::StepFinished, E::StepStarted, E::StepFailed, E::Yielded].to_vec();
    assert_eq!(first, expect, "a day of parkings has the entries of the first");
    assert_eq!(test.journal().await.waiting.unwrap().times, 300);

    park(300, "no route").await;
    let log = test.log().await;
    assert_eq!(log.len(), expect.len() + 4, "{log:#?}");
    assert_eq!(log[6].message.as_deref(), Some("parked 300 times since 1970-01-01T00:00:01Z"));
    assert_eq!(log[9].message.as_deref(), Some("no route"));

    // Messages that change each time have entries up to a limit, and are then only counted.
    for _ in 0..100 {
        park(1, "one thing").await;
        park(1, "another").await;
    }
    let yields = test.events().await.iter().filter(|it| **it == E::Yielded).count();
    assert_eq!(yields, 20);
    assert_eq!(test.journal().await.waiting.unwrap().times, 800);

    finished(test.attempt(&plan([mark("a"), mark("b")])).await);
    let log = test.log().await;
    let last: Vec<E> = log.iter().rev().take(4).rev().map(|entry| entry.event.clone()).collect();
    assert_eq!(last, [E::Claimed, E::StepStarted, E::StepFinished, E::Finished]);
    let said = log[log.len() - 4].message.as_deref().unwrap_or_default();
    assert!(said.starts_with("parked 800 times since "), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_fails_the_work_and_keeps_its_message() {
    let test = TestRun::new().await;
    let error = || StepError::terminal("NoSuchNode", "node x is not there").with_source(std::fmt::Error);
    assert_eq!(finished(test.attempt(&plan([failing("a", error)])).await).ending, Ending::Failed);
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(result["code"], "NoSuchNode");
    let message = result["message"].as_str().unwrap();
    assert!(message.starts_with("node x is not there: an error occurred"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_work_with_its_message() {
    let test = TestRun::new().await;
    let step: Step<World> = Step::action("a", |_, _| async { panic!("out of {}", "cheese") });
    assert_eq!(finished(test.attempt(&plan([mark("first"), step])).await).ending, Ending::Failed);
    let result = test.work().await.result.unwrap().to_json();
    assert_eq!(
        (&result["code"], &result["message"]),
        (&json!("Panic"), &json!("step a panicked: out of cheese"))
    );
    assert_eq!(result["undone"], json!(["first was taken away"]));
}

#[tokio::test(start_paused = true)]
async fn a_panic_becomes_the_kind_of_error_that_its_step_defines() {
    let test = TestRun::new().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let step: Step<World> = Step::action("a", move |_, _| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            assert!(!first, "out of cheese");
            Ok(StepOutcome::default())
        }
    });
    let retry = Retry { attempts: 2, backoff: Duration::from_secs(1) };
    let step = Step { retry, on_panic: StepErrorKind::Transient, ..step };
    assert_eq!(finished(test.attempt(&plan([step])).await).ending, Ending::Completed);
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_dropped_at_its_timeout_and_retried_in_another_attempt() {
    let test = TestRun::new().await;
    let dropped = Arc::new(AtomicU32::new(0));
    struct Counts(Arc<AtomicU32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let counted = dropped.clone();
    let step: Step<World> = Step::action("a", move |_, _| {
        let counts = Counts(counted.clone());
        async move {
            std::future::pending::<()>().await;
            drop(counts);
            Ok(StepOutcome::default())
        }
    });
    let step = Step { timeout: Duration::from_secs(7), ..step };
    let begun = tokio::time::Instant::now();
    let yielding = released(test.attempt(&plan([step])).await);
    assert_eq!((begun.elapsed().as_secs(), dropped.load(Ordering::SeqCst)), (7, 1));
    assert!(yielding.attempt_spent);
    let waiting = test.journal().await.waiting.unwrap();
    assert_eq!(waiting.message, "step a took longer than 7s");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_has_a_time_limit_of_its_own() {
    let test = TestRun::new().await;
    let mut plan = plan([endless("a")]);
    plan.time_limit = Duration::from_secs(3);
    let begun = tokio::time::Instant::now();
    let ended = test.attempt(&plan).await;
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert!(matches!(ended, RunOutcome::Released { reason: WaitingCode::BackingOff, .. }));
    assert_eq!(test.journal().await.waiting.unwrap().message, "the attempt's time ran out in step a");
}

#[tokio::test(start_paused = true)]
async fn a_wait_polls_until_its_condition_is_met_or_its_timeout() {
    let test = TestRun::new().await;
    let looks = Arc::new(AtomicU32::new(0));
    let counted = looks.clone();
    let wait = Step::wait("it", Duration::from_secs(100), move |_, _| {
        let seen = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            Ok(if seen < 3 {
                PollStatus::Waiting(format!("{seen} of 3"))
            } else {
                PollStatus::Done(StepOutcome::default())
            })
        }
    });
    let never = Step::wait("never", Duration::from_secs(25), |_: Arc<World>, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    let begun = tokio::time::Instant::now();
    released(test.attempt(&plan([wait, never])).await);
    assert_eq!((looks.load(Ordering::SeqCst), begun.elapsed().as_secs()), (4, 30 + 25));
    assert!(test.journal().await.is_done("it"));
}

#[tokio::test(start_paused = true)]
async fn a_step_with_too_much_memory_fails() {
    let test = TestRun::new().await;
    let step = Step::action("a", |_: Arc<World>, _| async {
        Ok(StepOutcome { memory: Value::from("x".repeat(70_000)), ..StepOutcome::default() })
    });
    assert_eq!(finished(test.attempt(&plan([step])).await).result.to_json()["code"], "MemoryTooLarge");
}

#[tokio::test(start_paused = true)]
async fn work_whose_worker_is_lost_too_often_finishes() {
    let test = TestRun::new().await;
    let steps =
        plan([mark("a"), endless("deadly").undo(|_, _, _| async { Ok(Some("put right".to_owned())) })]);
    drop(test.claim().await);
    for _ in 2..=5 {
        let claimed = test.take_over().await;
        tokio::select! {
            ended = test.run(&claimed, &steps) => panic!("{ended:?}"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    let claimed = test.take_over().await;
    assert_eq!(claimed.attempt, 6);
    let ended = test.run(&claimed, &steps).await;
    test.write(ended).await;
    let work = test.work().await;
    assert_eq!(work.state, WorkState::RetriesExceeded);
    assert_eq!(work.result.unwrap().to_json()["undone"], json!(["put right", "a was taken away"]));
}
