//! Garbage collection: deletes objects without owners, and dependents in the foreground, or orphans them.

use std::sync::Arc;

use serde_json::Value;

use super::context::ControllerContext;
use crate::fields;
use crate::kinds::Kind;
use crate::objects::{ObjectRef, object_key};
use crate::state::State;
use crate::status::ApiResult;
use crate::verbs::{FOREGROUND, ORPHAN, Propagation};

/// Whether an object waits for the deletion or orphaning of its dependents.
pub(super) fn awaits_dependents(value: &Value) -> bool {
    !value["metadata"]["deletionTimestamp"].is_null() && (has(value, FOREGROUND) || has(value, ORPHAN))
}

fn has(value: &Value, finalizer: &str) -> bool {
    value["metadata"]["finalizers"].as_array().into_iter().flatten().any(|one| one == finalizer)
}

pub(super) fn reconcile(context: &mut ControllerContext<'_>, table: &str, key: &str) -> ApiResult<()> {
    let Some(kind) = context.state.kinds.find_table(table).cloned() else { return Ok(()) };
    let Some(value) = context.read(&kind, key) else { return Ok(()) };
    if !value["metadata"]["deletionTimestamp"].is_null() {
        if has(&value, ORPHAN) {
            return orphan_dependents(context, &kind, value);
        }
        if has(&value, FOREGROUND) {
            return delete_dependents(context, &kind, value);
        }
        return Ok(());
    }
    check_owners(context, &kind, key, value)
}

/// The kind and key of an owner, whether it exists or not.
fn owner_object(state: &State, namespace: &str, owner: &Value) -> Option<(Arc<Kind>, String)> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = state.kinds.find_kind(group, text("kind"))?.clone();
    let key = object_key(if kind.is_namespaced() { namespace } else { "" }, text("name"));
    Some((kind, key))
}

/// The existing owners of an object.
pub(super) fn owners_of(state: &State, value: &Value) -> Vec<ObjectRef> {
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default();
    let owners = value["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .filter_map(|owner| {
            let (kind, key) = owner_object(state, namespace, owner)?;
            let found = state.objects.get(kind.table(), &key)?;
            (owner["uid"] == **found.uid()).then(|| (kind.table().clone(), key.into()))
        })
        .collect()
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Present,
    Waiting,
    Gone,
}

fn check_owners(
    context: &mut ControllerContext<'_>,
    kind: &Arc<Kind>,
    key: &str,
    mut value: Value,
) -> ApiResult<()> {
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let Some(owners) = value["metadata"]["ownerReferences"].as_array().cloned() else { return Ok(()) };
    let found: Vec<OwnerState> = owners
        .iter()
        .map(|owner| {
            // An owner of an unknown kind may be served elsewhere, so its dependents are kept.
            let Some((kind, key)) = owner_object(&context.state, &namespace, owner) else {
                return OwnerState::Present;
            };
            match context.read(&kind, &key) {
                Some(found) if found["metadata"]["uid"] == owner["uid"] => {
                    if awaits_dependents(&found) && has(&found, FOREGROUND) {
                        OwnerState::Waiting
                    } else {
                        OwnerState::Present
                    }
                }
                _ => OwnerState::Gone,
            }
        })
        .collect();
    if found.contains(&OwnerState::Present) {
        if found.contains(&OwnerState::Gone) {
            let remaining = owners.into_iter().zip(&found).filter(|(_, state)| **state != OwnerState::Gone);
            fields::set(
                &mut value,
                &["metadata", "ownerReferences"],
                remaining.map(|(owner, _)| owner).collect(),
            );
            return context.update(kind, value);
        }
        return Ok(());
    }
    let has_dependents =
        !context.state.objects.dependents(value["metadata"]["uid"].as_str().unwrap_or_default()).is_empty();
    if found.contains(&OwnerState::Waiting) && has_dependents {
        return context.delete(kind, key, Propagation::Foreground);
    }
    context.delete(kind, key, Propagation::Background)
}

fn dependents(context: &ControllerContext<'_>, uid: &str) -> Vec<(Arc<Kind>, Arc<str>, Value)> {
    let places = context.state.objects.dependents(uid);
    places
        .into_iter()
        .filter_map(|(table, key)| {
            let kind = context.state.kinds.find_table(&table)?.clone();
            let value = context.read(&kind, &key)?;
            Some((kind, key, value))
        })
        .collect()
}

fn orphan_dependents(context: &mut ControllerContext<'_>, kind: &Arc<Kind>, value: Value) -> ApiResult<()> {
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    for (kind, _, mut dependent) in dependents(context, &uid) {
        if let Some(owners) = dependent["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid.as_str());
        }
        context.update(&kind, dependent)?;
    }
    remove_finalizer(context, kind, value, ORPHAN)
}

fn delete_dependents(context: &mut ControllerContext<'_>, kind: &Arc<Kind>, value: Value) -> ApiResult<()> {
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut blocked = false;
    for (kind, key, dependent) in dependents(context, &uid) {
        if dependent["metadata"]["deletionTimestamp"].is_null() {
            // Another existing owner keeps it.
            let has_other_owners = owners_of(&context.state, &dependent).len() > 1;
            if has_other_owners {
                continue;
            }
            let has_dependents = !context
                .state
                .objects
                .dependents(dependent["metadata"]["uid"].as_str().unwrap_or_default())
                .is_empty();
            context.delete(
                &kind,
                &key,
                if has_dependents { Propagation::Foreground } else { Propagation::Background },
            )?;
        }
        let exists = context.state.objects.get(kind.table(), &key).is_some();
        let blocks = dependent["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|owner| owner["uid"] == uid.as_str() && owner["blockOwnerDeletion"] == true);
        blocked |= exists && blocks;
    }
    if blocked { Ok(()) } else { remove_finalizer(context, kind, value, FOREGROUND) }
}

/// Removes a finalizer; the last one lets the object be removed.
fn remove_finalizer(
    context: &mut ControllerContext<'_>,
    kind: &Arc<Kind>,
    mut value: Value,
    finalizer: &str,
) -> ApiResult<()> {
    if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != finalizer);
    }
    context.update(kind, value)
}
