//! Server-side handling and validation of `metadata`.

use serde_json::{Map, Value, json};

use super::{Caller, Target};
use crate::kinds::Kind;
use crate::names;
use crate::random;
use crate::schema::FieldError;
use crate::state::time;
use crate::status::{ApiResult, StatusError};

/// Highest length of a generated name; the prefix is truncated to fit.
const GENERATED_NAME_MAX: usize = 63;
/// Limit on all annotations of an object.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// The metadata of an object, created if it is missing.
pub(super) fn fields(value: &mut Value) -> ApiResult<&mut Map<String, Value>> {
    let Some(fields) = value.as_object_mut() else {
        return Err(StatusError::bad_request("the body of the request must be an object"));
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut().ok_or_else(|| StatusError::bad_request("metadata must be an object"))
}

/// Fails unless the name in a body is that of the path.
pub(super) fn check_name(target: &Target, name: &str) -> ApiResult<()> {
    let wanted = &target.name;
    if name == wanted {
        return Ok(());
    }
    Err(StatusError::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({wanted})"
    )))
}

/// Fails if a body names another namespace than the path.
pub(super) fn check_namespace(target: &Target, namespace: &str) -> ApiResult<()> {
    if !target.kind.is_namespaced() || namespace.is_empty() || namespace == target.namespace {
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(StatusError::bad_request(why))
}

/// Checks and sets the namespace of a new object.
pub(super) fn fill_namespace(target: &Target, value: &mut Value) -> ApiResult<()> {
    let metadata = fields(value)?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    check_namespace(target, namespace)?;
    if target.kind.is_namespaced() {
        metadata.insert("namespace".into(), target.namespace.clone().into());
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Generates the name of a new object that has only the beginning of one.
pub(super) fn fill_name(value: &mut Value, suffix: &str) -> ApiResult<()> {
    let metadata = fields(value)?;
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty()
        && let Some(prefix) =
            metadata.get("generateName").and_then(Value::as_str).filter(|prefix| !prefix.is_empty())
    {
        let mut end = prefix.len().min(GENERATED_NAME_MAX - 5);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let name = format!("{}{suffix}", &prefix[..end]);
        metadata.insert("name".into(), name.into());
    }
    Ok(())
}

/// Sets the fields of a new object that the server owns.
pub(super) fn initialize(kind: &Kind, value: &mut Value, caller: &Caller) -> ApiResult<()> {
    let metadata = fields(value)?;
    for field in
        ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        metadata.remove(field);
    }
    let uid = caller.gate.as_ref().map_or_else(random::uid, |gate| gate.uid.clone());
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), time(caller.now).into());
    if kind.row().generation {
        metadata.insert("generation".into(), json!(1));
    }
    Ok(())
}

/// Restores the fields that no update changes.
pub(super) fn keep_server_fields(old: &Value, new: &mut Value) -> ApiResult<()> {
    let metadata = fields(new)?;
    for field in [
        "name",
        "namespace",
        "generateName",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        match &old["metadata"][field] {
            Value::Null => metadata.remove(field),
            value => metadata.insert(field.into(), value.clone()),
        };
    }
    metadata.remove("selfLink");
    Ok(())
}

/// Removes empty maps and lists.
pub(super) fn remove_empty(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| match value {
            Value::Null => false,
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        });
    }
}

/// The errors of the metadata.
pub(super) fn validate(kind: &Kind, value: &Value) -> Vec<FieldError> {
    let metadata = &value["metadata"];
    let mut causes = Vec::new();
    match metadata["name"].as_str().unwrap_or_default() {
        "" => causes.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => {
            for error in kind.name_rule().errors(name) {
                causes.push(FieldError::invalid("metadata.name", &json!(name), &error));
            }
        }
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for error in names::qualified(key) {
            causes.push(FieldError::invalid("metadata.labels", &json!(key), &error));
        }
        for error in names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(FieldError::invalid("metadata.labels", value, &error));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        for error in names::qualified(&key.to_lowercase()) {
            causes.push(FieldError::invalid("metadata.annotations", &json!(key), &error));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_BYTES_MAX {
        causes.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX as u64));
    }
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        for error in names::qualified(finalizer) {
            causes.push(FieldError::invalid("metadata.finalizers", &json!(finalizer), &error));
        }
        // Custom resources may have short names, about which there is a warning.
        if kind.custom().is_none()
            && names::qualified(finalizer).is_empty()
            && !finalizer.contains('/')
            && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
        {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), &json!(finalizer), why));
        }
    }
    causes.extend(owner_references(metadata));
    causes
}

/// Warnings about finalizers that a write adds to a custom resource.
pub(super) fn warnings(kind: &Kind, value: &Value, old: Option<&Value>) -> Vec<String> {
    let finalizers = value["metadata"]["finalizers"].as_array().filter(|_| kind.custom().is_some());
    let present = old.and_then(|it| it["metadata"]["finalizers"].as_array());
    let is_present = |finalizer: &str| present.is_some_and(|all| all.iter().any(|it| it == finalizer));
    let is_short =
        |it: &&str| !it.contains('/') && !matches!(*it, "orphan" | "foregroundDeletion") && !is_present(it);
    let warning = |finalizer: &str| {
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental \
             conflicts with other finalizer writers"
        )
    };
    finalizers.into_iter().flatten().filter_map(Value::as_str).filter(is_short).map(warning).collect()
}

fn owner_references(metadata: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for (index, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("metadata.ownerReferences[{index}].{field}");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.push(FieldError::required(at(field), "must not be empty"));
            }
        }
        if owner["controller"] != true {
            continue;
        }
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let named = format!("{}/{}", text("kind"), text("name"));
        match &controller {
            None => controller = Some(named),
            Some(first) => {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {named}"
                );
                let shown =
                    format!("Invalid value: {}: {why}", display_references(&metadata["ownerReferences"]));
                let cause = FieldError::invalid("metadata.ownerReferences", &Value::Null, &why);
                causes.push(FieldError { message: shown, ..cause });
            }
        }
    }
    causes
}

/// References as the real server prints them in messages, with the fields in the order of their type.
fn display_references(references: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let written: Vec<String> = references
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| {
            let parts: Vec<String> = fields
                .iter()
                .filter(|field| !owner[**field].is_null())
                .map(|field| format!("\"{field}\":{}", owner[*field]))
                .collect();
            format!("{{{}}}", parts.join(","))
        })
        .collect();
    format!("[{}]", written.join(","))
}
