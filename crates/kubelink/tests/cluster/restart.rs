//! Verbs on an API server that is killed, hangs and restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use api::error::{Class, Classify};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kubelink::cordon::{CordonResult, Holder};
use kubelink::drain::{CordonState, DrainError, DrainOptions, EmptyDirPolicy, UnmanagedPolicy, drain};
use kubelink::{Failure, ProgressSink, Timeouts};
use testkit::kube::{TestClusterOptions, private};
use tokio_util::sync::CancellationToken;

use crate::drain::is_cordoned;
use crate::support::{Kubelet, Tap, link_to, world_on};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_continues_after_the_api_server_was_killed_during_it() {
    let Some(cluster) = private(TestClusterOptions::default()) else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    };
    let world = world_on(&cluster, "killed");
    let node = world.node("a").await;
    let owner = world.owner().await;
    join_all((0..10).map(|index| {
        let (world, node, owner) = (&world, &node, &owner);
        async move { world.pod(node, &format!("web-{index}"), Some(owner)).await }
    }))
    .await;
    let granted = Arc::new(tokio::sync::Notify::new());
    let interrupted = Arc::new(tokio::sync::Notify::new());
    let (on_granted, on_interrupted) = (granted.clone(), interrupted.clone());
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("granted") {
            on_granted.notify_one();
        }
        if note.sentence.contains("watch interrupted") {
            on_interrupted.notify_one();
        }
    });
    let options = DrainOptions::new(Holder::new("manifest-1", "a test"), Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let work = drain(&world.link, &node, &options, &progress, &cancel);
    let disturb = async {
        granted.notified().await;
        cluster.kill().unwrap();
        interrupted.notified().await;
        tokio::task::block_in_place(|| cluster.restart().unwrap());
        Kubelet::start(world.client(), &node)
    };
    let (end, _kubelet) = tokio::join!(work, disturb);
    let end = end.unwrap();
    assert_eq!(end.cordon, CordonResult::Now);
    assert!(!end.evicted.is_empty());
    let left = world.api::<Pod>().list(&ListParams::default()).await.unwrap();
    assert!(
        left.items.is_empty(),
        "all ten are gone, those too whose eviction was granted without an answer"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_api_server_delays_verbs_by_their_timeouts_only() {
    let Some(cluster) = private(TestClusterOptions::default()) else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    };
    let world = world_on(&cluster, "hangs");
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "web", Some(&owner)).await;
    let timeouts = Timeouts { connect: Duration::from_millis(300), request: Duration::from_millis(700) };
    let link = link_to(cluster.kubeconfig(), &Tap::default(), timeouts);

    // A drain cancelled while the server hangs returns in time and reports that the cordon remains.
    let cancel = CancellationToken::new();
    let granted = Arc::new(tokio::sync::Notify::new());
    let on_granted = granted.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("granted") {
            on_granted.notify_one();
        }
    });
    let mut options = DrainOptions::new(Holder::new("manifest-1", "a test"), Duration::from_secs(60));
    (options.empty_dir, options.unmanaged) = (EmptyDirPolicy::Delete, UnmanagedPolicy::Delete);
    let work = drain(&link, &node, &options, &progress, &cancel);
    let pause = async {
        granted.notified().await;
        cluster.pause().unwrap();
        cancel.cancel();
        Instant::now()
    };
    let (end, at) = tokio::join!(work, pause);
    assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
    let Err(DrainError::Cancelled { cordon: CordonState::Remaining(_), .. }) = end else { panic!("{end:?}") };

    let begun = Instant::now();
    let error = kubelink::facts::version(&link).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(matches!(error.failure, Failure::Timeout(_) | Failure::Connection(_)), "{error:?}");
    assert_eq!(error.class(), Class::Transient);

    cluster.resume().unwrap();
    // The uncordon without a response may still have arrived. The node is never cordoned without a record.
    let (cordoned, holder) = is_cordoned(&world, &node).await;
    assert_eq!(cordoned, holder.is_some());
    kubelink::cordon::uncordon(&world.link, &node, "manifest-1").await.unwrap();
    assert!(kubelink::cordon::cordoned_by(&world.link, "manifest-1").await.unwrap().is_empty());
}
