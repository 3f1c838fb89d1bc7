//! Server-side apply: ownership of fields, and merging of what several managers write.
//!
//! The rules are those of the real server (structured-merge-diff): each manager has a set of fields per API version
//! in `metadata.managedFields`. An apply takes the fields of its configuration, releases those that it no longer
//! contains, and conflicts with other managers over values that it would change.

#[cfg(test)]
mod agreement;
mod error;
mod managed;
mod set;
#[cfg(test)]
mod tests;
mod times;
mod typed;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use managed::{FieldManager, ManagedFields, ManagerEntry};
use serde_json::Value;
use set::FieldSet;
use times::keep_times;
use typed::{Comparison, SchemaTypes};

pub use error::{ApplyError, Conflict};

use crate::schema::{Origin, Schema};

/// The annotation in which `kubectl apply` without `--server-side` stores the last applied configuration.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager of fields that existed before ownership was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Limit on the size of all annotations of an object; an annotation that would exceed it is left out.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Applies `config` as `manager` to an object and updates `managedFields`.
///
/// `live` is `None` when the object is created. The result is neither pruned nor defaulted nor validated; it equals
/// the live object if nothing changes.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    force: bool,
    subresource: Option<&str>,
    schema: Option<&Schema>,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let fields = FieldTracker { typed: SchemaTypes { schema }, subresource, now };
    let mut plain = live.cloned().unwrap_or_else(|| fields.empty(config));
    let managed = ManagedFields::parse(&plain)
        .map_err(|text| ApplyError::Internal(format!("failed to decode managed fields: {text}")))?;
    remove_managed_fields(&mut plain);
    let outcome = fields.apply(&plain, config, managed.clone(), manager, force);
    let (merged, managed) = match outcome {
        Err(MergeError::Conflicts(conflicts)) if manager == "kubectl" => {
            // kubectl may take over fields that it applied client-side and that nobody has changed since.
            let left = fields.without_last_applied(&plain, conflicts);
            match left.is_empty() {
                true => fields.apply(&plain, config, managed, manager, true)?,
                false => return Err(conflict_error(left)),
            }
        }
        other => other?,
    };
    let mut result = merged;
    if manager == "kubectl" && annotation(&result).is_some_and(|text| !text.is_empty()) {
        update_last_applied(&mut result, config);
    }
    managed.write(&mut result);
    if let Some(live) = live {
        keep_times(live, &mut result);
    }
    Ok(result)
}

/// Updates `managedFields` in an object that `manager` created, replaced or patched.
///
/// `after` is the object as it will be stored, pruned and defaulted, but without what admission adds: admission owns
/// no fields. `before` is the previous object, `None` on creation.
pub fn track_update(
    before: Option<&Value>,
    after: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    schema: Option<&Schema>,
    now: Timestamp,
) {
    let fields = FieldTracker { typed: SchemaTypes { schema }, subresource, now };
    let empty = before.is_none().then(|| fields.empty(after));
    let existing = before.or(empty.as_ref()).unwrap_or(&Value::Null);
    let existing_fields = || ManagedFields::parse(existing).unwrap_or_default();
    // A write to a subresource cannot edit `managedFields`.
    let mut managed = if subresource.is_some() {
        existing_fields()
    } else if managed::is_reset(after) {
        ManagedFields::default()
    } else {
        ManagedFields::parse(after)
            .ok()
            .filter(|managed| !managed.managers.is_empty())
            .unwrap_or_else(existing_fields)
    };
    // Those of the existing object may stay: nobody owns them, so a difference in them has no effect.
    remove_managed_fields(after);
    // An object that was stored without owners gets none by updates.
    if managed.managers.is_empty() && before.is_some() {
        return;
    }
    fields.update(existing, after, &mut managed, manager);
    managed.cap();
    managed.write(after);
    if let Some(before) = before {
        keep_times(before, after);
    }
}

/// The schema, subresource and time of one request.
struct FieldTracker<'a> {
    typed: SchemaTypes<'a>,
    subresource: Option<&'a str>,
    now: Timestamp,
}

enum MergeError {
    Conflicts(Vec<(FieldManager, Vec<String>)>),
    Internal(String),
}

impl From<MergeError> for ApplyError {
    fn from(error: MergeError) -> ApplyError {
        match error {
            MergeError::Conflicts(conflicts) => conflict_error(conflicts),
            MergeError::Internal(text) => ApplyError::Internal(text),
        }
    }
}

impl FieldTracker<'_> {
    /// An empty object of the kind, with the zero values of its Go type.
    fn empty(&self, object: &Value) -> Value {
        let words = ["apiVersion", "kind"].into_iter();
        let words = words.filter_map(|name| Some((name.to_owned(), object.get(name)?.clone())));
        let mut empty = Value::Object(words.collect());
        if let Some(schema) = self.typed.schema {
            schema.fill_zero(&mut empty);
        }
        empty
    }

    fn apply(
        &self,
        live: &Value,
        config: &Value,
        mut managed: ManagedFields,
        manager: &str,
        force: bool,
    ) -> Result<(Value, ManagedFields), MergeError> {
        let failed = |what: &str, object: &Value, text: String| {
            MergeError::Internal(format!(
                "failed to create typed {what} object ({}): {text}",
                object_name(object)
            ))
        };
        if managed.managers.is_empty() {
            let empty = self.empty(live);
            self.update(&empty, live, &mut managed, BEFORE_FIRST_APPLY);
        }
        self.typed.check(config, false).map_err(|text| failed("patch", config, text))?;
        self.typed.check(live, true).map_err(|text| failed("live", live, text))?;
        let version = text(config, "apiVersion");
        let merged = self
            .typed
            .merge(live, config)
            .map_err(|text| MergeError::Internal(format!("failed to merge config: {text}")))?;
        let applier = FieldManager::applier(manager, self.subresource);
        let last = managed.managers.remove(&applier);
        let owned = self.typed.fields(config).without_trees(&self.reset_fields());
        let time = last.as_ref().and_then(|last| last.time.clone());
        let merged = match last {
            // A manager that still applies all its previous fields removes none.
            Some(last) if !last.fields().is_within(&owned) => {
                managed.managers.insert(applier.clone(), ManagerEntry::new(version, owned, time));
                self.prune(&merged, &managed, last.fields())
            }
            _ => {
                managed.managers.insert(applier.clone(), ManagerEntry::new(version, owned, time));
                merged
            }
        };
        self.take_over(live, &merged, &mut managed, Some(&applier), force)?;
        strip(&mut managed, &applier);
        if merged == *live {
            return Ok((live.clone(), managed));
        }
        if let Some(owned) = managed.managers.get_mut(&applier) {
            owned.time = Some(managed::format_time(self.now));
        }
        Ok((merged, managed))
    }

    fn update(&self, before: &Value, after: &Value, managed: &mut ManagedFields, manager: &str) {
        let Ok(comparison) = self.take_over(before, after, managed, None, true) else { return };
        let changed = comparison.modified.union(&comparison.added).without_trees(&self.reset_fields());
        let changed = changed.difference(stripped());
        if changed.is_empty() {
            return;
        }
        let version = text(after, "apiVersion");
        let updater = FieldManager::updater(manager, version, self.subresource);
        let fields = match managed.managers.get(&updater) {
            Some(earlier) => earlier.fields().union(&changed),
            None => changed,
        };
        managed
            .managers
            .insert(updater, ManagerEntry::new(version, fields, Some(managed::format_time(self.now))));
    }

    /// Removes changed and deleted fields from all managers except one, unless that is a conflict.
    fn take_over(
        &self,
        before: &Value,
        after: &Value,
        managed: &mut ManagedFields,
        except: Option<&FieldManager>,
        force: bool,
    ) -> Result<Comparison, MergeError> {
        let reset = self.reset_fields();
        let found = self.typed.compare(before, after);
        let comparison = Comparison {
            removed: found.removed.without_trees(&reset),
            modified: found.modified.without_trees(&reset),
            added: found.added.without_trees(&reset),
        };
        let changed = comparison.modified.union(&comparison.added);
        let mut conflicts = BTreeMap::new();
        for (manager, owned) in managed.managers.iter().filter(|(manager, _)| Some(*manager) != except) {
            if owned.fields().intersects(&changed) {
                conflicts.insert(manager.clone(), owned.fields().intersection(&changed));
            }
        }
        if !force && !conflicts.is_empty() {
            let each = |(manager, shared): (FieldManager, FieldSet)| {
                shared.paths().into_iter().map(move |path| (manager.clone(), path)).collect::<Vec<_>>()
            };
            return Err(MergeError::Conflicts(conflicts.into_iter().flat_map(each).collect()));
        }
        for (manager, owned) in managed.managers.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            if let Some(shared) = conflicts.get(manager) {
                owned.set_fields(owned.fields().difference(shared));
            }
            if owned.fields().intersects(&comparison.removed) {
                owned.set_fields(owned.fields().difference(&comparison.removed));
            }
        }
        managed.managers.retain(|_, owned| !owned.fields().is_empty());
        Ok(comparison)
    }

    /// Removes fields that the applier owned before, no longer applies, and that nobody else owns.
    fn prune(&self, merged: &Value, managed: &ManagedFields, last: &FieldSet) -> Value {
        let typed = &self.typed;
        let last = typed.with_named(last);
        let pruned = typed.remove(merged, &last);
        let owned =
            managed.managers.values().fold(FieldSet::default(), |all, owned| all.union(owned.fields()));
        let all = typed.with_named(&typed.fields(merged));
        let left = typed.with_named(&typed.fields(&pruned));
        let pruned = typed.remove(merged, &all.difference(&left.union(&typed.with_named(&owned))));
        let left = typed.with_named(&typed.fields(&pruned));
        typed.remove(merged, &all.difference(&left).intersection(&last))
    }

    /// Fields that a request to this resource cannot change and therefore does not own.
    fn reset_fields(&self) -> FieldSet {
        let Some(schema) = self.typed.schema else { return FieldSet::default() };
        match (self.subresource, schema.origin) {
            (Some("status"), Origin::Crd) => {
                FieldSet::from_path(&["metadata"]).union(&FieldSet::from_path(&["spec"]))
            }
            (Some("status"), Origin::BuiltIn) => FieldSet::from_path(&["spec"]),
            (None, _) if schema.resets_status() => FieldSet::from_path(&["status"]),
            _ => FieldSet::default(),
        }
    }

    /// The conflicts without those over fields that still have the value which kubectl applied client-side.
    fn without_last_applied(
        &self,
        live: &Value,
        conflicts: Vec<(FieldManager, Vec<String>)>,
    ) -> Vec<(FieldManager, Vec<String>)> {
        let last = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(last) = last.filter(|last| last.get("apiVersion") == live.get("apiVersion")) else {
            return conflicts;
        };
        if self.typed.check(&last, false).is_err() {
            return conflicts;
        }
        let comparison = self.typed.compare(&last, live);
        let allowed = self.typed.fields(&last);
        let allowed = allowed.difference(&comparison.modified).difference(&comparison.added);
        let allowed = allowed.difference(&comparison.removed);
        conflicts.into_iter().filter(|(_, path)| !allowed.has_path(path)).collect()
    }
}

/// Fields that every object has and nobody owns.
fn stripped() -> &'static FieldSet {
    static STRIPPED: OnceLock<FieldSet> = OnceLock::new();
    const IN_METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    STRIPPED.get_or_init(|| {
        let whole = ["apiVersion", "kind", "metadata"].map(|name| FieldSet::from_path(&[name]));
        let inner = IN_METADATA.map(|name| FieldSet::from_path(&["metadata", name]));
        whole.iter().chain(&inner).fold(FieldSet::default(), |all, one| all.union(one))
    })
}

fn strip(managed: &mut ManagedFields, manager: &FieldManager) {
    if let Some(owned) = managed.managers.get_mut(manager) {
        owned.set_fields(owned.fields().difference(stripped()));
        if owned.fields().is_empty() {
            managed.managers.remove(manager);
        }
    }
}

fn conflict_error(conflicts: Vec<(FieldManager, Vec<String>)>) -> ApplyError {
    let one = |(manager, path): (FieldManager, Vec<String>)| Conflict {
        message: format!("conflict with {}", manager.printed()),
        field: set::printed(&path),
    };
    ApplyError::Conflict(conflicts.into_iter().map(one).collect())
}

/// An object as the real server names it in errors: `default/web; apps/v1, Kind=Deployment`.
fn object_name(object: &Value) -> String {
    let meta =
        |name: &str| object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text(object, "apiVersion"), text(object, "kind"));
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    format!("{}/{}; {version}, Kind={kind}", meta("namespace"), meta("name"))
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()
}

/// Updates the annotation of client-side apply, so that a user can go back to client-side apply.
fn update_last_applied(object: &mut Value, config: &Value) {
    let mut applied = config.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(format!("{applied}\n")));
    let size: usize =
        annotations.iter().map(|(name, text)| name.len() + text.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATION_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
