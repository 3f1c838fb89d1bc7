//! Resource groups, and the lists of everything that they hold.

use std::time::Duration;

use cloud::ResourceId;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::error::ArmError;
use super::kind::{ArmResource, Change, find_kind};
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::operations::{Operation, OperationFailure, OperationResult, paced};
use super::resources::{completion, group_not_found, short_location, start_deletion};
use super::store::{self, GROUP_TYPE};
use super::{access, lists, locks, policies, resource_requests};
use crate::call_context::CallContext;
use crate::failure::Failure;

const ACTION_PREFIX: &str = "Microsoft.Resources/subscriptions/resourceGroups";
const NAME_CHARS_MAX: usize = 90;
const SPAN: Duration = Duration::from_secs(2);

/// A group as callers see it.
fn shown(cx: &CallContext<'_>, group: &ArmResource) -> Map<String, Value> {
    let mut body = group.body.clone();
    body.insert("id".to_owned(), json!(group.id));
    body.insert("name".to_owned(), json!(group.id.resource_group()));
    body.insert("type".to_owned(), json!(GROUP_TYPE));
    body.insert("properties".to_owned(), json!({ "provisioningState": group.provisioning_state(cx.now) }));
    body
}

/// The groups of a subscription.
pub(crate) fn list(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    subscription: &str,
) -> Result<ArmResponse, Failure> {
    let scope = format!("/subscriptions/{subscription}");
    access::check(cx, request.caller, &format!("{ACTION_PREFIX}/read"), &scope)?;
    let mut groups = store::of_type(cx.db, subscription, GROUP_TYPE)?;
    if let Some(filter) = request.parameter("$filter") {
        let (name, value) = tag_filter(filter)?;
        groups.retain(|it| has_tag(it, &name, value.as_deref()));
    }
    lists::page(cx, request, &groups, |it| Ok(shown(cx, it)))
}

/// `tagName eq 'a'`, with an optional `and tagValue eq 'b'`.
fn tag_filter(filter: &str) -> Result<(String, Option<String>), Failure> {
    let quoted = |text: &str| Some(text.trim().strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    let parse = || {
        let mut clauses = filter.split(" and ").map(|it| it.split_once(" eq "));
        let (name, value) = clauses.next()??;
        let tag = quoted(value).filter(|_| name.trim().eq_ignore_ascii_case("tagName"))?;
        match clauses.next() {
            None => Some((tag, None)),
            Some(clause) => {
                let (name, value) = clause?;
                name.trim().eq_ignore_ascii_case("tagValue").then_some((tag, Some(quoted(value)?)))
            }
        }
    };
    parse().ok_or_else(|| invalid_filter(filter))
}

fn invalid_filter(filter: &str) -> Failure {
    let message = format!("Invalid $filter '{filter}' specified in the query string.");
    ArmError::bad_request("InvalidFilterInQueryString", message).into()
}

fn has_tag(resource: &ArmResource, name: &str, value: Option<&str>) -> bool {
    let tags = resource.body.get("tags").and_then(Value::as_object);
    tags.is_some_and(|tags| {
        tags.iter().any(|(tag, found)| {
            tag.eq_ignore_ascii_case(name) && value.is_none_or(|value| found.as_str() == Some(value))
        })
    })
}

/// A request on a group.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    group: &ResourceId,
) -> Result<ArmResponse, Failure> {
    let verb = match *request.method {
        Method::GET | Method::HEAD => "read",
        Method::DELETE => "delete",
        _ => "write",
    };
    access::check(cx, request.caller, &format!("{ACTION_PREFIX}/{verb}"), group.as_str())?;
    let found = store::visible(cx, group)?;
    match *request.method {
        Method::GET => {
            let found = found.ok_or_else(|| group_not_found(group))?;
            Ok(ArmResponse::ok(Value::Object(shown(cx, &found))))
        }
        Method::HEAD => Ok(ArmResponse::empty(match found {
            Some(_) => StatusCode::NO_CONTENT,
            None => StatusCode::NOT_FOUND,
        })),
        Method::PUT => put(cx, request, group),
        Method::PATCH => {
            let found = found.ok_or_else(|| group_not_found(group))?;
            locks::check_write(cx, group.as_str())?;
            let mut body = found.body.clone();
            if let Some(Value::Object(tags)) = request.object()?.get("tags") {
                body.insert("tags".to_owned(), json!(tags));
            }
            let changed = super::resources::replace_body(cx, &found, body)?;
            Ok(ArmResponse::ok(Value::Object(shown(cx, &changed))))
        }
        Method::DELETE => delete(cx, request, group),
        _ => Err(method_not_allowed(request)),
    }
}

fn check_name(group: &ResourceId) -> Result<(), Failure> {
    let name = group.resource_group();
    let is_sound = name.chars().count() <= NAME_CHARS_MAX
        && !name.ends_with('.')
        && name.chars().all(|it| it.is_alphanumeric() || "-_.()".contains(it));
    match is_sound {
        true => Ok(()),
        false => {
            let message = format!(
                "The provided resource group name '{name}' has these invalid characters or is too long. The name can only be a letter, digit, '-', '.', '(', ')' or '_', and cannot end with a period."
            );
            Err(ArmError::bad_request("InvalidResourceGroup", message).into())
        }
    }
}

fn put(cx: &CallContext<'_>, request: &ArmRequest<'_>, group: &ResourceId) -> Result<ArmResponse, Failure> {
    check_name(group)?;
    let sent = request.object()?;
    let written = write(cx, group, &sent)?;
    let status = if written.version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    Ok(ArmResponse::new(status, Value::Object(shown(cx, &written))))
}

/// Creates or updates a group.
pub(crate) fn write(
    cx: &CallContext<'_>,
    group: &ResourceId,
    sent: &Map<String, Value>,
) -> Result<ArmResource, Failure> {
    locks::check_write(cx, group.as_str())?;
    policies::check(cx, group, GROUP_TYPE)?;
    let before = store::find(cx.db, &group.key())?;
    let location = sent.get("location").and_then(Value::as_str).map(short_location).unwrap_or_default();
    let name = group.resource_group();
    if location.is_empty() {
        let message = "The location property is required for this definition.";
        return Err(ArmError::bad_request("LocationRequired", message).into());
    }
    let managed_by = sent.get("managedBy").filter(|it| !it.is_null());
    if let Some(before) = &before {
        if before.change == Change::Deleting {
            let message = format!(
                "The resource group '{name}' is in deprovisioning state and cannot perform this operation."
            );
            return Err(ArmError::conflict("ResourceGroupBeingDeleted", message).into());
        }
        if before.location() != location {
            let message = format!(
                "Invalid resource group location '{location}'. The Resource group already exists in location '{}'.",
                before.location()
            );
            return Err(ArmError::conflict("InvalidResourceGroupLocation", message).into());
        }
        let same = match (managed_by, before.body.get("managedBy")) {
            (Some(Value::String(one)), Some(Value::String(other))) => one.eq_ignore_ascii_case(other),
            (one, other) => one == other,
        };
        if !same {
            let message = format!("The property managedBy of the resource group '{name}' cannot be changed.");
            return Err(ArmError::conflict("ResourceGroupManagedByMismatch", message).into());
        }
    }
    let mut body = Map::new();
    body.insert("location".to_owned(), json!(location));
    if let Some(managed_by) = managed_by {
        body.insert("managedBy".to_owned(), managed_by.clone());
    }
    if let Some(tags) = sent.get("tags").filter(|it| it.is_object()) {
        body.insert("tags".to_owned(), tags.clone());
    }
    let seen_from = match (&before, cx.effects.unseen) {
        (Some(before), _) => before.seen_from,
        (None, Duration::ZERO) => None,
        (None, unseen) => Some(cx.later(unseen)),
    };
    let written = ArmResource {
        id: before.as_ref().map_or_else(|| group.clone(), |it| it.id.clone()),
        type_name: GROUP_TYPE.to_owned(),
        body,
        version: before.as_ref().map_or(1, |it| it.version + 1),
        change: if before.is_none() { Change::Creating } else { Change::Updating },
        settles: cx.now,
        fault: cx.effects.fails_later.clone(),
        seen_from,
    };
    store::keep(cx.db, &written)?;
    Ok(written)
}

/// Starts the deletion of a group with all that it holds. When something outside uses a part of it, the operation fails and nothing is
/// deleted.
fn delete(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    group: &ResourceId,
) -> Result<ArmResponse, Failure> {
    let found = store::find(cx.db, &group.key())?.ok_or_else(|| group_not_found(group))?;
    locks::check_delete(cx, group.as_str())?;
    let accepted = |operation: &Operation| {
        let url = operation.group_url(request, group.subscription());
        paced(ArmResponse::empty(StatusCode::ACCEPTED)).with_header("location", url)
    };
    if found.change == Change::Deleting && found.settles != Timestamp::MAX {
        let operation = Operation::new(cx, found.settles, OperationResult::EmptyOk);
        operation.keep(cx)?;
        return Ok(accepted(&operation));
    }
    let mut going = store::in_group(cx.db, group)?;
    let slowest = going.iter().filter_map(|it| find_kind(&it.type_name)).map(|it| it.span).max();
    let settles = completion(cx, slowest.unwrap_or_default().max(SPAN), &["delete", &group.key()]);
    let mut operation = Operation::new(cx, settles, OperationResult::EmptyOk);
    operation.failure = match (&cx.effects.fails_later, store::user_outside(cx.db, &going)?) {
        (Some(failure), _) => Some(OperationFailure::from(failure)),
        (None, Some((used, user))) => {
            let behaviour = find_kind(&used.type_name).map(|it| it.behaviour);
            let (code, why) = behaviour.map_or_else(
                || ("ResourceInUse".to_owned(), format!("{} is in use by {user}.", used.id)),
                |it| it.in_use(&used, &user),
            );
            let message = format!(
                "Deletion of resource group '{}' failed as resources with identifiers '{}' could not be deleted: it is used by '{user}'. The provisioning state of the resource group will be rolled back.",
                group.resource_group(),
                used.id
            );
            let error = ArmError::conflict("ResourceGroupDeletionBlocked", message).with_detail(&code, why);
            Some(OperationFailure::from(&error))
        }
        (None, None) => None,
    };
    operation.keep(cx)?;
    if operation.failure.is_none() {
        going.push(found);
        for resource in going {
            start_deletion(cx, resource, settles)?;
        }
        locks::remove_within(cx, group.as_str())?;
    }
    Ok(accepted(&operation))
}

/// The resources of a group or of a subscription, without children and properties.
pub(crate) fn list_resources(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    mut resources: Vec<ArmResource>,
) -> Result<ArmResponse, Failure> {
    let action = match scope.to_lowercase().contains("/resourcegroups/") {
        true => "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
        false => "Microsoft.Resources/subscriptions/resources/read",
    };
    access::check(cx, request.caller, action, scope)?;
    resources.retain(resource_requests::is_listed);
    if let Some(filter) = request.parameter("$filter") {
        filter_resources(filter, &mut resources)?;
    }
    lists::page(cx, request, &resources, |it| Ok(resource_requests::summary(it)))
}

fn filter_resources(filter: &str, resources: &mut Vec<ArmResource>) -> Result<(), Failure> {
    if filter.trim_start().to_lowercase().starts_with("tagname") {
        let (name, value) = tag_filter(filter)?;
        resources.retain(|it| has_tag(it, &name, value.as_deref()));
        return Ok(());
    }
    for clause in filter.split(" and ") {
        let parsed = clause.split_once(" eq ");
        let parsed = parsed.and_then(|(name, value)| {
            Some((name.trim().to_lowercase(), value.trim().strip_prefix('\'')?.strip_suffix('\'')?))
        });
        let Some((name, value)) = parsed else { return Err(invalid_filter(filter)) };
        match name.as_str() {
            "resourcetype" => resources.retain(|it| it.type_name.eq_ignore_ascii_case(value)),
            "name" => resources.retain(|it| it.id.name().eq_ignore_ascii_case(value)),
            "location" => resources.retain(|it| it.location() == short_location(value)),
            "resourcegroup" => resources.retain(|it| it.id.resource_group().eq_ignore_ascii_case(value)),
            _ => return Err(invalid_filter(filter)),
        }
    }
    Ok(())
}
