//! Rules of the specification of the machine API that are about requests and events rather than decisions, each with a test named
//! after it. The others are beside the functions that decide.

use std::time::Duration;

use api::crd::machine::{Machine, find_condition};
use cloud::InstanceError;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::faults::Call;
use crate::world::{World, eventually};

/// Long ago, for a condition whose timeout is over.
const PAST: &str = "2026-01-01T00:00:00Z";

impl World {
    /// Creates a Machine without a MachineSet.
    async fn create_machine(&self, name: &str, over: Value) {
        let mut machine = json!({
            "metadata": {"name": name, "labels": {"machine.openshift.io/cluster-api-cluster": "c"}},
            "spec": {"providerSpec": {"value": {"size": "small"}}},
        });
        json_patch::merge(&mut machine, &over);
        let machine = serde_json::from_value(machine).unwrap();
        self.machines().create(&PostParams::default(), &machine).await.unwrap();
    }

    async fn machine(&self, name: &str) -> Machine {
        self.machines().get(name).await.unwrap()
    }

    async fn phase(&self, name: &str) -> String {
        let phase = self.machine(name).await.status.and_then(|status| status.phase);
        phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default()
    }

    async fn patch_machine(&self, name: &str, patch: Value) {
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn reaches(&self, name: &str, phase: &str) {
        eventually(&format!("Machine {name} is {phase}"), async || self.phase(name).await == phase).await;
    }

    async fn is_gone(&self, name: &str) {
        let gone = async || self.machines().get_opt(name).await.unwrap().is_none();
        eventually(&format!("Machine {name} is gone"), gone).await;
    }

    async fn recorded(&self, name: &str, reason: &str) {
        let found = async || self.events(name).await.contains(reason);
        eventually(&format!("event {reason} of {name}"), found).await;
    }

    async fn create_check(&self, over: Value) {
        let mut check = json!({
            "metadata": {"name": "check"},
            "spec": {"selector": {},
                "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
        });
        json_patch::merge(&mut check, &over);
        self.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn rule_3_1_3_an_invalid_machine_has_an_event_and_its_phase_is_not_touched() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({"spec": {"providerSpec": null}})).await;
    world.recorded("m", "FailedValidate").await;
    let machine = world.machine("m").await;
    assert_eq!((machine.status, machine.metadata.finalizers), (None, None));
}

#[tokio::test]
async fn rule_3_1_1_and_5_a_machine_that_is_being_deleted_gets_no_instance() {
    let world = World::simulated().await;
    let finalizers = json!({"metadata": {"finalizers": ["machine.machine.openshift.io"]}});
    world.create_machine("m", finalizers).await;
    world.delete("m").await;
    let _running = world.start();
    world.is_gone("m").await;
    assert_eq!(world.cloud.made_max(), 0);
    // Rule 3.1.1: what is gone needs nothing, and others do not wait for it.
    world.create_machine("n", json!({})).await;
    world.reaches("n", "Running").await;
}

#[tokio::test]
async fn rule_3_1_6_a_failed_machine_is_not_reconciled_again_until_it_is_deleted() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({"spec": {"providerSpec": {"value": {"size": "huge"}}}})).await;
    world.reaches("m", "Failed").await;
    // What was wrong is mended, and still there is no way out.
    world.patch_machine("m", json!({"spec": {"providerSpec": {"value": {"size": "small"}}}})).await;
    tokio::time::sleep(world.resync * 3).await;
    assert_eq!((world.phase("m").await, world.cloud.instances()), ("Failed".to_owned(), Vec::new()));
    world.delete("m").await;
    world.is_gone("m").await;
}

#[tokio::test]
async fn rule_3_2_3_and_8_a_machine_goes_when_its_node_is_drained_and_its_instance_is_gone() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({"metadata": {"finalizers": ["test/hold"]}})).await;
    world.reaches("m", "Running").await;
    world.delete("m").await;
    eventually("only the other finalizer is left", async || {
        world.machine("m").await.finalizers() == ["test/hold"]
    })
    .await;
    let machine = world.machine("m").await;
    assert_eq!(machine.status.as_ref().unwrap().phase.as_ref().unwrap().as_str(), "Deleting");
    let drained = find_condition(&machine.status.as_ref().unwrap().conditions, "Drained").unwrap();
    assert_eq!(drained.message.as_deref(), Some("Drain finished successfully"));
    assert!(world.cloud.instances().is_empty());
    // Rule 3.2.7.
    assert!(world.nodes().get_opt("m").await.unwrap().is_none());
    // Rule 3.2.2: without our finalizer nothing is left to do.
    world.patch_machine("m", json!({"metadata": {"finalizers": null}})).await;
    world.is_gone("m").await;
}

#[tokio::test]
async fn rule_3_2_7_the_node_of_another_instance_stays() {
    let world = World::simulated().await;
    let running = world.start();
    world
        .create_machine(
            "m",
            json!({"spec": {"lifecycleHooks": {"preTerminate": [{"name": "Hold", "owner": "test"}]}}}),
        )
        .await;
    world.reaches("m", "Running").await;
    world.delete("m").await;
    let drained = async || {
        let conditions = world.machine("m").await.status.unwrap().conditions;
        find_condition(&conditions, "Drained").is_some_and(|it| it.status.as_str() == "True")
    };
    eventually("the Node is drained", drained).await;
    drop(running);
    world.nodes().delete("m", &DeleteParams::default()).await.unwrap();
    let node = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    world.nodes().create(&PostParams::default(), &node).await.unwrap();
    world.patch_machine("m", json!({"spec": {"lifecycleHooks": null}})).await;
    let _running = world.start();
    world.is_gone("m").await;
    assert!(world.nodes().get_opt("m").await.unwrap().is_some());
}

#[tokio::test]
async fn rule_3_3_each_phase_but_deleting_is_observed_once() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Running").await;
    world.delete("m").await;
    world.is_gone("m").await;
    let count = |phase: &str| {
        world.metric(&format!("mapi_machine_phase_transition_seconds_count{{phase=\"{phase}\"}}"))
    };
    let counts = ["Provisioning", "Provisioned", "Running", "Deleting"].map(count);
    assert_eq!(counts, [1.0, 1.0, 1.0, 0.0]);
}

#[tokio::test]
async fn rule_4_a_drain_is_reported_by_events() {
    let world = World::simulated().await;
    let _running = world.start();
    for (name, over) in [
        ("drained", json!({})),
        ("skipped", json!({"metadata": {"annotations": {"machine.openshift.io/exclude-node-draining": ""}}})),
        ("blocked", json!({"spec": {"lifecycleHooks": {"preDrain": [{"name": "Hold", "owner": "test"}]}}})),
    ] {
        world.create_machine(name, over).await;
        world.reaches(name, "Running").await;
        world.delete(name).await;
    }
    world.recorded("drained", "DrainProceeds").await;
    world.recorded("drained", "DrainSucceeded").await;
    world.recorded("drained", "Deleted").await;
    world.recorded("skipped", "DrainSkipped").await;
    assert!(!world.events("skipped").await.contains("DrainProceeds"));
    world.recorded("blocked", "DrainBlocked").await;
    assert_eq!(world.cloud.instances(), ["blocked"]);
    world.patch_machine("blocked", json!({"spec": {"lifecycleHooks": null}})).await;
    for name in ["drained", "skipped", "blocked"] {
        world.is_gone(name).await;
    }
}

#[tokio::test]
async fn rule_4_1_a_node_that_is_gone_is_drained() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Running").await;
    world.nodes().delete("m", &DeleteParams::default()).await.unwrap();
    world.delete("m").await;
    world.is_gone("m").await;
    assert!(world.cloud.instances().is_empty());
}

#[tokio::test]
async fn rule_4_2_a_second_node_of_the_control_plane_waits_and_says_why() {
    let world = World::simulated().await;
    let _running = world.start();
    for name in ["master-0", "master-1"] {
        world.create_machine(name, json!({})).await;
        world.reaches(name, "Running").await;
        let master = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/master": ""}},
            "spec": {"unschedulable": name == "master-0"},
        });
        world.nodes().patch(name, &PatchParams::default(), &Patch::Merge(master)).await.unwrap();
    }
    world.delete("master-1").await;
    world.recorded("master-1", "DrainRequeued").await;
    eventually("the reason is in the status", async || {
        let conditions = world.machine("master-1").await.status.unwrap().conditions;
        find_condition(&conditions, "Drained").is_some_and(|found| {
            found.reason.as_deref() == Some("DrainError")
                && found.message.as_ref().is_some_and(|message| message.contains("master-0 is unschedulable"))
        })
    })
    .await;
    let waiting = world.nodes().get("master-1").await.unwrap();
    assert_eq!(waiting.spec.unwrap().unschedulable, None);
}

#[tokio::test]
async fn rule_5_failed_calls_have_events_and_counters() {
    let world = World::simulated().await;
    let _running = world.start();
    world.cloud.faults.fail(Call::Create, 2, &InstanceError::Create("quota exceeded".to_owned()));
    world.cloud.faults.fail(Call::Delete, 3, &InstanceError::Delete("locked".to_owned()));
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Running").await;
    world.recorded("m", "FailedCreate").await;
    world.recorded("m", "Create").await;
    world.delete("m").await;
    world.is_gone("m").await;
    world.recorded("m", "FailedDelete").await;
    world.recorded("m", "Delete").await;
    assert_eq!(world.metric("mapi_instance_create_failed{"), 2.0);
    assert_eq!(world.metric("mapi_instance_delete_failed{"), 3.0);
}

#[tokio::test]
async fn rule_6_1_1_machines_of_a_deleted_set_are_left_to_garbage_collection() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(2, json!({})).await;
    world.running(2).await;
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["test/hold"]}}));
    world.sets().patch(&world.namespace, &PatchParams::default(), &finalizer).await.unwrap();
    world.sets().delete(&world.namespace, &DeleteParams::default()).await.unwrap();
    let gone = world.list().await[0].name_any();
    world.delete(&gone).await;
    world.is_gone(&gone).await;
    // Neither is it replaced nor is the other one deleted.
    tokio::time::sleep(world.resync).await;
    assert_eq!(world.list().await.len(), 1);
}

#[tokio::test]
async fn rule_6_1_3_an_invalid_set_has_an_event() {
    let world = World::simulated().await;
    let _running = world.start();
    let set = json!({
        "metadata": {"name": "s"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"set": "a"}},
            "template": {"metadata": {"labels": {"set": "b"}}, "spec": {"providerSpec": {"value": {}}}}},
    });
    world.sets().create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    world.recorded("s", "ReconcileError").await;
    assert!(world.list().await.is_empty());
}

#[tokio::test]
async fn rule_6_1_5_a_machine_without_a_controller_is_adopted_and_counts() {
    let world = World::simulated().await;
    let labels = json!({"machine.openshift.io/cluster-api-cluster": "c", "set": world.namespace});
    world.create_machine("orphan", json!({"metadata": {"labels": labels}})).await;
    world.create_set(2, json!({})).await;
    let _running = world.start();
    world.running(2).await;
    let orphan = world.machine("orphan").await;
    let owner = &orphan.owner_references()[0];
    assert_eq!((owner.name.as_str(), owner.controller), (world.namespace.as_str(), Some(true)));
}

#[tokio::test]
async fn rule_6_1_7_and_8_the_status_follows_the_number_of_machines() {
    let world = World::simulated().await;
    let _running = world.start();
    let counts = async || {
        let status = world.sets().get(&world.namespace).await.unwrap().status.unwrap_or_default();
        let value = serde_json::to_value(status).unwrap();
        ["replicas", "readyReplicas", "availableReplicas"].map(|field| value[field].as_i64().unwrap_or(0))
    };
    world.create_set(2, json!({})).await;
    world.running(2).await;
    eventually("two are counted", async || counts().await == [2, 2, 2]).await;
    world.scale(1).await;
    world.running(1).await;
    eventually("one is counted", async || counts().await == [1, 1, 1]).await;
}

#[tokio::test]
async fn rule_6_2_creations_that_fail_do_not_keep_the_others() {
    let (world, faults) = World::simulated().await.with_api_faults();
    let _running = world.start();
    world.create_set(0, json!({})).await;
    eventually("the set is seen", async || {
        world.sets().get(&world.namespace).await.unwrap().status.is_some()
    })
    .await;
    faults.fail(http::Method::POST, "/machines", 3, 500);
    world.scale(6).await;
    world.recorded(&world.namespace, "ReconcileError").await;
    world.running(6).await;
    let events = world.event_messages(&world.namespace, "ReconcileError").await;
    assert!(events.iter().any(|message| message.matches("; ").count() == 2), "{events:?}");
}

#[tokio::test]
async fn rule_7_1_1_a_check_that_is_gone_has_no_metrics() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(2, json!({})).await;
    world.running(2).await;
    world.create_check(json!({})).await;
    let covered = || world.metric("mapi_machinehealthcheck_nodes_covered{");
    // Rule 7.1.4.
    eventually("both are covered", async || covered() == 2.0).await;
    world.checks().delete("check", &DeleteParams::default()).await.unwrap();
    eventually("none is covered", async || covered() == 0.0).await;
    assert_eq!(world.metric("mapi_machinehealthcheck_short_circuit{"), 0.0);
}

#[tokio::test]
async fn rule_7_1_3_and_6_selected_machines_are_judged_each_by_its_node() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(2, json!({})).await;
    world.running(2).await;
    world.create_machine("other", json!({})).await;
    world.reaches("other", "Running").await;
    let selector = json!({"matchLabels": {"set": world.namespace}});
    world.create_check(json!({"spec": {"selector": selector, "maxUnhealthy": 0}})).await;
    let counts = async || {
        let status = world.checks().get("check").await.unwrap().status.unwrap_or_default();
        let value = serde_json::to_value(status).unwrap();
        ["expectedMachines", "currentHealthy"].map(|field| value[field].as_i64())
    };
    eventually("both are healthy", async || counts().await == [Some(2), Some(2)]).await;
    world.set_ready("other", "False", PAST).await;
    let sick = world.list().await.iter().map(Machine::name_any).find(|name| name != "other").unwrap();
    world.set_ready(&sick, "False", PAST).await;
    eventually("one is unhealthy", async || counts().await == [Some(2), Some(1)]).await;
}

#[tokio::test]
async fn rule_7_1_9_a_restricted_check_has_a_metric_and_an_event_and_deletes_nothing() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(3, json!({})).await;
    world.running(3).await;
    for machine in world.list().await {
        world.set_ready(&machine.name_any(), "False", PAST).await;
    }
    world.create_check(json!({"spec": {"maxUnhealthy": "67%"}})).await;
    world.recorded("check", "RemediationRestricted").await;
    assert_eq!(world.metric("mapi_machinehealthcheck_short_circuit{"), 1.0);
    assert_eq!(world.metric("mapi_machinehealthcheck_remediation_success_total{"), 0.0);
    assert!(world.list().await.iter().all(|machine| machine.metadata.deletion_timestamp.is_none()));
    // Rule 7.1.10 and 7.1.11: within the limit all that are left are remediated.
    let healed = world.list().await[0].name_any();
    world.set_ready(&healed, "True", PAST).await;
    eventually("two are replaced", async || {
        world.metric("mapi_machinehealthcheck_remediation_success_total{") == 2.0
    })
    .await;
    world.running(3).await;
    assert_eq!(world.metric("mapi_machinehealthcheck_short_circuit{"), 0.0);
}

#[tokio::test]
async fn rule_7_3_2_a_machine_without_a_controller_is_not_deleted() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Running").await;
    world.create_check(json!({})).await;
    world.set_ready("m", "False", PAST).await;
    world.recorded("m", "SkippedNoController").await;
    world.recorded("m", "DetectedUnhealthy").await;
    assert_eq!(world.machine("m").await.metadata.deletion_timestamp, None);
}

#[tokio::test]
async fn rule_7_3_1_the_strategy_of_bare_metal_asks_others_by_an_annotation() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let strategy = json!({"machine.openshift.io/remediation-strategy": "external-baremetal"});
    world.create_check(json!({"metadata": {"annotations": strategy}})).await;
    world.set_ready(&name, "False", PAST).await;
    world.recorded(&name, "ExternalAnnotationAdded").await;
    let machine = world.machine(&name).await;
    assert_eq!(machine.annotations()["host.metal3.io/external-remediation"], "");
    assert_eq!(machine.metadata.deletion_timestamp, None);
}

#[tokio::test]
async fn rule_7_3_3_and_4_an_unhealthy_machine_is_deleted_once() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let hook = json!([{"name": "Hold", "owner": "test"}]);
    world.patch_machine(&name, json!({"spec": {"lifecycleHooks": {"preTerminate": hook}}})).await;
    world.create_check(json!({})).await;
    world.set_ready(&name, "False", PAST).await;
    world.recorded(&name, "MachineDeleted").await;
    let deleted = || world.metric("mapi_machinehealthcheck_remediation_success_total{");
    assert_eq!(deleted(), 1.0);
    // It is judged again while its deletion is held.
    let looks = world.event_messages(&name, "MachineDeleted").await.len();
    world.set_ready(&name, "False", "2026-01-02T00:00:00Z").await;
    tokio::time::sleep(world.resync).await;
    assert!(world.machine(&name).await.metadata.deletion_timestamp.is_some());
    assert_eq!((deleted(), world.event_messages(&name, "MachineDeleted").await.len()), (1.0, looks));
    world.patch_machine(&name, json!({"spec": {"lifecycleHooks": null}})).await;
    world.running(1).await;
}

#[tokio::test]
async fn rule_7_3_a_template_makes_a_request_that_rule_7_1_12_withdraws() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_set(1, json!({})).await;
    world.running(1).await;
    let name = world.list().await[0].name_any();
    let (templates, requests) = fences(&world.client, &world.namespace).await;
    let reference = json!({"apiVersion": "infra.example.com/v1", "kind": "FenceTemplate", "name": "power"});
    world.create_check(json!({"spec": {"remediationTemplate": reference}})).await;
    world.set_ready(&name, "False", PAST).await;
    let condition = async |type_: &str, status: &str| {
        eventually(&format!("{type_}={status}"), async || {
            let conditions = world.checks().get("check").await.unwrap().status.unwrap_or_default().conditions;
            find_condition(&conditions, type_).is_some_and(|found| found.status.as_str() == status)
        })
        .await;
    };
    // Rule 15: these conditions are stored.
    condition("ExternalRemediationTemplateAvailable", "False").await;
    let template = json!({"apiVersion": "infra.example.com/v1", "kind": "FenceTemplate",
        "metadata": {"name": "power"}, "spec": {"template": {"spec": {"strategy": "reboot"}}}});
    templates.create(&PostParams::default(), &serde_json::from_value(template).unwrap()).await.unwrap();
    eventually("there is a request", async || requests.get_opt(&name).await.unwrap().is_some()).await;
    condition("ExternalRemediationTemplateAvailable", "True").await;
    condition("ExternalRemediationRequestAvailable", "True").await;
    assert_eq!(requests.get(&name).await.unwrap().data["spec"], json!({"strategy": "reboot"}));
    assert_eq!(world.machine(&name).await.metadata.deletion_timestamp, None);
    world.set_ready(&name, "True", PAST).await;
    eventually("it is withdrawn", async || requests.get_opt(&name).await.unwrap().is_none()).await;
}

/// Defines a kind of remediation with its template.
async fn fences(client: &Client, namespace: &str) -> (Api<DynamicObject>, Api<DynamicObject>) {
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let mut apis = Vec::new();
    for kind in ["FenceTemplate", "Fence"] {
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.infra.example.com")},
            "spec": {"group": "infra.example.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        });
        let definition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("infra.example.com", "v1", kind),
            &plural,
        );
        apis.push(Api::namespaced_with(client.clone(), namespace, &resource));
    }
    let served = async || apis[1].list(&ListParams::default()).await.is_ok();
    eventually("the kinds are served", served).await;
    let requests = apis.pop().unwrap();
    (apis.pop().unwrap(), requests)
}

#[tokio::test]
async fn rule_8_1_a_node_that_is_being_deleted_is_not_linked() {
    let world = World::simulated().await;
    let node = |finalizers: Value| {
        let node = json!({"metadata": {"name": "m", "finalizers": finalizers}, "spec": {"providerID": "scripted:///m"}});
        serde_json::from_value(node).unwrap()
    };
    world.nodes().create(&PostParams::default(), &node(json!(["test/hold"]))).await.unwrap();
    world.nodes().delete("m", &DeleteParams::default()).await.unwrap();
    let _running = world.start();
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Provisioned").await;
    tokio::time::sleep(world.resync).await;
    assert_eq!(world.machine("m").await.status.unwrap().node_ref, None);
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.nodes().patch("m", &PatchParams::default(), &release).await.unwrap();
    world.nodes().create(&PostParams::default(), &node(Value::Null)).await.unwrap();
    world.reaches("m", "Running").await;
}

#[tokio::test]
async fn rule_8_2_a_readiness_flip_wakes_who_watches_the_machine() {
    let world = World::simulated().await;
    let _running = world.start();
    world.create_machine("m", json!({})).await;
    world.reaches("m", "Running").await;
    let updated = async || world.machine("m").await.status.unwrap().last_updated.unwrap();
    let before = updated().await;
    // Times in a status are whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.set_ready("m", "False", PAST).await;
    eventually("the Machine is touched", async || updated().await > before).await;
    assert_eq!(world.phase("m").await, "Running");
}
