//! The simulated kubelets on the real API server and on kubesim.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod containers;

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kubesim::kubelet::{KubeletOptions, Kubelets, NodeTemplate, annotations};
use serde_json::{Value, json};
use testkit::{kube as real, prerequisites};

const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until there is a value.
async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = tokio::time::Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn nodes() -> Vec<NodeTemplate> {
    vec![
        NodeTemplate::control_plane("cp-1"),
        NodeTemplate::worker("worker-1"),
        NodeTemplate::worker("worker-2"),
    ]
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn workload(name: &str, replicas: i32, marks: Value) -> Deployment {
    typed(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name }, "annotations": marks },
                "spec": { "terminationGracePeriodSeconds": 20, "containers": [{ "name": "main", "image": "example.test/web:1" }] }
            }
        }
    }))
}

fn job(name: &str, marks: Value) -> Job {
    typed(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
        "spec": { "backoffLimit": 0, "template": {
            "metadata": { "annotations": marks },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.test/job:1" }] }
        } }
    }))
}

async fn mark(client: &Client, node: &str, name: &str, value: Option<&str>) {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = json!({ "metadata": { "annotations": { name: value } } });
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn is_ready(client: &Client, node: &str) -> Option<bool> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get_opt(node).await.unwrap()?;
    let conditions = node.status.unwrap_or_default().conditions.unwrap_or_default();
    conditions.iter().find(|it| it.type_ == "Ready").map(|it| it.status == "True")
}

/// The running and ready pods of an application.
async fn running(client: &Client, app: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let all = pods.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
    let ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
            && pod.metadata.deletion_timestamp.is_none()
    };
    all.into_iter().filter(ready).collect()
}

/// All behaviour in one cluster.
async fn kubelets_run_pods_and_report_nodes(client: Client) {
    let options = KubeletOptions {
        nodes: nodes(),
        delay_factor: 0.1,
        heartbeat: Duration::from_secs(2),
        ..KubeletOptions::default()
    };
    let life = Kubelets::start(client.clone(), options);
    for node in ["cp-1", "worker-1", "worker-2"] {
        eventually("each node is ready", async || is_ready(&client, node).await.filter(|it| *it)).await;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let renewed = async || leases.get_opt("worker-1").await.unwrap()?.spec?.renew_time;
    let first = eventually("a node has a lease", renewed).await;
    eventually("the lease is renewed", async || renewed().await.filter(|it| *it != first)).await;

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &workload("web", 4, json!({}))).await.unwrap();
    eventually("all pods of a deployment run", async || {
        (running(&client, "web").await.len() == 4).then_some(())
    })
    .await;
    eventually("the deployment is available", async || {
        let status = deployments.get_status("web").await.unwrap().status.unwrap_or_default();
        (status.available_replicas == Some(4)).then_some(())
    })
    .await;

    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job("good", json!({}))).await.unwrap();
    jobs.create(&PostParams::default(), &job("bad", json!({ annotations::OUTCOME: "fail" }))).await.unwrap();
    eventually("a job completes", async || {
        jobs.get_status("good").await.unwrap().status?.succeeded.filter(|it| *it == 1)
    })
    .await;
    eventually("a job fails", async || {
        jobs.get_status("bad").await.unwrap().status?.failed.filter(|it| *it == 1)
    })
    .await;

    // An evicted pod is deleted and replaced.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let victim = running(&client, "web").await.swap_remove(0);
    let name = victim.metadata.name.clone().unwrap();
    pods.evict(&name, &EvictParams::default()).await.unwrap();
    eventually("the evicted pod is gone", async || {
        pods.get_metadata_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("another pod runs in its place", async || {
        (running(&client, "web").await.len() == 4).then_some(())
    })
    .await;

    // A pod on a node that refuses to drain never stops.
    let held = running(&client, "web").await.swap_remove(0);
    let (name, node) = (held.metadata.name.clone().unwrap(), held.spec.unwrap().node_name.unwrap());
    mark(&client, &node, annotations::DRAIN, Some("refuse")).await;
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("another pod runs in the place of the held one", async || {
        (running(&client, "web").await.len() == 4).then_some(())
    })
    .await;
    assert!(
        pods.get_metadata_opt(&name).await.unwrap().is_some(),
        "the pod stopped although its node refuses to drain"
    );
    mark(&client, &node, annotations::DRAIN, None).await;
    eventually("the pod is gone when the node drains again", async || {
        pods.get_metadata_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;

    mark(&client, "worker-1", annotations::STATE, Some("NotReady")).await;
    eventually("the node is not ready", async || is_ready(&client, "worker-1").await.filter(|it| !*it)).await;
    mark(&client, "worker-1", annotations::STATE, None).await;
    eventually("the node is ready again", async || is_ready(&client, "worker-1").await.filter(|it| *it))
        .await;
    mark(&client, "worker-2", annotations::STATE, Some("Gone")).await;
    let all: Api<Node> = Api::all(client.clone());
    eventually("the node is gone", async || {
        all.get_metadata_opt("worker-2").await.unwrap().is_none().then_some(())
    })
    .await;
    life.stop().await;
}

#[tokio::test]
async fn kubelets_work_on_a_real_server() {
    let created =
        tokio::task::spawn_blocking(|| real::private(real::TestClusterOptions::default().with_controllers()))
            .await
            .unwrap();
    let Some(cluster) = created else {
        return prerequisites::skip(prerequisites::KUBERNETES, real::MISSING);
    };
    let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kubelets_run_pods_and_report_nodes(Client::try_from(config).unwrap()).await;
}

#[tokio::test]
async fn kubelets_work_on_a_simulated_server() {
    let options =
        kubesim::ClusterOptions { directory: None, clock: Arc::new(SystemClock), seed: 3, controllers: true };
    let cluster = kubesim::SimulatedCluster::start("life", options).await.unwrap();
    kubelets_run_pods_and_report_nodes(cluster.client()).await;
    cluster.stop().await;
}
