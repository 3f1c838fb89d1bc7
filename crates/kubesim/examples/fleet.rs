//! How much a fleet of simulated clusters costs: `cargo run --release -p kubesim --example fleet -- [CLUSTERS] [NODES] [PODS]`.
//! Prints the time to start, the time to fill, the memory, and the processor time while nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kubesim::{Cluster, Options, Sim};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut next = |usual: usize| arguments.next().unwrap_or(Ok(usual));
    let (clusters, nodes, pods) = (next(200)?, next(10)?, next(300)?);
    let sim = Sim::new();
    let directory = tempfile::tempdir()?;

    let start = Instant::now();
    for number in 0..clusters {
        let name = format!("sim-{number}");
        let options = Options { directory: Some(directory.path().join(&name)), ..Options::default() };
        sim.cluster(&name, options).await?;
    }
    println!("{clusters} clusters started in {:.1} s, {} MiB", start.elapsed().as_secs_f64(), memory_mib()?);

    let start = Instant::now();
    for cluster in sim.all() {
        fill(&cluster, nodes, pods).await?;
    }
    println!(
        "{nodes} nodes and {pods} pods each in {:.1} s, {} MiB",
        start.elapsed().as_secs_f64(),
        memory_mib()?
    );

    let before = processor_ticks()?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let used = processor_ticks()? - before;
    println!("idle for 30 s: {used} ticks of 10 ms, {} MiB", memory_mib()?);
    sim.stop().await;
    Ok(())
}

async fn fill(cluster: &Arc<Cluster>, nodes: usize, pods: usize) -> anyhow::Result<()> {
    let client = cluster.client();
    let api: Api<Node> = Api::all(client.clone());
    let update = PatchParams::apply("kubelet");
    for number in 0..nodes {
        let node = serde_json::from_value(json!({"metadata": {"name": format!("node-{number}")}}))?;
        let name = api.create(&PostParams::default(), &node).await?.metadata.name.unwrap_or_default();
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        api.patch_status(&name, &update, &Patch::Merge(ready)).await?;
    }
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
    let api: Api<Pod> = Api::default_namespaced(client);
    let mut running = std::collections::BTreeSet::new();
    while running.len() < pods {
        for pod in api.list(&ListParams::default().fields("status.phase=Pending")).await?.items {
            let name = pod.metadata.name.unwrap_or_default();
            if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
                let status = json!({"status": {
                    "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "hostIP": "10.0.0.1",
                    "conditions": [
                        {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"},
                        {"type": "ContainersReady", "status": "True"},
                    ],
                    "containerStatuses": [{
                        "name": "web", "image": "registry.example/web:1", "imageID": "", "ready": true, "restartCount": 0,
                        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                    }],
                }});
                api.patch_status(&name, &update, &Patch::Merge(status)).await?;
                running.insert(name);
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The memory of this process.
fn memory_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or("0").parse::<u64>()? / 1024)
}

/// The processor time of this process, in hundredths of a second.
fn processor_ticks() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(tick(11) + tick(12))
}
