use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::admin::Owner;
use api::doc::OperationError;
use api::work::Ending;

use super::fixture::{TestRun, World, endless, failing, finished, mark, plan, released};
use crate::engine::{Obstacle, PollStatus, Report, Retry, Step, StepError, StepErrorKind, StepOutcome};

async fn feed_rows(test: &TestRun) -> usize {
    let start = "1-0-0".parse().unwrap();
    test.store.feed_after(start, 1000).await.unwrap().changes.len()
}

#[tokio::test(start_paused = true)]
async fn quick_steps_cost_one_write_each_and_the_last_one_none() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let before = feed_rows(&test).await;
    let ended = test.run(&claimed, &plan([mark("a"), mark("b"), mark("c")])).await;
    assert_eq!(feed_rows(&test).await - before, 2, "the third goes with the completion");
    assert_eq!(finished(ended).entries.len(), 3, "started, finished, and the end");
}

#[tokio::test(start_paused = true)]
async fn a_longer_step_shows_its_progress() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let steps = plan([mark("a"), endless("b")]);
    tokio::select! {
        ended = test.run(&claimed, &steps) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!test.journal().await.is_open("b"), "not before a quarter of a second");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let journal = test.journal().await;
            let step = journal.step().unwrap();
            assert_eq!((step.name.as_str(), step.index, step.of), ("b", 2, 2));
            assert_eq!(step.since.as_millisecond(), 0);
            assert!(journal.is_open("b") && journal.is_done("a"));
        } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_progress_of_a_wait_is_written_at_most_once_a_second() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let begun = tokio::time::Instant::now();
    let wait = Step::wait("b", Duration::from_secs(600), move |_: Arc<World>, _| async move {
        Ok(PollStatus::Waiting(format!("since {:?}", begun.elapsed())))
    });
    let Step { body, .. } = wait;
    let crate::engine::Body::Wait { poll, .. } = body else { panic!("it is a wait") };
    let interval = Duration::from_millis(10);
    let wait = Step {
        body: crate::engine::Body::Wait { interval, poll },
        ..Step::action("b", |_, _| async { Ok(StepOutcome::default()) })
    };
    let steps = plan([wait]);
    tokio::select! {
        ended = test.run(&claimed, &steps) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let first = test.journal().await.step.unwrap().message;
            assert!(first.starts_with("since 2"), "{first}");
            let before = feed_rows(&test).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            let writes = feed_rows(&test).await - before;
            assert!((9..=10).contains(&writes), "{writes} writes in ten seconds");
            let later = test.journal().await.step.unwrap().message;
            assert!(later.starts_with("since 9") || later.starts_with("since 10"), "{later}");
        } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_is_part_of_the_history() {
    let test = TestRun::new().await;
    let step = Step::action("job", |_: Arc<World>, _| async {
        Ok(StepOutcome {
            log: Some("line 1\nline 2".to_owned()),
            ..StepOutcome::with_message("the job succeeded")
        })
    });
    finished(test.attempt(&plan([step])).await);
    let log = test.log().await;
    assert_eq!(log[2].message.as_deref(), Some("the job succeeded\nline 1\nline 2"));
    assert_eq!(test.work().await.result.unwrap().to_json()["message"], "the job succeeded");
}

fn customer_error(message: &str) -> OperationError {
    OperationError { code: "X".to_owned(), message: message.to_owned(), target: None, details: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn operators_see_the_whole_error_and_customers_only_the_customer_error() {
    let test = TestRun::new().await;
    let inner = || StepError::transient("Store", "the database at 10.0.0.7 gave no answer");
    let yielding = released(test.attempt(&plan([mark("a"), failing("b", inner)])).await);
    let journal = test.journal().await;
    assert_eq!(journal.step().unwrap().message, "the database at 10.0.0.7 gave no answer");
    assert_eq!(journal.for_customer(), "it has not succeeded yet and is being retried");
    tokio::time::sleep(yielding.delay).await;

    let written = move || inner().with_customer_error(customer_error("the subnet is locked"));
    let yielding = released(test.attempt(&plan([mark("a"), failing("b", written)])).await);
    let journal = test.journal().await;
    assert_eq!(journal.step().unwrap().message, "the database at 10.0.0.7 gave no answer");
    assert_eq!(journal.for_customer(), "the subnet is locked");
    tokio::time::sleep(yielding.delay).await;

    released(test.attempt(&plan([mark("a"), mark("b"), failing("c", inner)])).await);
    assert_eq!(test.journal().await.for_customer(), "it has not succeeded yet and is being retried");
}

#[tokio::test(start_paused = true)]
async fn a_wait_continues_after_errors_marked_to_keep_waiting_and_shows_both_messages() {
    let test = TestRun::new().await;
    let looks = Arc::new(AtomicU32::new(0));
    let counted = looks.clone();
    let wait = Step::wait("ready", Duration::from_secs(300), move |_: Arc<World>, _| {
        let seen = counted.fetch_add(1, Ordering::SeqCst);
        let error = StepError::new(StepErrorKind::Unreachable, "X", "10.0.0.7 refuses connections");
        async move {
            if seen < 9 {
                Err(error.keep_waiting())
            } else {
                Ok(PollStatus::Done(StepOutcome::with_message("ready")))
            }
        }
    });
    let wait = Step { retry: Retry { attempts: 2, backoff: Duration::from_secs(1) }, ..wait };
    let claimed = test.claim().await;
    let steps = plan([wait]);
    let seen = async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        let journal = test.journal().await;
        assert_eq!(journal.step().unwrap().message, "10.0.0.7 refuses connections");
        assert_eq!(journal.for_customer(), "it has not succeeded yet and is being retried");
    };
    let (ended, ()) = tokio::join!(test.run(&claimed, &steps), seen);
    assert_eq!(finished(ended).ending, Ending::Completed);
    assert_eq!(looks.load(Ordering::SeqCst), 10);

    let test = TestRun::new().await;
    let never = Step::wait("never", Duration::from_secs(25), |_: Arc<World>, _| async {
        Err(StepError::transient("X", "no answer").keep_waiting())
    });
    assert!(released(test.attempt(&plan([never])).await).attempt_spent, "its time is over");
}

#[tokio::test(start_paused = true)]
async fn attempts_that_failed_with_a_customer_error_are_counted_until_a_step_completes() {
    let test = TestRun::new().await;
    let counts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let attempt = async |steps| {
        let yielding = released(test.attempt(&plan(steps)).await);
        tokio::time::sleep(yielding.delay).await;
    };
    let step = |name: &'static str, customer: Option<&'static str>| {
        let counts = counts.clone();
        Step::action(name, move |_: Arc<World>, cx| {
            counts.lock().unwrap().push(cx.customer_failures);
            let error = StepError::transient("X", "no");
            let error =
                customer.into_iter().fold(error, |it, words| it.with_customer_error(customer_error(words)));
            async move { Err::<StepOutcome, _>(error) }
        })
    };
    attempt(vec![step("a", None)]).await;
    attempt(vec![step("a", Some("you may not"))]).await;
    attempt(vec![step("a", Some("you may not"))]).await;
    attempt(vec![mark("a"), step("b", None)]).await;
    assert_eq!(*counts.lock().unwrap(), [0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn obstacles_are_recorded_with_owner_start_time_and_deadline() {
    let test = TestRun::new().await;
    let claimed = test.claim().await;
    let looks = Arc::new(AtomicU32::new(0));
    let wait = Step::wait("drain", Duration::from_secs(600), move |_: Arc<World>, _| {
        let look = looks.fetch_add(1, Ordering::SeqCst);
        async move {
            let obstacle = |what: &str| Obstacle {
                what: what.to_owned(),
                message: format!("look {look}"),
                owner: Owner::Customer,
            };
            let mut obstacles = vec![obstacle("PodDisruptionBudget shop/web")];
            obstacles.extend((look > 0).then(|| obstacle("Pod shop/web-1")));
            Ok(PollStatus::Blocked(Report { message: "Waiting for pods".to_owned(), obstacles }))
        }
    });
    let steps = plan([wait]);
    tokio::select! {
        ended = test.run(&claimed, &steps) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let step = test.journal().await.step.unwrap();
            assert_eq!(step.message, "Waiting for pods");
            assert_eq!(step.deadline.unwrap().duration_since(step.since).as_secs(), 600);
            let seen: Vec<_> = step
                .waiting_for
                .iter()
                .map(|it| (it.what.as_str(), it.message.as_str(), it.since.duration_since(step.since).as_secs()))
                .collect();
            // The message is that of the last poll; the time is that of the first.
            let expect = [("PodDisruptionBudget shop/web", "look 1", 0), ("Pod shop/web-1", "look 1", 10)];
            assert_eq!(seen, expect);
        } => {}
    }
}
