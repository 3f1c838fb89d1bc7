//! Writes of a controller: under one field manager, and only when they change something.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::core::request::Error as BuildError;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::change::Object;
use crate::error::RequestError;
use crate::informer::Informer;

/// Whether a patch is refused if the object was changed since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The object is as it was read. For lists that others write too, since a merge patch replaces them whole.
    Unchanged,
    /// Whatever others changed meanwhile.
    None,
}

/// The name under which a controller writes. One per controller, so that two that share an object keep their own fields.
///
/// Writes go through the informer of the kind, whose cache knows them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldManager(&'static str);

impl FieldManager {
    /// A field manager of this name.
    pub const fn new(name: &'static str) -> FieldManager {
        FieldManager(name)
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.0
    }

    /// Creates an object in the namespace that it names.
    pub async fn create<K>(&self, informer: &Informer<K>, object: &K) -> Result<Arc<K>, RequestError>
    where
        K: Object + Serialize,
    {
        let params = PostParams { field_manager: Some(self.0.to_owned()), ..PostParams::default() };
        let body = to_json(informer, object)?.to_string().into_bytes();
        write(informer, "create", object, |request| request.create(&params, body)).await
    }

    /// Applies the fields that `object` has, by server-side apply. Fields of this manager that it lacks are removed; those that other
    /// managers own are taken over.
    pub async fn apply<K, A>(&self, informer: &Informer<K>, object: &A) -> Result<Arc<K>, RequestError>
    where
        K: Object,
        A: Resource + Serialize,
    {
        let (name, params) = (object.name_any(), PatchParams::apply(self.0).force());
        let patch = Patch::Apply(typed(informer, object)?);
        write(informer, "apply", object, |request| request.patch(&name, &params, &patch)).await
    }

    /// Applies the fields of the status that `object` has, as [`FieldManager::apply`] does.
    pub async fn apply_status<K, A>(&self, informer: &Informer<K>, object: &A) -> Result<Arc<K>, RequestError>
    where
        K: Object,
        A: Resource + Serialize,
    {
        let (name, params) = (object.name_any(), PatchParams::apply(self.0).force());
        let patch = Patch::Apply(typed(informer, object)?);
        let request = |request: Request| request.patch_subresource("status", &name, &params, &patch);
        write(informer, "apply the status of", object, request).await
    }

    /// Applies these conditions as this manager's part of the object's `status.conditions`; those of other managers stay. For kinds whose
    /// list is merged by type. Without a difference nothing is written, and `None` is returned.
    pub async fn apply_conditions<K, C>(
        &self,
        informer: &Informer<K>,
        read: &K,
        conditions: &[C],
    ) -> Result<Option<Arc<K>>, RequestError>
    where
        K: Object + Serialize,
        C: Serialize,
    {
        let failed =
            |error| RequestError::new("serialize", informer.describe(read), kube::Error::SerdeError(error));
        let wanted = serde_json::to_value(conditions).map_err(failed)?;
        let found = to_json(informer, read)?;
        let found = found.pointer("/status/conditions").and_then(Value::as_array);
        let is_found = |wanted: &Value| found.is_some_and(|found| found.contains(wanted));
        if wanted.as_array().is_none_or(|wanted| wanted.iter().all(is_found)) {
            return Ok(None);
        }
        let meta = read.meta();
        // With its uid the patch cannot create the object anew, nor reach a later one of the name.
        let patch = json!({
            "apiVersion": informer.api_version(),
            "kind": informer.kind(),
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"conditions": wanted},
        });
        let (name, params, patch) =
            (read.name_any(), PatchParams::apply(self.0).force(), Patch::Apply(patch));
        let request = |request: Request| request.patch_subresource("status", &name, &params, &patch);
        write(informer, "apply the conditions of", read, request).await.map(Some)
    }

    /// Patches what differs between the object as it was read and as it shall be, except the status. Without a difference nothing is
    /// written, and `None` is returned.
    pub async fn patch<K>(
        &self,
        informer: &Informer<K>,
        read: &K,
        wanted: &K,
        precondition: Precondition,
    ) -> Result<Option<Arc<K>>, RequestError>
    where
        K: Object + Serialize,
    {
        let (before, after) = (to_json(informer, read)?, to_json(informer, wanted)?);
        let difference = difference(&before, &after, Part::AllButStatus);
        let Some(patch) = with_precondition(difference, read, precondition) else { return Ok(None) };
        let (name, params, patch) = (read.name_any(), self.patch_params(), Patch::Merge(patch));
        write(informer, "patch", read, |request| request.patch(&name, &params, &patch)).await.map(Some)
    }

    /// Patches what differs between the status as it was read and as it shall be. Without a difference nothing is written, and `None` is
    /// returned.
    pub async fn patch_status<K>(
        &self,
        informer: &Informer<K>,
        read: &K,
        wanted: &K,
        precondition: Precondition,
    ) -> Result<Option<Arc<K>>, RequestError>
    where
        K: Object + Serialize,
    {
        let (before, after) = (to_json(informer, read)?, to_json(informer, wanted)?);
        let difference = difference(&before, &after, Part::Status);
        let Some(patch) = with_precondition(difference, read, precondition) else { return Ok(None) };
        let (name, params, patch) = (read.name_any(), self.patch_params(), Patch::Merge(patch));
        let request = |request: Request| request.patch_subresource("status", &name, &params, &patch);
        write(informer, "patch the status of", read, request).await.map(Some)
    }

    /// Deletes the object, if it is still the one that was read. That it is gone already, or that its name belongs to another object, is
    /// a success.
    pub async fn delete<K: Object>(&self, informer: &Informer<K>, object: &K) -> Result<(), RequestError> {
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let failed = |error| RequestError::new("delete", informer.describe(object), error);
        let request = Request::new(informer.url(object.meta().namespace.as_deref()));
        let request = request.delete(&object.name_any(), &params);
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        match informer.client().request_status::<K>(request).await {
            // Without finalizers and a grace period an object is gone at once; some kinds respond with what it was.
            Ok(response) => match response.left() {
                Some(left) if left.meta().deletion_timestamp.is_some() => drop(informer.remember(left)),
                _ => informer.forget(object),
            },
            // 409: the uid is another's.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => informer.forget(object),
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.0.to_owned()), ..PatchParams::default() }
    }
}

/// Sends a request for `object`, and remembers the object in the response.
async fn write<K: Object, A: Resource>(
    informer: &Informer<K>,
    verb: &'static str,
    object: &A,
    build: impl FnOnce(Request) -> Result<http::Request<Vec<u8>>, BuildError>,
) -> Result<Arc<K>, RequestError> {
    let failed = |error| RequestError::new(verb, informer.describe(object), error);
    let request = build(Request::new(informer.url(object.meta().namespace.as_deref())));
    let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    let written: K = informer.client().request(request).await.map_err(failed)?;
    Ok(informer.remember(written))
}

fn to_json<K: Object, A: Resource + Serialize>(
    informer: &Informer<K>,
    object: &A,
) -> Result<Value, RequestError> {
    let failed =
        |error| RequestError::new("serialize", informer.describe(object), kube::Error::SerdeError(error));
    serde_json::to_value(object).map_err(failed)
}

/// The object with apiVersion and kind, which a server-side apply needs.
fn typed<K: Object, A: Resource + Serialize>(
    informer: &Informer<K>,
    object: &A,
) -> Result<Value, RequestError> {
    let mut value = to_json(informer, object)?;
    value["apiVersion"] = informer.api_version().into();
    value["kind"] = informer.kind().into();
    Ok(value)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Status,
    AllButStatus,
}

/// The merge patch that turns one object into another.
fn difference(before: &Value, after: &Value, part: Part) -> Map<String, Value> {
    let fields = |object: &Value| -> Map<String, Value> {
        let fields = object.as_object().into_iter().flatten();
        let is_meant = |name: &str| (name == "status") == (part == Part::Status);
        fields.filter(|(name, _)| is_meant(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    merge_patch(&fields(before), &fields(after))
}

/// A JSON merge patch (RFC 7396) of the fields that differ.
fn merge_patch(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, wanted) in to {
        match (from.get(name), wanted) {
            (Some(found), wanted) if found == wanted => {}
            (Some(Value::Object(found)), Value::Object(wanted)) => {
                patch.insert(name.clone(), Value::Object(merge_patch(found, wanted)));
            }
            (_, wanted) => {
                patch.insert(name.clone(), wanted.clone());
            }
        }
    }
    patch
}

fn with_precondition<K: Resource>(
    mut difference: Map<String, Value>,
    read: &K,
    precondition: Precondition,
) -> Option<Value> {
    if difference.is_empty() {
        return None;
    }
    if precondition == Precondition::Unchanged {
        let metadata = difference.entry("metadata").or_insert_with(|| json!({}));
        metadata["resourceVersion"] = json!(read.meta().resource_version);
    }
    Some(Value::Object(difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_has_what_differs_and_nothing_else() {
        let check = |from: Value, to: Value, expect: Value| {
            let (from, to) = (from.as_object().unwrap().clone(), to.as_object().unwrap().clone());
            assert_eq!(Value::Object(merge_patch(&from, &to)), expect);
        };
        check(json!({"a": 1}), json!({"a": 1}), json!({}));
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"b": null}));
        check(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1, "c": 3}}), json!({"a": {"c": 3}}));
        check(json!({"a": [1, 2]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!({"a": {"b": 1}}), json!({"a": "text"}), json!({"a": "text"}));
        check(json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}}));
    }

    #[test]
    fn status_and_the_rest_are_patched_apart() {
        let before = json!({"metadata": {"labels": {}}, "spec": {"x": 1}, "status": {"phase": "Running"}});
        let after =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}, "status": {"phase": "Failed"}});
        let patch = |part| Value::Object(difference(&before, &after, part));
        assert_eq!(patch(Part::Status), json!({"status": {"phase": "Failed"}}));
        assert_eq!(patch(Part::AllButStatus), json!({"metadata": {"labels": {"a": "b"}}}));
    }
}
