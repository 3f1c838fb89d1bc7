//! Garbage collection: what lost its owners goes, owners wait for their dependents, or let them go.

use std::sync::Arc;

use serde_json::Value;

use super::desk::Desk;
use crate::fields;
use crate::kinds::Kind;
use crate::objects::{Place, key_of};
use crate::state::State;
use crate::status::Outcome;
use crate::verbs::{FOREGROUND, ORPHAN, Propagation};

/// Whether an object waits for something that happens to its dependents.
pub(super) fn waits(value: &Value) -> bool {
    !value["metadata"]["deletionTimestamp"].is_null() && (has(value, FOREGROUND) || has(value, ORPHAN))
}

fn has(value: &Value, finalizer: &str) -> bool {
    value["metadata"]["finalizers"].as_array().into_iter().flatten().any(|one| one == finalizer)
}

pub(super) fn reconcile(desk: &mut Desk<'_>, table: &str, key: &str) -> Outcome<()> {
    let Some(kind) = desk.state.kinds.of_table(table).cloned() else { return Ok(()) };
    let Some(value) = desk.read(&kind, key) else { return Ok(()) };
    if !value["metadata"]["deletionTimestamp"].is_null() {
        if has(&value, ORPHAN) {
            return let_dependents_go(desk, &kind, value);
        }
        if has(&value, FOREGROUND) {
            return delete_dependents(desk, &kind, value);
        }
        return Ok(());
    }
    check_owners(desk, &kind, key, value)
}

/// The kind and place of an owner, whether it exists or not.
fn place_of(state: &State, namespace: &str, owner: &Value) -> Option<(Arc<Kind>, String)> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = state.kinds.of_kind(group, text("kind"))?.clone();
    let key = key_of(if kind.is_namespaced() { namespace } else { "" }, text("name"));
    Some((kind, key))
}

/// The owners of an object that exist.
pub(super) fn owners_of(state: &State, value: &Value) -> Vec<Place> {
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default();
    let owners = value["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .filter_map(|owner| {
            let (kind, key) = place_of(state, namespace, owner)?;
            let found = state.objects.get(kind.table(), &key)?;
            (owner["uid"] == **found.uid()).then(|| (kind.table().clone(), key.into()))
        })
        .collect()
}

/// What has become of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    There,
    Waiting,
    Gone,
}

fn check_owners(desk: &mut Desk<'_>, kind: &Arc<Kind>, key: &str, mut value: Value) -> Outcome<()> {
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let Some(owners) = value["metadata"]["ownerReferences"].as_array().cloned() else { return Ok(()) };
    let found: Vec<Owner> = owners
        .iter()
        .map(|owner| {
            // An owner of a kind that is not known here may exist elsewhere: nothing is lost by keeping its dependents.
            let Some((kind, key)) = place_of(&desk.state, &namespace, owner) else { return Owner::There };
            match desk.read(&kind, &key) {
                Some(found) if found["metadata"]["uid"] == owner["uid"] => {
                    if waits(&found) && has(&found, FOREGROUND) { Owner::Waiting } else { Owner::There }
                }
                _ => Owner::Gone,
            }
        })
        .collect();
    if found.contains(&Owner::There) {
        if found.contains(&Owner::Gone) {
            let keep = owners.into_iter().zip(&found).filter(|(_, state)| **state != Owner::Gone);
            fields::set(&mut value, &["metadata", "ownerReferences"], keep.map(|(owner, _)| owner).collect());
            return desk.update(kind, value);
        }
        return Ok(());
    }
    let has_dependents =
        !desk.state.objects.dependents(value["metadata"]["uid"].as_str().unwrap_or_default()).is_empty();
    if found.contains(&Owner::Waiting) && has_dependents {
        return desk.delete(kind, key, Propagation::Foreground);
    }
    desk.delete(kind, key, Propagation::Background)
}

fn dependents(desk: &Desk<'_>, uid: &str) -> Vec<(Arc<Kind>, Arc<str>, Value)> {
    let places = desk.state.objects.dependents(uid);
    places
        .into_iter()
        .filter_map(|(table, key)| {
            let kind = desk.state.kinds.of_table(&table)?.clone();
            let value = desk.read(&kind, &key)?;
            Some((kind, key, value))
        })
        .collect()
}

fn let_dependents_go(desk: &mut Desk<'_>, kind: &Arc<Kind>, value: Value) -> Outcome<()> {
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    for (kind, _, mut dependent) in dependents(desk, &uid) {
        if let Some(owners) = dependent["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid.as_str());
        }
        desk.update(&kind, dependent)?;
    }
    without(desk, kind, value, ORPHAN)
}

fn delete_dependents(desk: &mut Desk<'_>, kind: &Arc<Kind>, value: Value) -> Outcome<()> {
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut blocked = false;
    for (kind, key, dependent) in dependents(desk, &uid) {
        if dependent["metadata"]["deletionTimestamp"].is_null() {
            // Another owner that exists keeps it.
            let others = owners_of(&desk.state, &dependent).len() > 1;
            if others {
                continue;
            }
            let own = !desk
                .state
                .objects
                .dependents(dependent["metadata"]["uid"].as_str().unwrap_or_default())
                .is_empty();
            desk.delete(&kind, &key, if own { Propagation::Foreground } else { Propagation::Background })?;
        }
        let still = desk.state.objects.get(kind.table(), &key).is_some();
        let blocks = dependent["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|owner| owner["uid"] == uid.as_str() && owner["blockOwnerDeletion"] == true);
        blocked |= still && blocks;
    }
    if blocked { Ok(()) } else { without(desk, kind, value, FOREGROUND) }
}

/// Takes a finalizer away, which may let the object go.
fn without(desk: &mut Desk<'_>, kind: &Arc<Kind>, mut value: Value, finalizer: &str) -> Outcome<()> {
    if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != finalizer);
    }
    desk.update(kind, value)
}
