//! Cells of workloads, events and role bindings.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{human_duration, labels, since};

fn joined(object: &Value, field: &str) -> Value {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let names: Vec<&str> =
        containers.into_iter().flatten().filter_map(|container| container[field].as_str()).collect();
    json!(names.join(","))
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    joined(object, "name")
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    joined(object, "image")
}

/// A selector as text: labels, then expressions.
pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    let selector = &object["spec"]["selector"];
    let mut parts = Vec::new();
    if selector["matchLabels"].as_object().is_some_and(|labels| !labels.is_empty()) {
        parts.push(labels(&selector["matchLabels"]));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    if parts.is_empty() { json!("<none>") } else { json!(parts.join(",")) }
}

pub(super) fn ready(object: &Value, _: Timestamp) -> Value {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

pub(super) fn controller(object: &Value, _: Timestamp) -> Value {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else {
        return json!("<none>");
    };
    let kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = owner["name"].as_str().unwrap_or_default();
    match owner["apiVersion"].as_str().unwrap_or_default().split_once('/') {
        Some((group, _)) => json!(format!("{kind}.{group}/{name}")),
        None => json!(format!("{kind}/{name}")),
    }
}

pub(super) fn job_status(object: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    json!(match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if deleting => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    })
}

pub(super) fn job_completions(object: &Value, _: Timestamp) -> Value {
    let succeeded = object["status"]["succeeded"].as_i64().unwrap_or(0);
    let parallelism = object["spec"]["parallelism"].as_i64().unwrap_or(0);
    match object["spec"]["completions"].as_i64() {
        Some(completions) => json!(format!("{succeeded}/{completions}")),
        None if parallelism > 1 => json!(format!("{succeeded}/1 of {parallelism}")),
        None => json!(format!("{succeeded}/1")),
    }
}

pub(super) fn job_duration(object: &Value, now: Timestamp) -> Value {
    let time = |field: &str| object["status"][field].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    match (time("startTime"), time("completionTime")) {
        (None, _) => json!(""),
        (Some(start), end) => json!(human_duration(end.unwrap_or(now).as_second() - start.as_second())),
    }
}

pub(super) fn event_first_seen(object: &Value, now: Timestamp) -> Value {
    match &object["firstTimestamp"] {
        Value::Null => since(&object["eventTime"], now),
        first => since(first, now),
    }
}

pub(super) fn event_last_seen(object: &Value, now: Timestamp) -> Value {
    if !object["series"].is_null() {
        return since(&object["series"]["lastObservedTime"], now);
    }
    match &object["lastTimestamp"] {
        Value::Null => event_first_seen(object, now),
        last => since(last, now),
    }
}

pub(super) fn event_count(object: &Value, _: Timestamp) -> Value {
    match object["series"]["count"].as_i64().or(object["count"].as_i64()) {
        Some(count) if count != 0 => json!(count),
        _ => json!(1),
    }
}

pub(super) fn event_object(object: &Value, _: Timestamp) -> Value {
    let involved = &object["involvedObject"];
    let kind = involved["kind"].as_str().unwrap_or_default().to_lowercase();
    match involved["name"].as_str() {
        Some(name) if !name.is_empty() => json!(format!("{kind}/{name}")),
        _ => json!(kind),
    }
}

pub(super) fn event_source(object: &Value, _: Timestamp) -> Value {
    let first = |one: &Value, other: &Value| {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text(one).or_else(|| text(other)).unwrap_or_default()
    };
    let component = first(&object["source"]["component"], &object["reportingComponent"]);
    let instance = first(&object["source"]["host"], &object["reportingInstance"]);
    if instance.is_empty() { json!(component) } else { json!(format!("{component}, {instance}")) }
}

/// The subjects of one kind in a role binding.
pub(super) fn subjects(object: &Value, kind: &str) -> Value {
    let names: Vec<String> = object["subjects"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| {
            let name = subject["name"].as_str().unwrap_or_default();
            match subject["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                _ => name.to_owned(),
            }
        })
        .collect();
    json!(names.join(", "))
}
