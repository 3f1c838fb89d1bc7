//! Defaults and rules of Machines and MachineSets, as functions of the objects and the facts about the cluster. Objects are JSON as it was
//! sent: a mutating webhook sees it before any schema is applied, so nothing about its form is certain.

use api::crd::machine::names::{CLUSTER_LABEL, ROLE_LABEL};
use json_patch::Patch;
use serde_json::{Map, Value, json};

use super::facts::PlatformFacts;
use super::field::FieldError;
use super::lifecycle_hooks;
use super::providers::{self, MachineIdentity};
use super::selector;
use super::verdict::Verdict;
use crate::duration::parse_duration;

/// A kind with webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookKind {
    /// One machine.
    Machine,
    /// A number of machines from a template.
    MachineSet,
    /// The health of machines. The reference has no webhook for it; ours refuses nothing.
    MachineHealthCheck,
}

impl WebhookKind {
    /// The kind as it is in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            WebhookKind::Machine => "Machine",
            WebhookKind::MachineSet => "MachineSet",
            WebhookKind::MachineHealthCheck => "MachineHealthCheck",
        }
    }

    /// The plural of the kind.
    pub fn resource(self) -> &'static str {
        match self {
            WebhookKind::Machine => "machines",
            WebhookKind::MachineSet => "machinesets",
            WebhookKind::MachineHealthCheck => "machinehealthchecks",
        }
    }

    /// The `MachineSpec` of an object.
    fn machine_spec(self, object: &Value) -> Option<&Value> {
        match self {
            WebhookKind::Machine => object.get("spec"),
            WebhookKind::MachineSet => object.get("spec")?.get("template")?.get("spec"),
            WebhookKind::MachineHealthCheck => None,
        }
    }

    fn provider_spec(self, object: &Value) -> Option<&Value> {
        self.machine_spec(object)?.get("providerSpec")?.get("value")
    }

    fn provider_spec_mut(self, object: &mut Value) -> Option<&mut Value> {
        let spec = match self {
            WebhookKind::Machine => object.get_mut("spec")?,
            WebhookKind::MachineSet => object.get_mut("spec")?.get_mut("template")?.get_mut("spec")?,
            WebhookKind::MachineHealthCheck => return None,
        };
        spec.get_mut("providerSpec")?.get_mut("value")
    }
}

/// The changes that give a new object its defaults.
pub fn defaults(kind: WebhookKind, object: &Value, facts: &PlatformFacts) -> Result<Patch, FieldError> {
    if kind == WebhookKind::MachineHealthCheck {
        return Ok(Patch::default());
    }
    let mut complete = object.clone();
    if kind == WebhookKind::Machine {
        set_cluster_label(&mut complete, facts);
    }
    if let Some(spec) = providers::with_defaults(kind.provider_spec(object), facts)?
        && let Some(place) = kind.provider_spec_mut(&mut complete)
    {
        *place = spec;
    }
    Ok(json_patch::diff(object, &complete))
}

/// Labels a Machine without the label. One with another value stays: a MachineSet would make another Machine for it.
fn set_cluster_label(machine: &mut Value, facts: &PlatformFacts) {
    let Some(cluster_id) = &facts.cluster_id else { return };
    let Some(metadata) = machine.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert(Value::Null);
    if labels.is_null() {
        *labels = Value::Object(Map::new());
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.entry(CLUSTER_LABEL).or_insert_with(|| cluster_id.clone().into());
    }
}

/// The rules for a new object, or for the change of an `old` one.
pub fn validate(kind: WebhookKind, old: Option<&Value>, new: &Value, facts: &PlatformFacts) -> Verdict {
    match kind {
        WebhookKind::Machine => validate_machine(old, new, facts),
        WebhookKind::MachineSet => validate_machine_set(old, new, facts),
        WebhookKind::MachineHealthCheck => validate_health_check(new),
    }
}

fn validate_machine(old: Option<&Value>, new: &Value, facts: &PlatformFacts) -> Verdict {
    let mut verdict = Verdict::default();
    let metadata = new.get("metadata");
    if let Some(old) = old
        && metadata.and_then(|it| it.get("deletionTimestamp")).is_some_and(|it| !it.is_null())
    {
        // A Machine with an invalid spec must not stay for ever.
        if only_removes_finalizers(old, new) {
            return verdict;
        }
        lifecycle_hooks::validate(old, new, &mut verdict);
    }
    let text =
        |field: &str| metadata.and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default();
    let role = metadata.and_then(|it| it.get("labels")?.get(ROLE_LABEL)?.as_str());
    let machine = MachineIdentity {
        name: text("name"),
        namespace: text("namespace"),
        is_control_plane: role == Some("master"),
    };
    providers::validate(WebhookKind::Machine.provider_spec(new), machine, facts, &mut verdict);
    verdict
}

/// Whether the only change is that no finalizer is left. Removing one of two is a change like any other.
fn only_removes_finalizers(old: &Value, new: &Value) -> bool {
    let without_finalizers = |object: &Value| {
        let mut object = object.clone();
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let finalizers = metadata.and_then(|it| {
            it.remove("managedFields");
            it.remove("finalizers")
        });
        let count = finalizers.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
        (object, count)
    };
    let ((old, old_count), (new, new_count)) = (without_finalizers(old), without_finalizers(new));
    old_count > 0 && new_count == 0 && old == new
}

/// Warns about durations that the schema lets through and nobody can read: its pattern, which is the reference's, accepts all that begins
/// with 0, and any number of hours.
fn validate_health_check(new: &Value) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = new.get("spec");
    let mut check = |field: String, value: Option<&Value>| {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| parse_duration(text).is_none()) {
            let detail = "must be a duration such as 300s or 1h30m; until it is one, nothing is remediated";
            verdict.warn(FieldError::invalid(field, json!(text), detail).to_string());
        }
    };
    check("spec.nodeStartupTimeout".to_owned(), spec.and_then(|it| it.get("nodeStartupTimeout")));
    let conditions = spec.and_then(|it| it.get("unhealthyConditions")?.as_array());
    for (number, condition) in conditions.into_iter().flatten().enumerate() {
        check(format!("spec.unhealthyConditions[{number}].timeout"), condition.get("timeout"));
    }
    verdict
}

fn validate_machine_set(old: Option<&Value>, new: &Value, facts: &PlatformFacts) -> Verdict {
    let mut verdict = Verdict::default();
    let replicas = |set: &Value| set.get("spec").and_then(|it| it.get("replicas")).and_then(Value::as_i64);
    // A set that was stored with such a number can still be changed in other ways.
    if let Some(count) = replicas(new).filter(|it| *it < 0)
        && old.and_then(replicas) != Some(count)
    {
        verdict.error(FieldError::invalid(
            "spec.replicas",
            json!(count),
            "must be greater than or equal to 0",
        ));
    }
    selector::validate(old, new, &mut verdict);
    let namespace = new.get("metadata").and_then(|it| it.get("namespace")).and_then(Value::as_str);
    let machine = MachineIdentity { namespace: namespace.unwrap_or_default(), ..MachineIdentity::default() };
    providers::validate(WebhookKind::MachineSet.provider_spec(new), machine, facts, &mut verdict);
    verdict
}
