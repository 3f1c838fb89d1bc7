//! What happens around the controllers when something fails: no instance is lost, none is made twice, and the work is completed.

use std::time::Duration;

use api::crd::machine::{Machine, find_condition};
use cloud::InstanceError;
use controller::LeaseDurations;
use controller::testing::{Crash, crash_at_every_write};
use http::Method;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::kube::TestClusterOptions;
use tokio::task::{JoinSet, block_in_place};

use crate::faults::Call;
use crate::memory_cloud::CallEnd;
use crate::world::{World, apply_definitions, client, eventually, patient_client, process};

fn throttled() -> InstanceError {
    InstanceError::RequeueAfter(Duration::from_millis(20), "429 from the cloud".to_owned())
}

#[tokio::test]
async fn a_cloud_that_throttles_delays_machines_and_fails_none() {
    let world = World::simulated().await;
    for call in [Call::Find, Call::Create, Call::Delete] {
        world.cloud.faults.fail(call, 5, &throttled());
        world.cloud.faults.fail(call, 5, &InstanceError::Unavailable("503".to_owned()));
    }
    let _running = world.start();
    world.create_set(3, json!({})).await;
    world.running(3).await;
    world.scale(0).await;
    world.running(0).await;
}

#[tokio::test]
async fn an_api_server_that_throttles_delays_machines_and_fails_none() {
    let (world, faults) = World::simulated().await.with_api_faults();
    let _running = world.start();
    for (method, path, code) in [
        (Method::POST, "/machines", 429),
        (Method::PATCH, "/status", 429),
        (Method::PATCH, "/status", 500),
        (Method::DELETE, "", 429),
    ] {
        faults.fail(method, path, 4, code);
    }
    world.create_set(3, json!({})).await;
    world.running(3).await;
    world.scale(0).await;
    world.running(0).await;
    assert!(faults.are_over());
}

#[tokio::test]
async fn an_instance_that_is_not_listed_yet_is_not_created_again() {
    let world = World::simulated().await;
    world.cloud.faults.list_late(5);
    let _running = world.start();
    world.create_set(3, json!({})).await;
    world.running(3).await;
}

#[tokio::test]
async fn an_instance_that_is_not_listed_yet_is_created_once_wherever_the_process_ends() {
    for call in 1..=10 {
        for end in [CallEnd::BeforeEffect, CallEnd::AfterEffect] {
            let world = World::simulated().await;
            world.cloud.faults.list_late(3);
            let ended = world.cloud.end_at(call, end);
            world.create_set(1, json!({})).await;
            let running = world.start();
            ended.cancelled().await;
            drop(running);
            world.cloud.end_never();
            let _running = world.start();
            world.running(1).await;
        }
    }
}

#[tokio::test]
async fn what_a_partial_creation_left_goes_with_its_machine() {
    let world = World::simulated().await;
    let faults = &world.cloud.faults;
    faults.fail(Call::CreateAfterParts, 1000, &InstanceError::Create("no capacity".to_owned()));
    let _running = world.start();
    world.create_set(2, json!({})).await;
    eventually("the creation failed half way", async || world.cloud.leftovers().len() == 2).await;
    assert!(world.cloud.instances().is_empty());
    world.scale(0).await;
    world.running(0).await;
    assert!(world.cloud.leftovers().is_empty());
    // One that is repeated instead is completed with what is there.
    faults.clear();
    faults.fail(Call::CreateAfterParts, 3, &InstanceError::Create("no capacity".to_owned()));
    world.scale(1).await;
    world.running(1).await;
    assert_eq!(world.cloud.leftovers().len(), 1);
}

#[tokio::test]
async fn a_node_that_is_deleted_underneath_is_linked_again_when_it_registers() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let node = world.nodes().get(&name).await.unwrap();
    world.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    let again = json!({"metadata": {"name": name}, "spec": {"providerID": format!("scripted:///{name}")}});
    let again = serde_json::from_value(again).unwrap();
    let again = world.nodes().create(&PostParams::default(), &again).await.unwrap();
    assert_ne!(node.uid(), again.uid());
    eventually("the Machine has the new Node", async || {
        let status = world.machines().get(&name).await.unwrap().status.unwrap();
        status.node_ref.unwrap().uid == again.uid()
    })
    .await;
    world.running(1).await;
}

#[tokio::test]
async fn a_node_that_is_deleted_underneath_is_replaced_by_a_health_check() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(2, json!({})).await;
    world.running(2).await;
    let name = world.list().await[0].name_any();
    world.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    let check = json!({
        "metadata": {"name": "check"},
        "spec": {"selector": {}, "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    eventually("the Machine is replaced", async || world.machines().get_opt(&name).await.unwrap().is_none())
        .await;
    world.running(2).await;
}

#[tokio::test]
async fn a_secret_that_is_deleted_underneath_is_named_and_neither_fails_nor_leaks_a_machine() {
    let world = World::simulated().await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "credentials"}, "data": {"key": "a2V5"}}))
            .unwrap();
    let _running = world.start();
    world.create_set(1, json!({"credentials": "credentials"})).await;
    let shown = async |message: &str| {
        eventually(message, async || {
            let machines = world.list().await;
            let status = machines.first().and_then(|machine| machine.status.clone()).unwrap_or_default();
            find_condition(&status.conditions, "InstanceExists").is_some_and(|found| {
                found.reason.as_deref() == Some("ErrorCheckingProvider")
                    && found.message.as_ref().is_some_and(|it| it.contains(message))
            })
        })
        .await;
    };
    let missing = format!("Secret {}/credentials with the credentials does not exist", world.namespace);
    shown(&missing).await;
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    world.running(1).await;
    secrets.delete("credentials", &DeleteParams::default()).await.unwrap();
    shown(&missing).await;
    let phase = world.list().await[0].status.clone().unwrap().phase.unwrap();
    assert_eq!(phase.as_str(), "Running");
    // Without the credential the instance cannot be deleted, so the Machine waits.
    world.scale(0).await;
    let name = world.list().await[0].name_any();
    eventually("the deletion failed", async || world.events(&name).await.contains("FailedDelete")).await;
    assert_eq!(world.cloud.instances(), [name]);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    world.running(0).await;
    assert!(world.cloud.leftovers().is_empty());
}

#[tokio::test]
async fn of_two_processes_one_works_and_the_other_takes_over() {
    let mut world = World::simulated().await;
    let seconds = Duration::from_secs;
    let lease = LeaseDurations::new(seconds(3), seconds(2), seconds(1)).unwrap();
    world.lease = Some(lease);
    let processes = [world.start(), world.start()];
    world.create_set(4, json!({})).await;
    world.running(4).await;
    let [first, second] = processes;
    // Neither releases its leases: whichever held one, the other has to wait for its end.
    drop(first);
    world.scale(6).await;
    world.running(6).await;
    let _third = world.start();
    drop(second);
    world.scale(1).await;
    world.running(1).await;
}

/// A pod of a Node, which an eviction ends at once.
async fn create_pod(world: &World, node: &str) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// Runs a scenario in a simulated world of its own for each write at which the process ends.
async fn crash_in_simulated_worlds(
    prepare: impl AsyncFn(&World),
    settled: impl AsyncFn(&World) + Copy,
) -> usize {
    let host = World::simulated().await;
    let prepare = async |crash: Crash| {
        let name = format!("run-{}-{:?}", crash.at_write, crash.effect).to_lowercase();
        let world = host.beside(&name).await;
        prepare(&world).await;
        world
    };
    let settled = |world: World| async move { settled(&world).await };
    crash_at_every_write(&host.client, prepare, process, settled).await
}

#[tokio::test]
async fn no_node_is_left_cordoned_whenever_the_process_ends_at_a_write_of_a_drain() {
    let prepare = async |world: &World| {
        world.create_set(2, json!({})).await;
        let running = world.start();
        world.running(2).await;
        drop(running);
        let name = world.list().await[0].name_any();
        create_pod(world, &name).await;
        world.delete(&name).await;
    };
    let writes = crash_in_simulated_worlds(prepare, async |world: &World| world.running(2).await).await;
    assert!(writes >= 10, "{writes} writes");
}

#[tokio::test]
async fn a_node_is_uncordoned_when_its_machine_goes_without_its_drain() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let nodes = world.nodes();
    let cordoned =
        async || nodes.get(&name).await.unwrap().spec.unwrap_or_default().unschedulable == Some(true);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    create_pod(&world, &name).await;
    // The pod does not go.
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["test/hold"]}}));
    pods.patch("web", &PatchParams::default(), &hold).await.unwrap();
    world.delete(&name).await;
    eventually("the Node is cordoned", cordoned).await;
    let force = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.machines().patch(&name, &PatchParams::default(), &force).await.unwrap();
    eventually("the Node is uncordoned", async || !cordoned().await).await;
}

#[tokio::test]
async fn an_unhealthy_machine_is_replaced_once_whenever_the_process_ends_at_a_write() {
    let prepare = async |world: &World| {
        world.create_set(2, json!({})).await;
        let running = world.start();
        world.running(2).await;
        drop(running);
        let sick = world.list().await[0].name_any();
        world.set_ready(&sick, "False", "2026-01-01T00:00:00Z").await;
        let check = json!({
            "metadata": {"name": "check", "annotations": {"sick": sick}},
            "spec": {"selector": {}, "maxUnhealthy": 1,
                "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
        });
        world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    };
    let settled = async |world: &World| {
        let sick = world.checks().get("check").await.unwrap().annotations()["sick"].clone();
        let replaced = |machines: &[Machine]| machines.iter().all(|machine| machine.name_any() != sick);
        eventually("the sick Machine is gone", async || replaced(&world.list().await)).await;
        world.running(2).await;
    };
    let writes = crash_in_simulated_worlds(prepare, settled).await;
    assert!(writes >= 10, "{writes} writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_for_half_a_minute_costs_no_machine_and_makes_none_twice() {
    let Some(cluster) = block_in_place(|| testkit::kube::private(TestClusterOptions::default())) else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    };
    block_in_place(|| apply_definitions(&cluster));
    let namespace = block_in_place(|| cluster.namespace("machines")).unwrap();
    let (patient, for_process) = (patient_client(&cluster).await, client(&cluster).await);
    let world = World::in_namespace(patient, for_process, &namespace);
    let _running: JoinSet<()> = world.start();
    world.create_set(2, json!({})).await;
    world.running(2).await;
    // One that runs: an instance that nobody has recorded yet would be created again.
    let vanished = world.cloud.instances()[0].clone();
    world.scale(30).await;
    eventually("creations are under way", async || world.cloud.instances().len() > 5).await;
    block_in_place(|| cluster.kill()).unwrap();
    // Meanwhile the resyncs cannot write what they find, and an instance vanishes.
    world.cloud.vanish(&vanished);
    tokio::time::sleep(Duration::from_secs(30)).await;
    block_in_place(|| cluster.restart()).unwrap();
    eventually("the Machine without its instance fails", async || {
        let machine = world.machines().get(&vanished).await;
        machine.is_ok_and(|it| it.status.and_then(|it| it.phase).is_some_and(|it| it.as_str() == "Failed"))
    })
    .await;
    world.delete(&vanished).await;
    world.running(30).await;
}
