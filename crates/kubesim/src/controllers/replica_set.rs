//! Replica sets: as many pods as are wanted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::desk::{Desk, key};
use super::pods;
use crate::fields;
use crate::objects::Object;
use crate::selector::LabelSelector;
use crate::status::Outcome;
use crate::verbs::Propagation;

/// At most so many pods are made in one go; the rest follows.
const BURST: usize = 500;

pub(super) fn reconcile(desk: &mut Desk<'_>, at: &str) -> Outcome<()> {
    let (kind, pod_kind) = (Desk::kind("apps", "ReplicaSet")?, Desk::kind("", "Pod")?);
    let Some(set) = desk.read(kind, at) else { return Ok(()) };
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let namespace = set["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(0);
    let mut active: Vec<Arc<Object>> = desk.controlled_objects(pod_kind, &uid);
    active.retain(|pod| !pod.facts().is_ending && !pod.facts().has_ended);
    if set["metadata"]["deletionTimestamp"].is_null() {
        if active.len() < wanted {
            active.extend(adopt(desk, &set, &namespace)?);
        }
        for _ in active.len()..wanted.min(active.len() + BURST) {
            let made = desk.create(pod_kind, &namespace, pods::from_template(&set))?;
            active.push(made);
        }
        if active.len() > wanted {
            let mut surplus: Vec<Value> = active.iter().map(|pod| pod.value()).collect();
            pods::sort_for_deletion(&mut surplus);
            surplus.truncate(active.len() - wanted);
            for pod in surplus {
                active.retain(|one| pod["metadata"]["uid"] != **one.uid());
                desk.delete(pod_kind, &key(&pod), Propagation::Background)?;
            }
        }
    }
    let Some(mut set) = desk.read(kind, at) else { return Ok(()) };
    let told = status(&set, &active);
    if set["status"] == told {
        return Ok(());
    }
    set["status"] = told;
    desk.update_status(kind, set)
}

fn status(set: &Value, active: &[Arc<Object>]) -> Value {
    let ready = active.iter().filter(|pod| pod.facts().is_ready).count();
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

/// Takes over pods that match and belong to nobody.
fn adopt(desk: &mut Desk<'_>, set: &Value, namespace: &str) -> Outcome<Vec<Arc<Object>>> {
    let kind = Desk::kind("", "Pod")?;
    let Some(selector) = LabelSelector::of_object(set["spec"].get("selector")) else { return Ok(Vec::new()) };
    let prefix = format!("{namespace}/");
    let orphans: Vec<Arc<Object>> = desk
        .state
        .objects
        .range(kind.table(), &prefix, "")
        .filter(|(_, pod)| pod.owners().is_empty() && selector.matches(|key| pod.label(key)))
        .filter(|(_, pod)| !pod.facts().is_ending && !pod.facts().has_ended)
        .map(|(_, pod)| pod.clone())
        .collect();
    for orphan in &orphans {
        let mut pod = orphan.value();
        kind.dress(&mut pod);
        fields::set(&mut pod, &["metadata", "ownerReferences"], json!([pods::controller(set)]));
        desk.update(kind, pod)?;
    }
    Ok(orphans)
}
