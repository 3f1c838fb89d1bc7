//! The objects that a measurement begins with.

use std::time::Duration;

use api::crd::machine::{Machine, MachineHealthCheck, MachineSet};
use futures_util::stream::{StreamExt as _, iter};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::clouds::instance_of;
use crate::until;

/// Long ago.
const PAST: &str = "2026-01-01T00:00:00Z";
/// Objects that are created at once.
const IN_FLIGHT: usize = 16;

/// Installs the definitions, and waits until they are served.
pub(crate) async fn define(client: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in api::crd::definitions() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let (machines, sets, checks) = (
        Api::<Machine>::all(client.clone()),
        Api::<MachineSet>::all(client.clone()),
        Api::<MachineHealthCheck>::all(client.clone()),
    );
    let one = ListParams::default().limit(1);
    until("the kinds are served", Duration::from_secs(60), async || {
        machines.list(&one).await.is_ok() && sets.list(&one).await.is_ok() && checks.list(&one).await.is_ok()
    })
    .await
}

pub(crate) async fn create_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// A MachineSet without Machines.
pub(crate) async fn create_set(
    client: &Client,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> anyhow::Result<MachineSet> {
    let set = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"set": name}},
            "template": {
                "metadata": {"labels": {"machine.openshift.io/cluster-api-cluster": "c", "set": name}},
                "spec": {"providerSpec": {"value": {"size": "small"}}},
            },
        },
    });
    let sets: Api<MachineSet> = Api::namespaced(client.clone(), namespace);
    Ok(sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?)
}

/// A ready Node.
pub(crate) async fn create_node(client: &Client, mut node: Value) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = json!({"conditions": [condition("True", PAST)]});
    node["status"] = status.clone();
    let created = nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let patch = Patch::Merge(json!({"status": status}));
    Ok(nodes.patch_status(&created.name_any(), &PatchParams::default(), &patch).await?)
}

fn condition(ready: &str, since: &str) -> Value {
    json!({"type": "Ready", "status": ready, "reason": "Bench", "message": "",
        "lastHeartbeatTime": since, "lastTransitionTime": since})
}

/// Writes the condition `Ready` of a Node.
pub(crate) async fn set_ready(client: &Client, node: &str, ready: &str, since: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"status": {"conditions": [condition(ready, since)]}}));
    nodes.patch_status(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Creates so many Machines that run, each with its Node, in MachineSets of `per_set`, and a check of them all.
pub(crate) async fn populate(
    client: &Client,
    namespace: &str,
    machines: usize,
    per_set: usize,
) -> anyhow::Result<()> {
    let check = json!({
        "metadata": {"name": "workers"},
        "spec": {"selector": {}, "maxUnhealthy": "100%",
            "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "3s"}]},
    });
    Api::<MachineHealthCheck>::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &serde_json::from_value(check)?)
        .await?;
    for number in 0..machines / per_set {
        let name = set_name(number);
        let set = create_set(client, namespace, &name, per_set).await?;
        let set = &set;
        let create = |index: usize| async move { run_machine(client, namespace, set, index).await };
        let created: Vec<anyhow::Result<()>> =
            iter((0..per_set).map(create)).buffer_unordered(IN_FLIGHT).collect().await;
        created.into_iter().collect::<anyhow::Result<()>>()?;
    }
    Ok(())
}

fn set_name(number: usize) -> String {
    format!("set-{number:03}")
}

/// The name of a Machine of a population, and of its Node.
pub(crate) fn machine_name(set: usize, index: usize) -> String {
    format!("{}-{index:03}", set_name(set))
}

/// Creates a Machine as it is when nothing about it is left to do.
async fn run_machine(client: &Client, namespace: &str, set: &MachineSet, index: usize) -> anyhow::Result<()> {
    let set_name = set.name_any();
    let name = format!("{set_name}-{index:03}");
    let instance = instance_of(&name);
    let node = json!({
        "metadata": {"name": name, "annotations": {"machine.openshift.io/machine": format!("{namespace}/{name}")}},
        "spec": {"providerID": instance.provider_id},
    });
    let node = create_node(client, node).await?;
    let machine = json!({
        "metadata": {
            "name": name,
            "finalizers": ["machine.machine.openshift.io"],
            "labels": {
                "machine.openshift.io/cluster-api-cluster": "c", "set": set_name,
                "machine.openshift.io/region": "here", "machine.openshift.io/zone": "1",
                "machine.openshift.io/instance-type": "small",
            },
            "annotations": {"machine.openshift.io/instance-state": "Running"},
            "ownerReferences": [{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
                "name": set_name, "uid": set.uid(), "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"providerID": instance.provider_id, "providerSpec": {"value": {"size": "small"}}},
    });
    let machines: Api<Machine> = Api::namespaced(client.clone(), namespace);
    machines.create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
    let holds = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": PAST});
    let status = json!({"status": {
        "phase": "Running",
        "lastUpdated": PAST,
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeRef": {"kind": "Node", "name": name, "uid": node.uid()},
        "providerStatus": instance.provider_status,
        "conditions": [holds("Drainable"), holds("InstanceExists"), holds("Terminable")],
    }});
    machines.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}
