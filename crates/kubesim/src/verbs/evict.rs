//! Eviction: a deletion that respects PodDisruptionBudgets.

use serde_json::{Value, json};

use super::delete::{DeleteOptions, delete, expect_preconditions};
use super::kind_verbs::set_condition;
use super::{Caller, Target};
use crate::fields;
use crate::kinds::{self, Kind};
use crate::selector::LabelSelector;
use crate::state::{State, time};
use crate::status::{ApiResult, StatusError};

/// Seconds after which a client may retry when the budget is not up to date.
const RETRY_SECONDS: u32 = 10;

/// Evicts a pod, or fails with the budget that forbids it.
pub fn evict(state: &mut State, target: &Target, options: &DeleteOptions, caller: &Caller) -> ApiResult<()> {
    let kind = &target.kind;
    // Webhooks for deletions do not see evictions.
    let caller = &caller.without_gate();
    let Some(pod) = state.read(kind, &target.namespace, &target.name) else {
        return Err(StatusError::not_found(kind, &target.name));
    };
    let Some(budgets) = kinds::find("policy", "PodDisruptionBudget") else {
        return Err(StatusError::no_such_resource());
    };
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let is_terminating = !pod["metadata"]["deletionTimestamp"].is_null();
    if !(is_terminating || matches!(phase, "Succeeded" | "Failed" | "Pending")) {
        let matching = matching_budgets(state, budgets, &pod);
        match matching.as_slice() {
            [] => {}
            [budget] => use_disruption(state, budgets, budget, &pod, options.dry_run, caller)?,
            _ => {
                return Err(StatusError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
    }
    if options.dry_run {
        return delete(state, target, options, caller).map(drop);
    }
    expect_preconditions(kind, &pod, options)?;
    let mut pod = state.read(kind, &target.namespace, &target.name).unwrap_or(pod);
    set_condition(
        &mut pod,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": time(caller.now),
        }),
    );
    state.put(kind, pod)?;
    // The precondition was checked before the pod was changed.
    let options = DeleteOptions { resource_version: None, ..options.clone() };
    delete(state, target, &options, caller).map(drop)
}

fn matching_budgets(state: &State, kind: &Kind, pod: &Value) -> Vec<Value> {
    let prefix = format!("{}/", pod["metadata"]["namespace"].as_str().unwrap_or_default());
    let labels = pod["metadata"]["labels"].as_object();
    if labels.is_none_or(serde_json::Map::is_empty) {
        return Vec::new();
    }
    state
        .objects
        .range(kind.table(), &prefix, "")
        .map(|(_, budget)| budget.value())
        .filter(|budget| {
            LabelSelector::from_object(budget["spec"].get("selector"))
                .is_some_and(|one| one.matches_object(pod))
        })
        .collect()
}

/// Counts one disruption in the budget, or fails.
fn use_disruption(
    state: &mut State,
    kind: &Kind,
    budget: &Value,
    pod: &Value,
    dry_run: bool,
    caller: &Caller,
) -> ApiResult<()> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let status = &budget["status"];
    let ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if !ready {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let healthy = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
        if always || healthy {
            return Ok(());
        }
    }
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    if observed < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(eviction_error(&why, Some(RETRY_SECONDS)));
    }
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        let (required, healthy) = (number("desiredHealthy"), number("currentHealthy"));
        let why =
            format!("The disruption budget {name} needs {required} healthy pods and has {healthy} currently");
        return Err(eviction_error(&why, None));
    }
    if dry_run {
        return Ok(());
    }
    let mut updated = budget.clone();
    kind.set_type_meta(&mut updated);
    fields::set(&mut updated, &["status", "disruptionsAllowed"], json!(allowed - 1));
    let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
    fields::set(&mut updated, &["status", "disruptedPods", pod], json!(time(caller.now)));
    state.put(kind, updated).map(drop)
}

fn eviction_error(why: &str, retry_after: Option<u32>) -> StatusError {
    let mut failure = StatusError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    failure.details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry_after {
        failure.details["retryAfterSeconds"] = json!(seconds);
        failure.retry_after = Some(seconds);
    }
    failure
}
