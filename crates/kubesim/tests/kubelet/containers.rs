//! Containers that run in this process, on kubesim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kubesim::SimulatedCluster;
use kubesim::kubelet::{Container, ContainerLog, ContainerRuntime, KubeletOptions, Kubelets, annotations};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{eventually, mark, nodes, running, typed};

const IMAGE: &str = "example.test/role:1";

/// The containers that run, and how many have run.
#[derive(Default)]
struct Running {
    now: Vec<Container>,
    started: usize,
    stopped: usize,
}

/// Runs containers until they are stopped; a command that ends in `fail` fails at once.
#[derive(Default, Clone)]
struct RecordingRuntime(Arc<Mutex<Running>>);

/// Removes the container from those that run, also when its future is dropped.
struct Leave(RecordingRuntime, Container);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().now.retain(|it| it != &self.1);
    }
}

impl RecordingRuntime {
    fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> = self.0.lock().unwrap().now.iter().map(|it| it.node.clone()).collect();
        nodes.sort();
        nodes
    }
}

impl ContainerRuntime for RecordingRuntime {
    fn runs(&self, image: &str) -> bool {
        image == IMAGE
    }

    fn run(
        &self,
        container: Container,
        log: ContainerLog,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), String>> {
        let runtime = self.clone();
        Box::pin(async move {
            {
                let mut running = runtime.0.lock().unwrap();
                running.started += 1;
                running.now.push(container.clone());
            }
            let leave = Leave(runtime.clone(), container.clone());
            if container.command.last().is_some_and(|it| it == "fail") {
                return Err("flag --fail was given".to_owned());
            }
            log.append("role is up");
            stop.cancelled().await;
            runtime.0.lock().unwrap().stopped += 1;
            drop(leave);
            Ok(())
        })
    }
}

fn role(name: &str, replicas: i32, argument: &str) -> Deployment {
    typed(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [
                    { "name": "main", "image": IMAGE, "command": ["role"], "args": [argument] },
                    { "name": "sidecar", "image": "example.test/other:1" }
                ] }
            }
        }
    }))
}

fn kubelets(cluster: &SimulatedCluster, runtime: &RecordingRuntime) -> Kubelets {
    let options = KubeletOptions {
        nodes: nodes(),
        delay_factor: 0.0,
        runtime: Some(Arc::new(runtime.clone())),
        ..KubeletOptions::default()
    };
    Kubelets::with_options(cluster, options)
}

async fn restarts(client: &Client, app: &str) -> Option<(i32, String)> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let all = pods.list(&kube::api::ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
    let status = all.into_iter().next()?.status?.container_statuses?.into_iter().next()?;
    let reason = status.state.and_then(|it| it.waiting).and_then(|it| it.reason).unwrap_or_default();
    Some((status.restart_count, reason))
}

#[tokio::test]
async fn containers_of_a_known_image_run_in_this_process_while_their_pods_do() {
    let cluster = SimulatedCluster::start("roles", kubesim::ClusterOptions::default()).await.unwrap();
    let (client, runtime) = (cluster.client(), RecordingRuntime::default());
    let life = kubelets(&cluster, &runtime);
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &role("role", 1, "work")).await.unwrap();
    eventually("the role runs", async || (runtime.nodes().len() == 1).then_some(())).await;
    let container = runtime.0.lock().unwrap().now[0].clone();
    assert_eq!(container.command, ["role", "work"]);
    assert_eq!((container.name.as_str(), container.namespace.as_str()), ("main", "default"));
    let pod = eventually("the pod is ready", async || running(&client, "role").await.pop()).await;
    assert_eq!(pod.metadata.name.as_deref(), Some(container.pod.as_str()));
    let log = cluster.logs().read(&container.pod_uid, "main");
    assert!(log.contains("role is up"), "{log}");

    // A node without power runs nothing; when it is back, its containers start again.
    mark(&client, &container.node, annotations::STATE, Some("NotReady")).await;
    eventually("nothing runs there", async || runtime.nodes().is_empty().then_some(())).await;
    assert_eq!(runtime.0.lock().unwrap().stopped, 0, "it had no time to stop");
    mark(&client, &container.node, annotations::STATE, None).await;
    eventually("it runs again", async || (runtime.nodes() == [container.node.as_str()]).then_some(())).await;

    // Kubelets that start again find their pods and run them.
    life.stop().await;
    assert_eq!(runtime.nodes(), [""; 0]);
    let life = kubelets(&cluster, &runtime);
    eventually("it runs after a restart", async || (runtime.nodes().len() == 1).then_some(())).await;

    // A deleted pod ends in order and is replaced; a deleted deployment ends for good.
    let (pods, stopped): (Api<Pod>, usize) =
        (Api::default_namespaced(client.clone()), runtime.0.lock().unwrap().stopped);
    pods.delete(&container.pod, &DeleteParams::default()).await.unwrap();
    eventually("it was replaced", async || {
        let running = runtime.0.lock().unwrap();
        (running.stopped == stopped + 1 && running.now.len() == 1 && running.now[0].pod != container.pod)
            .then_some(())
    })
    .await;
    deployments.delete("role", &DeleteParams::default()).await.unwrap();
    eventually("nothing runs", async || runtime.nodes().is_empty().then_some(())).await;
    life.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_container_that_fails_restarts_and_shows_why() {
    let cluster = SimulatedCluster::start("roles", kubesim::ClusterOptions::default()).await.unwrap();
    let (client, runtime) = (cluster.client(), RecordingRuntime::default());
    let life = kubelets(&cluster, &runtime);
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &role("broken", 1, "fail")).await.unwrap();
    eventually("it is restarted", async || {
        restarts(&client, "broken").await.filter(|(count, _)| *count >= 2)
    })
    .await;
    eventually("it waits between restarts", async || {
        restarts(&client, "broken").await.filter(|(_, reason)| reason == "CrashLoopBackOff")
    })
    .await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let all = pods.list(&kube::api::ListParams::default()).await.unwrap().items;
    let uid = all[0].metadata.uid.clone().unwrap();
    let log = cluster.logs().read(&uid, "main");
    assert!(log.contains("error: flag --fail was given"), "{log}");
    assert!(tokio::time::timeout(Duration::from_secs(10), life.stop()).await.is_ok());
    cluster.stop().await;
}
