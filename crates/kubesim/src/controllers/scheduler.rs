//! The scheduler: binds pending pods to nodes that accept them, the emptiest first.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::context::ControllerContext;
use super::pods;
use crate::events::{EventSource, Severity};
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::set_condition;

/// Capacity of a node that states none.
const PODS_MAX: i64 = 110;

pub(super) fn schedule_pods(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    let (pod_kind, node_kind) =
        (ControllerContext::built_in_kind("", "Pod")?, ControllerContext::built_in_kind("", "Node")?);
    let mut waiting = Vec::new();
    let mut taken: BTreeMap<String, i64> = BTreeMap::new();
    for (_, pod) in context.state.objects.range(pod_kind.table(), "", "") {
        let summary = pod.summary();
        match &summary.node_name {
            _ if summary.is_finished => {}
            Some(node) => *taken.entry(node.to_string()).or_default() += 1,
            None if !summary.is_terminating => waiting.push(pod.value()),
            None => {}
        }
    }
    waiting.retain(is_schedulable);
    if waiting.is_empty() {
        return Ok(());
    }
    let nodes: Vec<Value> =
        context.state.objects.range(node_kind.table(), "", "").map(|(_, node)| node.value()).collect();
    for mut pod in waiting {
        let chosen = nodes
            .iter()
            .filter(|node| unschedulable_reason(&pod, node).is_none())
            .filter_map(|node| {
                let name = node["metadata"]["name"].as_str()?;
                let count = taken.get(name).copied().unwrap_or(0);
                (count < pod_capacity(node)).then_some((count, name))
            })
            .min();
        if let Some((_, node)) = chosen {
            context.bind(&pod, node)?;
            *taken.entry(node.to_owned()).or_default() += 1;
        } else {
            pod_kind.set_type_meta(&mut pod);
            let message = explanation(&pod, &nodes, &taken);
            let is_known = pods::condition(&pod, "PodScheduled").is_some_and(|one| one["message"] == message);
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastProbeTime": null,
                "message": message, "lastTransitionTime": time(context.now),
            });
            set_condition(&mut pod, condition);
            context.update_status(pod_kind, pod.clone())?;
            // The scheduler tries whenever a node or pod changes; it reports when the reason changes.
            if !is_known {
                let source = EventSource::Scheduler { action: "Scheduling" };
                context.record(source, &pod, Severity::Warning, "FailedScheduling", &message);
            }
        }
    }
    Ok(())
}

fn is_schedulable(pod: &Value) -> bool {
    !pods::is_terminating(pod)
        && pod["spec"]["schedulerName"] == "default-scheduler"
        && pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

fn pod_capacity(node: &Value) -> i64 {
    match &node["status"]["allocatable"]["pods"] {
        Value::String(text) => text.parse().unwrap_or(PODS_MAX),
        Value::Number(number) => number.as_i64().unwrap_or(PODS_MAX),
        _ => PODS_MAX,
    }
}

/// Why a pod cannot be placed on a node, in the words of the real scheduler.
pub(super) fn unschedulable_reason(pod: &Value, node: &Value) -> Option<String> {
    let tolerated = |taint: &Value| tolerates(&pod["spec"]["tolerations"], taint);
    if node["spec"]["unschedulable"] == true
        && !tolerated(&json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}))
    {
        return Some("were unschedulable".to_owned());
    }
    let taints = node["spec"]["taints"].as_array();
    for taint in taints.into_iter().flatten() {
        if matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")) && !tolerated(taint) {
            return Some("had untolerated taint(s)".to_owned());
        }
    }
    if matches_node(pod, node) { None } else { Some("didn't match Pod's node affinity/selector".to_owned()) }
}

/// Whether a toleration covers a taint.
pub(super) fn tolerates(tolerations: &Value, taint: &Value) -> bool {
    tolerations.as_array().into_iter().flatten().any(|toleration| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
        let exists = toleration["operator"] == "Exists";
        (effect.is_empty() || taint["effect"] == effect.as_str())
            && ((key.is_empty() && exists) || taint["key"] == key.as_str())
            && (exists || text(&toleration["value"]) == text(&taint["value"]))
    })
}

/// Whether the node matches the pod's node selector and required affinity.
fn matches_node(pod: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selector = pod["spec"]["nodeSelector"].as_object();
    if !selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = required["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| {
        let list = |field: &str| term[field].as_array().cloned().unwrap_or_default();
        let by_field =
            list("matchFields").iter().all(|one| expression_matches(one, node["metadata"]["name"].as_str()));
        let by_label = list("matchExpressions").iter().all(|one| {
            expression_matches(
                one,
                labels.get(one["key"].as_str().unwrap_or_default()).and_then(Value::as_str),
            )
        });
        by_field && by_label
    })
}

fn expression_matches(expression: &Value, value: Option<&str>) -> bool {
    let values: Vec<&str> =
        expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match expression["operator"].as_str().unwrap_or_default() {
        "In" => value.is_some_and(|value| values.contains(&value)),
        "NotIn" => value.is_none_or(|value| !values.contains(&value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn explanation(pod: &Value, nodes: &[Value], taken: &BTreeMap<String, i64>) -> String {
    if nodes.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let full = taken.get(name).copied().unwrap_or(0) >= pod_capacity(node);
        let reason = unschedulable_reason(pod, node)
            .unwrap_or_else(|| if full { "Too many pods" } else { "unknown" }.to_owned());
        *counts.entry(reason).or_default() += 1;
    }
    let reasons: Vec<String> = counts
        .into_iter()
        .map(|(reason, count)| {
            if reason == "Too many pods" {
                format!("{count} {reason}")
            } else {
                format!("{count} node(s) {reason}")
            }
        })
        .collect();
    format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tainted_or_cordoned_node_accepts_only_tolerant_pods() {
        let pod = json!({"spec": {}});
        let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        let cordoned = json!({"spec": {"unschedulable": true}});
        let tainted = json!({"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}});
        assert!(unschedulable_reason(&pod, &json!({"spec": {}})).is_none());
        for node in [cordoned, tainted] {
            assert!(unschedulable_reason(&pod, &node).is_some());
            assert!(unschedulable_reason(&tolerant, &node).is_none());
        }
    }

    #[test]
    fn a_node_selector_matches_labels() {
        let pod = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
        assert!(unschedulable_reason(&pod, &json!({"metadata": {"labels": {"disk": "ssd"}}})).is_none());
        assert!(unschedulable_reason(&pod, &json!({"metadata": {"labels": {}}})).is_some());
    }
}
