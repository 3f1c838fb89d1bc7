//! Replica sets: keep the desired number of pods.

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::pods;
use crate::fields;
use crate::objects::Object;
use crate::selector::LabelSelector;
use crate::status::ApiResult;

/// The reporter of its events.
const SOURCE: &str = "replicaset-controller";
/// Highest number of pods that one reconciliation creates; the next one continues.
const BURST: usize = 500;

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, pod_kind) = (
        ControllerContext::built_in_kind("apps", "ReplicaSet")?,
        ControllerContext::built_in_kind("", "Pod")?,
    );
    let Some(set) = context.read(kind, at) else { return Ok(()) };
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let namespace = set["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let desired = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(0);
    let mut active: Vec<Arc<Object>> = context.controlled_objects(pod_kind, &uid);
    active.retain(|pod| !pod.summary().is_terminating && !pod.summary().is_finished);
    if set["metadata"]["deletionTimestamp"].is_null() {
        if active.len() < desired {
            active.extend(adopt(context, &set, &namespace)?);
        }
        for _ in active.len()..desired.min(active.len() + BURST) {
            let created = context.create_pod(SOURCE, &set, pods::from_template(&set))?;
            active.push(created);
        }
        if active.len() > desired {
            let mut surplus: Vec<Value> = active.iter().map(|pod| pod.value()).collect();
            pods::sort_for_deletion(&mut surplus);
            surplus.truncate(active.len() - desired);
            for pod in surplus {
                active.retain(|one| pod["metadata"]["uid"] != **one.uid());
                context.delete_pod(SOURCE, &set, &key(&pod))?;
            }
        }
    }
    let Some(mut set) = context.read(kind, at) else { return Ok(()) };
    let new_status = status(&set, &active);
    if set["status"] == new_status {
        return Ok(());
    }
    set["status"] = new_status;
    context.update_status(kind, set)
}

fn status(set: &Value, active: &[Arc<Object>]) -> Value {
    let ready = active.iter().filter(|pod| pod.summary().is_ready).count();
    let mut status = json!({
        "replicas": active.len(), "observedGeneration": set["metadata"]["generation"],
    });
    if !active.is_empty() {
        status["fullyLabeledReplicas"] = json!(active.len());
    }
    if ready > 0 {
        status["readyReplicas"] = json!(ready);
        status["availableReplicas"] = json!(ready);
    }
    status
}

/// Adopts matching pods that have no owner.
fn adopt(context: &mut ControllerContext<'_>, set: &Value, namespace: &str) -> ApiResult<Vec<Arc<Object>>> {
    let kind = ControllerContext::built_in_kind("", "Pod")?;
    let Some(selector) = LabelSelector::from_object(set["spec"].get("selector")) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{namespace}/");
    let orphans: Vec<Arc<Object>> = context
        .state
        .objects
        .range(kind.table(), &prefix, "")
        .filter(|(_, pod)| pod.owners().is_empty() && selector.matches(|key| pod.label(key)))
        .filter(|(_, pod)| !pod.summary().is_terminating && !pod.summary().is_finished)
        .map(|(_, pod)| pod.clone())
        .collect();
    for orphan in &orphans {
        let mut pod = orphan.value();
        kind.set_type_meta(&mut pod);
        fields::set(&mut pod, &["metadata", "ownerReferences"], json!([pods::controller(set)]));
        context.update(kind, pod)?;
    }
    Ok(orphans)
}
