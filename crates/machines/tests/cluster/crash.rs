//! The process ends at every write and at every call of the provider; the next one completes the work.

use controller::testing::crash_at_every_write;
use serde_json::json;
use tokio::task::JoinSet;

use crate::memory_cloud::CallEnd;
use crate::world::{World, client, cluster, process, world};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_comes_to_run_whenever_the_process_ends_at_a_write() {
    let Some(cluster) = cluster() else { return };
    let prepare = async |_| {
        let world = world(cluster).await;
        world.create_set(1, json!({"size": "small"})).await;
        world
    };
    let settled = |world: World| async move { world.running(1).await };
    let writes = crash_at_every_write(&client(cluster).await, prepare, process, settled).await;
    assert!(writes >= 6, "{writes} writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_and_its_instance_go_whenever_the_process_ends_at_a_write() {
    let Some(cluster) = cluster() else { return };
    let prepare = async |_| {
        let world = world(cluster).await;
        world.create_set(1, json!({"size": "small"})).await;
        run_until_running(&world, 1).await;
        world.scale(0).await;
        world
    };
    let settled = |world: World| async move { world.running(0).await };
    let writes = crash_at_every_write(&client(cluster).await, prepare, process, settled).await;
    assert!(writes >= 5, "{writes} writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_instance_leaks_whenever_the_process_ends_at_a_call_of_the_provider() {
    let Some(cluster) = cluster() else { return };
    for call in 1.. {
        let mut ended = false;
        for end in [CallEnd::BeforeEffect, CallEnd::AfterEffect] {
            let world = world(cluster).await;
            world.create_set(2, json!({"size": "small"})).await;
            let token = world.cloud.end_at(call, end);
            ended |= run_until(
                &world,
                async || {
                    world.running(2).await;
                    world.scale(0).await;
                    world.running(0).await;
                },
                token.cancelled(),
            )
            .await;
            world.cloud.end_never();
            let wanted = world.sets().get(&world.namespace).await.unwrap().spec.replicas.unwrap();
            run_until_running(&world, usize::try_from(wanted).unwrap()).await;
            world.scale(0).await;
            run_until_running(&world, 0).await;
        }
        // The scenario has some thirty calls; those after the twelfth are resyncs of the same kinds.
        if !ended || call >= 12 {
            assert!(call > 6, "{call} calls");
            return;
        }
    }
}

/// Runs a process until so many Machines run.
async fn run_until_running(world: &World, count: usize) {
    run_until(world, async || world.running(count).await, std::future::pending()).await;
}

/// Runs a process until `done` returns or `end` comes first; whether it did.
async fn run_until(world: &World, done: impl AsyncFn(), end: impl Future<Output = ()>) -> bool {
    let mut running = JoinSet::new();
    running.spawn(process(world.for_process.clone(), world.clone()));
    let ended = tokio::select! {
        () = end => true,
        () = done() => false,
    };
    running.shutdown().await;
    ended
}
