//! The life of Machines: created, linked, drained, healed, deleted.

use api::crd::machine::find_condition;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{World, cluster, eventually, process, world};

/// A world whose controllers run until the set is dropped.
async fn running_world() -> Option<(World, JoinSet<()>)> {
    let cluster = cluster()?;
    let world = world(cluster).await;
    let mut running = JoinSet::new();
    running.spawn(process(world.for_process.clone(), world.clone()));
    Some((world, running))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_set_is_scaled_up_and_down_and_up() {
    let Some((world, _running)) = running_world().await else { return };
    world.create_set(3, json!({"size": "small"})).await;
    world.running(3).await;
    let machine = &world.list().await[0];
    assert_eq!(machine.labels()["machine.openshift.io/instance-type"], "small");
    assert_eq!(machine.spec.provider_id.as_deref().unwrap(), format!("scripted:///{}", machine.name_any()));
    let node = world.nodes().get(&machine.name_any()).await.unwrap();
    let key = format!("{}/{}", world.namespace, machine.name_any());
    assert_eq!(node.annotations()["machine.openshift.io/machine"], key);
    world.scale(1).await;
    world.running(1).await;
    world.scale(2).await;
    world.running(2).await;
    eventually("the status of the set follows", async || {
        let status = world.sets().get(&world.namespace).await.unwrap().status.unwrap();
        (status.replicas, status.ready_replicas, status.available_replicas) == (Some(2), Some(2), Some(2))
    })
    .await;
    world.scale(0).await;
    world.running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_deleted_or_fails_is_replaced_or_shown() {
    let Some((world, _running)) = running_world().await else { return };
    world.create_set(2, json!({"size": "small"})).await;
    world.running(2).await;
    let gone = world.list().await[0].name_any();
    world.delete(&gone).await;
    world.running(2).await;
    assert!(world.list().await.iter().all(|machine| machine.name_any() != gone));
    let vanished = world.list().await[0].name_any();
    world.cloud.vanish(&vanished);
    eventually("a Machine without its instance fails", async || {
        let machine = world.machines().get(&vanished).await.unwrap();
        machine.status.unwrap().phase.unwrap().as_str() == "Failed"
    })
    .await;
    let machine = world.machines().get(&vanished).await.unwrap();
    assert_eq!(machine.annotations()["machine.openshift.io/instance-state"], "Unknown");
    assert_eq!(world.list().await.len(), 2, "a failed Machine counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_configuration_fails_and_does_not_block_the_deletion() {
    let Some((world, _running)) = running_world().await else { return };
    world.create_set(1, json!({"size": "huge"})).await;
    eventually("the Machine fails", async || {
        let machines = world.list().await;
        let status = machines.first().and_then(|machine| machine.status.clone()).unwrap_or_default();
        status.error_reason.as_deref() == Some("InvalidConfiguration")
            && status.error_message.is_some_and(|message| message.contains("huge"))
    })
    .await;
    world.scale(0).await;
    world.running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_hold_the_drain_and_the_deletion() {
    let Some((world, _running)) = running_world().await else { return };
    world.create_set(1, json!({"size": "small"})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let hooks = |pre_drain: &[&str], pre_terminate: &[&str]| {
        let list = |names: &[&str]| -> Vec<serde_json::Value> {
            names.iter().map(|name| json!({"name": name, "owner": "test"})).collect()
        };
        Patch::Merge(
            json!({"spec": {"lifecycleHooks": {"preDrain": list(pre_drain), "preTerminate": list(pre_terminate)}}}),
        )
    };
    let set = async |patch: &Patch<serde_json::Value>| {
        world.machines().patch(&name, &PatchParams::default(), patch).await.unwrap();
    };
    let condition = async |type_: &str, status: &str| {
        eventually(&format!("{type_} is {status}"), async || {
            let conditions = world.machines().get(&name).await.unwrap().status.unwrap().conditions;
            find_condition(&conditions, type_).is_some_and(|found| found.status.as_str() == status)
        })
        .await;
    };
    set(&hooks(&["Before"], &["After"])).await;
    world.scale(0).await;
    condition("Drainable", "False").await;
    set(&hooks(&[], &["After"])).await;
    condition("Drained", "True").await;
    condition("Terminable", "False").await;
    assert_eq!(world.cloud.instances(), std::slice::from_ref(&name));
    set(&hooks(&[], &[])).await;
    world.running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_budget_is_named_in_the_status_until_it_allows_the_drain() {
    let Some((world, _running)) = running_world().await else { return };
    world.create_set(1, json!({"size": "small"})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": name, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Strategic(running)).await.unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), &world.namespace);
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    world.scale(0).await;
    eventually("Drained=False names pod and budget", async || {
        let conditions = world.machines().get(&name).await.unwrap().status.unwrap().conditions;
        find_condition(&conditions, "Drained").is_some_and(|found| {
            let message = found.message.clone().unwrap_or_default();
            found.reason.as_deref() == Some("DrainError")
                && message.contains(&format!("PodDisruptionBudget {}/web", world.namespace))
                && message.contains(&format!("{}/web (", world.namespace))
        })
    })
    .await;
    assert_eq!(world.cloud.instances(), std::slice::from_ref(&name));
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    world.running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_machine_is_healed_unless_too_many_are_unhealthy() {
    let Some((world, _running)) = running_world().await else { return };
    let check = json!({
        "metadata": {"name": "check"},
        "spec": {"selector": {"matchLabels": {"set": world.namespace}}, "maxUnhealthy": 1,
            "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    world.create_set(3, json!({"size": "small"})).await;
    world.running(3).await;
    eventually("all are healthy", async || {
        let status = world.checks().get("check").await.unwrap().status.unwrap_or_default();
        (status.expected_machines, status.current_healthy) == (Some(3), Some(3))
    })
    .await;
    let sick = world.list().await[0].name_any();
    world.set_ready(&sick, "False", "2026-01-01T00:00:00Z").await;
    eventually("the sick Machine is replaced", async || {
        let machines = world.list().await;
        machines.len() == 3 && machines.iter().all(|machine| machine.name_any() != sick)
    })
    .await;
    world.running(3).await;
    let paused = Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}));
    world.checks().patch("check", &PatchParams::default(), &paused).await.unwrap();
    let before: Vec<String> = world.list().await.iter().map(ResourceExt::name_any).collect();
    for name in &before[..2] {
        world.set_ready(name, "False", "2026-01-01T00:00:00Z").await;
    }
    let resumed = Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}));
    world.checks().patch("check", &PatchParams::default(), &resumed).await.unwrap();
    eventually("remediation is restricted", async || {
        let status = world.checks().get("check").await.unwrap().status.unwrap();
        find_condition(&status.conditions, "RemediationAllowed")
            .is_some_and(|found| found.reason.as_deref() == Some("TooManyUnhealthy"))
    })
    .await;
    let after: Vec<String> = world.list().await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(before, after);
}
