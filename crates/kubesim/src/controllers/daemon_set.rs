//! Daemon sets: one pod on every node that accepts it.

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::pods::{self, Rounding};
use super::{revisions, scheduler};
use crate::fields;
use crate::status::ApiResult;

const HASH: &str = "controller-revision-hash";
/// The reporter of its events.
const SOURCE: &str = "daemonset-controller";
/// Taints that the pods of a daemon set tolerate, so that they stay whatever the state of their node.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, pod_kind) = (
        ControllerContext::built_in_kind("apps", "DaemonSet")?,
        ControllerContext::built_in_kind("", "Pod")?,
    );
    let Some(set) = context.read(kind, at) else { return Ok(()) };
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if !set["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let hash = pods::template_hash(&set["spec"]["template"]);
    let owned = context.controlled(pod_kind, &uid);
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let live = owned.iter().filter_map(|pod| pod["metadata"]["labels"][HASH].as_str());
    let live = live.map(|hash| format!("{name}-{hash}")).collect();
    revisions::ensure(context, &set, &hash, HASH, &live)?;
    let nodes: Vec<Value> =
        context.state.objects.range("/nodes", "", "").map(|(_, node)| node.value()).collect();
    let (mut desired_nodes, mut misplaced) = (Vec::new(), 0_usize);
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let pod = pod_for(&set, name, &hash);
        let on_node: Vec<&Value> = owned.iter().filter(|pod| is_on(pod, name)).collect();
        if scheduler::unschedulable_reason(&pod, node).is_none() {
            desired_nodes.push(name.to_owned());
            // A finished pod is deleted and replaced.
            for finished in on_node.iter().filter(|pod| pods::is_finished(pod)) {
                context.delete_pod(SOURCE, &set, &key(finished))?;
            }
            if on_node.iter().all(|pod| pods::is_finished(pod)) {
                let created = context.create_pod(SOURCE, &set, pod)?.value();
                context.bind(&created, name)?;
            }
        } else {
            misplaced += on_node.len();
            // A taint with effect NoSchedule does not evict running pods.
            let evicted = on_node.iter().filter(|pod| !pods::is_terminating(pod) && is_evicted(pod, node));
            for pod in evicted {
                context.delete_pod(SOURCE, &set, &key(pod))?;
            }
        }
    }
    let owned = context.controlled(pod_kind, &uid);
    delete_outdated_pods(context, &set, &owned, &hash, desired_nodes.len())?;
    let owned = context.controlled(pod_kind, &uid);
    let Some(mut set) = context.read(kind, at) else { return Ok(()) };
    set["status"] = status(&set, &owned, &desired_nodes, &hash, misplaced);
    context.update_status(kind, set)
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

fn is_evicted(pod: &Value, node: &Value) -> bool {
    let mut without_taints = node.clone();
    if let Some(taints) = without_taints["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| taint["effect"] == "NoExecute");
    }
    scheduler::unschedulable_reason(pod, &without_taints).is_some()
}

/// The pod of a daemon set for one node; it tolerates the taints of unhealthy nodes.
fn pod_for(set: &Value, node: &str, hash: &str) -> Value {
    let mut pod = pods::from_template(set);
    fields::set(&mut pod, &["metadata", "labels", HASH], json!(hash));
    fields::set(
        &mut pod,
        &["metadata", "labels", "pod-template-generation"],
        json!(set["metadata"]["generation"].to_string()),
    );
    fields::set(
        &mut pod,
        &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"],
        json!({
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
        }),
    );
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in TOLERATED {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    fields::set(&mut pod, &["spec", "tolerations"], Value::Array(tolerations));
    pod
}

/// Deletes pods of an older template, as many at once as `maxUnavailable` allows.
fn delete_outdated_pods(
    context: &mut ControllerContext<'_>,
    set: &Value,
    owned: &[Value],
    hash: &str,
    desired_nodes: usize,
) -> ApiResult<()> {
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Ok(());
    }
    let total = i64::try_from(desired_nodes).unwrap_or(i64::MAX);
    let bound =
        pods::share(&set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], total, Rounding::Up)
            .max(1);
    let ready = owned.iter().filter(|pod| pods::is_ready(pod) && !pods::is_terminating(pod)).count();
    let missing = total - i64::try_from(ready).unwrap_or(0);
    let mut spare = (bound - missing).max(0);
    for pod in
        owned.iter().filter(|pod| pod["metadata"]["labels"][HASH] != hash && !pods::is_terminating(pod))
    {
        if !pods::is_ready(pod) {
            context.delete_pod(SOURCE, set, &key(pod))?;
        } else if spare > 0 {
            spare -= 1;
            context.delete_pod(SOURCE, set, &key(pod))?;
        }
    }
    Ok(())
}

fn status(set: &Value, owned: &[Value], desired_nodes: &[String], hash: &str, misplaced: usize) -> Value {
    let placed: Vec<&Value> = owned
        .iter()
        .filter(|pod| pods::is_active(pod) && desired_nodes.iter().any(|node| is_on(pod, node)))
        .collect();
    let ready = placed.iter().filter(|pod| pods::is_ready(pod)).count();
    let updated = placed.iter().filter(|pod| pod["metadata"]["labels"][HASH] == hash).count();
    let mut status = json!({
        "currentNumberScheduled": placed.len(), "numberMisscheduled": misplaced, "desiredNumberScheduled": desired_nodes.len(),
        "numberReady": ready, "observedGeneration": set["metadata"]["generation"],
    });
    for (field, value) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", ready),
        ("numberUnavailable", desired_nodes.len().saturating_sub(ready)),
    ] {
        if value != 0 {
            status[field] = json!(value);
        }
    }
    status
}
