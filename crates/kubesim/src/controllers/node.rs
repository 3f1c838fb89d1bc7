//! Nodes: taints follow conditions; a node whose lease expires becomes NotReady; pods of missing or unreachable nodes
//! are evicted.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::{pods, scheduler};
use crate::cluster::ClusterInner;
use crate::events::{EventSource, Severity};
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::{DeleteOptions, set_condition};

/// Age of a lease at which its node counts as unreachable.
const LEASE_GRACE: SignedDuration = SignedDuration::from_secs(50);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Makes the taints of a node match its conditions.
pub(super) fn reconcile(context: &mut ControllerContext<'_>, name: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", "Node")?;
    let Some(mut node) = context.read(kind, name) else { return Ok(()) };
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let wanted = wanted_taints(&node, taints.clone(), &time(context.now));
    if wanted == taints {
        return Ok(());
    }
    if let Some(spec) = node["spec"].as_object_mut() {
        match wanted.is_empty() {
            true => spec.remove("taints"),
            false => spec.insert("taints".into(), Value::Array(wanted)),
        };
    }
    context.update(kind, node)
}

fn wanted_taints(node: &Value, mut taints: Vec<Value>, now: &str) -> Vec<Value> {
    let ready = pods::condition(node, "Ready").and_then(|condition| condition["status"].as_str());
    let cordoned = node["spec"]["unschedulable"] == true;
    let rules = [
        (NOT_READY, "NoSchedule", matches!(ready, Some("False") | None)),
        (NOT_READY, "NoExecute", ready == Some("False")),
        (UNREACHABLE, "NoSchedule", ready == Some("Unknown")),
        (UNREACHABLE, "NoExecute", ready == Some("Unknown")),
        (UNSCHEDULABLE, "NoSchedule", cordoned),
    ];
    for (key, effect, is_wanted) in rules {
        let present = taints.iter().position(|taint| taint["key"] == key && taint["effect"] == effect);
        match (present, is_wanted) {
            (Some(index), false) => {
                taints.remove(index);
            }
            (None, true) => taints.push(json!({"key": key, "effect": effect, "timeAdded": now})),
            _ => {}
        }
    }
    taints
}

/// Checks what changes with time alone: leases expire, tolerations end, nodes stay missing.
pub(super) fn check_by_time(cluster: &Arc<ClusterInner>) {
    {
        let mut state = cluster.write();
        state.objects.trim_log();
        cluster.events().trim(&mut state, cluster.clock.now());
    }
    if !cluster.has_controllers {
        return;
    }
    if cluster.read().objects.count("/nodes") == 0 && cluster.read().objects.count("/pods") == 0 {
        return;
    }
    let mut context = ControllerContext::new(cluster);
    if let Err(failure) = mark_unreachable_nodes(&mut context).and_then(|()| evict_pods(&mut context)) {
        tracing::debug!(cluster.id = cluster.name, "Failed to check nodes: {}", failure.message);
    }
}

/// Sets the Ready condition of nodes with an expired lease to Unknown.
fn mark_unreachable_nodes(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    let (kind, leases) = (
        ControllerContext::built_in_kind("", "Node")?,
        ControllerContext::built_in_kind("coordination.k8s.io", "Lease")?,
    );
    let objects = &context.state.objects;
    let is_expired = |name: &str| {
        let lease = objects.get(leases.table(), &format!("kube-node-lease/{name}"));
        lease
            .and_then(|lease| lease.summary().renew_time)
            .is_some_and(|renewed| context.now.duration_since(renewed) >= LEASE_GRACE)
    };
    let expired: Vec<Arc<str>> = objects
        .range(kind.table(), "", "")
        .filter(|(name, _)| is_expired(name))
        .map(|(name, _)| name.clone())
        .collect();
    for name in expired {
        let Some(lease) = context.read(leases, &format!("kube-node-lease/{name}")) else { continue };
        let Some(mut node) = context.read(kind, &name) else { continue };
        let ready = pods::condition(&node, "Ready").cloned();
        if ready.is_none_or(|ready| ready["status"] == "Unknown") {
            continue;
        }
        let now = time(context.now);
        let condition = json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastHeartbeatTime": lease["spec"]["renewTime"],
            "lastTransitionTime": now,
        });
        set_condition(&mut node, condition);
        context.update_status(kind, node.clone())?;
        let message = format!("Node {name} status is now: NodeNotReady");
        let source = EventSource::Controller("node-controller");
        context.record(source, &node, Severity::Normal, "NodeNotReady", &message);
    }
    Ok(())
}

/// Deletes pods whose node is missing, or whose toleration of its taints has expired.
fn evict_pods(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    let (pod_kind, node_kind) =
        (ControllerContext::built_in_kind("", "Pod")?, ControllerContext::built_in_kind("", "Node")?);
    let objects = &context.state.objects;
    let affected: Vec<Value> = objects
        .range(pod_kind.table(), "", "")
        .filter(|(_, pod)| {
            let node = pod.summary().node_name.as_ref().map(|name| objects.get(node_kind.table(), name));
            node.is_some_and(|node| node.is_none_or(|node| node.summary().evicts_pods))
        })
        .map(|(_, pod)| pod.value())
        .collect();
    for pod in affected {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        match context.read(node_kind, node) {
            None => {
                let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
                context.delete_with(pod_kind, &key(&pod), options)?;
            }
            Some(node) if !pods::is_terminating(&pod) && is_toleration_expired(&pod, &node, context.now) => {
                context.delete_with(pod_kind, &key(&pod), DeleteOptions::default())?;
                let mut object = pod;
                pod_kind.set_type_meta(&mut object);
                let message = format!("Marking for deletion Pod {}", key(&object));
                let source = EventSource::Controller("taint-eviction-controller");
                context.record(source, &object, Severity::Normal, "TaintManagerEviction", &message);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn is_toleration_expired(pod: &Value, node: &Value, now: Timestamp) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.into_iter().flatten().filter(|taint| taint["effect"] == "NoExecute").any(|taint| {
        let covering: Vec<&Value> = pod["spec"]["tolerations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|toleration| scheduler::tolerates(&json!([toleration]), taint))
            .collect();
        if covering.is_empty() {
            return true;
        }
        let toleration_seconds = covering
            .iter()
            .map(|toleration| toleration["tolerationSeconds"].as_i64())
            .min_by_key(|seconds| seconds.unwrap_or(i64::MAX));
        let since = taint["timeAdded"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        match (toleration_seconds.flatten(), since) {
            (Some(seconds), Some(since)) => now.duration_since(since) >= SignedDuration::from_secs(seconds),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, cordoned: bool) -> Value {
        json!({"spec": {"unschedulable": cordoned}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn taints_follow_conditions() {
        let keys = |node: &Value, taints: Vec<Value>| -> Vec<String> {
            let wanted = wanted_taints(node, taints, "now");
            wanted
                .iter()
                .map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', ""))
                .collect()
        };
        let not_ready = json!({"key": NOT_READY, "effect": "NoSchedule"});
        assert_eq!(keys(&node("True", false), vec![not_ready]), Vec::<String>::new());
        assert_eq!(keys(&node("True", true), vec![]), ["node.kubernetes.io/unschedulable:NoSchedule"]);
        assert_eq!(keys(&node("Unknown", false), vec![]).len(), 2);
        let other_taint = json!({"key": "mine", "effect": "NoSchedule"});
        assert_eq!(keys(&node("True", false), vec![other_taint]), ["mine:NoSchedule"]);
    }

    #[test]
    fn a_pod_is_evicted_from_an_unreachable_node_when_its_toleration_expires() {
        let since = "2026-01-01T00:00:00Z";
        let node =
            json!({"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": since}]}});
        let pod = json!({"spec": {"tolerations": [
            {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ]}});
        let start: Timestamp = since.parse().unwrap();
        let after = |seconds| start + SignedDuration::from_secs(seconds);
        assert!(!is_toleration_expired(&pod, &node, after(299)));
        assert!(is_toleration_expired(&pod, &node, after(300)));
        assert!(is_toleration_expired(&json!({"spec": {}}), &node, after(0)));
    }
}
