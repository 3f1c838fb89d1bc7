//! Create.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Caller, Target, WriteOptions, WriteResult, admission, admit, allocate, metadata};
use crate::apply;
use crate::fields;
use crate::kinds::{self, Kind, StatusRule};
use crate::objects::Object;
use crate::random;
use crate::rbac;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::webhooks::Operation;

/// Highest number of attempts to generate a free name.
const NAME_ATTEMPTS_MAX: usize = 8;

/// Creates the object in `value`.
pub fn create(
    state: &mut State,
    target: &Target,
    value: Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    let mut value = value;
    admit::expect_kind(&target.kind, &mut value)?;
    let mut warnings = admit::normalize(&target.kind, &mut value, options)?;
    warnings.extend(metadata::warnings(&target.kind, &value, None));
    store_new(state, target, value, options, caller, Tracking::Update)
        .map(|written| WriteResult { warnings, ..written })
}

/// Whether the new object's fields already have an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// The field manager owns them by an update.
    Update,
    /// An apply has set the owners.
    Done,
}

/// The part of creation that apply shares; the value is normalized already.
pub(super) fn store_new(
    state: &mut State,
    target: &Target,
    mut value: Value,
    options: &WriteOptions,
    caller: &Caller,
    tracking: Tracking,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    let sent_version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    metadata::fill_namespace(target, &mut value)?;
    expect_namespace(state, target, &value)?;
    clear_status(kind, &mut value);
    if kind.kind() == "Namespace" {
        (kind.row().default)(&mut value);
    }
    // Nobody owns the fields that the server adds below.
    if tracking == Tracking::Update {
        apply::track_update(None, &mut value, &options.manager, None, kind.schema(), caller.now);
    }
    let objects = (&value, None);
    if let Some(changed) =
        admission::mutate(state, target, caller, Operation::Create, objects, options.dry_run)?
    {
        value = changed;
        metadata::fill_namespace(target, &mut value)?;
        clear_status(kind, &mut value);
    }
    let suffix = caller.gate.as_ref().map_or_else(random::suffix, |gate| gate.suffix.clone());
    metadata::fill_name(&mut value, &suffix)?;
    rbac::confirm_grant(state, &caller.user, kind, &target.name, None, &value)?;
    metadata::initialize(kind, &mut value, caller)?;
    (kind.row().prepare)(&mut value);
    prepare_with_state(state, target, &mut value, caller)?;
    admit::validate(kind, &value, None)?;
    let objects = (&value, None);
    admission::validate(state, target, caller, Operation::Create, objects, options.dry_run)?;
    // The storage of the real server refuses a version, after everything else; a dry run does not reach the storage.
    if !options.dry_run && sent_version.parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(StatusError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    ensure_free_name(state, target, &mut value)?;
    if options.dry_run && !sent_version.is_empty() {
        fields::set(&mut value, &["metadata", "resourceVersion"], json!(sent_version));
    }
    metadata::remove_empty(&mut value);
    let object = if options.dry_run {
        Arc::new(Object::unsaved(kind.stored(value)))
    } else {
        state.put(kind, value)?
    };
    Ok(WriteResult { object, is_new: true, warnings: Vec::new() })
}

/// A new object has no status of its own, if it has one at all.
fn clear_status(kind: &Kind, value: &mut Value) {
    if kind.status_rule() == StatusRule::Cleared
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("status");
        // A new object of a built-in kind has an empty status.
        if let Some(schema) = kind.schema().filter(|_| kind.custom().is_none()) {
            schema.default(value);
        }
    }
}

/// The namespace must exist and must not be terminating.
fn expect_namespace(state: &State, target: &Target, value: &Value) -> ApiResult<()> {
    if !target.kind.is_namespaced() {
        return Ok(());
    }
    let Some(kind) = kinds::find("", "Namespace") else { return Ok(()) };
    let Some(namespace) = state.read(kind, "", &target.namespace) else {
        return Err(StatusError::not_found(kind, &target.namespace));
    };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = &target.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = StatusError::forbidden(&target.kind, name, &why);
    failure.details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(failure)
}

/// Sets and checks fields that depend on other objects.
fn prepare_with_state(state: &State, target: &Target, value: &mut Value, caller: &Caller) -> ApiResult<()> {
    match (target.kind.group(), target.kind.kind()) {
        ("", "Service") => allocate::service(state, value),
        ("", "Pod") => expect_service_account(state, target, value),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            let user = &caller.user;
            fields::set(value, &["spec", "username"], json!(&*user.name));
            fields::set(value, &["spec", "groups"], json!(&*user.groups));
            if !user.uid.is_empty() {
                fields::set(value, &["spec", "uid"], json!(&*user.uid));
            }
            if !user.extra.is_empty() {
                fields::set(value, &["spec", "extra"], json!(&*user.extra));
            }
            value["status"] = json!({});
            Ok(())
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            super::kind_verbs::establish(state, value, caller)
        }
        _ => Ok(()),
    }
}

fn expect_service_account(state: &State, target: &Target, value: &Value) -> ApiResult<()> {
    let account = value["spec"]["serviceAccountName"].as_str().unwrap_or_default();
    let Some(kind) = kinds::find("", "ServiceAccount") else { return Ok(()) };
    if account.is_empty() || state.get(kind, &target.namespace, account).is_some() {
        return Ok(());
    }
    let (namespace, name) = (&target.namespace, value["metadata"]["name"].as_str().unwrap_or_default());
    let why = format!(
        "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
    );
    Err(StatusError::forbidden(&target.kind, name, &why))
}

/// A name from the client must be free; a generated name is generated again until it is free.
fn ensure_free_name(state: &State, target: &Target, value: &mut Value) -> ApiResult<()> {
    let kind = &target.kind;
    for _ in 0..NAME_ATTEMPTS_MAX {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if state.get(kind, &target.namespace, &name).is_none() {
            return Ok(());
        }
        let prefix = value["metadata"]["generateName"].as_str().unwrap_or_default();
        let stem = prefix.get(..prefix.len().min(58)).unwrap_or(prefix);
        if prefix.is_empty() || name.len() != stem.len() + 5 || !name.starts_with(stem) {
            return Err(StatusError::already_exists(kind, &name));
        }
        fields::set(value, &["metadata", "name"], json!(""));
        metadata::fill_name(value, &random::suffix())?;
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    Err(StatusError::already_exists(kind, name))
}
