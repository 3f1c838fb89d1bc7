//! Stateful sets: numbered pods, created in order.

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::{pods, revisions};
use crate::events::{EventSource, Severity};
use crate::fields;
use crate::status::ApiResult;
use crate::verbs::Propagation;

const HASH: &str = "controller-revision-hash";

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, pod_kind) = (
        ControllerContext::built_in_kind("apps", "StatefulSet")?,
        ControllerContext::built_in_kind("", "Pod")?,
    );
    let Some(set) = context.read(kind, at) else { return Ok(()) };
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if set["metadata"]["deletionTimestamp"].is_null() {
        let owned = context.controlled(pod_kind, &uid);
        let hash = revision(&set);
        ensure_revision(context, &set, &owned)?;
        match next(&set, &owned, &hash) {
            Next::Create(numbers) => {
                for number in numbers {
                    create_pod(context, &set, number, &hash)?;
                }
            }
            Next::Delete(pod) => {
                context.delete(pod_kind, &pod, Propagation::Background)?;
                let name = pod.split_once('/').map_or(&*pod, |(_, name)| name);
                record(context, &set, "Delete", &format!("Pod {name}"), "successful");
            }
            Next::Wait => {}
        }
    }
    let owned = context.controlled(pod_kind, &uid);
    let Some(mut set) = context.read(kind, at) else { return Ok(()) };
    set["status"] = status(&set, &owned);
    context.update_status(kind, set)
}

/// Ensures that the present template is the newest revision, for `kubectl rollout`.
fn ensure_revision(context: &mut ControllerContext<'_>, set: &Value, owned: &[Value]) -> ApiResult<()> {
    let hash = pods::template_hash(&set["spec"]["template"]);
    let of_pods = owned.iter().map(|pod| &pod["metadata"]["labels"][HASH]);
    let live = of_pods.chain([&set["status"]["currentRevision"]]).filter_map(Value::as_str);
    let live = live.map(str::to_owned).collect();
    revisions::ensure(context, set, &hash, "controller.kubernetes.io/hash", &live)
}

/// Records what was done to a pod or a claim.
fn record(context: &mut ControllerContext<'_>, set: &Value, verb: &str, subject: &str, outcome: &str) {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let message = format!("{verb} {subject} in StatefulSet {name} {outcome}");
    let source = EventSource::Controller("statefulset-controller");
    context.record(source, set, Severity::Normal, &format!("Successful{verb}"), &message);
}

fn revision(set: &Value) -> String {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    format!("{name}-{}", pods::template_hash(&set["spec"]["template"]))
}

fn first_ordinal(set: &Value) -> i64 {
    set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0)
}

fn ordinal(pod: &Value) -> Option<i64> {
    pod["metadata"]["name"].as_str()?.rsplit_once('-')?.1.parse().ok()
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Create(Vec<i64>),
    Delete(String),
    Wait,
}

/// Pods are created from the lowest ordinal and deleted from the highest, one at a time unless the policy is
/// Parallel.
fn next(set: &Value, owned: &[Value], hash: &str) -> Next {
    let start = first_ordinal(set);
    let end = start + set["spec"]["replicas"].as_i64().unwrap_or(1);
    let parallel = set["spec"]["podManagementPolicy"] == "Parallel";
    let pod_at = |number: i64| owned.iter().find(|pod| ordinal(pod) == Some(number));
    let mut missing = Vec::new();
    for number in start..end {
        match pod_at(number) {
            None => {
                missing.push(number);
                if !parallel {
                    return Next::Create(missing);
                }
            }
            Some(pod) if pods::is_finished(pod) && !pods::is_terminating(pod) => {
                return Next::Delete(key(pod));
            }
            Some(pod) if !parallel && (!pods::is_ready(pod) || pods::is_terminating(pod)) => {
                return replace_unready(pod, hash);
            }
            Some(_) => {}
        }
    }
    if !missing.is_empty() {
        return Next::Create(missing);
    }
    let mut surplus: Vec<&Value> =
        owned.iter().filter(|pod| ordinal(pod).is_none_or(|number| number >= end)).collect();
    surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
    if let Some(pod) = surplus.first() {
        return if pods::is_terminating(pod) { Next::Wait } else { Next::Delete(key(pod)) };
    }
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Next::Wait;
    }
    let partition = set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    for number in (start.max(start + partition)..end).rev() {
        match pod_at(number) {
            Some(pod) if pods::is_terminating(pod) => return Next::Wait,
            Some(pod) if pod["metadata"]["labels"][HASH] != hash => return Next::Delete(key(pod)),
            Some(pod) if !pods::is_ready(pod) => return Next::Wait,
            _ => {}
        }
    }
    Next::Wait
}

/// A pod that is not ready blocks the others, unless it has an older template.
fn replace_unready(pod: &Value, hash: &str) -> Next {
    if !pods::is_terminating(pod) && pod["metadata"]["labels"][HASH] != hash && !pods::is_ready(pod) {
        return Next::Delete(key(pod));
    }
    Next::Wait
}

fn create_pod(context: &mut ControllerContext<'_>, set: &Value, number: i64, hash: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", "Pod")?;
    let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default();
    let name = format!("{}-{number}", text("name"));
    let mut pod = pods::from_template(set);
    let labels = &mut pod["metadata"]["labels"];
    labels[HASH] = json!(hash);
    labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    labels["apps.kubernetes.io/pod-index"] = json!(number.to_string());
    fields::set(&mut pod, &["metadata", "generateName"], json!(format!("{}-", text("name"))));
    fields::set(&mut pod, &["metadata", "name"], json!(name));
    fields::set(&mut pod, &["spec", "hostname"], json!(name));
    if let Some(service) = set["spec"]["serviceName"].as_str().filter(|service| !service.is_empty()) {
        fields::set(&mut pod, &["spec", "subdomain"], json!(service));
    }
    let claim_kind = ControllerContext::built_in_kind("", "PersistentVolumeClaim")?;
    for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default();
        let claim = format!("{volume}-{name}");
        if context.state.get(claim_kind, text("namespace"), &claim).is_none() {
            let mut claim_object = json!({"metadata": template["metadata"], "spec": template["spec"]});
            fields::set(&mut claim_object, &["metadata", "name"], json!(claim));
            context.create(claim_kind, text("namespace"), claim_object)?;
            record(context, set, "Create", &format!("Claim {claim} Pod {name}"), "success");
        }
        let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
        fields::set(&mut pod, &["spec", "volumes"], Value::Array(volumes));
    }
    context.create(kind, text("namespace"), pod)?;
    record(context, set, "Create", &format!("Pod {name}"), "successful");
    Ok(())
}

fn status(set: &Value, owned: &[Value]) -> Value {
    let hash = revision(set);
    let active: Vec<&Value> = owned.iter().filter(|pod| pods::is_active(pod)).collect();
    let ready = active.iter().filter(|pod| pods::is_ready(pod)).count();
    let updated = active.iter().filter(|pod| pod["metadata"]["labels"][HASH] == hash.as_str()).count();
    let desired = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
    let is_complete = updated == desired && ready == desired;
    let before = set["status"]["currentRevision"].as_str().unwrap_or(&hash);
    let current = if is_complete { hash.as_str() } else { before };
    let of_current = active.iter().filter(|pod| pod["metadata"]["labels"][HASH] == current).count();
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": active.len(), "collisionCount": 0,
        "currentRevision": current, "updateRevision": hash, "availableReplicas": ready,
    });
    for (field, value) in
        [("readyReplicas", ready), ("currentReplicas", of_current), ("updatedReplicas", updated)]
    {
        if value != 0 {
            status[field] = json!(value);
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: i64, hash: &str, ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        json!({
            "metadata": {"name": format!("web-{number}"), "labels": {HASH: hash}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
        })
    }

    fn set(replicas: i64, policy: &str) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "podManagementPolicy": policy}})
    }

    #[test]
    fn pods_are_created_in_order_unless_the_policy_is_parallel() {
        assert_eq!(next(&set(3, "OrderedReady"), &[], "h"), Next::Create(vec![0]));
        assert_eq!(next(&set(3, "OrderedReady"), &[pod(0, "h", false)], "h"), Next::Wait);
        assert_eq!(next(&set(3, "OrderedReady"), &[pod(0, "h", true)], "h"), Next::Create(vec![1]));
        assert_eq!(next(&set(3, "Parallel"), &[], "h"), Next::Create(vec![0, 1, 2]));
    }

    #[test]
    fn the_highest_ordinal_is_deleted_first() {
        let owned = [pod(0, "h", true), pod(1, "h", true), pod(2, "h", true)];
        assert_eq!(next(&set(1, "OrderedReady"), &owned, "h"), Next::Delete("web-2".into()));
        assert_eq!(next(&set(3, "OrderedReady"), &owned, "other"), Next::Delete("web-2".into()));
    }
}
