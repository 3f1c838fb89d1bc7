//! A MachineSet from 0 to 1,000 Machines on a real API server, and a bare loop with the same writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use api::crd::machine::MachineSet;
use controller::Observability;
use futures_util::stream::{StreamExt as _, iter};
use http::Method;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use machines::{Metrics, Settings};
use serde_json::json;
use testkit::kube::TestClusterOptions;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clouds::Pool;
use crate::population::{create_namespace, create_node, create_set, define};
use crate::recorder::{Recorder, Write, repeat};
use crate::{report, until};

const MACHINES: usize = 1000;
/// Writes that the bare loop has in flight, as many as the controllers have instances.
const IN_FLIGHT: usize = 16;
const GOAL: f64 = 0.70;
const RUN_MAX: Duration = Duration::from_secs(600);

/// Texts by which the objects of both runs differ.
const OURS: [&str; 2] = ["bench-controllers", "controllers-node-"];
const BARE: [&str; 2] = ["bench-loop", "loop-node-"];
const SET: &str = "workers";

pub(crate) async fn measure() -> anyhow::Result<()> {
    let cluster = tokio::task::block_in_place(|| testkit::kube::private(TestClusterOptions::default()));
    let Some(cluster) = cluster else {
        println!("a MachineSet cannot be scaled: {}", testkit::kube::MISSING);
        return Ok(());
    };
    let connection = controller::connect(Some(&cluster.kubeconfig_path()), Some(OURS[0])).await?;
    let client = connection.client;
    define(&client).await?;
    for [namespace, prefix] in [OURS, BARE] {
        create_namespace(&client, namespace).await?;
        create_set(&client, namespace, SET, 0).await?;
        create_nodes(&client, prefix).await?;
    }
    let recorder = Recorder::default();
    let ours = scale(&client, &recorder).await?;
    let writes = recorder.writes();
    let translations: Vec<(&str, &str)> = OURS.into_iter().zip(BARE).collect();
    let translated: anyhow::Result<Vec<Write>> =
        writes.iter().map(|write| write.translated(&translations)).collect();
    let started = Instant::now();
    repeat(&client, translated?, IN_FLIGHT).await?;
    let bare = started.elapsed();

    println!("MachineSet 0 to {MACHINES} Machines Running, cloud without latency, kube-apiserver");
    println!("  controllers {:.1} s, bare loop {:.1} s", ours.as_secs_f64(), bare.as_secs_f64());
    print_kinds(&writes, recorder.refused());
    let ratio = bare.as_secs_f64() / ours.as_secs_f64();
    let goal = format!("at least {GOAL:.2}");
    report("speed beside a bare loop of the same writes", &format!("ratio {ratio:.2}"), &goal, ratio >= GOAL);
    Ok(())
}

/// Nodes that wait for a Machine.
async fn create_nodes(client: &Client, prefix: &str) -> anyhow::Result<()> {
    let create = |number: usize| async move {
        let node = json!({
            "metadata": {"name": format!("{prefix}{number}")},
            // Those of the bare loop match no Machine.
            "spec": {"providerID": match prefix == OURS[1] {
                true => Pool::provider_id(number),
                false => format!("none:///{number}"),
            }},
        });
        create_node(client, node).await.map(drop)
    };
    let created: Vec<anyhow::Result<()>> =
        iter((0..MACHINES).map(create)).buffer_unordered(IN_FLIGHT).collect().await;
    created.into_iter().collect()
}

/// The time from the change of the number until the last Machine runs.
async fn scale(client: &Client, recorder: &Recorder) -> anyhow::Result<Duration> {
    let shutdown = CancellationToken::new();
    let settings = Settings { lease: None, ..Settings::new(OURS[0], "bench", "pool") };
    let mut running = JoinSet::new();
    running.spawn(machines::run(
        recorder.client(client),
        Arc::new(Pool::default()),
        settings,
        Arc::new(SystemClock),
        Observability::default(),
        Metrics::default(),
        shutdown.clone(),
    ));
    let sets: Api<MachineSet> = Api::namespaced(client.clone(), OURS[0]);
    until("the MachineSet is seen", RUN_MAX, async || {
        sets.get(SET).await.is_ok_and(|set| set.status.is_some())
    })
    .await?;
    let started = Instant::now();
    let patch = Patch::Merge(json!({"spec": {"replicas": MACHINES}}));
    sets.patch(SET, &PatchParams::default(), &patch).await?;
    // Without a request: the API server has enough to do.
    let run =
        |write: &Write| write.path().ends_with("/status") && contains(&write.body, br#""phase":"Running""#);
    until("all Machines run", RUN_MAX, async || recorder.count(run) >= MACHINES).await?;
    let elapsed = started.elapsed();
    shutdown.cancel();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(elapsed)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Says what was written, per Machine.
fn print_kinds(writes: &[Write], refused: usize) {
    let count = |is_meant: &dyn Fn(&Write) -> bool| {
        writes.iter().filter(|write| is_meant(write)).count() as f64 / MACHINES as f64
    };
    let of_machine = |write: &Write| write.path().contains("/machines");
    println!(
        "  {} writes, for each Machine {:.2} creation, {:.2} patches, {:.2} of its status, {:.2} of its Node, {:.2} of the MachineSet's \
         status, {:.2} events; {refused} refused",
        writes.len(),
        count(&|it| of_machine(it) && it.method == Method::POST),
        count(&|it| of_machine(it) && it.method == Method::PATCH && !it.path().ends_with("/status")),
        count(&|it| of_machine(it) && it.path().ends_with("/status")),
        count(&|it| it.path().contains("/nodes/")),
        count(&|it| it.path().contains("/machinesets/")),
        count(&|it| it.path().contains("/events")),
    );
}
