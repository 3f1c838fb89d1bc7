//! Random events: scale, delete, fail, interrupt, heal. In the end instances equal Machines and their number is the wanted one.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{World, cluster, eventually, process, world};

#[derive(Debug, Clone)]
enum Event {
    Scale(u32),
    Delete(usize),
    Interrupt(usize),
    Break(usize),
    /// Ends the process and starts another.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u32..5).prop_map(Event::Scale),
        2 => (0_usize..5).prop_map(Event::Delete),
        1 => (0_usize..5).prop_map(Event::Interrupt),
        1 => (0_usize..5).prop_map(Event::Break),
        1 => Just(Event::Restart),
    ]
}

#[test]
fn machines_and_instances_converge_after_any_events() {
    let Some(cluster) = cluster() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 3,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&proptest::collection::vec(event(), 5..12), |events| {
        runtime.block_on(converges(cluster, &events));
        Ok(())
    });
    result.unwrap();
}

async fn converges(cluster: &'static testkit::kube::TestCluster, events: &[Event]) {
    let world = world(cluster).await;
    let check = json!({
        "metadata": {"name": "check"},
        "spec": {"selector": {"matchLabels": {"set": world.namespace}},
            "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    world.create_set(2, json!({"size": "small"})).await;
    let mut running = start(&world);
    let mut wanted = 2;
    for event in events {
        let machines = world.list().await;
        let name = |index: usize| machines.get(index).map(ResourceExt::name_any);
        match event {
            Event::Scale(replicas) => {
                wanted = *replicas;
                world.scale(wanted).await;
            }
            Event::Delete(index) => {
                if let Some(name) = name(*index) {
                    world.delete(&name).await;
                }
            }
            Event::Interrupt(index) => {
                if let Some(name) = name(*index) {
                    world.cloud.vanish(&name);
                }
            }
            Event::Break(index) => {
                if let Some(name) = name(*index) {
                    world.set_ready(&name, "False", "2026-01-01T00:00:00Z").await;
                }
            }
            Event::Restart => {
                running.shutdown().await;
                running = start(&world);
            }
        }
        // Some events meet a process in the middle of its work, some one at rest.
        if matches!(event, Event::Scale(_)) && wanted % 2 == 0 {
            let wanted = usize::try_from(wanted).unwrap();
            eventually("the number is reached", async || world.list().await.len() == wanted).await;
        }
    }
    let end = Patch::Merge(json!({"metadata": {"annotations": {"note": "end"}}}));
    world.sets().patch(&world.namespace, &PatchParams::default(), &end).await.unwrap();
    world.running(usize::try_from(wanted).unwrap()).await;
    running.shutdown().await;
}

fn start(world: &World) -> JoinSet<()> {
    let mut running = JoinSet::new();
    running.spawn(process(world.for_process.clone(), world.clone()));
    running
}
