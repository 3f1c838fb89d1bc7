//! Drain with faults: lost connections, dropped futures, cancels without a response, injected errors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use api::error::{Class, Classify};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ResourceExt};
use kubelink::ProgressSink;
use kubelink::cordon::CordonResult;
use kubelink::drain::{CordonState, DrainError, DrainGoal, DrainOptions, drain};
use tokio_util::sync::CancellationToken;

use crate::drain::{LIMIT, drained, is_cordoned, options, pods_on};
use crate::support::{Fault, Kubelet, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_drain_reports_a_cordon_that_cannot_be_removed() {
    let Some(world) = world("drain-lost") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "stays", Some(&owner)).await;
    let cancel = CancellationToken::new();
    let granted = Arc::new(tokio::sync::Notify::new());
    let notify = granted.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("granted") {
            notify.notify_one();
        }
    });
    let long = options(LIMIT);
    let work = drain(&world.link, &node, &long, &progress, &cancel);
    let cancelled = async {
        granted.notified().await;
        world.tap.cut_before(1);
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(work, cancelled);
    let Err(DrainError::Cancelled { cordon: CordonState::Remaining(_), evicted, .. }) = end else {
        panic!("{end:?}")
    };
    assert_eq!(evicted.len(), 1);
    world.tap.mend();
    assert_eq!(
        is_cordoned(&world, &node).await,
        (true, Some("manifest-1".to_owned())),
        "the record is there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_interrupted_at_any_request_leaves_a_record_and_a_repeat_finishes_it() {
    let Some(world) = world("drain-cut") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    let short = DrainOptions { until: DrainGoal::Granted, ..options(Duration::from_millis(300)) };
    // The requests of a drain of two pods: list, watch, read and cordon the node, two evictions.
    for n in 1..=6 {
        for lose_only_the_answer in [false, true] {
            world.pod(&node, &format!("web-{n}-{lose_only_the_answer}"), Some(&owner)).await;
            world.pod(&node, &format!("api-{n}-{lose_only_the_answer}"), Some(&owner)).await;
            if lose_only_the_answer {
                world.tap.cut_after(n);
            } else {
                world.tap.cut_before(n);
            }
            let cut = drained(&world, &node, &short).await;
            if let Err(error) = &cut {
                assert_eq!(error.class(), Class::Transient, "{error}");
            }
            let (cordoned, holder) = is_cordoned(&world, &node).await;
            assert_eq!(
                holder.is_some(),
                cordoned,
                "cordoned without a record, or the reverse, after a cut at {n}"
            );
            world.tap.mend();
            let kubelet = Kubelet::start(world.client(), &node);
            drained(&world, &node, &options(LIMIT)).await.unwrap();
            assert!(pods_on(&world, &node).await.is_empty());
            drop(kubelet);
            kubelink::cordon::uncordon(&world.link, &node, "manifest-1").await.unwrap();
            assert_eq!(is_cordoned(&world, &node).await, (false, None));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_drain_leaves_its_record_for_the_next_process() {
    let Some(world) = world("drain-drop") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "web", Some(&owner)).await;
    let granted = Arc::new(tokio::sync::Notify::new());
    let notify = granted.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("granted") {
            notify.notify_one();
        }
    });
    let (long, cancel) = (options(LIMIT), CancellationToken::new());
    tokio::select! {
        end = drain(&world.link, &node, &long, &progress, &cancel) => panic!("{end:?}"),
        () = granted.notified() => {}
    }
    assert_eq!(is_cordoned(&world, &node).await, (true, Some("manifest-1".to_owned())));
    let _kubelet = Kubelet::start(world.client(), &node);
    assert_eq!(drained(&world, &node, &options(LIMIT)).await.unwrap().cordon, CordonResult::Before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_throttling_errors_and_lost_connections() {
    let Some(world) = world("drain-faults") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    for fault in [Fault::Throttled, Fault::Error, Fault::Reset, Fault::Late] {
        for index in 0..3 {
            world.pod(&node, &format!("web-{index}"), Some(&owner)).await;
        }
        // The watch is reopened and each eviction is retried; the caller repeats list and cordon.
        world.tap.disturb("/eviction", fault, 4);
        world.tap.disturb("watch=true", fault, 2);
        let begun = Instant::now();
        let found = drained(&world, &node, &options(LIMIT))
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(found.evicted.len(), 3, "{fault:?}: {:?}", found.evicted);
        if fault == Fault::Throttled {
            assert!(begun.elapsed() >= Duration::from_secs(1), "Retry-After is honoured");
        }
        assert!(pods_on(&world, &node).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pod_with_the_name_of_an_evicted_one_is_not_evicted() {
    let Some(world) = world("drain-namesake") else { return };
    let (node, elsewhere) = (world.node("a").await, world.node("b").await);
    let owner = world.owner().await;
    world.pod(&node, "db-0", Some(&owner)).await;
    // During the eviction the pod is replaced on another node, as by a StatefulSet.
    world.tap.disturb("/eviction", Fault::Late, 1);
    let (options, cancel, progress) = (options(LIMIT), CancellationToken::new(), ProgressSink::disabled());
    let work = drain(&world.link, &node, &options, &progress, &cancel);
    let replace = async {
        world.tap.met("/eviction").await;
        let now = DeleteParams::default().grace_period(0);
        world.api::<Pod>().delete("db-0", &now).await.unwrap();
        world.pod(&elsewhere, "db-0", Some(&owner)).await
    };
    let (end, namesake) = tokio::join!(work, replace);
    end.unwrap();
    let seen = world.api::<Pod>().get("db-0").await.unwrap();
    assert_eq!((seen.uid(), seen.metadata.deletion_timestamp), (namesake.uid(), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_drain_leaves_the_cordon_of_another_holder() {
    let Some(world) = world("drain-other") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "ends-never", Some(&owner)).await;
    Api::<Node>::all(world.client()).cordon(&node).await.unwrap();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("granted") {
            stop.cancel();
        }
    });
    let end = drain(&world.link, &node, &options(LIMIT), &progress, &cancel).await;
    let Err(DrainError::Cancelled { cordon: CordonState::HeldByOther, .. }) = end else { panic!("{end:?}") };
    assert_eq!(is_cordoned(&world, &node).await, (true, None));
}
