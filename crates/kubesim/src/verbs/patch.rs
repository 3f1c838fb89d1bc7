//! Patch, in all four types.

use serde_json::{Value, json};

use super::create::{Tracking, store_new};
use super::update::replace;
use super::{Caller, Target, WriteOptions, WriteResult, admit, metadata, scale};
use crate::apply::{self, ApplyError};
use crate::fields;
use crate::patch::{self, PatchError};
use crate::schema::FieldError;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations.
    Json,
    /// A partial object whose nulls remove fields.
    Merge,
    /// A partial object whose lists are merged by their keys.
    Strategic,
    /// The configuration that a manager applies.
    Apply,
}

/// Patches the object, or the part that the subresource covers.
pub fn patch(
    state: &mut State,
    target: &Target,
    patch_type: PatchType,
    body: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    if target.subresource == "scale" {
        return patch_scale(state, target, patch_type, body, options, caller);
    }
    let old = state.read(kind, &target.namespace, &target.name);
    let (mut value, tracking) = if patch_type == PatchType::Apply {
        (applied(target, old.as_ref(), body, options, caller)?, Tracking::Done)
    } else {
        let old = old.as_ref().ok_or_else(|| StatusError::not_found(kind, &target.name))?;
        (patched(target, patch_type, old, body)?, Tracking::Update)
    };
    // Unknown fields of the configuration cause a warning, whatever the result of the apply.
    let config_warnings = match patch_type {
        PatchType::Apply => Some(admit::normalize(kind, &mut body.clone(), options)?),
        PatchType::Json | PatchType::Merge | PatchType::Strategic => None,
    };
    admit::expect_kind(kind, &mut value)?;
    let found = admit::normalize(kind, &mut value, options)?;
    let mut warnings = config_warnings.unwrap_or(found);
    warnings.extend(metadata::warnings(kind, &value, old.as_ref()));
    let written = match &old {
        None => {
            let mut value = value;
            let sent = metadata::fields(&mut value)?;
            sent.insert("name".into(), target.name.clone().into());
            sent.remove("resourceVersion");
            super::expect_create(state, target, caller)?;
            store_new(state, target, value, options, caller, tracking)?
        }
        Some(old) => {
            expect_same_object(target, old, &value)?;
            if value["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() {
                fields::set(
                    &mut value,
                    &["metadata", "resourceVersion"],
                    old["metadata"]["resourceVersion"].clone(),
                );
            }
            replace(state, target, value, options, caller, tracking)?
        }
    };
    Ok(WriteResult { warnings, ..written })
}

fn patched(target: &Target, patch_type: PatchType, old: &Value, body: &Value) -> ApiResult<Value> {
    let kind = &target.kind;
    let result = match (patch_type, kind.schema()) {
        (PatchType::Json, _) => patch::json(old, body),
        (PatchType::Strategic, Some(schema)) if kind.custom().is_none() => {
            patch::strategic(old, body, schema)
        }
        (PatchType::Strategic, _) => {
            let types =
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: {types}"
            );
            return Err(StatusError::new(415, "UnsupportedMediaType", message));
        }
        (PatchType::Merge | PatchType::Apply, _) => patch::merge(old, body),
    };
    let value = result.map_err(|error| patch_error(&error))?;
    if let Err(failure) = admit::expect_kind(kind, &mut value.clone()) {
        let shown = Value::from(value.to_string());
        let cause = FieldError::invalid("patch", &shown, &failure.message);
        return Err(StatusError::invalid("", "", "", &[cause]));
    }
    if let Some(schema) = kind.schema()
        && let Err(error) = schema.check_types(&value)
    {
        let cause = match patch_type {
            PatchType::Strategic => patch::undecodable_strategic(body, &error),
            PatchType::Json | PatchType::Merge | PatchType::Apply => patch::undecodable(&value, &error),
        };
        return Err(StatusError::invalid("", "", "", &[cause]));
    }
    Ok(value)
}

fn patch_error(error: &PatchError) -> StatusError {
    let failure = StatusError::new(error.code(), error.reason(), error.to_string());
    match error {
        PatchError::Unprocessable(_) => failure.about("", "", ""),
        PatchError::BadRequest(_) | PatchError::TooLarge(_) | PatchError::Internal(_) => failure,
    }
}

fn applied(
    target: &Target,
    old: Option<&Value>,
    body: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<Value> {
    let kind = &target.kind;
    if options.manager.is_empty() {
        let cause = FieldError::required("fieldManager", "is required for apply patch");
        return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    if !body.is_object() {
        return Err(StatusError::bad_request("error decoding YAML: the configuration must be an object"));
    }
    metadata::check_name(target, body["metadata"]["name"].as_str().unwrap_or(&target.name))?;
    let mut config = body.clone();
    let (version, expected) = (body["apiVersion"].as_str().unwrap_or_default(), kind.api_version());
    if version != expected {
        return Err(StatusError::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {expected}"
        )));
    }
    if config["kind"].is_null() {
        kind.set_type_meta(&mut config);
    }
    admit::expect_kind(kind, &mut config)?;
    metadata::fields(&mut config)?.insert("name".into(), json!(target.name));
    let subresource = Some(target.subresource.as_str()).filter(|name| !name.is_empty());
    if old.is_none() && subresource.is_some() {
        return Err(StatusError::not_found(kind, &target.name));
    }
    let force = options.force == Some(true);
    apply::apply(old, &config, &options.manager, force, subresource, kind.schema(), caller.now)
        .map_err(|error| apply_error(&error))
}

fn apply_error(error: &ApplyError) -> StatusError {
    let mut failure = StatusError::new(error.code(), error.reason(), error.to_string());
    if let ApplyError::Conflict(conflicts) = error {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|one| json!({"reason": "FieldManagerConflict", "message": one.message, "field": one.field}))
            .collect();
        failure.details = json!({"causes": causes});
    }
    failure
}

fn expect_same_object(target: &Target, old: &Value, new: &Value) -> ApiResult<()> {
    let name = new["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    metadata::check_name(target, name.unwrap_or(&target.name))?;
    metadata::check_namespace(target, new["metadata"]["namespace"].as_str().unwrap_or_default())?;
    let (uid, before) = (&new["metadata"]["uid"], &old["metadata"]["uid"]);
    if uid.as_str().is_some_and(|uid| !uid.is_empty()) && uid != before {
        let cause = FieldError::invalid("metadata.uid", uid, "field is immutable");
        return Err(StatusError::invalid(target.kind.group(), target.kind.kind(), &target.name, &[cause]));
    }
    Ok(())
}

fn patch_scale(
    state: &mut State,
    target: &Target,
    patch_type: PatchType,
    body: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    let present = scale::read_scale(state, target)?;
    let scale = match patch_type {
        PatchType::Json => patch::json(&present, body),
        _ => patch::merge(&present, body),
    };
    let scale = scale.map_err(|error| patch_error(&error))?;
    scale::update_scale(state, target, &scale, options, caller)
}
