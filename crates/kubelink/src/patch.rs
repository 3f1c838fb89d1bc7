//! Patches an existing object: by merge, strategic merge or JSON patch, of itself or of a subresource.
//!
//! Whole objects are applied (see [`crate::apply`]); a patch is for a field of someone else's object.

use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, Request};
use kube::{Resource, ResourceExt};
use serde_json::Value;

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};
use crate::target::Target;

/// A patch by type.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// JSON merge patch: fields replace, `null` removes.
    Merge(Value),
    /// Kubernetes' strategic merge, which merges lists by their keys; not for custom resources.
    Strategic(Value),
    /// JSON patch: a list of operations.
    Json(Value),
}

/// Patches `target`, or its `subresource` (`status`, `scale`, ...), and returns whether that changed it.
///
/// Merges are safe to repeat; a JSON patch is if its operations are (`test` first, or `add` and `replace` only).
pub async fn patch(
    link: &Link,
    target: &Target,
    change: &Change,
    subresource: Option<&str>,
) -> Result<bool, LinkError> {
    let request_error = |error: Box<dyn std::error::Error + Send + Sync>| {
        link.error("patch", target, Failure::Request(error))
    };
    let change = match change {
        Change::Merge(value) => Patch::Merge(value.clone()),
        Change::Strategic(value) => Patch::Strategic(value.clone()),
        Change::Json(value) => match serde_json::from_value(value.clone()) {
            Ok(operations) => Patch::Json(operations),
            // The message of the parser quotes its input.
            Err(_) => {
                let why = "it is not a JSON patch: a list of operations with op, path and value".to_owned();
                return Err(link.error("patch", target, Failure::Precondition { why }));
            }
        },
    };
    let before = link.get(target).await?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = Request::new(DynamicObject::url_path(&target.resource, target.namespace.as_deref()));
    let request = match subresource {
        Some(subresource) => request.patch_subresource(subresource, &target.name, &params, &change),
        None => request.patch(&target.name, &params, &change),
    };
    let request = request.map_err(|error| request_error(Box::new(error)))?;
    // The response is the object, or for some subresources a view of it (a Scale), with the object's version.
    let after: DynamicObject =
        link.client().request(request).await.map_err(|error| link.failed("patch", target, error))?;
    Ok(before.and_then(|before| before.resource_version()) != after.resource_version())
}
