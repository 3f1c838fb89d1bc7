//! Kinds of two groups that are the same objects: events are stored in their core form and converted for the group
//! `events.k8s.io`.

use serde_json::{Map, Value, json};

/// How a kind shares the table of another one.
#[derive(Debug, Clone, Copy)]
pub struct SharedTable {
    /// The table of the other kind.
    pub table: &'static str,
    /// Converts a stored object to the form of this kind.
    pub from_stored: fn(&mut Value),
    /// Converts an object of this kind to the stored form.
    pub to_stored: fn(&mut Value),
    /// The stored name of a field by which objects can be selected.
    pub stored_field: fn(&str) -> String,
}

/// Events, whose fields have other names in `events.k8s.io`.
pub(super) const EVENTS: SharedTable = SharedTable {
    table: "/events",
    from_stored: event_from_core,
    to_stored: event_to_core,
    stored_field: core_event_field,
};

/// Fields that have another name, in the core group and in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

fn event_from_core(event: &mut Value) {
    let Some(fields) = event.as_object_mut() else { return };
    for (core, new) in RENAMED {
        rename(fields, core, new);
    }
    // The core form always has these, even when they are empty.
    for field in ["reportingController", "reportingInstance"] {
        if fields.get(field).is_some_and(|value| value == "") {
            fields.remove(field);
        }
    }
}

fn event_to_core(event: &mut Value) {
    let Some(fields) = event.as_object_mut() else { return };
    for (core, new) in RENAMED {
        rename(fields, new, core);
    }
    for (field, empty) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
    ] {
        fields.entry(field).or_insert(empty);
    }
}

fn core_event_field(field: &str) -> String {
    match field.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if field == "reportingController" => "reportingComponent".to_owned(),
        None => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_same_after_two_conversions() {
        let core = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "text", "source": {},
            "firstTimestamp": null, "lastTimestamp": null, "count": 2, "reportingComponent": "", "reportingInstance": "",
            "eventTime": null, "type": "Normal",
        });
        let mut event = core.clone();
        event_from_core(&mut event);
        assert_eq!(event["note"], "text");
        assert!(event.get("reportingController").is_none());
        event_to_core(&mut event);
        assert_eq!(event, core);
    }
}
