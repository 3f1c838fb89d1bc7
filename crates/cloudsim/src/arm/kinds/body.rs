//! Access to the members of resources' bodies, and values that many kinds have in common.

use cloud::ResourceId;
use serde_json::{Map, Value, json};

use crate::arm::{ArmError, ArmResource};
use crate::call_context::CallContext;
use crate::failure::Failure;

pub(super) type Body = Map<String, Value>;

/// The object `properties`, made when it is missing.
pub(super) fn properties(body: &mut Body) -> &mut Body {
    object(body, "properties")
}

/// An object member, made when it is missing or null.
pub(super) fn object<'a>(body: &'a mut Body, name: &str) -> &'a mut Body {
    let member = body.entry(name).or_insert_with(|| json!({}));
    if !member.is_object() {
        *member = json!({});
    }
    match member {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object"),
    }
}

/// A member that gets a value when the request left it out.
pub(super) fn default(object: &mut Body, name: &str, value: Value) {
    let missing = object.get(name).is_none_or(Value::is_null);
    if missing {
        object.insert(name.to_owned(), value);
    }
}

/// The items of an array member.
pub(super) fn items<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// The items of an array in the properties of a body.
pub(super) fn parts<'a>(body: &'a Body, name: &str) -> impl Iterator<Item = &'a Value> {
    body.get("properties").into_iter().flat_map(move |properties| items(properties, name))
}

/// The id in a reference `{"id": …}`.
pub(super) fn reference(value: Option<&Value>) -> Option<ResourceId> {
    value?.get("id")?.as_str()?.parse().ok()
}

/// The text of a member.
pub(super) fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

/// Whether two texts are equal without regard to case.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Takes assigned members of `properties` from the resource that is there; a request does not change them.
pub(super) fn keep(before: Option<&ArmResource>, body: &mut Body, names: &[&str]) {
    for name in names {
        properties(body).remove(*name);
        if let Some(value) = before.and_then(|it| it.property(name)) {
            properties(body).insert((*name).to_owned(), value.clone());
        }
    }
}

/// Takes a private member from the resource that is there. Private members start with `$` and are never shown.
pub(super) fn keep_private(before: Option<&ArmResource>, body: &mut Body) {
    body.retain(|name, _| !name.starts_with('$'));
    if let Some(before) = before {
        let private = before.body.iter().filter(|(name, _)| name.starts_with('$'));
        body.extend(private.map(|(name, value)| (name.clone(), value.clone())));
    }
}

/// Removes the private members.
pub(super) fn hide_private(body: &mut Body) {
    body.retain(|name, _| !name.starts_with('$'));
}

/// A child as it is shown inside its parent.
pub(super) fn embedded(cx: &CallContext<'_>, resource: &ArmResource, mut body: Body) -> Value {
    hide_private(&mut body);
    default(properties(&mut body), "provisioningState", json!(resource.provisioning_state(cx.now)));
    body.insert("id".to_owned(), json!(resource.id));
    body.insert("name".to_owned(), json!(resource.id.name()));
    body.insert("type".to_owned(), json!(resource.type_name));
    body.insert("etag".to_owned(), json!(resource.etag(cx.seed)));
    Value::Object(body)
}

/// The error for a member that is missing or has an unusable value.
pub(super) fn invalid(code: &str, message: impl Into<String>) -> Failure {
    ArmError::bad_request(code, message).into()
}

/// The error of a reference to something that is not there.
pub(super) fn missing_reference(used: &ResourceId, user: impl std::fmt::Display) -> Failure {
    let message = format!(
        "Resource {used} referenced by resource {user} was not found. Please make sure that the referenced resource exists, and \
         that both resources are in the same region."
    );
    invalid("InvalidResourceReference", message)
}

/// The error for a missing member.
pub(super) fn required(member: &str, id: &ResourceId) -> Failure {
    let message = format!("Required parameter {member} of {id} is missing.");
    Failure::from(ArmError::bad_request("InvalidParameter", message).with_target(member))
}
