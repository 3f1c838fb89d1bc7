//! Rules of events. The group `events.k8s.io` is stricter than the core group; both name most fields as in the core
//! group.

use serde_json::{Value, json};

use super::check_immutable;
use crate::kinds::shared::EVENTS;
use crate::names;
use crate::schema::FieldError;

/// Longest reason, action and reporting instance.
const NAME_BYTES_MAX: usize = 128;
/// Longest message.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Fields that an update through `events.k8s.io` may not change.
const IMMUTABLE: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
];

/// Validates an event of the core group.
pub(in crate::kinds) fn core_event(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    common(new, "reportingComponent")
}

/// Validates an event of `events.k8s.io`.
pub(in crate::kinds) fn event(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let core = |event: &Value| {
        let mut event = event.clone();
        (EVENTS.to_stored)(&mut event);
        event
    };
    let (new, old) = (core(new), old.map(core));
    let mut causes = common(&new, "reportingController");
    match old {
        None => new_event(&mut causes, &new),
        Some(old) => {
            if new["series"] != old["series"] {
                series(&mut causes, &new);
            }
            for field in IMMUTABLE {
                let stored = if field == "reportingController" { "reportingComponent" } else { field };
                check_immutable(&mut causes, field, &new[stored], &old[stored]);
            }
        }
    }
    causes
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

fn common(event: &Value, reporter: &str) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let mismatch =
        FieldError::invalid("involvedObject.namespace", &json!(involved), "does not match event.namespace");
    if event["eventTime"].is_null() {
        let fits = if involved.is_empty() { namespace == "default" } else { involved == namespace };
        causes.extend((!fits).then_some(mismatch));
        return causes;
    }
    if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
        causes.push(mismatch);
    }
    let controller = &event["reportingComponent"];
    if text(event, "reportingComponent").is_empty() {
        causes.push(FieldError::required(reporter, ""));
    }
    for error in names::qualified(controller.as_str().unwrap_or_default()) {
        causes.push(FieldError::invalid(reporter, controller, &error));
    }
    for (field, limit, is_required) in [
        ("reportingInstance", NAME_BYTES_MAX, true),
        ("action", NAME_BYTES_MAX, true),
        ("reason", NAME_BYTES_MAX, true),
        ("message", MESSAGE_BYTES_MAX, false),
    ] {
        let length = text(event, field).len();
        if is_required && length == 0 {
            causes.push(FieldError::required(field, ""));
        }
        if length > limit {
            let why = format!("can have at most {limit} characters");
            causes.push(FieldError::invalid(field, &json!(""), &why));
        }
    }
    causes
}

/// The stricter rules of a new event.
fn new_event(causes: &mut Vec<FieldError>, event: &Value) {
    series(causes, event);
    if event["eventTime"].is_null() {
        causes.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(FieldError::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    let has_source = ["component", "host"].iter().any(|field| !text(&event["source"], field).is_empty());
    for (field, is_set) in [
        ("firstTimestamp", !event["firstTimestamp"].is_null()),
        ("lastTimestamp", !event["lastTimestamp"].is_null()),
        ("count", event["count"].as_i64().unwrap_or(0) != 0),
        ("source", has_source),
    ] {
        if is_set {
            causes.push(FieldError::invalid(field, &json!(""), "needs to be unset"));
        }
    }
}

fn series(causes: &mut Vec<FieldError>, event: &Value) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        causes.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(FieldError::required("series.lastObservedTime", ""));
    }
}
