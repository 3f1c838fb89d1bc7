use std::sync::Arc;
use std::time::Duration;

use super::bed::{Bed, World, endless, finished, mark, plan};
use crate::engine::{Look, Outcome, Step};

async fn feed_rows(bed: &Bed) -> usize {
    let start = "1-0-0".parse().unwrap();
    bed.store.feed_after(start, 1000).await.unwrap().changes.len()
}

#[tokio::test(start_paused = true)]
async fn quick_steps_cost_one_write_each_and_the_last_one_none() {
    let bed = Bed::new().await;
    let claimed = bed.claim().await;
    let before = feed_rows(&bed).await;
    let ended = bed.walk(&claimed, &plan([mark("a"), mark("b"), mark("c")])).await;
    assert_eq!(feed_rows(&bed).await - before, 2, "the third goes with the completion");
    assert_eq!(finished(ended).entries.len(), 3, "started, finished, and the end");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_runs_longer_shows_where_it_is() {
    let bed = Bed::new().await;
    let claimed = bed.claim().await;
    let steps = plan([mark("a"), endless("b")]);
    tokio::select! {
        ended = bed.walk(&claimed, &steps) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!bed.journal().await.is_open("b"), "not before a quarter of a second");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let journal = bed.journal().await;
            let step = journal.step().unwrap();
            assert_eq!((step.name.as_str(), step.index, step.of), ("b", 2, 2));
            assert_eq!(step.since.as_millisecond(), 0);
            assert!(journal.is_open("b") && journal.is_done("a"));
        } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_wait_waits_for_is_shown_at_most_once_a_second() {
    let bed = Bed::new().await;
    let claimed = bed.claim().await;
    let begun = tokio::time::Instant::now();
    let wait = Step::wait("b", Duration::from_secs(600), move |_: Arc<World>, _| async move {
        Ok(Look::Waiting(format!("since {:?}", begun.elapsed())))
    });
    let Step { body, .. } = wait;
    let crate::engine::Body::Wait { look, .. } = body else { panic!("it is a wait") };
    let every = Duration::from_millis(10);
    let wait = Step {
        body: crate::engine::Body::Wait { every, look },
        ..Step::action("b", |_, _| async { Ok(Outcome::default()) })
    };
    let steps = plan([wait]);
    tokio::select! {
        ended = bed.walk(&claimed, &steps) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let first = bed.journal().await.step.unwrap().message;
            assert!(first.starts_with("since 2"), "{first}");
            let before = feed_rows(&bed).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            let writes = feed_rows(&bed).await - before;
            assert!((9..=10).contains(&writes), "{writes} writes in ten seconds");
            let later = bed.journal().await.step.unwrap().message;
            assert!(later.starts_with("since 9") || later.starts_with("since 10"), "{later}");
        } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_goes_into_the_history() {
    let bed = Bed::new().await;
    let step = Step::action("job", |_: Arc<World>, _| async {
        Ok(Outcome { log: Some("line 1\nline 2".to_owned()), ..Outcome::said("the job succeeded") })
    });
    finished(bed.attempt(&plan([step])).await);
    let log = bed.log().await;
    assert_eq!(log[2].message.as_deref(), Some("the job succeeded\nline 1\nline 2"));
    assert_eq!(bed.work().await.result.unwrap()["message"], "the job succeeded");
}
