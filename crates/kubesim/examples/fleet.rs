//! Measures a fleet of simulated clusters: `cargo run --release -p kubesim --example fleet -- [CLUSTERS] [NODES]
//! [PODS]`. Prints the time to start, the time to fill, the memory, and the CPU time while the nodes only renew their
//! leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use kubesim::kubelet::{Kubelets, NodeTemplate};
use kubesim::{ClusterOptions, SimulatedCluster, SimulatedClusters};
use serde_json::json;

/// Duration of the idle measurement.
const IDLE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut next = |usual: usize| arguments.next().unwrap_or(Ok(usual));
    let (clusters, nodes, pods) = (next(200)?, next(10)?, next(300)?);
    let sim = SimulatedClusters::new();
    let directory = tempfile::tempdir()?;

    let start = Instant::now();
    for number in 0..clusters {
        let name = format!("sim-{number}");
        let options =
            ClusterOptions { directory: Some(directory.path().join(&name)), ..ClusterOptions::default() };
        sim.start(&name, options).await?;
    }
    println!(
        "{clusters} clusters started in {:.1} s (goal: below 10), {} MiB",
        start.elapsed().as_secs_f64(),
        memory_mib()?
    );

    let start = Instant::now();
    let mut kubelets = Vec::new();
    for cluster in sim.list() {
        kubelets.push(fill(&cluster, nodes, pods).await?);
    }
    println!(
        "{nodes} nodes and {pods} pods each in {:.1} s, {} MiB",
        start.elapsed().as_secs_f64(),
        memory_mib()?
    );

    let before = processor_ticks()?;
    tokio::time::sleep(IDLE).await;
    let percent = (processor_ticks()? - before) as f64 / IDLE.as_secs_f64();
    println!("idle: {percent:.1} % of one core (goal: below 10), {} MiB (goal: below 1536)", memory_mib()?);
    sim.stop().await;
    Ok(())
}

/// Starts nodes that renew their leases, and a deployment whose pods run on them.
async fn fill(cluster: &Arc<SimulatedCluster>, nodes: usize, pods: usize) -> anyhow::Result<Kubelets> {
    let nodes = (0..nodes).map(|number| NodeTemplate::worker(format!("node-{number}"))).collect();
    let client = cluster.client();
    let life = Kubelets::with_delay_factor(cluster, nodes, 0.0);
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": pods, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]},
            },
        },
    }))?;
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &deployment).await?;
    let ready = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.and_then(|it| it.ready_replicas).is_some_and(|ready| usize::try_from(ready) == Ok(pods))
    };
    let api: Api<Deployment> = Api::default_namespaced(client);
    while !ready(&api.get("web").await?) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(life)
}

/// The memory of this process.
fn memory_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or("0").parse::<u64>()? / 1024)
}

/// The CPU time of this process in hundredths of a second: divided by seconds, the percentage of one core.
fn processor_ticks() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(tick(11) + tick(12))
}
