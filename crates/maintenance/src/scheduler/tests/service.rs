//! The service as it runs: woken by the store, one at a time, at rest when there is nothing to do.

use std::time::Duration;

use jiff::SignedDuration;
use store::Topic;
use tokio_util::sync::CancellationToken;

use super::super::{LEASE, Scheduler, reconcile, run};
use super::fixture::{TestScheduler, cluster, daily, on_both_engines};

/// Waits until so much is pending of a schedule.
async fn pending(test: &TestScheduler, schedule: &str, count: usize) {
    let mut news = test.store.notifications(Topic::Feed);
    loop {
        if test.pending(schedule).await.len() == count {
            return;
        }
        tokio::select! {
            () = news.next() => {}
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
}

on_both_engines! {
    async fn the_service_follows_changes_and_the_clock_and_another_takes_over(test: &TestScheduler) {
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let mut services = tokio::task::JoinSet::new();
        let deps = test.deps(test.store.clone());
        let metrics = deps.metrics.clone();
        services.spawn(run(deps, first.clone()));
        test.import(&cluster("one")).await;
        test.put(&daily("nightly", test.now())).await;
        pending(test, "nightly", 1).await;
        services.spawn(run(test.deps(test.open_another().await), second.clone()));
        test.import(&cluster("two")).await;
        pending(test, "nightly", 2).await;
        // The next period begins: the service looks at the clock at least every few seconds.
        test.clock.advance(SignedDuration::from_hours(2));
        pending(test, "nightly", 4).await;
        // The status is written at the end of the pass.
        while test.store.schedule_status("nightly").await.unwrap().is_none_or(|status| status.created != 2) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The first ends and gives its lease back; the second goes on.
        first.cancel();
        services.join_next().await.unwrap().unwrap().unwrap();
        test.import(&cluster("three")).await;
        pending(test, "nightly", 5).await;
        assert_eq!(test.store.leases(LEASE).await.unwrap().len(), 1);
        second.cancel();
        services.join_next().await.unwrap().unwrap().unwrap();
        assert!(test.store.leases(LEASE).await.unwrap().is_empty());
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("manifests_created_total 4\n") && text.contains("leading 0\n"), "{text}");
    }
}

on_both_engines! {
    async fn a_scheduler_without_a_feed_position_lists_everything_again(test: &TestScheduler) {
        let deps = test.deps(test.store.clone());
        test.import(&cluster("one")).await;
        test.put(&daily("nightly", test.now())).await;
        let mut scheduler = Scheduler::new(&deps);
        reconcile(&mut scheduler).await.unwrap();
        pending(test, "nightly", 1).await;
        // A position of another generation of the store, and a cluster that is only found by listing.
        scheduler.feed = test.store.follow_feed(["schedule"]).from_position("999-0-1".parse().unwrap());
        test.import(&cluster("two")).await;
        reconcile(&mut scheduler).await.unwrap();
        pending(test, "nightly", 2).await;
    }
}
