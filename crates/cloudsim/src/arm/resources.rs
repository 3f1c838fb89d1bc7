//! Resources: what a PUT, PATCH and DELETE do to the store, and how a resource is shown. Responses are made in `resource_requests`.

use std::time::Duration;

use cloud::{ResourceFailure, ResourceId};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::deployments::DEPLOYMENT_TYPE;
use super::error::ArmError;
use super::kind::{ArmResource, Change, Kind, find_kind};
use super::references::owner;
use super::store::{self, group_of};
use super::{assignments, locks, policies};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::sizes;

/// Members that only the resource manager writes.
const OWN_MEMBERS: [&str; 5] = ["id", "name", "type", "etag", "systemData"];

const IDENTITY_TYPE: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";

/// The result of a PUT.
pub(crate) struct Written {
    pub(crate) resource: ArmResource,
    pub(crate) is_new: bool,
    /// Whether the PUT changed anything.
    pub(crate) is_changed: bool,
}

/// A resource as callers see it.
pub(crate) fn shown(
    cx: &CallContext<'_>,
    resource: &ArmResource,
    expand: Option<&str>,
) -> Result<Map<String, Value>, Failure> {
    let kind = find_kind(&resource.type_name);
    let mut body = Map::new();
    body.insert("id".to_owned(), json!(resource.id));
    body.insert("name".to_owned(), json!(resource.id.name()));
    body.insert("type".to_owned(), json!(resource.type_name));
    if kind.is_some_and(|it| it.has_etag) {
        body.insert("etag".to_owned(), json!(resource.etag(cx.seed)));
    }
    for (name, value) in &resource.body {
        body.insert(name.clone(), value.clone());
    }
    if let Some(kind) = kind {
        kind.behaviour.show(cx, resource, expand, &mut body)?;
    }
    let properties = body.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert("provisioningState".to_owned(), json!(resource.provisioning_state(cx.now)));
    }
    Ok(body)
}

/// The error for a resource that does not exist.
pub(crate) fn not_found(id: &ResourceId, type_name: &str) -> Failure {
    if type_name.eq_ignore_ascii_case(DEPLOYMENT_TYPE) {
        let message = format!("Deployment '{}' could not be found.", id.name());
        return ArmError::not_found("DeploymentNotFound", message).into();
    }
    let message = format!(
        "The Resource '{type_name}/{}' under resource group '{}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        id.name(),
        id.resource_group()
    );
    ArmError::not_found("ResourceNotFound", message).into()
}

/// The error for a group that does not exist.
pub(crate) fn group_not_found(group: &ResourceId) -> Failure {
    let message = format!("Resource group '{}' could not be found.", group.resource_group());
    ArmError::not_found("ResourceGroupNotFound", message).into()
}

/// Requires that a group exists and is not being deleted.
pub(crate) fn check_group(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let group = group_of(id);
    let found = store::visible(cx, &group)?.ok_or_else(|| group_not_found(&group))?;
    if found.change == Change::Deleting {
        let message = format!(
            "The resource group '{}' is in deprovisioning state and cannot perform this operation.",
            group.resource_group()
        );
        return Err(ArmError::conflict("ResourceGroupBeingDeleted", message).into());
    }
    Ok(())
}

/// Requires the resource of a known kind that is next above.
fn check_parent(cx: &CallContext<'_>, id: &ResourceId, type_name: &str) -> Result<(), Failure> {
    let Some(parent) = id.parent().and_then(|it| owner(&it)) else { return Ok(()) };
    match store::find(cx.db, &parent.key())? {
        Some(found) if found.change != Change::Deleting => Ok(()),
        _ => {
            let message = format!(
                "Can not perform requested operation on nested resource. Parent resource '{}' not found.",
                parent.name()
            );
            Err(ArmError::not_found("ParentResourceNotFound", message).with_target(type_name).into())
        }
    }
}

fn check_provider(cx: &CallContext<'_>, id: &ResourceId, type_name: &str) -> Result<(), Failure> {
    check_registered(cx, id.subscription(), type_name.split('/').next().unwrap_or_default())
}

/// Requires that a subscription has registered a provider.
pub(crate) fn check_registered(
    cx: &CallContext<'_>,
    subscription: &str,
    namespace: &str,
) -> Result<(), Failure> {
    if sizes::is_registered(cx, subscription, namespace)? {
        return Ok(());
    }
    let message = format!(
        "The subscription is not registered to use namespace '{namespace}'. See https://aka.ms/rps-not-found for how to register subscriptions."
    );
    let detail = format!("The subscription is not registered to use namespace '{namespace}'.");
    Err(ArmError::conflict("MissingSubscriptionRegistration", message)
        .with_detail("MissingSubscriptionRegistration", detail)
        .into())
}

/// Requires that everything exists that a body refers to.
fn check_references(
    cx: &CallContext<'_>,
    kind: &Kind,
    id: &ResourceId,
    body: &Map<String, Value>,
) -> Result<(), Failure> {
    for reference in kind.behaviour.references(id, body) {
        let found = store::visible(cx, &reference)?;
        if found.is_some_and(|it| it.change != Change::Deleting) {
            continue;
        }
        let message = format!(
            "Resource {reference} referenced by resource {id} was not found. Please make sure that the referenced resource exists, and that both resources are in the same region."
        );
        let is_network = kind.type_name.starts_with("Microsoft.Network/");
        return Err(match is_network {
            true => ArmError::bad_request("InvalidResourceReference", message).into(),
            false => ArmError::not_found("NotFound", message).into(),
        });
    }
    Ok(())
}

/// A location in its short form: `East US` is `eastus`.
pub(crate) fn short_location(location: &str) -> String {
    location.chars().filter(|it| !it.is_whitespace()).flat_map(char::to_lowercase).collect()
}

fn check_location(
    kind: &Kind,
    id: &ResourceId,
    before: Option<&ArmResource>,
    body: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let given = body.get("location").and_then(Value::as_str).map(short_location);
    let Some(location) = given.filter(|it| !it.is_empty()) else {
        body.remove("location");
        return match (kind.has_location, before) {
            (false, _) => Ok(()),
            (true, Some(before)) => {
                body.insert("location".to_owned(), json!(before.location()));
                Ok(())
            }
            (true, None) => {
                let message = "The location property is required for this definition.";
                Err(ArmError::bad_request("LocationRequired", message).into())
            }
        };
    };
    if let Some(before) = before.filter(|it| !it.location().is_empty() && it.location() != location) {
        let message = format!(
            "The resource '{}' already exists in location '{}' in resource group '{}'. A resource with the same name cannot be created in location '{location}'. Please select a new resource name.",
            id.name(),
            before.location(),
            id.resource_group()
        );
        return Err(ArmError::conflict("InvalidResourceLocation", message).into());
    }
    body.insert("location".to_owned(), json!(location));
    Ok(())
}

pub(crate) fn check_tags(tags: Option<&Value>) -> Result<(), Failure> {
    let sound = match tags {
        None | Some(Value::Null) => true,
        Some(Value::Object(tags)) => tags.len() <= 50 && tags.values().all(Value::is_string),
        Some(_) => false,
    };
    match sound {
        true => Ok(()),
        false => {
            let message = "Tags are an object of at most 50 members whose values are strings.";
            Err(ArmError::bad_request("InvalidTags", message).into())
        }
    }
}

/// Creates or replaces a resource: everything that a PUT does after its caller and its preconditions are checked. Kinds whose body
/// contains other resources write them with it.
pub(crate) fn write(
    cx: &CallContext<'_>,
    kind: &Kind,
    id: &ResourceId,
    mut body: Map<String, Value>,
) -> Result<Written, Failure> {
    check_provider(cx, id, kind.type_name)?;
    check_group(cx, id)?;
    check_parent(cx, id, kind.type_name)?;
    locks::check_write(cx, id.as_str())?;
    policies::check(cx, id, kind.type_name)?;
    let before = store::find(cx.db, &id.key())?;
    if before.as_ref().is_some_and(|it| it.change == Change::Deleting) {
        let message =
            format!("Another operation on this or dependent resource is in progress: {id} is being deleted.");
        return Err(ArmError::conflict("AnotherOperationInProgress", message).into());
    }
    let id = before.as_ref().map_or_else(|| id.clone(), |it| it.id.clone());
    for member in OWN_MEMBERS {
        body.remove(member);
    }
    check_tags(body.get("tags"))?;
    check_location(kind, &id, before.as_ref(), &mut body)?;
    if let Some(Value::Object(properties)) = body.get_mut("properties") {
        properties.remove("provisioningState");
    }
    kind.behaviour.prepare(cx, &id, before.as_ref(), &mut body)?;
    check_references(cx, kind, &id, &body)?;
    sizes::check_resource(cx, &id, kind.type_name, before.as_ref(), &body)?;
    // A failed change and one that hangs are repeated; one that succeeded or goes on is not.
    let is_sound =
        |it: &ArmResource| it.settles != Timestamp::MAX && (it.fault.is_none() || cx.now < it.settles);
    if let Some(before) = before.as_ref().filter(|it| it.body == body && is_sound(it)) {
        kind.behaviour.stored(cx, before)?;
        return Ok(Written { resource: before.clone(), is_new: false, is_changed: false });
    }
    let is_creating = before
        .as_ref()
        .is_none_or(|it| it.change == Change::Creating && it.provisioning_state(cx.now) != "Succeeded");
    let resource = ArmResource {
        id: id.clone(),
        type_name: kind.type_name.to_owned(),
        body,
        version: before.as_ref().map_or(1, |it| it.version + 1),
        change: if is_creating { Change::Creating } else { Change::Updating },
        settles: completion(cx, kind.span, &["put", &id.key()]),
        fault: cx.effects.fails_later.clone(),
        seen_from: match (&before, cx.effects.unseen) {
            (Some(before), _) => before.seen_from,
            (None, Duration::ZERO) => None,
            (None, unseen) => Some(cx.later(unseen)),
        },
    };
    store::keep(cx.db, &resource)?;
    kind.behaviour.stored(cx, &resource)?;
    ensure_rights(cx, &resource)?;
    // `stored` may have changed it.
    let resource = store::find(cx.db, &resource.id.key())?.unwrap_or(resource);
    Ok(Written { resource, is_new: before.is_none(), is_changed: true })
}

/// When a change completes.
pub(crate) fn completion(cx: &CallContext<'_>, span: Duration, words: &[&str]) -> Timestamp {
    match cx.effects.operation_hangs {
        true => Timestamp::MAX,
        false => cx.done_at(span, words),
    }
}

/// A managed identity may do everything, unless its tag `rights` says `byRoles`.
fn ensure_rights(cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
    if !resource.type_name.eq_ignore_ascii_case(IDENTITY_TYPE) {
        return Ok(());
    }
    let Some(object_id) = resource.property("principalId").and_then(Value::as_str) else { return Ok(()) };
    let tag = resource.body.get("tags").and_then(|it| it.get("rights")?.as_str());
    match tag.is_some_and(|it| it.eq_ignore_ascii_case("byRoles")) {
        true => assignments::remove_owner(cx, object_id),
        false => assignments::assign_owner(cx, object_id),
    }
}

/// Replaces the stored body of a resource without a long operation.
pub(crate) fn replace_body(
    cx: &CallContext<'_>,
    resource: &ArmResource,
    body: Map<String, Value>,
) -> Result<ArmResource, Failure> {
    let changed = ArmResource { body, version: resource.version + 1, ..resource.clone() };
    store::keep(cx.db, &changed)?;
    Ok(changed)
}

/// Starts the deletion of a resource with what is below it, and returns when it completes. A failure that a fault injects is left in the
/// resource, which stays.
pub(crate) fn delete(
    cx: &CallContext<'_>,
    kind: &Kind,
    resource: &ArmResource,
) -> Result<(Timestamp, Option<ResourceFailure>), Failure> {
    locks::check_delete(cx, resource.id.as_str())?;
    if resource.change == Change::Deleting && resource.settles != Timestamp::MAX {
        return Ok((resource.settles, None));
    }
    let mut going = store::below(cx.db, &resource.id)?;
    going.push(resource.clone());
    if let Some((used, user)) = store::user_outside(cx.db, &going)? {
        let of = find_kind(&used.type_name).unwrap_or(kind);
        let (code, message) = of.behaviour.in_use(&used, &user);
        return Err(ArmError::bad_request(&code, message).into());
    }
    kind.behaviour.may_delete(cx, resource)?;
    let settles = completion(cx, kind.span, &["delete", &resource.id.key()]);
    if let Some(fault) = &cx.effects.fails_later {
        let change = Change::Updating;
        store::keep(cx.db, &ArmResource { change, settles, fault: Some(fault.clone()), ..resource.clone() })?;
        return Ok((settles, Some(fault.clone())));
    }
    for resource in going {
        start_deletion(cx, resource, settles)?;
    }
    Ok((settles, None))
}

/// Marks a resource as being deleted, and removes what only exists with it.
pub(crate) fn start_deletion(
    cx: &CallContext<'_>,
    resource: ArmResource,
    settles: Timestamp,
) -> Result<(), Failure> {
    let deleting = ArmResource { change: Change::Deleting, settles, fault: None, ..resource };
    store::keep(cx.db, &deleting)?;
    if let Some(kind) = find_kind(&deleting.type_name) {
        kind.behaviour.deleted(cx, &deleting)?;
    }
    if deleting.type_name.eq_ignore_ascii_case(IDENTITY_TYPE)
        && let Some(object_id) = deleting.property("principalId").and_then(Value::as_str)
    {
        assignments::remove_owner(cx, object_id)?;
    }
    assignments::remove_within(cx, deleting.id.as_str())?;
    // A deletion that completes at once is complete in what this call shows.
    match deleting.settles <= cx.now {
        true => store::remove(cx.db, &deleting.id),
        false => Ok(()),
    }
}

/// The kind of a type, or the error for one that the emulator does not have.
pub(crate) fn known_kind(type_name: &str) -> Result<&'static Kind, Failure> {
    find_kind(type_name).ok_or_else(|| {
        let (namespace, kind) = type_name.split_once('/').unwrap_or((type_name, ""));
        let message =
            format!("The resource type '{kind}' could not be found in the namespace '{namespace}'.");
        ArmError::not_found("InvalidResourceType", message).into()
    })
}

/// Checks `If-Match` and `If-None-Match` of a write.
pub(crate) fn check_preconditions(
    cx: &CallContext<'_>,
    kind: &Kind,
    present: Option<&ArmResource>,
    if_match: Option<&str>,
    if_none_match: Option<&str>,
) -> Result<(), Failure> {
    let failed = |why: &str| {
        let message = "The condition that was set by the headers of the request is not met.";
        Err(ArmError::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", message)
            .with_detail("PreconditionFailedEtagMismatch", why)
            .into())
    };
    let present = present.filter(|it| it.change != Change::Deleting);
    if if_none_match.is_some_and(|it| it.trim() == "*") && present.is_some() {
        return failed("The resource exists already.");
    }
    let Some(wanted) = if_match.filter(|_| kind.has_etag) else { return Ok(()) };
    let Some(present) = present else { return failed("The resource does not exist.") };
    let etag = present.etag(cx.seed);
    let bare = |text: &str| text.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    match wanted.trim() == "*" || wanted.split(',').any(|it| bare(it) == bare(&etag)) {
        true => Ok(()),
        false => failed("Etag provided in If-Match header does not match the current etag of the resource."),
    }
}
