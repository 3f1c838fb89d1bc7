//! Delete: at once, with a grace period, or after finalizers; one object or a collection.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Caller, Target, WriteResult, admission};
use crate::fields;
use crate::kinds::Kind;
use crate::objects::{Change, Object, object_key};
use crate::state::{State, time};
use crate::status::{ApiResult, StatusError};
use crate::webhooks::Operation;

/// The finalizer of an object that waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are to be orphaned.
pub(crate) const ORPHAN: &str = "orphan";

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Do everything except the write.
    pub dry_run: bool,
    /// The grace period; by default that of the object.
    pub grace_seconds: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub resource_version: Option<String>,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They are kept.
    Orphan,
}

/// The result of a deletion.
#[derive(Debug)]
pub struct DeleteResult {
    /// The object in its last state, or as it is while it terminates.
    pub result: WriteResult,
    /// Whether the object was removed.
    pub is_gone: bool,
}

/// Deletes one object.
pub fn delete(
    state: &mut State,
    target: &Target,
    options: &DeleteOptions,
    caller: &Caller,
) -> ApiResult<DeleteResult> {
    let kind = &target.kind;
    let Some(present) = state.get(kind, &target.namespace, &target.name).cloned() else {
        return Err(StatusError::not_found(kind, &target.name));
    };
    let old = state.read(kind, &target.namespace, &target.name).unwrap_or_default();
    if kind.group().is_empty() && kind.kind() == "Namespace" && PROTECTED_NAMESPACES.contains(&&*target.name)
    {
        return Err(StatusError::forbidden(kind, &target.name, "this namespace may not be deleted"));
    }
    expect_preconditions(kind, &old, options)?;
    admit_deletion(state, target, options, caller)?;
    let mut warnings = Vec::new();
    let propagation = options.propagation.or_else(|| default_propagation(kind, &old, &mut warnings));
    let new = mark_deleted(kind, &old, options, propagation, caller);
    let is_gone = is_removable(kind, &new);
    let object = match (options.dry_run, is_gone) {
        (true, true) => present,
        (true, false) => Arc::new(Object::new(kind.stored(new), present.revision())),
        (false, true) => {
            // A kind with a grace period is marked before it is removed, so that watches see both.
            let last = if has_grace(kind) { state.put(kind, new)? } else { present };
            remove(state, kind, &target.namespace, &target.name)?;
            last
        }
        (false, false) if new == old => present,
        (false, false) => state.put(kind, new)?,
    };
    Ok(DeleteResult { result: WriteResult { object, is_new: false, warnings }, is_gone })
}

/// Fails if a webhook refuses that an object is deleted.
pub(crate) fn admit_deletion(
    state: &State,
    target: &Target,
    options: &DeleteOptions,
    caller: &Caller,
) -> ApiResult<()> {
    if caller.gate.is_none() {
        return Ok(());
    }
    let Some(old) = state.read(&target.kind, &target.namespace, &target.name) else { return Ok(()) };
    let objects = (&Value::Null, Some(&old));
    admission::mutate(state, target, caller, Operation::Delete, objects, options.dry_run)?;
    admission::validate(state, target, caller, Operation::Delete, objects, options.dry_run)
}

/// Deletes the objects at these keys one by one; it is no error if one is gone already.
pub fn delete_collection(
    state: &mut State,
    target: &Target,
    names: &[(String, String)],
    options: &DeleteOptions,
    caller: &Caller,
) -> ApiResult<Vec<Arc<Object>>> {
    let mut deleted = Vec::new();
    for (namespace, name) in names {
        let one = Target { namespace: namespace.clone(), name: name.clone(), ..target.clone() };
        match delete(state, &one, options, caller) {
            Ok(outcome) => deleted.push(outcome.result.object),
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(deleted)
}

/// Removes an object regardless of its finalizers.
pub fn remove(state: &mut State, kind: &Kind, namespace: &str, name: &str) -> ApiResult<()> {
    let mut changes = vec![Change::Remove(kind.table().clone(), object_key(namespace, name).into())];
    if kind.kind() == "CustomResourceDefinition" {
        // The objects of a definition are removed with it.
        if let Some((plural, group)) = name.split_once('.') {
            let table = format!("{group}/{plural}");
            let keys: Vec<_> = state.objects.range(&table, "", "").map(|(key, _)| key.clone()).collect();
            let table: crate::objects::TableName = table.into();
            changes.splice(0..0, keys.into_iter().map(|key| Change::Remove(table.clone(), key)));
        }
    }
    state.commit(changes).map(drop)
}

/// Whether a deleted object has neither finalizers nor a grace period left.
pub(super) fn is_removable(kind: &Kind, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let no_finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
    let no_grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let is_namespace = kind.group().is_empty() && kind.kind() == "Namespace";
    let has_spec_finalizers = is_namespace
        && value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    !metadata["deletionTimestamp"].is_null() && no_finalizers && no_grace && !has_spec_finalizers
}

pub(super) fn expect_preconditions(kind: &Kind, old: &Value, options: &DeleteOptions) -> ApiResult<()> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let checks = [
        ("UID", "uid", &options.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &options.resource_version, "modified"),
    ];
    for (word, field, expected, cause) in checks {
        let found = old["metadata"][field].as_str().unwrap_or_default();
        if let Some(expected) = expected
            && expected != found
        {
            let why = format!(
                "the {word} in the precondition ({expected}) does not match the {word} in record ({found}). The object might have been {cause}"
            );
            return Err(StatusError::conflict_on(kind, kind.kind(), name, &why));
        }
    }
    Ok(())
}

/// A job's pods are orphaned by default, for compatibility; a warning tells the client.
fn default_propagation(kind: &Kind, old: &Value, warnings: &mut Vec<String>) -> Option<Propagation> {
    let finalizers = old["metadata"]["finalizers"].as_array();
    let has = |name: &str| finalizers.into_iter().flatten().any(|finalizer| finalizer == name);
    if has(ORPHAN) {
        return Some(Propagation::Orphan);
    }
    if has(FOREGROUND) {
        return Some(Propagation::Foreground);
    }
    if kind.group() == "batch" && kind.kind() == "Job" {
        warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
        return Some(Propagation::Orphan);
    }
    None
}

/// The object with its deletion timestamp and the finalizers of its propagation policy.
fn mark_deleted(
    kind: &Kind,
    old: &Value,
    options: &DeleteOptions,
    propagation: Option<Propagation>,
    caller: &Caller,
) -> Value {
    let mut new = old.clone();
    let metadata = &mut new["metadata"];
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| {
        (finalizer != FOREGROUND || propagation == Some(Propagation::Foreground))
            && (finalizer != ORPHAN || propagation == Some(Propagation::Orphan))
    });
    let expected = match propagation {
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) | None => None,
    };
    if let Some(expected) = expected
        && !finalizers.iter().any(|finalizer| finalizer == expected)
    {
        finalizers.push(json!(expected));
    }
    if let Some(fields) = metadata.as_object_mut() {
        match finalizers.is_empty() {
            true => fields.remove("finalizers"),
            false => fields.insert("finalizers".into(), Value::Array(finalizers)),
        };
    }
    let grace = grace_of(kind, old, options);
    let left = metadata["deletionGracePeriodSeconds"].as_i64();
    let first = metadata["deletionTimestamp"].is_null();
    if first || left.is_some_and(|left| grace < left) {
        let end = caller.now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(caller.now);
        metadata["deletionTimestamp"] = json!(time(end));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if first && let Some(generation) = metadata["generation"].as_i64() {
            metadata["generation"] = json!(generation + 1);
        }
    }
    if kind.group().is_empty() && kind.kind() == "Namespace" {
        fields::set(&mut new, &["status", "phase"], json!("Terminating"));
        if let Some(fields) = new["metadata"].as_object_mut() {
            fields.remove("deletionGracePeriodSeconds");
        }
    }
    new
}

/// Whether objects of this kind have a grace period.
fn has_grace(kind: &Kind) -> bool {
    kind.group().is_empty() && kind.kind() == "Pod"
}

/// The grace period of an object; zero for all kinds except pods.
fn grace_of(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    if !has_grace(kind) {
        return 0;
    }
    let is_finished = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let unbound = old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if is_finished || unbound {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let grace = options.grace_seconds.unwrap_or(own);
    if grace < 0 { 1 } else { grace }
}
