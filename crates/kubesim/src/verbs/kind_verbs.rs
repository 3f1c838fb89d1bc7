//! Verbs of single kinds: bind a pod, finalize a namespace, approve a certificate, review access, establish a
//! definition.

use serde_json::{Value, json};

use super::{Caller, Target, WriteOptions, WriteResult, admit, delete, update, value_at};
use crate::fields;
use crate::kinds::Kind;
use crate::schema;
use crate::schema::FieldError;
use crate::state::{State, time};
use crate::status::{ApiResult, StatusError};

/// Binds a pod to the node that the binding names.
pub fn bind(
    state: &mut State,
    target: &Target,
    binding: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<()> {
    let kind = &target.kind;
    admit::check_types("", "Binding", binding)?;
    let Some(mut pod) = state.read(kind, &target.namespace, &target.name) else {
        return Err(StatusError::not_found(kind, &target.name));
    };
    let node = value_at(binding, &["target", "name"]).as_str().unwrap_or_default();
    if node.is_empty() {
        let cause = FieldError::required("target.name", "");
        return Err(StatusError::invalid("", "Binding", &target.name, &[cause]));
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
        return Err(StatusError::conflict_on(kind, "pods/binding", &target.name, &why));
    }
    if let Some(bound) = pod["spec"]["nodeName"].as_str().filter(|bound| !bound.is_empty()) {
        let why = format!("pod {} is already assigned to node \"{bound}\"", target.name);
        return Err(StatusError::conflict_on(kind, "pods/binding", &target.name, &why));
    }
    if options.dry_run {
        return Ok(());
    }
    fields::set(&mut pod, &["spec", "nodeName"], json!(node));
    for (key, value) in value_at(binding, &["metadata", "annotations"]).as_object().into_iter().flatten() {
        fields::set(&mut pod, &["metadata", "annotations", key], value.clone());
    }
    set_condition(
        &mut pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time(caller.now)}),
    );
    state.put(kind, pod).map(drop)
}

/// Sets a condition in an object's status.
pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        fields::set(object, &["status", "conditions"], json!([]));
    }
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
            Some(found) => {
                let mut condition = condition;
                if found["status"] == condition["status"] && !found["lastTransitionTime"].is_null() {
                    condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
                }
                *found = condition;
            }
            None => conditions.push(condition),
        }
    }
}

/// Replaces the finalizers in a namespace's spec; a deleted namespace without finalizers is removed.
pub fn finalize(
    state: &mut State,
    target: &Target,
    value: &Value,
    options: &WriteOptions,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    let Some(mut namespace) = state.read(kind, "", &target.name) else {
        return Err(StatusError::not_found(kind, &target.name));
    };
    let sent = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !sent.is_empty() && namespace["metadata"]["resourceVersion"] != sent {
        return Err(StatusError::modified(kind, &target.name));
    }
    let mut value = value.clone();
    admit::expect_kind(kind, &mut value)?;
    admit::normalize(kind, &mut value, options)?;
    let finalizers = value["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    namespace["spec"] = if finalizers.is_empty() { json!({}) } else { json!({"finalizers": finalizers}) };
    let revision = state.get(kind, "", &target.name).map_or(0, |object| object.revision());
    let object = if options.dry_run {
        std::sync::Arc::new(crate::objects::Object::new(namespace, revision))
    } else if delete::is_removable(kind, &namespace) {
        delete::remove(state, kind, "", &target.name)?;
        std::sync::Arc::new(crate::objects::Object::new(namespace, revision))
    } else {
        state.put(kind, namespace)?
    };
    Ok(WriteResult { object, is_new: false, warnings: Vec::new() })
}

/// Replaces the decision about a certificate signing request.
pub fn approve(
    state: &mut State,
    target: &Target,
    mut value: Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    // The body is not validated yet; the update rejects what is invalid.
    let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    // The server sets times that the client omits.
    for condition in conditions.into_iter().flatten() {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].is_null() {
                fields::set(condition, &[field], json!(time(caller.now)));
            }
        }
    }
    if value["status"].is_null() {
        fields::set(&mut value, &["status"], json!({}));
    }
    if let Some(old) = state.read(&target.kind, "", &target.name) {
        match &old["status"]["certificate"] {
            Value::Null => {}
            certificate => fields::set(&mut value, &["status", "certificate"], certificate.clone()),
        }
    }
    update::update(state, target, value, options, caller)
}

/// Accepts the names of a definition or reports the conflict, and rejects an unusable schema.
pub(super) fn establish(state: &State, value: &mut Value, caller: &Caller) -> ApiResult<()> {
    let mut causes = Vec::new();
    let versions = value["spec"]["versions"].as_array().cloned().unwrap_or_default();
    // The real server stores a schema that all versions share once, and names it so.
    let is_shared = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    for (index, version) in versions.iter().enumerate().take(if is_shared { 1 } else { versions.len() }) {
        let sent = &version["schema"]["openAPIV3Schema"];
        if sent.is_object()
            && let Err(errors) = schema::parse_crd(sent)
        {
            let prefix = if is_shared {
                "spec.validation".to_owned()
            } else {
                format!("spec.versions[{index}].schema")
            };
            causes.extend(
                errors
                    .into_iter()
                    .map(|error| FieldError { field: join_path(&prefix, &error.field), ..error }),
            );
        }
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !causes.is_empty() {
        return Err(StatusError::invalid("apiextensions.k8s.io", "CustomResourceDefinition", &name, &causes));
    }
    let conflict = taken_name(state, value, &name);
    let storage: Vec<Value> = value["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let mut stored = value["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in storage {
        if !stored.contains(&version) {
            stored.push(version);
        }
    }
    let conditions = value["status"]["conditions"].clone();
    value["status"] =
        json!({"conditions": conditions, "storedVersions": stored, "acceptedNames": value["spec"]["names"]});
    if value["status"]["conditions"].is_null() {
        fields::set(value, &["status", "conditions"], json!([]));
    }
    let now = time(caller.now);
    let mut put_condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        set_condition(value, condition);
    };
    match conflict {
        None => {
            put_condition("NamesAccepted", "True", "NoConflicts", "no conflicts found");
            put_condition(
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            );
        }
        Some((reason, message)) => {
            put_condition("NamesAccepted", "False", reason, &message);
            put_condition("Established", "False", "NotAccepted", "not all names are accepted");
        }
    }
    Ok(())
}

fn join_path(prefix: &str, field: &str) -> String {
    match field {
        "" | "<nil>" => prefix.to_owned(),
        field if field.starts_with('[') => format!("{prefix}{field}"),
        field => format!("{prefix}.{field}"),
    }
}

/// The conflict with another definition of the group that has one of the names.
fn taken_name(state: &State, value: &Value, name: &str) -> Option<(&'static str, String)> {
    let group = value["spec"]["group"].as_str().unwrap_or_default();
    let (names, definition) =
        (&value["spec"]["names"], |other: &Kind| format!("{}.{}", other.plural(), other.group()));
    let others = state.kinds.all().filter(|other| other.group() == group && definition(other) != name);
    for other in others {
        if names["kind"] == other.kind() {
            return Some(("KindConflict", format!("\"{}\" is already in use", other.kind())));
        }
        if names["plural"] == other.plural() {
            return Some(("PluralConflict", format!("\"{}\" is already in use", other.plural())));
        }
    }
    None
}
