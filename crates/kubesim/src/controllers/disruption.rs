//! Disruption budgets: how many pods may currently be evicted.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::context::ControllerContext;
use super::pods;
use crate::objects::Object;
use crate::selector::LabelSelector;
use crate::state::time;
use crate::status::ApiResult;

/// A pod that is still there this long after its eviction no longer counts as disrupted.
const DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

pub(super) fn reconcile(context: &mut ControllerContext<'_>, key: &str) -> ApiResult<()> {
    let (kind, pods_kind) = (
        ControllerContext::built_in_kind("policy", "PodDisruptionBudget")?,
        ControllerContext::built_in_kind("", "Pod")?,
    );
    let Some(mut budget) = context.read(kind, key) else { return Ok(()) };
    let prefix = format!("{}/", budget["metadata"]["namespace"].as_str().unwrap_or_default());
    let selector = LabelSelector::from_object(budget["spec"].get("selector"));
    let matching: Vec<Arc<Object>> = context
        .state
        .objects
        .range(pods_kind.table(), &prefix, "")
        .filter(|(_, pod)| selector.as_ref().is_some_and(|selector| selector.matches(|key| pod.label(key))))
        .map(|(_, pod)| pod.clone())
        .collect();
    let wanted = wanted_by_owners(context, &matching);
    let disruptions = count(&budget, &matching, wanted, context.now);
    let status = json!({
        "observedGeneration": budget["metadata"]["generation"],
        "disruptionsAllowed": disruptions.allowed, "currentHealthy": disruptions.healthy,
        "desiredHealthy": disruptions.desired, "expectedPods": disruptions.expected,
        "conditions": budget["status"]["conditions"],
    });
    budget["status"] = status;
    if !disruptions.disrupted.is_empty() {
        budget["status"]["disruptedPods"] = Value::Object(disruptions.disrupted);
    }
    let (truth, reason) =
        if disruptions.allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({
        "type": "DisruptionAllowed", "status": truth, "reason": reason, "message": "",
        "lastTransitionTime": time(context.now), "observedGeneration": budget["metadata"]["generation"],
    });
    crate::verbs::set_condition(&mut budget, condition);
    context.update_status(kind, budget)
}

/// The number of pods that the owners of these pods desire together.
fn wanted_by_owners(context: &ControllerContext<'_>, pods: &[Arc<Object>]) -> i64 {
    let mut owners: HashMap<Arc<str>, Option<i64>> = HashMap::new();
    let mut single = 0;
    for pod in pods {
        let Some(uid) = &pod.summary().controller_uid else {
            single += 1;
            continue;
        };
        let replicas = *owners.entry(uid.clone()).or_insert_with(|| replicas_of_owner(context, &pod.value()));
        single += i64::from(replicas.is_none());
    }
    single + owners.values().flatten().sum::<i64>()
}

/// The number of replicas that the controller of a pod desires, if it has such a number.
fn replicas_of_owner(context: &ControllerContext<'_>, pod: &Value) -> Option<i64> {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|one| one["controller"] == true)?;
    let group = owner["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
    let kind = context.state.kinds.find_kind(group, owner["kind"].as_str()?)?;
    let found = context.state.read(kind, pod["metadata"]["namespace"].as_str()?, owner["name"].as_str()?)?;
    found["spec"]["replicas"].as_i64()
}

struct Disruptions {
    expected: i64,
    healthy: i64,
    desired: i64,
    allowed: i64,
    disrupted: Map<String, Value>,
}

/// What a budget allows for its pods and the desired number of them.
fn count(budget: &Value, matching: &[Arc<Object>], wanted: i64, now: Timestamp) -> Disruptions {
    let spec = &budget["spec"];
    let disrupted = still_disrupted(&budget["status"]["disruptedPods"], matching, now);
    let healthy = matching
        .iter()
        .filter(|pod| {
            pod.summary().is_ready && !pod.summary().is_terminating && !disrupted.contains_key(pod.name())
        })
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let present = i64::try_from(matching.len()).unwrap_or(i64::MAX);
    let (expected, desired) = if !spec["maxUnavailable"].is_null() {
        (wanted, (wanted - pods::share(&spec["maxUnavailable"], wanted, pods::Rounding::Up)).max(0))
    } else {
        match &spec["minAvailable"] {
            Value::String(_) => (wanted, pods::share(&spec["minAvailable"], wanted, pods::Rounding::Up)),
            Value::Number(number) => (present, number.as_i64().unwrap_or(0)),
            _ => (present, 1),
        }
    };
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    Disruptions { expected, healthy, desired, allowed, disrupted }
}

/// Evicted pods that are not terminating yet.
fn still_disrupted(disrupted: &Value, matching: &[Arc<Object>], now: Timestamp) -> Map<String, Value> {
    let mut still = Map::new();
    for (name, since) in disrupted.as_object().into_iter().flatten() {
        let pod = matching.iter().find(|pod| pod.name() == name.as_str());
        let recent = since
            .as_str()
            .and_then(|since| since.parse::<Timestamp>().ok())
            .is_some_and(|since| now.duration_since(since) < DISRUPTION_TIMEOUT);
        if recent && pod.is_some_and(|pod| !pod.summary().is_terminating) {
            still.insert(name.clone(), since.clone());
        }
    }
    still
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: bool) -> Arc<Object> {
        let status = if ready { "True" } else { "False" };
        let conditions = json!([{"type": "Ready", "status": status}]);
        Arc::new(Object::unsaved(json!({"metadata": {"name": name}, "status": {"conditions": conditions}})))
    }

    fn check(spec: Value, ready: usize, unready: usize, expect: (i64, i64, i64)) {
        let pods: Vec<Arc<Object>> =
            (0..ready + unready).map(|number| pod(&number.to_string(), number < ready)).collect();
        let wanted = i64::try_from(pods.len()).unwrap();
        let disruptions = count(&json!({"spec": spec}), &pods, wanted, Timestamp::UNIX_EPOCH);
        assert_eq!((disruptions.desired, disruptions.healthy, disruptions.allowed), expect);
    }

    #[test]
    fn a_budget_allows_disruption_of_healthy_pods_beyond_the_required_number() {
        check(json!({"minAvailable": 2}), 3, 0, (2, 3, 1));
        check(json!({"minAvailable": 2}), 2, 1, (2, 2, 0));
        check(json!({"minAvailable": "50%"}), 3, 0, (2, 3, 1));
        check(json!({"maxUnavailable": 1}), 3, 0, (2, 3, 1));
        check(json!({"maxUnavailable": 0}), 3, 0, (3, 3, 0));
        check(json!({"maxUnavailable": "100%"}), 2, 0, (0, 2, 2));
        check(json!({"minAvailable": 1}), 0, 0, (1, 0, 0));
    }
}
