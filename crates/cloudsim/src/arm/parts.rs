//! Parts of resources that are no resources of their own: rules of a security group, frontends of a load balancer.

use cloud::ResourceId;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::kind::{ArmResource, Change};
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::references::owner;
use super::resource_requests::respond_to_put;
use super::resources::{self, Written, known_kind, not_found, shown};
use super::store;
use crate::call_context::CallContext;
use crate::failure::Failure;

/// A part of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) collection: String,
    pub(crate) name: String,
}

/// The resource at an id, or the one that the id names a part of.
pub(crate) fn find_owner(
    cx: &CallContext<'_>,
    id: &ResourceId,
) -> Result<Option<(ArmResource, Option<Part>)>, Failure> {
    let Some(owner) = owner(id) else { return Ok(None) };
    let Some(found) = store::visible(cx, &owner)? else { return Ok(None) };
    let below = &id.as_str()[owner.as_str().len()..];
    let words: Vec<&str> = below.split('/').filter(|it| !it.is_empty()).collect();
    Ok(match words.as_slice() {
        [] => Some((found, None)),
        [collection, name] => {
            let part = Part { collection: (*collection).to_owned(), name: (*name).to_owned() };
            Some((found, Some(part)))
        }
        _ => None,
    })
}

/// The array of a collection in a body.
pub(crate) fn collection<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a Vec<Value>> {
    let properties = body.get("properties")?.as_object()?;
    properties.iter().find(|(it, _)| it.eq_ignore_ascii_case(name))?.1.as_array()
}

fn has_name(item: &Value, name: &str) -> bool {
    item.get("name").and_then(Value::as_str).is_some_and(|it| it.eq_ignore_ascii_case(name))
}

/// A request on a part: GET reads the shown resource, PUT and DELETE write the resource.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    owner: &ArmResource,
    part: &Option<Part>,
) -> Result<ArmResponse, Failure> {
    let Some(Part { collection: array, name }) = part else { return Err(method_not_allowed(request)) };
    let kind = known_kind(&owner.type_name)?;
    let missing = || not_found(&owner.id.child(array, name), &format!("{}/{array}", owner.type_name));
    let find = |body: &Map<String, Value>| {
        collection(body, array).and_then(|items| items.iter().find(|it| has_name(it, name)).cloned())
    };
    let present = find(&shown(cx, owner, None)?);
    match *request.method {
        Method::GET => present.map(ArmResponse::ok).ok_or_else(missing),
        Method::PUT | Method::DELETE => {
            let mut body = owner.body.clone();
            if find(&body).is_none() && *request.method == Method::DELETE {
                return Ok(ArmResponse::empty(StatusCode::NO_CONTENT));
            }
            let item = match *request.method {
                Method::PUT => {
                    let mut item = request.object()?;
                    item.insert("name".to_owned(), json!(name));
                    Some(Value::Object(item))
                }
                _ => None,
            };
            replace(&mut body, array, name, item);
            let written = resources::write(cx, kind, &owner.id, body)?;
            let is_new = present.is_none();
            let written = Written { is_new, ..written };
            let changed = store::find(cx.db, &owner.id.key())?.unwrap_or_else(|| owner.clone());
            let mut response = respond_to_put(cx, request, kind, written)?;
            match *request.method {
                Method::PUT => response.body = find(&shown(cx, &changed, None)?),
                _ => {
                    response.status = StatusCode::OK;
                    response.body = None;
                }
            }
            debug_assert!(changed.change != Change::Deleting, "a write does not delete");
            Ok(response)
        }
        _ => Err(method_not_allowed(request)),
    }
}

/// Replaces, adds or removes an element of `properties.{array}`.
fn replace(body: &mut Map<String, Value>, array: &str, name: &str, item: Option<Value>) {
    let properties = body.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return };
    let key = properties.keys().find(|it| it.eq_ignore_ascii_case(array)).cloned();
    let items = properties.entry(key.unwrap_or_else(|| array.to_owned())).or_insert_with(|| json!([]));
    let Value::Array(items) = items else { return };
    let at = items.iter().position(|it| has_name(it, name));
    match (at, item) {
        (Some(at), Some(item)) => items[at] = item,
        (Some(at), None) => drop(items.remove(at)),
        (None, Some(item)) => items.push(item),
        (None, None) => {}
    }
}
