//! Tags at a scope: `{scope}/providers/Microsoft.Resources/tags/default`, for resources, groups and subscriptions.

use cloud::ResourceId;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::error::ArmError;
use super::kind::{find_kind, type_of};
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::resources::{check_tags, group_not_found, not_found, replace_body};
use super::{locks, store};
use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;

/// The tags of subscriptions, which are no resources.
const SUBSCRIPTION_TAGS: &str = "subscription-tags";

/// A request on the tags of a scope.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
) -> Result<ArmResponse, Failure> {
    let present = read(cx, scope)?;
    let tags = match *request.method {
        Method::GET => present,
        Method::PUT => write(cx, scope, sent(request)?.1)?,
        Method::PATCH => {
            let (operation, tags) = sent(request)?;
            write(cx, scope, changed(present, &operation, tags)?)?
        }
        Method::DELETE => {
            write(cx, scope, Map::new())?;
            return Ok(ArmResponse::empty(StatusCode::OK));
        }
        _ => return Err(method_not_allowed(request)),
    };
    Ok(ArmResponse::ok(json!({
        "id": format!("{scope}/providers/Microsoft.Resources/tags/default"),
        "name": "default",
        "type": "Microsoft.Resources/tags",
        "properties": { "tags": tags },
    })))
}

/// The operation and the tags of a body.
fn sent(request: &ArmRequest<'_>) -> Result<(String, Map<String, Value>), Failure> {
    let body = request.object()?;
    let operation = body.get("operation").and_then(Value::as_str).unwrap_or_default().to_owned();
    let tags = body.get("properties").and_then(|it| it.get("tags")?.as_object()).cloned();
    Ok((operation, tags.unwrap_or_default()))
}

/// The tags after a PATCH. A deletion removes a tag only if its value is the one that was sent.
fn changed(
    mut present: Map<String, Value>,
    operation: &str,
    tags: Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    match operation.to_lowercase().as_str() {
        "replace" => return Ok(tags),
        "merge" => present.extend(tags),
        "delete" => present.retain(|name, value| tags.get(name) != Some(value)),
        _ => {
            let message = format!("The operation '{operation}' is none of Merge, Replace and Delete.");
            return Err(ArmError::bad_request("InvalidTagOperation", message).into());
        }
    }
    Ok(present)
}

/// The resource or group of a scope; `None` for a subscription.
fn resource_of(cx: &CallContext<'_>, scope: &str) -> Result<Option<super::ArmResource>, Failure> {
    let Ok(id) = scope.parse::<ResourceId>() else { return Ok(None) };
    match store::visible(cx, &id)? {
        Some(found) => Ok(Some(found)),
        None if id == store::group_of(&id) => Err(group_not_found(&id)),
        None => {
            let type_name = type_of(&id).unwrap_or_default();
            Err(not_found(&id, find_kind(&type_name).map_or(&type_name, |it| it.type_name)))
        }
    }
}

fn read(cx: &CallContext<'_>, scope: &str) -> Result<Map<String, Value>, Failure> {
    let tags = match resource_of(cx, scope)? {
        Some(resource) => resource.body.get("tags").and_then(Value::as_object).cloned(),
        None => database::record(cx.db, SUBSCRIPTION_TAGS, &scope.to_lowercase())?,
    };
    Ok(tags.unwrap_or_default())
}

fn write(cx: &CallContext<'_>, scope: &str, tags: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    locks::check_write(cx, scope)?;
    check_tags(Some(&Value::Object(tags.clone())))?;
    match resource_of(cx, scope)? {
        Some(resource) => {
            let mut body = resource.body.clone();
            body.insert("tags".to_owned(), Value::Object(tags.clone()));
            replace_body(cx, &resource, body)?;
        }
        None => database::write(cx.db, SUBSCRIPTION_TAGS, &scope.to_lowercase(), &tags)?,
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_patch_merges_replaces_or_deletes_tags() {
        let present = || object(json!({ "a": "1", "b": "2" }));
        let check = |operation: &str, sent: Value, expected: Value| {
            let tags = changed(present(), operation, object(sent)).unwrap();
            assert_eq!(Value::Object(tags), expected, "{operation}");
        };
        check("Merge", json!({ "b": "3", "c": "4" }), json!({ "a": "1", "b": "3", "c": "4" }));
        check("Replace", json!({ "c": "4" }), json!({ "c": "4" }));
        check("delete", json!({ "a": "1", "b": "other" }), json!({ "b": "2" }));
        assert!(changed(present(), "Increase", Map::new()).is_err());
    }
}
