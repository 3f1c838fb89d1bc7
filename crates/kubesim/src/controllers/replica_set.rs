//! Replica sets: as many pods as are wanted.

use serde_json::{Value, json};

use super::desk::{Desk, key};
use super::pods;
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
    let mut active: Vec<Value> =
        desk.controlled(pod_kind, &uid).into_iter().filter(pods::is_active).collect();
    if set["metadata"]["deletionTimestamp"].is_null() {
        if active.len() < wanted {
            active.extend(adopt(desk, &set, &namespace)?);
        }
        for _ in active.len()..wanted.min(active.len() + BURST) {
            let made = desk.create(pod_kind, &namespace, pods::from_template(&set))?;
            active.push(made.value());
        }
        if active.len() > wanted {
            pods::sort_for_deletion(&mut active);
            for pod in active.drain(..active.len() - wanted) {
                desk.delete(pod_kind, &key(&pod), Propagation::Background)?;
            }
        }
    }
    let Some(mut set) = desk.read(kind, at) else { return Ok(()) };
    set["status"] = status(&set, &active);
    desk.update_status(kind, set)
}

fn status(set: &Value, active: &[Value]) -> Value {
    let ready = active.iter().filter(|pod| pods::is_ready(pod)).count();
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
fn adopt(desk: &mut Desk<'_>, set: &Value, namespace: &str) -> Outcome<Vec<Value>> {
    let kind = Desk::kind("", "Pod")?;
    let Some(selector) = LabelSelector::of_object(set["spec"].get("selector")) else { return Ok(Vec::new()) };
    let prefix = format!("{namespace}/");
    let orphans: Vec<Value> = desk
        .state
        .objects
        .range(kind.table(), &prefix, "")
        .filter(|(_, pod)| pod.owners().is_empty() && selector.matches(|key| pod.label(key)))
        .map(|(_, pod)| pod.value())
        .filter(pods::is_active)
        .collect();
    let mut adopted = Vec::new();
    for mut pod in orphans {
        kind.dress(&mut pod);
        pod["metadata"]["ownerReferences"] = json!([pods::controller(set)]);
        desk.update(kind, pod.clone())?;
        adopted.push(pod);
    }
    Ok(adopted)
}
