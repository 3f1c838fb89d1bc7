//! What users see of wrong input where no webhook runs: a refusal by the schema, or a condition, reason and message in the status.

use api::crd::machine::{Machine, find_condition};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::{World, eventually};

impl World {
    /// The message with which the API server refuses an object; none if it accepts it.
    async fn refusal(&self, kind: &str, object: Value) -> Option<String> {
        let kind = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", kind);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::from_gvk(&kind));
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match api.create(&params, &serde_json::from_value(object).unwrap()).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.message.clone()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The only Machine.
    async fn only(&self) -> Machine {
        let found = async || self.list().await.len() == 1;
        eventually("there is one Machine", found).await;
        self.list().await.remove(0)
    }

    async fn only_shows(&self, what: &str, shown: impl Fn(&Machine) -> bool) {
        eventually(what, async || self.list().await.first().is_some_and(&shown)).await;
    }
}

fn check(over: Value) -> Value {
    let mut check = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck", "metadata": {"name": "check"},
        "spec": {"selector": {}, "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
    });
    json_patch::merge(&mut check, &over);
    check
}

fn set(name: &str, over: Value) -> Value {
    let mut set = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"set": "a"}}, "template": {
            "metadata": {"labels": {"machine.openshift.io/cluster-api-cluster": "c", "set": "a"}},
            "spec": {"providerSpec": {"value": {"size": "small"}}},
        }},
    });
    json_patch::merge(&mut set, &over);
    set
}

/// The condition `InstanceExists` with this status, reason and part of the message.
fn exists(machine: &Machine, status: &str, reason: &str, message: &str) -> bool {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    find_condition(conditions, "InstanceExists").is_some_and(|found| {
        found.status.as_str() == status
            && found.reason.as_deref() == Some(reason)
            && found.message.as_ref().is_some_and(|found| found.contains(message))
    })
}

#[tokio::test]
async fn the_schema_refuses_a_negative_number_of_replicas_and_limits_that_are_none() {
    let world = World::simulated().await;
    let replicas = world.refusal("MachineSet", set("s", json!({"spec": {"replicas": -1}}))).await.unwrap();
    assert!(
        replicas.contains("spec.replicas") && replicas.contains("greater than or equal to 0"),
        "{replicas}"
    );
    for limit in ["150%", "abc", "-1", "5.5%", "%"] {
        let refusal =
            world.refusal("MachineHealthCheck", check(json!({"spec": {"maxUnhealthy": limit}}))).await;
        let refusal = refusal.unwrap_or_else(|| panic!("{limit} is accepted"));
        assert!(refusal.contains("spec.maxUnhealthy") && refusal.contains(limit), "{refusal}");
    }
    for limit in [json!("100%"), json!("40%"), json!("3"), json!(3)] {
        assert_eq!(
            world.refusal("MachineHealthCheck", check(json!({"spec": {"maxUnhealthy": limit}}))).await,
            None
        );
    }
    let policy =
        world.refusal("MachineSet", set("s", json!({"spec": {"deletePolicy": "Best"}}))).await.unwrap();
    assert!(policy.contains("spec.deletePolicy"), "{policy}");
}

#[tokio::test]
async fn names_that_are_none_are_refused_and_long_ones_work() {
    let world = World::simulated().await;
    for name in ["UPPER", "a_b", "-a", "a..b", "a/b", "é", "x\"; drop", "../a"] {
        assert!(world.refusal("MachineSet", set(name, json!({}))).await.is_some(), "{name}");
    }
    // With dots, and longer than generated names may be.
    let name = format!("a.{}.b{}", "x".repeat(54), "y".repeat(190));
    let _running = world.start();
    world
        .sets()
        .create(&PostParams::default(), &serde_json::from_value(set(&name, json!({}))).unwrap())
        .await
        .unwrap();
    world.running(1).await;
    let machine = world.only().await;
    assert_eq!(machine.name_any().len(), 58 + 5);
    assert_eq!(machine.owner_references()[0].name, name);
}

#[tokio::test]
async fn an_unreadable_provider_spec_is_shown_and_does_not_block_the_deletion() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({"invalid": true})).await;
    world
        .only_shows("the field is named", |machine| {
            exists(machine, "Unknown", "ErrorCheckingProvider", "providerSpec.value.invalid")
        })
        .await;
    world.scale(0).await;
    world.running(0).await;
}

#[tokio::test]
async fn an_unknown_size_fails_the_machine_with_the_reason_and_text_of_the_provider() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({"size": "huge"})).await;
    world
        .only_shows("the size is named", |machine| {
            let status = machine.status.clone().unwrap_or_default();
            status.error_reason.as_deref() == Some("InvalidConfiguration")
                && status.error_message.as_deref() == Some("size \"huge\" is not offered")
                && exists(machine, "False", "InstanceNotCreated", "size \"huge\" is not offered")
        })
        .await;
    let name = world.only().await.name_any();
    eventually("there is an event", async || world.events(&name).await.contains("FailedCreate")).await;
}

#[tokio::test]
async fn missing_user_data_fails_the_machine_and_names_the_secret() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({"userData": "worker-user-data"})).await;
    let message = format!("Secret {}/worker-user-data with the user data does not exist", world.namespace);
    world
        .only_shows("the Secret is named", |machine| {
            let status = machine.status.clone().unwrap_or_default();
            status.error_reason.as_deref() == Some("InvalidConfiguration")
                && status.error_message.as_ref() == Some(&message)
        })
        .await;
    world.scale(0).await;
    world.running(0).await;
}

#[tokio::test]
async fn sets_with_overlapping_selectors_keep_to_their_own_machines() {
    let world = World::simulated().await;
    let _running = world.start();
    for (name, replicas) in [("one", 2), ("two", 3)] {
        let set = set(name, json!({"spec": {"replicas": replicas}}));
        world.sets().create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    }
    world.running(5).await;
    let of = async |owner: &str| -> Vec<String> {
        let machines = world.list().await;
        let owned = machines.iter().filter(|machine| machine.owner_references()[0].name == owner);
        owned.map(ResourceExt::name_any).collect()
    };
    let (one, two) = (of("one").await, of("two").await);
    assert_eq!((one.len(), two.len()), (2, 3));
    // An orphan that both select has one owner, who deletes one too many; the other does nothing.
    let labels = json!({"machine.openshift.io/cluster-api-cluster": "c", "set": "a"});
    let orphan =
        json!({"metadata": {"name": "orphan", "labels": labels}, "spec": {"providerSpec": {"value": {}}}});
    world.machines().create(&PostParams::default(), &serde_json::from_value(orphan).unwrap()).await.unwrap();
    eventually("the orphan is adopted", async || {
        let machine = world.machines().get_opt("orphan").await.unwrap();
        machine.is_none_or(|machine| machine.owner_references().len() == 1)
    })
    .await;
    world.running(5).await;
    assert_eq!((of("one").await.len(), of("two").await.len()), (2, 3));
}

#[tokio::test]
async fn a_duration_that_the_schema_lets_through_is_an_event_of_its_check() {
    let world = World::simulated().await;
    let _running = world.start();
    // The pattern of the reference accepts whatever begins with 0.
    let check = check(json!({"spec": {"nodeStartupTimeout": "0soon"}}));
    assert_eq!(world.refusal("MachineHealthCheck", check.clone()).await, None);
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    eventually("the value is named", async || {
        let messages = world.event_messages("check", "ReconcileError").await;
        messages
            .iter()
            .any(|message| message.contains("spec.nodeStartupTimeout: \"0soon\" must be a duration"))
    })
    .await;
}
