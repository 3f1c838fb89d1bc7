//! Facts about pods that controllers need, and the creation of pods from templates.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The alphabet of a template's hash; generated names use it too.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True")
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Neither finished nor terminating.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !is_finished(pod)
}

/// The rounding of a percentage of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Up,
    Down,
}

/// A number, or a percentage of `total`.
pub(super) fn share(value: &Value, total: i64, rounding: Rounding) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent = text.trim_end_matches('%').parse::<i64>().unwrap_or(0);
            let product = percent.saturating_mul(total);
            match rounding {
                Rounding::Up => product.saturating_add(99).div_euclid(100),
                Rounding::Down => product.div_euclid(100),
            }
        }
        _ => 0,
    }
}

/// A hash of ten letters that identifies a template.
pub(super) fn template_hash(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    digest[..10].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// The owner reference of a controller.
pub(super) fn controller(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod from the template of its owner.
pub(super) fn from_template(owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = json!({"ownerReferences": [controller(owner)]});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let name = owner["metadata"]["name"].as_str().unwrap_or_default();
    metadata["generateName"] = json!(format!("{name}-"));
    json!({"metadata": metadata, "spec": template["spec"]})
}

/// Sorts pods in the order of their deletion: those that do the least first, among equals the youngest.
pub(super) fn sort_for_deletion(pods: &mut [Value]) {
    pods.sort_by_key(|pod| {
        let bound = !pod["spec"]["nodeName"].is_null();
        let phase = match pod["status"]["phase"].as_str() {
            Some("Pending") => 0,
            Some("Running") => 2,
            _ => 1,
        };
        let age =
            std::cmp::Reverse(pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned());
        (bound, phase, is_ready(pod), age)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(share(&json!(3), 10, Rounding::Up), 3);
        assert_eq!(share(&json!("25%"), 10, Rounding::Up), 3);
        assert_eq!(share(&json!("25%"), 10, Rounding::Down), 2);
        assert_eq!(share(&Value::Null, 10, Rounding::Up), 0);
    }

    #[test]
    fn an_unscheduled_pod_is_deleted_before_a_running_one() {
        let running = json!({"spec": {"nodeName": "a"}, "status": {"phase": "Running"}});
        let pending = json!({"spec": {}, "status": {"phase": "Pending"}});
        let mut pods = [running.clone(), pending.clone()];
        sort_for_deletion(&mut pods);
        assert_eq!(pods, [pending, running]);
    }
}
