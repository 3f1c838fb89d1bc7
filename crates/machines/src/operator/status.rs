//! The status of the ClusterOperator, by what the operator has found. Reasons and messages are those of OpenShift's machine-api-operator.

use std::time::Duration;

use controller::{EventType, RecordedEvent, conditions};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// Time of an upgrade in which failures are not reported as `Degraded`.
const UPGRADE_MAX: Duration = Duration::from_secs(20 * 60);

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const UPGRADEABLE: &str = "Upgradeable";

const AS_EXPECTED: &str = "AsExpected";
const INITIALIZING: &str = "Initializing";
const SYNCING: &str = "SyncingResources";
const SYNC_FAILED: &str = "SyncingFailed";

/// What a pass of the operator has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The roll-out is not complete.
    Syncing,
    /// Everything is rolled out.
    Available,
    /// The platform has no machine controllers.
    NoOp,
    /// Something is wrong; with sentences that name object and field.
    Failed(Vec<String>),
}

/// A status to write, and the events that go with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusChange {
    pub(crate) status: Value,
    pub(crate) events: Vec<RecordedEvent>,
}

/// The status after a pass. `None` if it stays as it is.
pub(crate) fn next(
    status: &Value,
    outcome: &Outcome,
    version: &str,
    namespace: &str,
    now: Timestamp,
) -> Option<StatusChange> {
    let read = status.get("conditions").and_then(|it| serde_json::from_value(it.clone()).ok());
    let before: Vec<Condition> = read.unwrap_or_default();
    let mut after = before.clone();
    let mut set = |type_, status, reason: &str, message: String| {
        conditions::set(&mut after, condition(type_, status, reason, message), now);
    };
    for (type_, status, reason, message) in [
        (AVAILABLE, "False", INITIALIZING, "Operator is initializing"),
        (PROGRESSING, "True", INITIALIZING, "Operator is initializing"),
        (DEGRADED, "False", AS_EXPECTED, ""),
    ] {
        if conditions::get(&before, type_).is_none() {
            set(type_, status, reason, message.to_owned());
        }
    }
    let versions = json!([{ "name": "operator", "version": version }]);
    let is_upgrade = status.get("versions") != Some(&versions);
    let operand = format!("operator: {version}");
    let mut next = status.clone();
    let mut events = Vec::new();
    let towards = format!("Progressing towards {operand}");
    match outcome {
        Outcome::Syncing | Outcome::Failed(_) if is_upgrade => {
            set(PROGRESSING, "True", SYNCING, towards.clone());
        }
        Outcome::Syncing | Outcome::Failed(_) => set(PROGRESSING, "False", AS_EXPECTED, String::new()),
        Outcome::Available | Outcome::NoOp => {
            let message = match outcome {
                Outcome::NoOp => "Cluster Machine API Operator is in NoOp mode".to_owned(),
                _ => format!("Cluster Machine API Operator is available at {operand}"),
            };
            set(AVAILABLE, "True", AS_EXPECTED, message);
            set(PROGRESSING, "False", AS_EXPECTED, String::new());
            set(DEGRADED, "False", AS_EXPECTED, String::new());
            next["versions"] = versions;
        }
    }
    set(UPGRADEABLE, "True", "", String::new());
    if let Outcome::Failed(problems) = outcome
        && !(is_upgrade && is_upgrade_young(&before, &towards, now))
    {
        let problems = problems.join("; ");
        let message = match is_upgrade {
            true => format!("Failed when progressing towards {operand} because {problems}"),
            false => format!("Failed to resync for {operand} because {problems}"),
        };
        if conditions::get(&before, DEGRADED).is_none_or(|it| it.message != message) {
            events.push(event(EventType::Warning, "Status degraded", problems));
        }
        set(DEGRADED, "True", SYNC_FAILED, message);
    }
    if is_upgrade
        && matches!(outcome, Outcome::Syncing | Outcome::Failed(_))
        && conditions::get(&before, PROGRESSING).is_none_or(|it| it.message != towards)
    {
        events.push(event(EventType::Normal, "Status upgrade", towards));
    }
    if after != before {
        next["conditions"] = json!(after);
    }
    let related = related_objects(namespace);
    if next.get("relatedObjects") != Some(&related) {
        next["relatedObjects"] = related;
    }
    (next != *status).then_some(StatusChange { status: next, events })
}

/// Whether the operator has never been available.
pub(crate) fn is_initializing(status: &Value) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let available =
        conditions.into_iter().find(|it| it.get("type").and_then(Value::as_str) == Some(AVAILABLE));
    available.is_none_or(|it| it.get("reason").and_then(Value::as_str) == Some(INITIALIZING))
}

/// Whether the upgrade has begun so lately that failures may still be of its making.
fn is_upgrade_young(before: &[Condition], towards: &str, now: Timestamp) -> bool {
    let progressing = conditions::get(before, PROGRESSING).filter(|it| it.status == "True");
    // Since another version became the desired one, the condition has had another message.
    let begun = progressing.filter(|it| it.message == towards || it.reason == INITIALIZING);
    begun.is_none_or(|it| {
        let elapsed = Duration::try_from(now.duration_since(it.last_transition_time.0)).unwrap_or_default();
        elapsed <= UPGRADE_MAX
    })
}

fn condition(type_: &str, status: &str, reason: &str, message: String) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        // Set with the condition.
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

fn event(event_type: EventType, reason: &'static str, message: String) -> RecordedEvent {
    RecordedEvent { event_type, reason: reason.into(), message }
}

/// What an administrator, and `oc adm must-gather`, look at.
fn related_objects(namespace: &str) -> Value {
    let object = |group: &str, resource: &str, name: &str, namespace: Option<&str>| {
        let mut object = json!({ "group": group, "resource": resource, "name": name });
        if let Some(namespace) = namespace {
            object["namespace"] = json!(namespace);
        }
        object
    };
    let within = Some(namespace);
    json!([
        object("", "namespaces", namespace, None),
        object("machine.openshift.io", "machines", "", within),
        object("machine.openshift.io", "machinesets", "", within),
        object("machine.openshift.io", "machinehealthchecks", "", within),
        object("rbac.authorization.k8s.io", "roles", "", within),
        object("rbac.authorization.k8s.io", "clusterroles", "machine-api-operator", None),
        object("rbac.authorization.k8s.io", "clusterroles", "machine-api-controllers", None),
        object("metal3.io", "baremetalhosts", "", within)
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    /// A status and what happens to it.
    struct Operator(Value, Vec<String>);

    impl Operator {
        fn new() -> Operator {
            Operator(json!({}), Vec::new())
        }

        fn pass(&mut self, outcome: Outcome, version: &str, minutes: i64) {
            if let Some(change) = next(&self.0, &outcome, version, "openshift-machine-api", at(minutes)) {
                self.0 = change.status;
                self.1.extend(change.events.into_iter().map(|it| format!("{}: {}", it.reason, it.message)));
            }
            let again = next(&self.0, &outcome, version, "openshift-machine-api", at(minutes));
            assert_eq!(again, None, "a status that is as it shall be is not written");
        }

        fn shows(&self, type_: &str, status: &str, reason: &str, message: &str) {
            let all: Vec<Condition> = serde_json::from_value(self.0["conditions"].clone()).unwrap();
            let it = conditions::get(&all, type_).unwrap();
            let found = (it.status.as_str(), it.reason.as_str(), it.message.as_str());
            assert_eq!(found, (status, reason, message), "{type_}");
        }
    }

    fn failed(why: &str) -> Outcome {
        Outcome::Failed(vec![why.to_owned()])
    }

    #[test]
    fn an_installation_initializes_and_becomes_available_with_its_version() {
        let mut operator = Operator::new();
        operator.pass(Outcome::Syncing, "1", 0);
        operator.shows("Available", "False", "Initializing", "Operator is initializing");
        operator.shows("Progressing", "True", "SyncingResources", "Progressing towards operator: 1");
        operator.shows("Degraded", "False", "AsExpected", "");
        operator.shows("Upgradeable", "True", "", "");
        assert_eq!(operator.0.get("versions"), None);
        assert!(is_initializing(&operator.0));
        operator.pass(Outcome::Available, "1", 5);
        operator.shows(
            "Available",
            "True",
            "AsExpected",
            "Cluster Machine API Operator is available at operator: 1",
        );
        operator.shows("Progressing", "False", "AsExpected", "");
        assert_eq!(operator.0["versions"], json!([{"name": "operator", "version": "1"}]));
        assert!(!is_initializing(&operator.0));
        assert_eq!(operator.1, ["Status upgrade: Progressing towards operator: 1"]);
    }

    #[test]
    fn an_upgrade_reports_its_version_at_its_end_and_stays_available() {
        let mut operator = Operator::new();
        operator.pass(Outcome::Available, "1", 0);
        operator.pass(Outcome::Syncing, "2", 10);
        operator.shows("Progressing", "True", "SyncingResources", "Progressing towards operator: 2");
        operator.shows(
            "Available",
            "True",
            "AsExpected",
            "Cluster Machine API Operator is available at operator: 1",
        );
        assert_eq!(operator.0["versions"][0]["version"], "1");
        operator.pass(Outcome::Available, "2", 14);
        operator.shows(
            "Available",
            "True",
            "AsExpected",
            "Cluster Machine API Operator is available at operator: 2",
        );
        assert_eq!(operator.0["versions"][0]["version"], "2");
    }

    #[test]
    fn a_failure_degrades_at_once_but_in_an_upgrade_after_twenty_minutes() {
        let mut operator = Operator::new();
        operator.pass(Outcome::Available, "1", 0);
        operator.pass(failed("no image"), "1", 1);
        operator.shows(
            "Degraded",
            "True",
            "SyncingFailed",
            "Failed to resync for operator: 1 because no image",
        );
        operator.shows(
            "Available",
            "True",
            "AsExpected",
            "Cluster Machine API Operator is available at operator: 1",
        );
        operator.pass(Outcome::Available, "1", 2);
        operator.shows("Degraded", "False", "AsExpected", "");
        operator.pass(failed("no image"), "2", 10);
        operator.pass(failed("no image"), "2", 30);
        operator.shows("Degraded", "False", "AsExpected", "");
        operator.pass(failed("no image"), "2", 31);
        operator.shows(
            "Degraded",
            "True",
            "SyncingFailed",
            "Failed when progressing towards operator: 2 because no image",
        );
        operator.pass(Outcome::Syncing, "2", 32);
        assert_eq!(operator.0["conditions"][1]["status"], "True", "only what is rolled out is not degraded");
        operator.pass(Outcome::Available, "2", 33);
        operator.shows("Degraded", "False", "AsExpected", "");
        let degraded: Vec<&String> =
            operator.1.iter().filter(|it| it.starts_with("Status degraded")).collect();
        assert_eq!(degraded.len(), 2, "{degraded:?}");
    }

    #[test]
    fn a_fresh_installation_counts_as_an_upgrade() {
        let mut operator = Operator::new();
        operator.pass(failed("no image"), "1", 0);
        operator.pass(failed("no image"), "1", 20);
        operator.shows("Degraded", "False", "AsExpected", "");
        operator.pass(failed("no image"), "1", 21);
        operator.shows(
            "Degraded",
            "True",
            "SyncingFailed",
            "Failed when progressing towards operator: 1 because no image",
        );
    }

    #[test]
    fn a_platform_without_controllers_is_said_in_the_status() {
        let mut operator = Operator::new();
        operator.pass(Outcome::NoOp, "1", 0);
        operator.shows("Available", "True", "AsExpected", "Cluster Machine API Operator is in NoOp mode");
        assert_eq!(operator.0["versions"][0]["version"], "1");
    }

    #[test]
    fn related_objects_are_repaired_and_conditions_and_fields_of_others_stay() {
        let mut operator = Operator::new();
        operator.pass(Outcome::Available, "1", 0);
        operator.0["relatedObjects"] = json!([]);
        operator.0["extension"] = json!({"of": "others"});
        operator.pass(Outcome::Available, "1", 1);
        assert_eq!(operator.0["relatedObjects"].as_array().unwrap().len(), 8);
        assert_eq!(operator.0["relatedObjects"][0]["name"], "openshift-machine-api");
        assert_eq!(operator.0["extension"]["of"], "others");
    }
}
