//! Cells of nodes and of certificate signing requests.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Whether the node is ready and schedulable.
pub(super) fn status(object: &Value, _: Timestamp) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().rfind(|condition| condition["type"] == "Ready");
    let mut words = vec![match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object["spec"]["unschedulable"] == true {
        words.push("SchedulingDisabled");
    }
    json!(words.join(","))
}

/// The roles in the labels of the node.
pub(super) fn roles(object: &Value, _: Timestamp) -> Value {
    let mut roles: Vec<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { json!("<none>") } else { json!(roles.join(",")) }
}

/// The first address of a type.
pub(super) fn address(object: &Value, kind: &str) -> Value {
    let addresses = object["status"]["addresses"].as_array();
    let found = addresses.into_iter().flatten().find(|address| address["type"] == kind);
    json!(found.and_then(|address| address["address"].as_str()).unwrap_or("<none>"))
}

/// A text, or `<unknown>`.
pub(super) fn known(value: &Value) -> Value {
    json!(value.as_str().filter(|text| !text.is_empty()).unwrap_or("<unknown>"))
}

/// The kernel version and the architecture.
pub(super) fn kernel(object: &Value, _: Timestamp) -> Value {
    let info = &object["status"]["nodeInfo"];
    let kernel = info["kernelVersion"].as_str().filter(|text| !text.is_empty()).unwrap_or("<unknown>");
    match info["architecture"].as_str() {
        Some(architecture) if !architecture.is_empty() => json!(format!("{kernel} ({architecture})")),
        _ => json!(kernel),
    }
}

/// The decision about a certificate signing request.
pub(super) fn request_condition(object: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| {
        object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == kind)
    };
    let decision = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let mut text = decision.to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if object["status"]["certificate"].as_str().is_some_and(|certificate| !certificate.is_empty()) {
        text.push_str(",Issued");
    }
    json!(text)
}
