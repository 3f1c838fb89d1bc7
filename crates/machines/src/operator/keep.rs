//! Keeps objects as the operator wants them.
//!
//! An object is compared with what is wanted: every field that is wanted must be there. What others added looks like the API
//! server's defaults that way. Each change of a spec raises the object's generation, though, so that the generation after the last write
//! of this process says whether somebody has changed anything since. Then the spec is written whole.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use controller::{FieldManager, Informer, Object, ObjectKey, Precondition, RequestError};
use serde::Serialize;
use serde_json::Value;

/// What an object was after the last write of this process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Written {
    uid: Option<String>,
    generation: Option<i64>,
    desired: Value,
}

impl Written {
    fn new(object: &Value, desired: &Value) -> Written {
        let metadata = |field: &str| object.get("metadata").and_then(|it| it.get(field));
        Written {
            uid: metadata("uid").and_then(Value::as_str).map(str::to_owned),
            generation: metadata("generation").and_then(Value::as_i64),
            desired: desired.clone(),
        }
    }
}

/// What is to be written of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NextWrite {
    /// Nothing: it is as wanted, or it is being deleted.
    None,
    /// It does not exist.
    Create,
    /// It becomes this.
    Change(Value),
}

/// Compares an object with what is wanted.
pub(crate) fn next_write(found: Option<&Value>, desired: &Value, written: Option<&Written>) -> NextWrite {
    let Some(found) = found else { return NextWrite::Create };
    if found.pointer("/metadata/deletionTimestamp").is_some() {
        return NextWrite::None;
    }
    let is_unchanged = written == Some(&Written::new(found, desired));
    if is_unchanged && contains(found, desired) {
        return NextWrite::None;
    }
    let mut changed = found.clone();
    for (field, wanted) in desired.as_object().into_iter().flatten() {
        match field.as_str() {
            "metadata" => {
                for part in ["labels", "annotations"] {
                    for (name, value) in wanted.get(part).and_then(Value::as_object).into_iter().flatten() {
                        changed["metadata"][part][name] = value.clone();
                    }
                }
            }
            "apiVersion" | "kind" | "status" => {}
            _ => changed[field] = wanted.clone(),
        }
    }
    NextWrite::Change(changed)
}

/// Whether everything that is wanted is there. Lists have the same items in the same order; an API server drops empty ones.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            name == "status"
                || match found.get(name) {
                    Some(found) => contains(found, wanted),
                    None => wanted.as_array().is_some_and(Vec::is_empty),
                }
        }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        _ => found == wanted,
    }
}

/// The objects of the operator.
#[derive(Debug)]
pub(crate) struct Keeper {
    manager: FieldManager,
    /// By kind.
    written: Mutex<BTreeMap<String, Written>>,
}

impl Keeper {
    pub(crate) fn new(manager: FieldManager) -> Keeper {
        Keeper { manager, written: Mutex::default() }
    }

    /// Creates or changes an object so that it is as wanted. There is one object of each kind.
    pub(crate) async fn keep<K>(&self, informer: &Informer<K>, desired: &K) -> Result<(), RequestError>
    where
        K: Object + Serialize + kube::Resource<DynamicType = ()>,
    {
        let (kind, key) = (K::kind(&()).into_owned(), ObjectKey::of(desired));
        let failed =
            |error| RequestError::new("serialize", format!("{kind} {key}"), kube::Error::SerdeError(error));
        let found = informer.get(&key);
        let found_json = found.as_deref().map(serde_json::to_value).transpose().map_err(failed)?;
        let desired_json = serde_json::to_value(desired).map_err(failed)?;
        let before = self.written.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned();
        let now: Option<Arc<K>> =
            match (next_write(found_json.as_ref(), &desired_json, before.as_ref()), found) {
                (NextWrite::Create, _) => {
                    tracing::info!("Creating {kind} {key}");
                    Some(self.manager.apply(informer, desired).await?)
                }
                (NextWrite::Change(changed), Some(found)) => {
                    let changed: K = serde_json::from_value(changed).map_err(failed)?;
                    let patched =
                        self.manager.patch(informer, &*found, &changed, Precondition::Unchanged).await?;
                    if patched.is_some() {
                        tracing::info!("Changed {kind} {key} to what this release wants");
                    }
                    Some(patched.unwrap_or(found))
                }
                (NextWrite::Change(_) | NextWrite::None, _) => None,
            };
        if let Some(now) = now {
            let now = serde_json::to_value(&*now).map_err(failed)?;
            let written = Written::new(&now, &desired_json);
            self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, written);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "labels": {"a": "b"}},
            "spec": {"replicas": 1, "list": [{"name": "x", "image": "i"}]}
        })
    }

    /// The object as an API server has it, with defaults.
    fn found() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "uid": "u", "generation": 3, "labels": {"a": "b", "of": "others"}},
            "spec": {"replicas": 1, "paused": false, "list": [{"name": "x", "image": "i", "policy": "Always"}]},
            "status": {"replicas": 1}
        })
    }

    #[test]
    fn what_was_written_and_not_changed_since_is_not_written() {
        let written = Written::new(&found(), &desired());
        assert_eq!(next_write(None, &desired(), None), NextWrite::Create);
        assert_eq!(next_write(Some(&found()), &desired(), Some(&written)), NextWrite::None);
        let mut deleted = found();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(next_write(Some(&deleted), &desired(), None), NextWrite::None);
    }

    #[test]
    fn every_edit_is_reverted_and_labels_of_others_stay() {
        let written = Written::new(&found(), &desired());
        let mut expect = found();
        expect["spec"] = desired()["spec"].clone();
        let check = |change: &dyn Fn(&mut Value)| {
            let mut edited = found();
            change(&mut edited);
            let NextWrite::Change(changed) = next_write(Some(&edited), &desired(), Some(&written)) else {
                panic!("{edited}")
            };
            assert_eq!(changed["spec"], expect["spec"]);
            assert_eq!(changed["metadata"]["labels"], expect["metadata"]["labels"]);
        };
        // An addition shows by the generation alone.
        check(&|it| {
            it["spec"]["extra"] = json!(true);
            it["metadata"]["generation"] = json!(4);
        });
        check(&|it| it["spec"]["replicas"] = json!(2));
        check(&|it| it["spec"]["list"] = json!([]));
        check(&|it| it["metadata"]["labels"] = json!({"of": "others"}));
        // Another object of the name, and a process that has not written yet.
        check(&|it| it["metadata"]["uid"] = json!("v"));
        assert!(matches!(next_write(Some(&found()), &desired(), None), NextWrite::Change(_)));
    }

    #[test]
    fn an_empty_list_is_as_good_as_none() {
        let mut desired = desired();
        desired["spec"]["volumes"] = json!([]);
        let written = Written::new(&found(), &desired);
        assert_eq!(next_write(Some(&found()), &desired, Some(&written)), NextWrite::None);
    }

    #[test]
    fn another_release_is_written() {
        let written = Written::new(&found(), &desired());
        let mut next = desired();
        next["spec"]["list"][0]["image"] = json!("j");
        assert!(matches!(next_write(Some(&found()), &next, Some(&written)), NextWrite::Change(_)));
    }
}
