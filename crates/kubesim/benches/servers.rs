//! Compares kubesim with a real kube-apiserver and etcd: the same client, in alternating slices of one run, each with
//! TLS on loopback. The example `fleet` measures a large fleet in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::task::JoinSet;

/// Number of concurrent clients.
const WORKERS: usize = 8;
/// Number of objects in a list.
const OBJECTS: usize = 500;
/// Number of watches on the changed object.
const WATCHERS: usize = 20;
const SLICE: Duration = Duration::from_secs(1);
const PAIRS: usize = 5;
/// The ratio that each measurement has to reach.
const GOAL: f64 = 3.0;

/// A measured operation; the result is its rate per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Get,
    List,
    PatchStatus,
    Watch,
}

impl Task {
    const ALL: [Task; 4] = [Task::Get, Task::List, Task::PatchStatus, Task::Watch];

    fn name(self) -> &'static str {
        match self {
            Task::Get => "get",
            Task::List => "list of 500",
            Task::PatchStatus => "status patch",
            Task::Watch => "events to 20 watchers",
        }
    }
}

fn main() -> anyhow::Result<()> {
    // The arguments of `cargo bench` are ignored.
    let Some(real) = testkit::kube::private(testkit::kube::TestClusterOptions::default()) else {
        println!("there is nothing to compare with: {}", testkit::kube::MISSING);
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let sim = kubesim::SimulatedCluster::start("bench", kubesim::ClusterOptions::default()).await?;
        let (real, sim_client) = (prepare(real.kubeconfig()).await?, prepare(&sim.kubeconfig()).await?);
        println!("{:<24} {:>12} {:>15} {:>7}   goal", "what", "kubesim", "kube-apiserver", "ratio");
        for task in Task::ALL {
            // The first pair only warms up.
            rate(&real, task, SLICE / 4).await?;
            rate(&sim_client, task, SLICE / 4).await?;
            let mut pairs = Vec::new();
            for _ in 0..PAIRS {
                pairs.push((rate(&real, task, SLICE).await?, rate(&sim_client, task, SLICE).await?));
            }
            let ratio = median(pairs.iter().map(|(real, sim)| sim / real).collect());
            println!(
                "{:<24} {:>10.0}/s {:>13.0}/s {:>7.2}   at least {GOAL}   {}",
                task.name(),
                median(pairs.iter().map(|it| it.1).collect()),
                median(pairs.iter().map(|it| it.0).collect()),
                ratio,
                if ratio >= GOAL { "pass" } else { "MISS" }
            );
        }
        sim.stop().await;
        anyhow::Ok(())
    })
}

/// Creates a client and the objects that it reads.
async fn prepare(kubeconfig: &str) -> anyhow::Result<Client> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(kubeconfig)?, &KubeConfigOptions::default())
            .await?;
    let client = Client::try_from(config)?;
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "bench" } }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "bench");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "bench");
    for number in 0..OBJECTS {
        let map = serde_json::from_value(json!({
            "metadata": { "name": format!("map-{number}") }, "data": { "text": "x".repeat(500) }
        }))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    for number in 0..WORKERS {
        let budget = serde_json::from_value(json!({
            "metadata": { "name": format!("budget-{number}") },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "none" } } }
        }))?;
        budgets.create(&PostParams::default(), &budget).await?;
    }
    Ok(client)
}

/// The rate per second.
async fn rate(client: &Client, task: Task, slice: Duration) -> anyhow::Result<f64> {
    if task == Task::Watch {
        return fan_out(client, slice).await;
    }
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(work(client.clone(), task, number, begun + slice));
    }
    let mut done = 0;
    while let Some(worked) = workers.join_next().await {
        done += worked??;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

async fn work(client: Client, task: Task, number: usize, end: Instant) -> anyhow::Result<usize> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "bench");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "bench");
    let mut done = 0;
    while Instant::now() < end {
        match task {
            Task::Get => drop(maps.get(&format!("map-{}", (done * 7 + number) % OBJECTS)).await?),
            Task::List => drop(maps.list(&ListParams::default().limit(OBJECTS as u32)).await?),
            _ => {
                let status = json!({ "status": {
                    "disruptionsAllowed": done, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1
                } });
                let name = format!("budget-{number}");
                budgets.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            }
        }
        done += 1;
    }
    Ok(done)
}

/// The rate of events that reach watches, while one writer changes one object as fast as it can.
async fn fan_out(client: &Client, slice: Duration) -> anyhow::Result<f64> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "bench");
    let version =
        maps.list(&ListParams::default().limit(1)).await?.metadata.resource_version.context("a version")?;
    let received = Arc::new(AtomicUsize::new(0));
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let (maps, version, received) = (maps.clone(), version.clone(), received.clone());
        watchers.spawn(async move {
            let mut events =
                maps.watch(&WatchParams::default().fields("metadata.name=map-0"), &version).await?.boxed();
            while let Some(event) = events.try_next().await? {
                if matches!(event, WatchEvent::Modified(_)) {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            }
            anyhow::Ok(())
        });
    }
    let begun = Instant::now();
    let mut written = 0;
    while begun.elapsed() < slice {
        let patch = json!({ "data": { "count": format!("{written} {:?}", begun.elapsed()) } });
        maps.patch("map-0", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        written += 1;
    }
    // Every watch gets every event.
    while received.load(Ordering::Relaxed) < written * WATCHERS && begun.elapsed() < slice * 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(received.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
