//! Requests on resources, on parts of resources and on collections of them.

use std::time::Duration;

use cloud::ResourceId;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::deployments::DEPLOYMENT_TYPE;
use super::error::ArmError;
use super::kind::{ActionOutcome, ArmResource, Change, DeleteStyle, Kind, PutStyle, find_kind};
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::operations::{Operation, OperationFailure, OperationResult, OperationScope, paced};
use super::resources::{self, Written, known_kind, not_found, shown};
use super::{access, deployments, lists, locks, parts, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// A request on a resource or on a part of one.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    id: &ResourceId,
    type_name: &str,
) -> Result<ArmResponse, Failure> {
    check_access(cx, request, type_name, id.as_str())?;
    if find_kind(type_name).is_none()
        && let Some((owner, part)) = parts::find_owner(cx, id)?
    {
        return parts::handle(cx, request, &owner, &part);
    }
    let kind = known_kind(type_name)?;
    match *request.method {
        Method::GET => {
            let resource = existing(cx, id, kind)?;
            let body = shown(cx, &resource, request.parameter("$expand"))?;
            Ok(tagged(cx, kind, &resource, ArmResponse::ok(Value::Object(body))))
        }
        Method::HEAD => {
            let found = store::visible(cx, id)?.is_some();
            Ok(ArmResponse::empty(if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }))
        }
        Method::PUT => put(cx, request, kind, id),
        Method::PATCH => patch(cx, request, kind, id),
        Method::DELETE => delete(cx, request, kind, id),
        _ => Err(method_not_allowed(request)),
    }
}

/// Requires the right to read, write or delete.
fn check_access(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    type_name: &str,
    scope: &str,
) -> Result<(), Failure> {
    let verb = match *request.method {
        Method::GET | Method::HEAD => "read",
        Method::DELETE => "delete",
        _ => "write",
    };
    access::check(cx, request.caller, &format!("{type_name}/{verb}"), scope)
}

fn existing(cx: &CallContext<'_>, id: &ResourceId, kind: &Kind) -> Result<ArmResource, Failure> {
    match store::visible(cx, id)? {
        Some(found) => Ok(found),
        None => {
            let group = store::group_of(id);
            store::visible(cx, &group)?.ok_or_else(|| resources::group_not_found(&group))?;
            Err(not_found(id, kind.type_name))
        }
    }
}

/// Adds the etag to a response.
fn tagged(cx: &CallContext<'_>, kind: &Kind, resource: &ArmResource, response: ArmResponse) -> ArmResponse {
    match kind.has_etag {
        true => response.with_header("etag", resource.etag(cx.seed)),
        false => response,
    }
}

fn scope_of(resource: &ArmResource) -> OperationScope<'_> {
    let namespace = resource.type_name.split('/').next().unwrap_or_default();
    OperationScope { subscription: resource.id.subscription(), namespace, location: resource.location() }
}

fn put(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    kind: &Kind,
    id: &ResourceId,
) -> Result<ArmResponse, Failure> {
    let body = request.object()?;
    let present = store::find(cx.db, &id.key())?;
    let (wanted, unwanted) = (request.header("if-match"), request.header("if-none-match"));
    resources::check_preconditions(cx, kind, present.as_ref(), wanted, unwanted)?;
    if kind.type_name == DEPLOYMENT_TYPE {
        deployments::check_rights(cx, request.caller, id, &body)?;
    }
    let written = resources::write(cx, kind, id, body)?;
    respond_to_put(cx, request, kind, written)
}

/// The response to a PUT by the style of its kind.
pub(crate) fn respond_to_put(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    kind: &Kind,
    written: Written,
) -> Result<ArmResponse, Failure> {
    let Written { mut resource, is_new, is_changed } = written;
    let is_sync = matches!(kind.put, PutStyle::Sync | PutStyle::SyncOk);
    if is_sync && kind.span.is_zero() && cx.now < resource.settles && !cx.effects.operation_hangs {
        // What is complete at once has no state in between.
        resource.settles = cx.now;
        store::keep(cx.db, &resource)?;
    }
    // A synchronous write that takes time is answered when it is complete.
    let answered = match is_sync && !cx.effects.operation_hangs {
        true => resource.settles.max(cx.now),
        false => cx.now,
    };
    let body = || shown(&cx.at(answered), &resource, None).map(Value::Object);
    let created = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let with_tag = |response| tagged(cx, kind, &resource, response);
    let is_complete = !is_changed && resource.settles <= cx.now;
    let begin = || {
        let result = OperationResult::Resource(resource.id.clone());
        let mut operation = Operation::new(cx, resource.settles, result);
        operation.failure = resource.fault.as_ref().map(OperationFailure::from);
        operation.keep(cx).map(|()| operation)
    };
    let scope = scope_of(&resource);
    let mut response = match kind.put {
        PutStyle::Sync => with_tag(ArmResponse::new(created, body()?)),
        PutStyle::SyncOk => with_tag(ArmResponse::ok(body()?)),
        _ if is_complete => with_tag(ArmResponse::ok(body()?)),
        PutStyle::AsyncOperation => {
            let url = begin()?.status_url(request, scope);
            with_tag(paced(ArmResponse::new(created, body()?)).with_header("azure-asyncoperation", url))
        }
        PutStyle::Accepted => {
            let operation = begin()?;
            let (status, location) =
                (operation.status_url(request, scope), operation.result_url(request, scope));
            with_tag(
                paced(ArmResponse::new(StatusCode::ACCEPTED, body()?))
                    .with_header("azure-asyncoperation", status)
                    .with_header("location", location),
            )
        }
        PutStyle::Location => {
            let url = begin()?.result_url(request, scope);
            paced(ArmResponse::empty(StatusCode::ACCEPTED)).with_header("location", url)
        }
    };
    response.delay = Duration::try_from(answered.duration_since(cx.now)).unwrap_or_default();
    Ok(response)
}

/// Merges tags and other members into the present body, and writes it like a PUT that completes at once.
fn patch(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    kind: &Kind,
    id: &ResourceId,
) -> Result<ArmResponse, Failure> {
    let resource = existing(cx, id, kind)?;
    let (wanted, unwanted) = (request.header("if-match"), request.header("if-none-match"));
    resources::check_preconditions(cx, kind, Some(&resource), wanted, unwanted)?;
    let sent = request.object()?;
    let mut body = Value::Object(resource.body.clone());
    if let (Some(Value::Object(_)), Value::Object(members)) = (sent.get("tags"), &mut body) {
        // Tags that are sent replace the present ones.
        members.remove("tags");
    }
    merge(&mut body, Value::Object(sent));
    let Value::Object(body) = body else { return Err(method_not_allowed(request)) };
    let mut written = resources::write(cx, kind, id, body)?.resource;
    if !cx.effects.operation_hangs {
        written.settles = written.settles.min(cx.now);
        store::keep(cx.db, &written)?;
    }
    let response = ArmResponse::ok(Value::Object(shown(cx, &written, None)?));
    Ok(tagged(cx, kind, &written, response))
}

/// A merge patch: null removes a member, arrays are replaced.
pub(crate) fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(members), Value::Object(patch)) => {
            for (name, value) in patch {
                match value {
                    Value::Null => drop(members.remove(&name)),
                    value => merge(members.entry(name).or_insert(Value::Null), value),
                }
            }
        }
        (target, patch) => *target = patch,
    }
}

fn delete(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    kind: &Kind,
    id: &ResourceId,
) -> Result<ArmResponse, Failure> {
    let Some(resource) = store::find(cx.db, &id.key())? else {
        return Ok(ArmResponse::empty(StatusCode::NO_CONTENT));
    };
    resources::check_preconditions(cx, kind, Some(&resource), request.header("if-match"), None)?;
    let (settles, failure) = resources::delete(cx, kind, &resource)?;
    if kind.delete == DeleteStyle::Sync {
        if failure.is_none() && !cx.effects.operation_hangs {
            for gone in store::below(cx.db, &resource.id)?.into_iter().chain([resource]) {
                store::remove(cx.db, &gone.id)?;
            }
        }
        return Ok(ArmResponse::empty(StatusCode::OK));
    }
    let mut operation = Operation::new(cx, settles, OperationResult::Empty);
    operation.failure = failure.as_ref().map(OperationFailure::from);
    operation.keep(cx)?;
    let scope = scope_of(&resource);
    let response = paced(ArmResponse::empty(StatusCode::ACCEPTED))
        .with_header("location", operation.result_url(request, scope));
    Ok(match kind.delete {
        DeleteStyle::Location | DeleteStyle::Sync => response,
        DeleteStyle::Async => {
            response.with_header("azure-asyncoperation", operation.status_url(request, scope))
        }
    })
}

/// A request on a collection: a list, a view of a resource, or an action.
pub(crate) fn handle_collection(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    group: &ResourceId,
    parent: Option<&ResourceId>,
    type_name: &str,
) -> Result<ArmResponse, Failure> {
    match *request.method {
        Method::POST => match parent {
            Some(parent) if type_name.eq_ignore_ascii_case("Microsoft.Resources/deployments/validate") => {
                deployments::validate(cx, request, parent)
            }
            Some(parent) => act(cx, request, parent, type_name.rsplit('/').next().unwrap_or_default()),
            None => Err(method_not_allowed(request)),
        },
        Method::GET => list(cx, request, group, parent, type_name),
        _ => Err(method_not_allowed(request)),
    }
}

fn list(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    group: &ResourceId,
    parent: Option<&ResourceId>,
    type_name: &str,
) -> Result<ArmResponse, Failure> {
    let scope = parent.unwrap_or(group);
    access::check(cx, request.caller, &format!("{type_name}/read"), scope.as_str())?;
    store::visible(cx, group)?.ok_or_else(|| resources::group_not_found(group))?;
    let show = |it: &ArmResource| shown(cx, it, request.parameter("$expand"));
    let Some(parent) = parent else {
        known_kind(type_name)?;
        return lists::page(cx, request, &store::of_type_in_group(cx.db, group, type_name)?, show);
    };
    let Some((owner, _)) = parts::find_owner(cx, parent)? else {
        return Err(not_found(parent, &resources_type(parent)));
    };
    if find_kind(type_name).is_some() {
        let mut children = store::children(cx.db, parent, type_name)?;
        filter_records(request, &mut children);
        return lists::page(cx, request, &children, show);
    }
    let last = type_name.rsplit('/').next().unwrap_or_default();
    let kind = known_kind(&owner.type_name)?;
    if let Some(view) = kind.behaviour.view(cx, &owner, last, request.query)? {
        return Ok(ArmResponse::ok(view));
    }
    // DNS zones list the records of all types below these names.
    if owner.type_name.to_lowercase().ends_with("dnszones")
        && ["all", "recordsets"].contains(&last.to_lowercase().as_str())
    {
        let mut records = store::below(cx.db, &owner.id)?;
        records.retain(|it| !it.type_name.to_lowercase().ends_with("virtualnetworklinks"));
        filter_records(request, &mut records);
        return lists::page(cx, request, &records, show);
    }
    let body = shown(cx, &owner, None)?;
    match parts::collection(&body, last) {
        Some(items) => Ok(ArmResponse::list(items.clone())),
        None => Err(known_kind(type_name).err().unwrap_or_else(|| not_found(parent, type_name))),
    }
}

/// Keeps the record sets whose name ends in the suffix that a client asks for.
fn filter_records(request: &ArmRequest<'_>, records: &mut Vec<ArmResource>) {
    if let Some(suffix) = request.parameter("$recordsetnamesuffix") {
        let suffix = suffix.to_lowercase();
        records.retain(|it| it.id.name().to_lowercase().ends_with(&suffix));
    }
}

fn resources_type(id: &ResourceId) -> String {
    super::kind::type_of(id).unwrap_or_default()
}

/// Carries out a POST on a resource or on a part of one.
fn act(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    target: &ResourceId,
    action: &str,
) -> Result<ArmResponse, Failure> {
    let type_name = resources_type(target);
    access::check(cx, request.caller, &format!("{type_name}/{action}/action"), target.as_str())?;
    let Some((owner, part)) = parts::find_owner(cx, target)? else {
        return Err(not_found(target, &type_name));
    };
    if owner.change == Change::Deleting {
        return Err(not_found(target, &type_name));
    }
    locks::check_write(cx, target.as_str())?;
    let kind = known_kind(&owner.type_name)?;
    let action = match &part {
        Some(part) => format!("{}/{}/{action}", part.collection, part.name),
        None => action.to_owned(),
    };
    let outcome = kind.behaviour.act(cx, &owner, &action, request.query, &request.json()?)?;
    match outcome {
        Some(ActionOutcome::Done(Value::Null)) => Ok(ArmResponse::empty(StatusCode::OK)),
        Some(ActionOutcome::Done(body)) => Ok(ArmResponse::ok(body)),
        Some(ActionOutcome::Accepted { span, result, change }) => {
            let owner = match change {
                Some(body) => resources::replace_body(cx, &owner, body)?,
                None => owner,
            };
            let ends = resources::completion(cx, span, &["act", &owner.id.key(), &action]);
            let mut operation = Operation::new(cx, ends, OperationResult::Body(result));
            operation.failure = cx.effects.fails_later.as_ref().map(OperationFailure::from);
            operation.keep(cx)?;
            let scope = scope_of(&owner);
            Ok(paced(ArmResponse::empty(StatusCode::ACCEPTED))
                .with_header("location", operation.result_url(request, scope))
                .with_header("azure-asyncoperation", operation.status_url(request, scope)))
        }
        None => {
            let message =
                format!("The action '{action}' is not supported by the resource type '{type_name}'.");
            Err(ArmError::not_found("InvalidAction", message).into())
        }
    }
}

/// Whether a resource appears in the lists of all types: children and deployments do not.
pub(crate) fn is_listed(resource: &ArmResource) -> bool {
    let is_own = [DEPLOYMENT_TYPE, store::GROUP_TYPE].contains(&resource.type_name.as_str());
    resource.id.parent().is_none() && !is_own
}

/// The members of a resource in the lists of all types: without properties.
pub(crate) fn summary(resource: &ArmResource) -> Map<String, Value> {
    let mut summary = Map::new();
    summary.insert("id".to_owned(), json!(resource.id));
    summary.insert("name".to_owned(), json!(resource.id.name()));
    summary.insert("type".to_owned(), json!(resource.type_name));
    for member in ["location", "tags", "sku", "kind", "zones", "managedBy", "identity", "plan"] {
        if let Some(value) = resource.body.get(member) {
            summary.insert(member.to_owned(), value.clone());
        }
    }
    summary
}
