//! The `scale` subresource: the number of replicas, independent of the kind.

use serde_json::{Value, json};

use super::create::Tracking;
use super::update::replace;
use super::{Caller, Target, WriteOptions, WriteResult, admit};
use crate::kinds::Kind;
use crate::selector::LabelSelector;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

/// The `Scale` of a stored object.
pub fn read_scale(state: &State, target: &Target) -> ApiResult<Value> {
    let kind = &target.kind;
    let object = state
        .read(kind, &target.namespace, &target.name)
        .ok_or_else(|| StatusError::not_found(kind, &target.name))?;
    scale_of(kind, &object)
}

/// The `Scale` of an object.
pub fn scale_of(kind: &Kind, object: &Value) -> ApiResult<Value> {
    let (desired, present, selector) = match kind.custom() {
        Some(custom) => {
            let scale = custom.scale.as_ref().ok_or_else(StatusError::no_such_resource)?;
            let selector =
                scale.selector.as_ref().and_then(|path| object.pointer(path)).and_then(Value::as_str);
            (
                object.pointer(&scale.spec_replicas).cloned().unwrap_or(json!(0)),
                object.pointer(&scale.status_replicas).cloned().unwrap_or(json!(0)),
                selector.map(str::to_owned),
            )
        }
        None => {
            let selector = LabelSelector::from_object(object["spec"].get("selector"));
            (
                object["spec"]["replicas"].clone(),
                object["status"]["replicas"].clone(),
                selector.map(|one| one.to_string()),
            )
        }
    };
    let metadata: serde_json::Map<String, Value> =
        ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
            .into_iter()
            .filter(|field| !object["metadata"][field].is_null())
            .map(|field| (field.to_owned(), object["metadata"][field].clone()))
            .collect();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": present.as_i64().unwrap_or(0)},
    });
    if desired.as_i64().unwrap_or(0) != 0 {
        scale["spec"]["replicas"] = desired;
    }
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        scale["status"]["selector"] = json!(selector);
    }
    Ok(scale)
}

/// Sets the desired number of replicas from a `Scale`.
pub fn update_scale(
    state: &mut State,
    target: &Target,
    scale: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    let mut object = state
        .read(kind, &target.namespace, &target.name)
        .ok_or_else(|| StatusError::not_found(kind, &target.name))?;
    admit::check_types("autoscaling", "Scale", scale)?;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = crate::schema::FieldError::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        );
        return Err(StatusError::invalid("autoscaling", "Scale", &target.name, &[cause]));
    }
    let sent = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !sent.is_empty() && object["metadata"]["resourceVersion"] != sent {
        return Err(StatusError::modified(kind, &target.name));
    }
    let path = match kind.custom().map(|custom| custom.scale.as_ref()) {
        Some(Some(scale)) => scale.spec_replicas.clone(),
        Some(None) => return Err(StatusError::no_such_resource()),
        None => "/spec/replicas".to_owned(),
    };
    set(&mut object, &path, json!(replicas));
    let whole = Target { subresource: String::new(), ..target.clone() };
    // Webhooks of the kind itself do not see its subresources.
    replace(state, &whole, object, options, &caller.without_gate(), Tracking::Update)
}

/// Sets the value at a JSON pointer and creates objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for field in pointer.split('/').filter(|field| !field.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[field];
    }
    *place = value;
}
