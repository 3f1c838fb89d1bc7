//! Drain.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use api::error::{Class, Classify};
use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, ResourceExt};
use kubelink::ProgressSink;
use kubelink::cordon::{CORDONED_BY, CordonResult, Holder};
use kubelink::drain::{
    CordonState, DrainError, DrainGoal, DrainOptions, DrainSummary, EmptyDirPolicy, UnmanagedPolicy, drain,
};
use kubelink::wait::{ObjectSelection, WaitStatus, wait};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Kubelet, World, pod, world};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn options(limit: Duration) -> DrainOptions {
    DrainOptions::new(Holder::new("manifest-1", "a test"), limit)
}

pub(crate) async fn drained(
    world: &World,
    node: &str,
    options: &DrainOptions,
) -> Result<DrainSummary, DrainError> {
    drain(&world.link, node, options, &ProgressSink::disabled(), &CancellationToken::new()).await
}

pub(crate) async fn is_cordoned(world: &World, node: &str) -> (bool, Option<String>) {
    let node = Api::<Node>::all(world.client()).get(node).await.unwrap();
    let unschedulable = node.spec.as_ref().unwrap().unschedulable.unwrap_or(false);
    (unschedulable, node.annotations().get(CORDONED_BY).cloned())
}

pub(crate) async fn pods_on(world: &World, node: &str) -> Vec<String> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let found = Api::<Pod>::all(world.client()).list(&params).await.unwrap();
    found.items.iter().map(ResourceExt::name_any).collect()
}

/// Waits until `count` pods of the world's are ready.
async fn all_ready(world: &World, count: usize) {
    let which = ObjectSelection::Labelled("app=web".to_owned());
    wait(
        &world.link,
        world.api::<Pod>(),
        &which,
        "ready pods",
        LIMIT,
        &ProgressSink::disabled(),
        |pods: &[&Pod]| {
            let ready = pods
                .iter()
                .filter(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running"))
                .count();
            if ready == count {
                WaitStatus::Done(())
            } else {
                WaitStatus::Waiting(format!("{ready} of {count}"))
            }
        },
    )
    .await
    .unwrap();
}

/// A budget that allows no disruption, once the controller has counted its pods.
async fn blocking_budget(world: &World, pods: i32) {
    let budget = json!({"metadata": {"name": "web-budget"},
        "spec": {"minAvailable": pods, "selector": {"matchLabels": {"app": "web"}}}});
    let _: PodDisruptionBudget = world.create(world.api(), budget).await;
    let which = ObjectSelection::Named("web-budget".to_owned());
    wait(
        &world.link,
        world.api(),
        &which,
        "the budget",
        LIMIT,
        &ProgressSink::disabled(),
        |all: &[&PodDisruptionBudget]| {
            let counted = all
                .iter()
                .any(|it| it.status.as_ref().and_then(|status| status.current_healthy) == Some(pods));
            if counted { WaitStatus::Done(()) } else { WaitStatus::Waiting("its status".into()) }
        },
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_a_hundred_pods_costs_one_list_one_watch_and_one_eviction_each() {
    let Some(world) = world("drain-many") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    join_all((0..100).map(|index| {
        let (world, node, owner) = (&world, &node, &owner);
        async move { world.pod(node, &format!("web-{index}"), Some(owner)).await }
    }))
    .await;
    all_ready(&world, 100).await;
    world.tap.clear();
    let found = drained(&world, &node, &options(LIMIT)).await.unwrap();
    assert_eq!((found.evicted.len(), &found.cordon), (100, &CordonResult::Now));
    let requests = world.tap.requests();
    let count = |has: &dyn Fn(&str) -> bool| requests.iter().filter(|request| has(request)).count();
    assert_eq!(count(&|it| it.starts_with("POST") && it.contains("/eviction")), 100);
    assert_eq!(
        count(&|it| it.starts_with("GET /api/v1/pods?") && !it.contains("watch=true")),
        1,
        "{requests:#?}"
    );
    assert_eq!(
        count(&|it| it.starts_with("GET /api/v1/pods?") && it.contains("watch=true")),
        1,
        "{requests:#?}"
    );
    let of_pods = |it: &str| it.contains(&format!("/namespaces/{}/pods/", world.namespace));
    assert_eq!(count(&|it| it.starts_with("GET") && of_pods(it)), 0, "a drain polls no pod");
    assert!(pods_on(&world, &node).await.is_empty());
    assert_eq!(is_cordoned(&world, &node).await, (true, Some("manifest-1".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_would_lose_something_fail_the_drain_before_any_write() {
    let Some(world) = world("drain-refuse") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "alone", None).await;
    let mut scratch = pod(&node, "scratch", Some(&owner));
    scratch["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let _: Pod = world.create(world.api(), scratch).await;
    world.pod(&node, "plain", Some(&owner)).await;
    let _kubelet = Kubelet::start(world.client(), &node);

    let error = drained(&world, &node, &options(LIMIT)).await.unwrap_err();
    let DrainError::Refused { empty_dir, unmanaged, .. } = &error else { panic!("{error}") };
    assert_eq!(empty_dir, &[format!("{}/scratch", world.namespace)]);
    assert_eq!(unmanaged, &[format!("{}/alone", world.namespace)]);
    assert_eq!(error.class(), Class::Terminal);
    assert_eq!(is_cordoned(&world, &node).await, (false, None));
    assert_eq!(pods_on(&world, &node).await.len(), 3);

    let lax = DrainOptions {
        empty_dir: EmptyDirPolicy::Delete,
        unmanaged: UnmanagedPolicy::Delete,
        ..options(LIMIT)
    };
    assert_eq!(drained(&world, &node, &lax).await.unwrap().evicted.len(), 3);
    assert!(pods_on(&world, &node).await.is_empty());
    let again = drained(&world, &node, &options(LIMIT)).await.unwrap();
    assert_eq!((again.cordon, again.evicted.len()), (CordonResult::Before, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_and_mirror_pods_stay_and_finished_ones_are_evicted() {
    let Some(world) = world("drain-daemon") else { return };
    if !testkit::kube::shared().unwrap().has_controllers() {
        return testkit::prerequisites::skip(
            testkit::prerequisites::KUBERNETES_CONTROLLERS,
            "nobody makes pods of a DaemonSet",
        );
    }
    let node = world.node("a").await;
    let nodes: Api<Node> = Api::all(world.client());
    // The scheduler of the shared cluster would place pods of other tests on a node with capacity.
    let taints = json!([{"key": "tests/own-node", "effect": "NoSchedule"}]);
    let own = json!({"metadata": {"labels": {"name": node}}, "spec": {"taints": taints}});
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(own)).await.unwrap();
    let room = json!({"pods": "10", "cpu": "1", "memory": "1Gi"});
    let status = json!({"status": {"capacity": room, "allocatable": room}});
    nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let daemon = json!({"metadata": {"name": "logs"}, "spec": {
        "selector": {"matchLabels": {"app": "logs"}},
        "template": {"metadata": {"labels": {"app": "logs"}}, "spec": {
            "nodeSelector": {"name": node}, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "example.invalid/c"}]}}}});
    let _: DaemonSet = world.create(world.api(), daemon).await;
    let which = ObjectSelection::Labelled("app=logs".to_owned());
    let judge = |pods: &[&Pod]| match pods.iter().find(|pod| pod.spec.as_ref().unwrap().node_name.is_some()) {
        Some(pod) => WaitStatus::Done(pod.name_any()),
        None => WaitStatus::Waiting("the scheduler".to_owned()),
    };
    let silent = ProgressSink::disabled();
    let log_pod =
        wait(&world.link, world.api(), &which, "the daemon pod", LIMIT, &silent, judge).await.unwrap();
    let mut mirror = pod(&node, "static", None);
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    let _: Pod = world.create(world.api(), mirror).await;
    world.pod(&node, "finished", None).await;
    let status = json!({"status": {"phase": "Succeeded"}});
    world
        .api::<Pod>()
        .patch_status("finished", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let _kubelet = Kubelet::start(world.client(), &node);

    let found = drained(&world, &node, &options(LIMIT)).await.unwrap();
    assert_eq!(found.evicted, [format!("{}/finished", world.namespace)]);
    assert_eq!(found.left, [log_pod.as_str(), "static"].map(|name| format!("{}/{name}", world.namespace)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_blocked_by_a_budget_names_it_and_uncordons_within_five_seconds_of_a_cancel() {
    let Some(world) = world("drain-budget") else { return };
    if !testkit::kube::shared().unwrap().has_controllers() {
        return testkit::prerequisites::skip(
            testkit::prerequisites::KUBERNETES_CONTROLLERS,
            "no controller counts for the budget",
        );
    }
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    world.pod(&node, "web-0", Some(&owner)).await;
    world.pod(&node, "web-1", Some(&owner)).await;
    all_ready(&world, 2).await;
    blocking_budget(&world, 2).await;

    // Long enough for a rejection on a busy machine, and for retried evictions.
    let notes = Arc::new(Mutex::new(Vec::new()));
    let sink = notes.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.about.starts_with("node ") {
            sink.lock().unwrap().push(note.sentence.to_string());
        }
    });
    let short = options(Duration::from_secs(5));
    let stalled = drain(&world.link, &node, &short, &progress, &CancellationToken::new()).await.unwrap_err();
    let notes = notes.lock().unwrap().clone();
    let mut since = notes.iter().skip_while(|it| !it.contains("web-budget")).peekable();
    assert!(since.peek().is_some(), "{notes:#?}");
    assert!(
        since.all(|it| it.contains("web-budget")),
        "the blocker is reported until it is gone: {notes:#?}"
    );
    let DrainError::Stalled { blockers, .. } = &stalled else { panic!("{stalled}") };
    assert_eq!(stalled.class(), Class::Transient);
    assert_eq!(blockers[0].budgets, [format!("{}/web-budget", world.namespace)]);
    let held: Vec<_> = ["web-0", "web-1"].iter().map(|name| format!("{}/{name}", world.namespace)).collect();
    assert_eq!(blockers[0].pods, held);
    assert!(stalled.to_string().contains("needs 2 healthy pods and has 2 currently"), "{stalled}");
    assert_eq!(
        is_cordoned(&world, &node).await,
        (true, Some("manifest-1".to_owned())),
        "a stalled drain can be taken up"
    );

    // Cancelled while the budget blocks it, with a slow API server.
    let cancel = CancellationToken::new();
    let held = Arc::new(tokio::sync::Notify::new());
    let notify = held.clone();
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        if note.sentence.contains("PodDisruptionBudget") {
            notify.notify_one();
        }
    });
    let long = options(Duration::from_secs(600));
    let work = drain(&world.link, &node, &long, &progress, &cancel);
    let cancelled_at = async {
        held.notified().await;
        world.tap.delay(Duration::from_millis(1500));
        cancel.cancel();
        Instant::now()
    };
    let (end, cancelled_at) = tokio::join!(work, cancelled_at);
    assert!(cancelled_at.elapsed() < Duration::from_secs(5), "{:?}", cancelled_at.elapsed());
    let Err(DrainError::Cancelled { cordon: CordonState::Uncordoned, .. }) = end else { panic!("{end:?}") };
    world.tap.delay(Duration::ZERO);
    assert_eq!(is_cordoned(&world, &node).await, (false, None));
    assert_eq!(pods_on(&world, &node).await.len(), 2);

    // Without the budget, the same drain completes.
    let budgets: Api<PodDisruptionBudget> = world.api();
    budgets.delete("web-budget", &Default::default()).await.unwrap();
    assert_eq!(drained(&world, &node, &options(LIMIT)).await.unwrap().evicted.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_appears_during_the_drain_is_evicted_too_and_progress_names_each_pod() {
    let Some(world) = world("drain-late") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "first", Some(&owner)).await;
    let notes = Arc::new(Mutex::new(Vec::new()));
    let granted = Arc::new(tokio::sync::Notify::new());
    let (sink, notify) = (notes.clone(), granted.clone());
    let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
        sink.lock().unwrap().push(format!("{}: {}", note.about, note.sentence));
        if note.sentence.contains("granted") {
            notify.notify_one();
        }
    });
    let (options, cancel) = (options(LIMIT), CancellationToken::new());
    let work = drain(&world.link, &node, &options, &progress, &cancel);
    // There is no kubelet yet: the first pod is terminating when the second one appears.
    let second = async {
        granted.notified().await;
        world.pod(&node, "second", Some(&owner)).await;
        granted.notified().await;
        Kubelet::start(world.client(), &node)
    };
    let (end, _kubelet) = tokio::join!(work, second);
    assert_eq!(end.unwrap().evicted.len(), 2);
    let notes = notes.lock().unwrap();
    for name in ["first", "second"] {
        let wanted = format!("pod {}/{name}: eviction granted, terminating", world.namespace);
        assert!(notes.contains(&wanted), "{notes:#?}");
    }
    assert!(notes.iter().any(|it| it.ends_with("waits for 2 pods to terminate")), "{notes:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_does_not_wait_returns_when_all_evictions_are_granted() {
    let Some(world) = world("drain-granted") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "web", Some(&owner)).await;
    let quick =
        DrainOptions { until: DrainGoal::Granted, grace: Some(Duration::from_secs(300)), ..options(LIMIT) };
    assert_eq!(drained(&world, &node, &quick).await.unwrap().evicted.len(), 1);
    let ending = world.api::<Pod>().get("web").await.unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(300));
    let stalled = drained(&world, &node, &options(Duration::from_secs(3))).await.unwrap_err();
    assert!(stalled.to_string().contains("its grace period has not ended"), "{stalled}");
}
