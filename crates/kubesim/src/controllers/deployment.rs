//! Deployments: one replica set for each template, and the rollout from the old ones to the new one.

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::pods::{self, Rounding};
use super::work_items::WorkItem;
use crate::events::{EventSource, Severity};
use crate::fields;
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::{Propagation, set_condition};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, set_kind) = (
        ControllerContext::built_in_kind("apps", "Deployment")?,
        ControllerContext::built_in_kind("apps", "ReplicaSet")?,
    );
    let Some(deployment) = context.read(kind, at) else { return Ok(()) };
    if !deployment["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let uid = deployment["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut sets = context.controlled(set_kind, &uid);
    sets.sort_by_key(|set| std::cmp::Reverse(revision(set)));
    let template = without_hash(&deployment["spec"]["template"]);
    let present = sets.iter().position(|set| without_hash(&set["spec"]["template"]) == template);
    let paused = deployment["spec"]["paused"] == true;
    let newest = sets.iter().map(revision).max().unwrap_or(0);
    let mut created = None;
    let new = match present {
        Some(index) => Some(sets.remove(index)),
        None if paused => None,
        None => {
            let created_set = create_replica_set(context, &deployment, newest + 1)?;
            created = created_set["metadata"]["name"].as_str().map(str::to_owned);
            Some(created_set)
        }
    };
    let new = match new {
        // The replica set of an older template that is desired again gets the newest revision.
        Some(mut set) if revision(&set) < newest && !paused => {
            fields::set(&mut set, &["metadata", "annotations", REVISION], json!((newest + 1).to_string()));
            context.update(set_kind, set.clone())?;
            context.read(set_kind, &key(&set))
        }
        other => other,
    };
    if !paused {
        roll_out(context, &deployment, new.as_ref(), &sets)?;
        delete_old_replica_sets(context, &deployment, &sets)?;
    }
    update_status(context, at, new.as_ref(), &sets, created)
}

fn revision(set: &Value) -> i64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn without_hash(template: &Value) -> Value {
    let mut rest = template.clone();
    if let Some(labels) = rest["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    rest
}

fn create_replica_set(
    context: &mut ControllerContext<'_>,
    deployment: &Value,
    number: i64,
) -> ApiResult<Value> {
    let kind = ControllerContext::built_in_kind("apps", "ReplicaSet")?;
    let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default();
    let spec = &deployment["spec"];
    let hash = pods::template_hash(&spec["template"]);
    let mut template = spec["template"].clone();
    fields::set(&mut template, &["metadata", "labels", HASH], json!(hash));
    let mut selector = spec["selector"].clone();
    fields::set(&mut selector, &["matchLabels", HASH], json!(hash));
    let mut annotations = deployment["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.into(), json!(number.to_string()));
    annotations
        .insert("deployment.kubernetes.io/desired-replicas".into(), json!(spec["replicas"].to_string()));
    let (replicas, surge, _) = bounds(deployment);
    annotations.insert("deployment.kubernetes.io/max-replicas".into(), json!((replicas + surge).to_string()));
    let set = json!({
        "metadata": {
            "name": format!("{}-{hash}", text("name")), "labels": template["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": [pods::controller(deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    });
    let created_set = context.create(kind, text("namespace"), set)?;
    let mut value = created_set.value();
    kind.set_type_meta(&mut value);
    Ok(value)
}

/// The desired number of replicas, the surge, and the number that may be unavailable.
fn bounds(deployment: &Value) -> (i64, i64, i64) {
    let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        return (replicas, 0, replicas);
    }
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let surge = pods::share(&rolling["maxSurge"], replicas, Rounding::Up);
    let unavailable = pods::share(&rolling["maxUnavailable"], replicas, Rounding::Down);
    (replicas, surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn desired(set: &Value) -> i64 {
    number(&set["spec"]["replicas"])
}

fn available(set: &Value) -> i64 {
    number(&set["status"]["availableReplicas"])
}

/// One step of the rollout.
fn roll_out(
    context: &mut ControllerContext<'_>,
    deployment: &Value,
    new: Option<&Value>,
    old: &[Value],
) -> ApiResult<()> {
    let Some(new) = new else { return Ok(()) };
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        for set in old.iter().filter(|set| desired(set) > 0) {
            scale(context, deployment, set, 0)?;
        }
        let pod_kind = ControllerContext::built_in_kind("", "Pod")?;
        let busy = old.iter().any(|set| {
            let uid = set["metadata"]["uid"].as_str().unwrap_or_default();
            context.controlled_objects(pod_kind, uid).iter().any(|pod| !pod.summary().is_finished)
        });
        return if busy { Ok(()) } else { scale(context, deployment, new, bounds(deployment).0) };
    }
    let step = step(bounds(deployment), new, old);
    scale(context, deployment, new, step.new)?;
    for (set, replicas) in old.iter().zip(step.old) {
        scale(context, deployment, set, replicas)?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Step {
    new: i64,
    old: Vec<i64>,
}

/// The next size of each replica set: never more pods than the surge allows, never fewer available than required.
fn step((replicas, surge, unavailable): (i64, i64, i64), new: &Value, old: &[Value]) -> Step {
    let total: i64 = desired(new) + old.iter().map(desired).sum::<i64>();
    let next = if desired(new) > replicas {
        replicas
    } else {
        (desired(new) + (replicas + surge - total).max(0)).min(replicas).max(desired(new))
    };
    let mut after: Vec<i64> = old.iter().map(desired).collect();
    let minimum = replicas - unavailable;
    let total = next + after.iter().sum::<i64>();
    let mut spare = (total - minimum - (next - available(new)).max(0)).max(0);
    // Pods that are not available are scaled down first.
    for (set, replicas) in old.iter().zip(&mut after) {
        let broken = (*replicas - available(set)).clamp(0, spare);
        *replicas -= broken;
        spare -= broken;
    }
    let mut healthy = (available(new) + old.iter().map(available).sum::<i64>() - minimum).max(0).min(spare);
    for replicas in after.iter_mut().rev() {
        let cut = (*replicas).min(healthy);
        *replicas -= cut;
        healthy -= cut;
    }
    Step { new: next, old: after }
}

fn scale(
    context: &mut ControllerContext<'_>,
    deployment: &Value,
    set: &Value,
    replicas: i64,
) -> ApiResult<()> {
    if desired(set) == replicas {
        return Ok(());
    }
    let kind = ControllerContext::built_in_kind("apps", "ReplicaSet")?;
    let Some(mut fresh) = context.read(kind, &key(set)) else { return Ok(()) };
    let before = desired(&fresh);
    fields::set(&mut fresh, &["spec", "replicas"], json!(replicas));
    context.update(kind, fresh)?;
    let direction = if replicas > before { "up" } else { "down" };
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let message = format!("Scaled {direction} replica set {name} from {before} to {replicas}");
    let source = EventSource::Controller("deployment-controller");
    context.record(source, deployment, Severity::Normal, "ScalingReplicaSet", &message);
    Ok(())
}

/// Deletes empty replica sets beyond the revision history limit, the oldest first.
fn delete_old_replica_sets(
    context: &mut ControllerContext<'_>,
    deployment: &Value,
    old: &[Value],
) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("apps", "ReplicaSet")?;
    let limit =
        usize::try_from(deployment["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(10)).unwrap_or(0);
    let is_empty = |set: &&Value| desired(set) == 0 && number(&set["status"]["replicas"]) == 0;
    let surplus: Vec<String> = old.iter().skip(limit).filter(is_empty).map(key).collect();
    for at in surplus {
        context.delete(kind, &at, Propagation::Background)?;
    }
    Ok(())
}

fn update_status(
    context: &mut ControllerContext<'_>,
    at: &str,
    new: Option<&Value>,
    old: &[Value],
    created: Option<String>,
) -> ApiResult<()> {
    let (kind, set_kind) = (
        ControllerContext::built_in_kind("apps", "Deployment")?,
        ControllerContext::built_in_kind("apps", "ReplicaSet")?,
    );
    let Some(mut deployment) = context.read(kind, at) else { return Ok(()) };
    let new = new.and_then(|set| context.read(set_kind, &key(set)));
    if let Some(set) = &new
        && deployment["metadata"]["annotations"][REVISION] != set["metadata"]["annotations"][REVISION]
    {
        fields::set(
            &mut deployment,
            &["metadata", "annotations", REVISION],
            set["metadata"]["annotations"][REVISION].clone(),
        );
        // Written with the status, where it does not increase the generation.
        context.update_status(kind, deployment)?;
        let Some(fresh) = context.read(kind, at) else { return Ok(()) };
        deployment = fresh;
    }
    let now = time(context.now);
    let before = deployment["status"].clone();
    deployment["status"] = status(&deployment, new.as_ref(), old);
    let (replicas, _, unavailable) = bounds(&deployment);
    let progressed = has_progressed(&before, &deployment["status"]);
    let is_late = !progressed && is_overdue(context, at, &deployment);
    let mut put_condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let before = pods::condition(&deployment, kind);
        let same = before.is_some_and(|one| {
            one["status"] == status && one["reason"] == reason && one["message"] == message
        });
        if !same {
            let condition = json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastUpdateTime": now, "lastTransitionTime": now,
            });
            set_condition(&mut deployment, condition);
        }
    };
    let all_available = new.as_ref().map_or(0, available) + old.iter().map(available).sum::<i64>();
    if all_available >= replicas - unavailable {
        put_condition(
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        );
    } else {
        put_condition(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        );
    }
    if let Some(set) = &new {
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let complete = number(&set["status"]["replicas"]) == replicas
            && available(set) == replicas
            && old.iter().all(|set| number(&set["status"]["replicas"]) == 0);
        if complete {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            put_condition("Progressing", "True", "NewReplicaSetAvailable", &message);
        } else if let Some(created) = created {
            put_condition(
                "Progressing",
                "True",
                "NewReplicaSetCreated",
                &format!("Created new replica set \"{created}\""),
            );
        } else if is_late {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            put_condition("Progressing", "False", "ProgressDeadlineExceeded", &message);
        } else {
            let message = format!("ReplicaSet \"{name}\" is progressing.");
            put_condition("Progressing", "True", "ReplicaSetUpdated", &message);
            if progressed {
                set_progress_time(&mut deployment, &now);
            }
            // Starts the progress deadline.
            is_overdue(context, at, &deployment);
        }
    }
    if deployment["status"] == before {
        return Ok(());
    }
    context.update_status(kind, deployment)
}

/// Whether there are more new or fewer old replicas than before.
fn has_progressed(before: &Value, after: &Value) -> bool {
    let grew = |field: &str| number(&after[field]) > number(&before[field]);
    let old = |status: &Value| number(&status["replicas"]) - number(&status["updatedReplicas"]);
    grew("updatedReplicas") || grew("readyReplicas") || grew("availableReplicas") || old(after) < old(before)
}

/// Whether the deployment has not progressed within its deadline. This stays true until it progresses again.
fn is_overdue(context: &mut ControllerContext<'_>, at: &str, deployment: &Value) -> bool {
    let Some(condition) = pods::condition(deployment, "Progressing") else { return false };
    match condition["reason"].as_str() {
        Some("ProgressDeadlineExceeded") => true,
        Some("NewReplicaSetAvailable") => false,
        _ => match deployment["spec"]["progressDeadlineSeconds"].as_i64() {
            Some(seconds) if seconds < i64::from(i32::MAX) => {
                context.has_elapsed(&condition["lastUpdateTime"], seconds, WorkItem::Deployment(at.into()))
            }
            _ => false,
        },
    }
}

/// Updates the time of the Progressing condition, which was true before.
fn set_progress_time(deployment: &mut Value, now: &str) {
    let conditions = deployment.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|one| one["type"] == "Progressing") {
        fields::set(condition, &["lastUpdateTime"], json!(now));
    }
}

fn status(deployment: &Value, new: Option<&Value>, old: &[Value]) -> Value {
    let sets = || new.into_iter().chain(old);
    let sum = |field: &str| sets().map(|set| number(&set["status"][field])).sum::<i64>();
    let mut status = json!({
        "observedGeneration": deployment["metadata"]["generation"], "conditions": deployment["status"]["conditions"],
    });
    let total = sum("replicas");
    let missing = (sets().map(desired).sum::<i64>() - sum("availableReplicas")).max(0);
    for (field, value) in [
        ("replicas", total),
        ("updatedReplicas", new.map_or(0, |set| number(&set["status"]["replicas"]))),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", sum("availableReplicas")),
        ("unavailableReplicas", missing),
    ] {
        if value != 0 {
            status[field] = json!(value);
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(desired: i64, available: i64) -> Value {
        json!({"spec": {"replicas": desired}, "status": {"availableReplicas": available}})
    }

    #[test]
    fn a_first_rollout_creates_all_pods_at_once() {
        assert_eq!(step((3, 1, 0), &set(0, 0), &[]), Step { new: 3, old: vec![] });
    }

    #[test]
    fn an_update_surges_first_and_removes_old_pods_when_new_ones_are_available() {
        assert_eq!(step((3, 1, 0), &set(0, 0), &[set(3, 3)]), Step { new: 1, old: vec![3] });
        assert_eq!(step((3, 1, 0), &set(1, 0), &[set(3, 3)]), Step { new: 1, old: vec![3] });
        assert_eq!(step((3, 1, 0), &set(1, 1), &[set(3, 3)]), Step { new: 1, old: vec![2] });
        assert_eq!(step((3, 1, 0), &set(1, 1), &[set(2, 2)]), Step { new: 2, old: vec![2] });
        assert_eq!(step((3, 1, 0), &set(3, 3), &[set(1, 1)]), Step { new: 3, old: vec![0] });
    }

    #[test]
    fn unavailable_old_pods_are_removed_first() {
        assert_eq!(step((3, 1, 1), &set(0, 0), &[set(3, 1)]), Step { new: 1, old: vec![2] });
    }

    #[test]
    fn scaling_down_reduces_the_new_set() {
        assert_eq!(step((1, 1, 0), &set(3, 3), &[]), Step { new: 1, old: vec![] });
    }
}
