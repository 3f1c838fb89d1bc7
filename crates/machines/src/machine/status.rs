//! The next status of a Machine, and the changes of its metadata that a provider's report makes. Pure.

use api::crd::machine::{
    Condition, LifecycleHook, Machine, MachinePhase, MachineStatus, names, set_condition, whole_seconds,
};
use cloud::{Instance, InstanceError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::{Value, json};

use crate::conditions;
use crate::merge::merge_over;

/// State of an instance of which nothing is known any more.
const UNKNOWN_STATE: &str = "Unknown";
/// Condition of the provider's status about the last creation.
const CREATION_CONDITION: &str = "MachineCreated";

/// What a pass changes in the status of a Machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusChange {
    pub(crate) phase: Option<MachinePhase>,
    /// Why the Machine is Failed. Without one, a Machine that is not Failed has no error.
    pub(crate) failure: Option<MachineFailure>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) instance: Option<Instance>,
    /// Result of a creation.
    pub(crate) creation: Option<Result<(), String>>,
}

/// Why a Machine is Failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineFailure {
    pub(crate) reason: Option<&'static str>,
    pub(crate) message: String,
}

/// The status after a change; `None` if it stays as it is.
pub(crate) fn next_status(machine: &Machine, change: &StatusChange, now: Timestamp) -> Option<MachineStatus> {
    let before = machine.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let hooks = machine.spec.lifecycle_hooks.clone().unwrap_or_default();
    let standing = [conditions::drainable(&hooks.pre_drain), conditions::terminable(&hooks.pre_terminate)];
    for condition in change.conditions.iter().chain(&standing) {
        set_condition(&mut status.conditions, condition.clone(), now);
    }
    if let Some(instance) = &change.instance {
        status.addresses = addresses(instance);
        merge_over(status.provider_status.get_or_insert_with(|| json!({})), &instance.provider_status);
    }
    if let Some(creation) = &change.creation {
        set_creation_condition(&mut status.provider_status, creation, now);
    }
    if let Some(phase) = &change.phase {
        status.phase = Some(phase.clone());
    }
    if status.phase != Some(MachinePhase::Failed) {
        (status.error_reason, status.error_message) = (None, None);
    } else if let Some(failure) = &change.failure {
        status.error_reason = failure.reason.map(str::to_owned);
        status.error_message = Some(failure.message.clone());
        forget_instance_state(&mut status.provider_status);
    }
    if status == before {
        return None;
    }
    status.last_updated = Some(whole_seconds(now));
    Some(status)
}

/// The preDrain and preTerminate hooks of a Machine.
pub(crate) fn hooks(machine: &Machine) -> (&[LifecycleHook], &[LifecycleHook]) {
    let hooks = machine.spec.lifecycle_hooks.as_ref();
    let pre_drain = hooks.map(|hooks| hooks.pre_drain.as_slice());
    let pre_terminate = hooks.map(|hooks| hooks.pre_terminate.as_slice());
    (pre_drain.unwrap_or_default(), pre_terminate.unwrap_or_default())
}

fn addresses(instance: &Instance) -> Vec<NodeAddress> {
    let addresses = instance.addresses.iter();
    addresses
        .map(|it| NodeAddress { type_: it.kind.as_str().to_owned(), address: it.address.clone() })
        .collect()
}

/// Readers of the provider's status must not take the last known state for the present one.
fn forget_instance_state(provider_status: &mut Option<Value>) {
    let Some(Value::Object(members)) = provider_status else { return };
    for key in ["instanceState", "vmState"] {
        if let Some(state @ Value::String(_)) = members.get_mut(key) {
            *state = json!(UNKNOWN_STATE);
        }
    }
}

fn set_creation_condition(
    provider_status: &mut Option<Value>,
    creation: &Result<(), String>,
    now: Timestamp,
) {
    let (status, reason, message) = match creation {
        Ok(()) => ("True", "MachineCreationSucceeded", "Machine successfully created"),
        Err(message) => ("False", "MachineCreationFailed", message.as_str()),
    };
    let Value::Object(members) = provider_status.get_or_insert_with(|| json!({})) else { return };
    let list = members.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    let found = list.iter_mut().find(|it| it["type"] == CREATION_CONDITION);
    let unchanged = |it: &Value| it["status"] == status && it["reason"] == reason && it["message"] == message;
    if found.as_deref().is_some_and(unchanged) {
        return;
    }
    let condition = json!({
        "type": CREATION_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": whole_seconds(now),
    });
    match found {
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}

/// The Machine with what its instance says about it in metadata and spec.
pub(crate) fn with_instance(machine: &Machine, instance: &Instance) -> Machine {
    let mut wanted = machine.clone();
    if !instance.provider_id.is_empty() {
        wanted.spec.provider_id = Some(instance.provider_id.clone());
    }
    set_annotation(&mut wanted, names::INSTANCE_STATE, &instance.state);
    let labels = wanted.metadata.labels.get_or_insert_default();
    let reported = [
        (names::REGION_LABEL, &instance.region),
        (names::ZONE_LABEL, &instance.zone),
        (names::INSTANCE_TYPE_LABEL, &instance.instance_type),
    ];
    for (key, value) in reported {
        if let Some(value) = value.as_ref().filter(|value| is_label_value(value)) {
            labels.insert(key.to_owned(), value.clone());
        }
    }
    if instance.interruptible {
        labels.insert(names::INTERRUPTIBLE_LABEL.to_owned(), String::new());
        let on_node = &mut wanted.spec.metadata.get_or_insert_default().labels;
        on_node.insert(names::INTERRUPTIBLE_LABEL.to_owned(), String::new());
    }
    wanted
}

/// The Machine as it is when it has failed.
pub(crate) fn with_unknown_instance(machine: &Machine) -> Machine {
    let mut wanted = machine.clone();
    set_annotation(&mut wanted, names::INSTANCE_STATE, UNKNOWN_STATE);
    wanted
}

fn set_annotation(machine: &mut Machine, key: &str, value: &str) {
    machine.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// Whether the API server accepts a label with this value. Names of a provider's sizes and zones are not ours.
fn is_label_value(value: &str) -> bool {
    let inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let ends = [value.chars().next(), value.chars().last()];
    value.len() <= 63 && value.chars().all(inner) && ends.iter().flatten().all(char::is_ascii_alphanumeric)
}

/// Whether an instance of the Machine is known to have existed.
pub(crate) fn is_provisioned(machine: &Machine) -> bool {
    has_provider_id(machine) || machine.status.as_ref().is_some_and(|status| !status.addresses.is_empty())
}

pub(crate) fn has_provider_id(machine: &Machine) -> bool {
    machine.spec.provider_id.as_ref().is_some_and(|id| !id.is_empty())
}

/// What a Machine fails with.
pub(crate) fn failure_of(error: &InstanceError) -> MachineFailure {
    MachineFailure { reason: error.reason(), message: error.to_string() }
}
