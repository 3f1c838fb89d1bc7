//! What `ClusterVersion/version` says: what was installed, what is being updated.

use jiff::Timestamp;
use serde_json::{Value, json};

fn release(version: &str) -> Value {
    json!({ "version": version, "image": format!("quay.io/openshift-release-dev/ocp-release:{version}-x86_64") })
}

fn condition(kind: &str, status: bool, message: &str, now: Timestamp) -> Value {
    json!({
        "type": kind, "status": if status { "True" } else { "False" }, "reason": "", "message": message,
        "lastTransitionTime": format!("{now:.0}")
    })
}

/// The status while the first version is installed, and once it is.
pub(super) fn installing(version: &str, done: bool, now: Timestamp) -> Value {
    let mut entry = release(version);
    entry["state"] = json!(if done { "Completed" } else { "Partial" });
    entry["startedTime"] = json!(format!("{now:.0}"));
    entry["verified"] = json!(false);
    if done {
        entry["completionTime"] = json!(format!("{now:.0}"));
    }
    shown(version, json!([entry]), done, now)
}

/// The status when an update to `version` begins, from the one that there is.
pub(super) fn begun(status: &Value, version: &str, now: Timestamp) -> Value {
    let mut entry = release(version);
    entry["state"] = json!("Partial");
    entry["startedTime"] = json!(format!("{now:.0}"));
    entry["verified"] = json!(false);
    let mut history = vec![entry];
    history.extend(status["history"].as_array().cloned().unwrap_or_default());
    shown(version, Value::Array(history), false, now)
}

/// The status when the update that is under way is done.
pub(super) fn finished(status: &Value, now: Timestamp) -> Value {
    let version = status["desired"]["version"].as_str().unwrap_or_default().to_owned();
    let mut history = status["history"].as_array().cloned().unwrap_or_default();
    if let Some(newest) = history.first_mut() {
        newest["state"] = json!("Completed");
        newest["completionTime"] = json!(format!("{now:.0}"));
    }
    shown(&version, Value::Array(history), true, now)
}

fn shown(version: &str, history: Value, done: bool, now: Timestamp) -> Value {
    let (available, progressing) = match done {
        true => (format!("Done applying {version}"), format!("Cluster version is {version}")),
        false => (String::new(), format!("Working towards {version}")),
    };
    let was_up = done || history.as_array().is_some_and(|it| it.len() > 1);
    json!({ "status": {
        "desired": release(version), "history": history, "observedGeneration": 1, "versionHash": "", "availableUpdates": null,
        "conditions": [
            condition("Available", was_up, &available, now),
            condition("Progressing", !done, &progressing, now),
            condition("Failing", false, "", now),
        ]
    } })
}

/// The version that somebody wants and the status does not know of.
pub(super) fn wanted(object: &Value) -> Option<String> {
    let wanted = object["spec"]["desiredUpdate"]["version"].as_str().filter(|it| !it.is_empty())?;
    (object["status"]["desired"]["version"] != wanted).then(|| wanted.to_owned())
}

/// Whether an update is under way.
pub(super) fn is_under_way(object: &Value) -> bool {
    let history = &object["status"]["history"];
    history[0]["state"] == "Partial" && history[1].is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_goes_from_wanted_to_partial_to_completed() {
        let now = Timestamp::UNIX_EPOCH;
        let mut object = installing("4.17.3", true, now);
        assert_eq!(wanted(&object), None);
        object["spec"]["desiredUpdate"]["version"] = json!("4.18.1");
        assert_eq!(wanted(&object).as_deref(), Some("4.18.1"));
        assert!(!is_under_way(&object));
        object["status"] = begun(&object["status"], "4.18.1", now)["status"].clone();
        assert_eq!(wanted(&object), None);
        assert!(is_under_way(&object));
        object["status"] = finished(&object["status"], now)["status"].clone();
        assert!(!is_under_way(&object));
        let states: Vec<&str> = object["status"]["history"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["version"].as_str())
            .collect();
        assert_eq!(states, ["4.18.1", "4.17.3"]);
    }
}
