//! The verbs on kubesim, whose API server has fault injection.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::error::{Class, Classify};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kubelink::apply::{ApplyError, ApplyOptions, ApplySetName, Documents, Effect, apply};
use kubelink::cordon::{CordonResult, Holder, cordon, cordoned_by, uncordon};
use kubelink::delete::{DeleteOptions, DeleteResult, delete};
use kubelink::drain::drain;
use kubelink::job::{JobRequest, run_job};
use kubelink::rollout::{Workload, restart, rollout};
use kubelink::{ProgressSink, Target};
use kubesim::ClusterOptions;
use kubesim::faults::Fault;
use kubesim::kubelet::{Kubelets, NodeTemplate};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::drain::{LIMIT, drained, is_cordoned, options, pods_on};
use crate::support::{Kubelet, world_of};

const FAULTS: [Fault; 5] = [
    Fault::Latency(Duration::from_millis(100)),
    Fault::TooManyRequests { retry_after_seconds: 1 },
    Fault::InternalError,
    Fault::ConnectionReset,
    Fault::Unreachable,
];

async fn sim() -> kubesim::SimulatedCluster {
    kubesim::SimulatedCluster::start("sim", ClusterOptions::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_every_temporary_fault() {
    let sim = Arc::new(sim().await);
    let world = world_of(&sim);
    let node = world.node("a").await;
    let owner = world.owner().await;
    for fault in FAULTS {
        for index in 0..3 {
            world.pod(&node, &format!("web-{index}"), Some(&owner)).await;
        }
        // The fault starts with the first granted eviction and stops when the drain has noticed it; there is no
        // kubelet before.
        let (granted, noticed) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (on_granted, on_noticed) = (granted.clone(), noticed.clone());
        let progress = ProgressSink::new(Arc::new(SystemClock), move |note| {
            if note.sentence.contains("granted") {
                on_granted.notify_one();
            }
            if note.sentence.contains("interrupted") {
                on_noticed.notify_one();
            }
        });
        let (options, cancel) = (options(LIMIT), CancellationToken::new());
        let work = drain(&world.link, &node, &options, &progress, &cancel);
        let disturb = async {
            granted.notified().await;
            sim.faults().always(fault);
            sim.faults().drop_watches();
            // A watch that is being opened at that moment has no fault; it is dropped later.
            let disturbed = std::time::Instant::now();
            while !matches!(fault, Fault::Latency(_)) && disturbed.elapsed() < LIMIT {
                match tokio::time::timeout(Duration::from_millis(100), noticed.notified()).await {
                    Ok(()) => break,
                    Err(_) => sim.faults().drop_watches(),
                }
            }
            sim.faults().clear();
            Kubelet::start(world.client(), &node)
        };
        let (end, _kubelet) = tokio::join!(work, disturb);
        assert_eq!(end.unwrap_or_else(|error| panic!("{fault:?}: {error}")).cordon, CordonResult::Now);
        assert!(pods_on(&world, &node).await.is_empty(), "{fault:?}");
        uncordon(&world.link, &node, "manifest-1").await.unwrap();
        assert_eq!(is_cordoned(&world, &node).await, (false, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_started_during_a_fault_fails_transiently_and_leaves_no_cordon_without_a_record() {
    let sim = sim().await;
    let world = world_of(&sim);
    let node = world.node("a").await;
    let owner = world.owner().await;
    world.pod(&node, "web", Some(&owner)).await;
    for fault in FAULTS.into_iter().filter(|fault| !matches!(fault, Fault::Latency(_))) {
        // Once from the first request on, and once for the node alone, after its pods were listed.
        for path in ["", "/nodes/"] {
            match (path, fault) {
                ("", _) | (_, Fault::Unreachable) => sim.faults().always(fault),
                (path, fault) => sim.faults().on_path(fault, path, None),
            }
            let error = drained(&world, &node, &options(Duration::from_millis(500))).await.unwrap_err();
            assert_eq!(error.class(), Class::Transient, "{fault:?} {error}");
            sim.faults().clear();
            let (cordoned, holder) = is_cordoned(&world, &node).await;
            assert_eq!(cordoned, holder.is_some(), "{fault:?}");
            assert_eq!(cordoned_by(&world.link, "manifest-1").await.unwrap().len(), usize::from(cordoned));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_during_a_fault_fails_and_a_repeat_finishes_it() {
    let sim = sim().await;
    let world = world_of(&sim);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let documents = Documents::from_values(vec![map("a"), map("b")]).unwrap();
    for (index, fault) in FAULTS.into_iter().filter(|fault| !matches!(fault, Fault::Latency(_))).enumerate() {
        let set = ApplySetName { namespace: "default".into(), name: format!("set-{index}") };
        let options = ApplyOptions { set: Some(set), ..ApplyOptions::default() };
        sim.faults().always(fault);
        let error = apply(&world.link, &documents, &options, &ProgressSink::disabled()).await.unwrap_err();
        assert!(matches!(error, ApplyError::Stopped { .. }), "{fault:?} {error}");
        assert_eq!(error.class(), Class::Transient, "{fault:?} {error}");
        sim.faults().clear();
        let done = apply(&world.link, &documents, &options, &ProgressSink::disabled()).await.unwrap();
        assert!(done.objects.iter().all(|(_, effect)| *effect == Effect::Created), "{done:?}");
        let none = Documents::from_values(Vec::new()).unwrap();
        let gone = apply(&world.link, &none, &options, &ProgressSink::disabled()).await.unwrap();
        assert!(gone.objects.len() == 2 && gone.objects.iter().all(|(_, effect)| *effect == Effect::Pruned));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_verbs_fail_transiently_during_a_fault_and_succeed_after_it() {
    let sim = sim().await;
    let world = world_of(&sim);
    let _kubelets = Kubelets::with_delay_factor(&sim, vec![NodeTemplate::worker("worker-1")], 0.0);
    let node = world.node("a").await;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}}}});
    let _: Deployment = world.create(world.api(), deployment).await;
    let (link, silent, holder) = (&world.link, ProgressSink::disabled(), Holder::new("manifest-1", "a test"));
    let target = Target::typed::<ConfigMap>(Some(&world.namespace), "map");
    for (index, fault) in FAULTS.into_iter().filter(|fault| !matches!(fault, Fault::Latency(_))).enumerate() {
        let run = format!("run-{index}");
        let request = JobRequest::of_image(&run, "check", &world.namespace, "example.invalid/check", &[]);
        let _: ConfigMap = world.create(world.api(), json!({"metadata": {"name": "map"}})).await;
        let restarted = async || restart(link, Workload::Deployment, &world.namespace, "web", &run).await;
        let deleted = async || delete(link, &target, &DeleteOptions::default(), &silent).await;
        sim.faults().always(fault);
        let failures = [
            cordon(link, &node, &holder).await.map(drop),
            uncordon(link, &node, &holder.id).await.map(drop),
            restarted().await.map(drop),
            deleted().await.map(drop),
            run_job(link, &request, LIMIT, &silent).await.map(drop),
            kubelink::facts::version(link).await.map(drop),
        ];
        for failure in failures {
            let error = failure.expect_err(&format!("{fault:?} was overlooked"));
            assert_eq!(error.class(), Class::Transient, "{fault:?} {error}");
        }
        sim.faults().clear();
        assert_eq!(is_cordoned(&world, &node).await, (false, None), "{fault:?}");
        assert_eq!(cordon(link, &node, &holder).await.unwrap(), CordonResult::Now);
        uncordon(link, &node, &holder.id).await.unwrap();
        assert!(restarted().await.unwrap(), "{fault:?}: nothing of it was done before");
        assert_eq!(deleted().await.unwrap(), DeleteResult::Gone);
        // While they wait, every watch is dropped once more.
        let waiting = async {
            let rolled_out =
                rollout(link, Workload::Deployment, &world.namespace, "web", LIMIT, &silent).await;
            (rolled_out, run_job(link, &request, LIMIT, &silent).await)
        };
        let dropping = async { sim.faults().drop_watches() };
        let ((rolled_out, outcome), ()) = tokio::join!(waiting, dropping);
        assert!(rolled_out.unwrap().contains("successfully rolled out"));
        let outcome = outcome.unwrap();
        assert_eq!(outcome.result, Ok(()), "{fault:?}");
        assert!(outcome.log.unwrap().trim_end().ends_with("done"));
    }
}
