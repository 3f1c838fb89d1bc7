//! Patch, in all four languages.

use serde_json::{Value, json};

use super::create::{Tracking, store_new};
use super::update::replace;
use super::{Caller, Target, WriteOptions, Written, admit, metadata, scale};
use crate::apply::{self, ApplyError};
use crate::fields;
use crate::patch::{self, PatchError};
use crate::schema::FieldError;
use crate::state::State;
use crate::status::{Failure, Outcome};

/// The language of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations.
    Json,
    /// A partial object whose nulls delete.
    Merge,
    /// A partial object whose lists merge by their keys.
    Strategic,
    /// What a manager wants the object to be.
    Apply,
}

/// Patches the object, or the part of it that the subresource is about.
pub fn patch(
    state: &mut State,
    target: &Target,
    language: PatchType,
    body: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> Outcome<Written> {
    let kind = &target.kind;
    if target.subresource == "scale" {
        return patch_scale(state, target, language, body, options, caller);
    }
    let old = state.read(kind, &target.namespace, &target.name);
    let (mut value, tracking) = if language == PatchType::Apply {
        (applied(target, old.as_ref(), body, options, caller)?, Tracking::Done)
    } else {
        let old = old.as_ref().ok_or_else(|| Failure::not_found(kind, &target.name))?;
        (changed(target, language, old, body)?, Tracking::Update)
    };
    // What the configuration names but the schema does not know is told of, whatever became of it.
    let told = match language {
        PatchType::Apply => Some(admit::settle(kind, &mut body.clone(), options)?),
        PatchType::Json | PatchType::Merge | PatchType::Strategic => None,
    };
    admit::expect_kind(kind, &mut value)?;
    let found = admit::settle(kind, &mut value, options)?;
    let warnings = told.unwrap_or(found);
    let written = match &old {
        None => {
            let mut value = value;
            let given = metadata::of(&mut value)?;
            given.insert("name".into(), target.name.clone().into());
            given.remove("resourceVersion");
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
    Ok(Written { warnings, ..written })
}

fn changed(target: &Target, language: PatchType, old: &Value, body: &Value) -> Outcome<Value> {
    let kind = &target.kind;
    let result = match (language, kind.schema()) {
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
            return Err(Failure::new(415, "UnsupportedMediaType", message));
        }
        (PatchType::Merge | PatchType::Apply, _) => patch::merge(old, body),
    };
    let value = result.map_err(|error| refused_patch(&error))?;
    if let Err(failure) = admit::expect_kind(kind, &mut value.clone()) {
        let shown = Value::from(value.to_string());
        let cause = FieldError::invalid("patch", &shown, &failure.message);
        return Err(Failure::invalid("", "", "", &[cause]));
    }
    if let Some(schema) = kind.schema()
        && let Err(error) = schema.check_types(&value)
    {
        let cause = match language {
            PatchType::Strategic => patch::undecodable_strategic(body, &error),
            PatchType::Json | PatchType::Merge | PatchType::Apply => patch::undecodable(&value, &error),
        };
        return Err(Failure::invalid("", "", "", &[cause]));
    }
    Ok(value)
}

fn refused_patch(error: &PatchError) -> Failure {
    let failure = Failure::new(error.code(), error.reason(), error.to_string());
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
) -> Outcome<Value> {
    let kind = &target.kind;
    if options.manager.is_empty() {
        let cause = FieldError::required("fieldManager", "is required for apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    if !body.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the configuration must be an object"));
    }
    let given = body["metadata"]["name"].as_str().unwrap_or(&target.name);
    if given != target.name {
        let wanted = &target.name;
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    let mut config = body.clone();
    let (version, expected) = (body["apiVersion"].as_str().unwrap_or_default(), kind.api_version());
    if version != expected {
        return Err(Failure::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {expected}"
        )));
    }
    if config["kind"].is_null() {
        kind.dress(&mut config);
    }
    admit::expect_kind(kind, &mut config)?;
    metadata::of(&mut config)?.insert("name".into(), json!(target.name));
    let subresource = Some(target.subresource.as_str()).filter(|name| !name.is_empty());
    if old.is_none() && subresource.is_some() {
        return Err(Failure::not_found(kind, &target.name));
    }
    let force = options.force == Some(true);
    apply::apply(old, &config, &options.manager, force, subresource, kind.schema(), caller.now)
        .map_err(|error| refused_apply(&error))
}

fn refused_apply(error: &ApplyError) -> Failure {
    let mut failure = Failure::new(error.code(), error.reason(), error.to_string());
    if let ApplyError::Conflict(conflicts) = error {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|one| json!({"reason": "FieldManagerConflict", "message": one.message, "field": one.field}))
            .collect();
        failure.details = json!({"causes": causes});
    }
    failure
}

fn expect_same_object(target: &Target, old: &Value, new: &Value) -> Outcome<()> {
    let given = new["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != target.name {
        let wanted = &target.name;
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
    if target.kind.is_namespaced() && !namespace.is_empty() && namespace != target.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(why));
    }
    let (uid, before) = (&new["metadata"]["uid"], &old["metadata"]["uid"]);
    if uid.as_str().is_some_and(|uid| !uid.is_empty()) && uid != before {
        let cause = FieldError::invalid("metadata.uid", uid, "field is immutable");
        return Err(Failure::invalid(target.kind.group(), target.kind.kind(), &target.name, &[cause]));
    }
    Ok(())
}

fn patch_scale(
    state: &mut State,
    target: &Target,
    language: PatchType,
    body: &Value,
    options: &WriteOptions,
    caller: &Caller,
) -> Outcome<Written> {
    let present = scale::read_scale(state, target)?;
    let wanted = match language {
        PatchType::Json => patch::json(&present, body),
        _ => patch::merge(&present, body),
    };
    let wanted = wanted.map_err(|error| refused_patch(&error))?;
    scale::scaled(state, target, &wanted, options, caller)
}
