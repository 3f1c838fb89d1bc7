//! Requests on the account and on containers, which the resource manager shows too.

use std::time::Duration;

use http::header::{ETAG, LAST_MODIFIED};
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::access::{self, Access, BlobAction};
use super::error::{BlobError, BlobFailure};
use super::{BlobCall, BlobResponse, conditions, listing, signature, store, xml};
use crate::arm::kinds::storage;
use crate::arm::{ArmResource, Change, resources};
use crate::call_context::CallContext;

/// The usual time until the name of a deleted container can be used again.
const DELETING: Duration = Duration::from_secs(30);
/// Longest validity of a user delegation key.
const DELEGATION_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Requests on the account.
pub(super) fn handle_service(call: &BlobCall<'_>) -> Result<BlobResponse, BlobFailure> {
    let request = call.request;
    let kind = request.parameter("restype").unwrap_or_default().to_lowercase();
    match (request.method, request.component(), kind.as_str()) {
        (&Method::GET, "list", _) => {
            call.authorize(BlobAction::ListContainers, None)?;
            listing::containers(call)
        }
        (&Method::GET | &Method::HEAD, "properties", "account") => {
            call.authorize(BlobAction::ReadAccount, None)?;
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut response = BlobResponse::new(StatusCode::OK);
            let sku = call.account.body.get("sku").and_then(|it| it.get("name"));
            response.set("x-ms-sku-name", &text(sku));
            response.set("x-ms-account-kind", &text(call.account.body.get("kind")));
            response.set("x-ms-is-hns-enabled", "false");
            Ok(response)
        }
        (&Method::POST, "userdelegationkey", "service") => {
            call.authorize(BlobAction::DelegationKey, None)?;
            delegation_key(call)
        }
        _ => Err(request.unsupported()),
    }
}

/// A key with which the caller signs what its roles allow.
fn delegation_key(call: &BlobCall<'_>) -> Result<BlobResponse, BlobFailure> {
    let Access::Principal(caller) = call.access else { return Err(access::mismatch().into()) };
    let body = String::from_utf8_lossy(call.request.body);
    let Some(members) = xml::leaves(&body) else {
        return Err(BlobError::bad_request("InvalidXmlDocument", "The body is no valid XML.").into());
    };
    let member = |name: &str| members.iter().find(|(it, _)| it == name).map(|(_, text)| text.as_str());
    let now = call.cx.now;
    let wrong = |name: &str| {
        let message = format!("The value provided for the element {name} is not in the correct range.");
        BlobFailure::from(BlobError::bad_request("InvalidXmlNodeValue", message))
    };
    let start = match member("Start").filter(|it| !it.is_empty()) {
        Some(text) => signature::parse_time(text).ok_or_else(|| wrong("Start"))?,
        None => now,
    };
    let latest = now.saturating_add(DELEGATION_MAX).unwrap_or(Timestamp::MAX);
    let expiry = member("Expiry").and_then(signature::parse_time);
    let Some(expiry) = expiry.filter(|it| *it > now && *it > start && *it <= latest) else {
        return Err(wrong("Expiry"));
    };
    let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let version = call.request.header("x-ms-version").unwrap_or(super::VERSION).to_owned();
    let parameters = [
        caller.object_id.clone(),
        caller.tenant_id.clone(),
        time(start),
        time(expiry),
        "b".to_owned(),
        version,
    ];
    let value = signature::delegation_key(call.cx, call.account, &parameters)?;
    let names =
        ["SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion", "Value"];
    let members: String = names
        .iter()
        .zip(parameters.iter().chain([&value]))
        .map(|(name, text)| xml::element(name, text))
        .collect();
    Ok(BlobResponse::xml(format!("{}<UserDelegationKey>{members}</UserDelegationKey>", xml::DECLARATION)))
}

/// Requests on a container.
pub(super) fn handle(call: &BlobCall<'_>, name: &str) -> Result<BlobResponse, BlobFailure> {
    let request = call.request;
    if !request.is_of_container() {
        return Err(request.unsupported());
    }
    let found = storage::find_container(call.cx, &call.account.id, name)?;
    let present = found.as_ref().filter(|it| it.change != Change::Deleting);
    match (request.method, request.component()) {
        (&Method::PUT, "") => {
            call.authorize(BlobAction::WriteContainer, None)?;
            create(call, name, found.as_ref())
        }
        (&Method::GET, "list") => {
            call.authorize(BlobAction::ListBlobs, present)?;
            listing::blobs(call, name, required(present)?)
        }
        (&Method::GET | &Method::HEAD, "" | "metadata") => {
            call.authorize(BlobAction::ReadContainer, present)?;
            let container = required(present)?;
            check(call, container)?;
            Ok(shown(call.cx, container))
        }
        (&Method::PUT, "metadata") => {
            call.authorize(BlobAction::WriteContainer, None)?;
            let container = required(present)?;
            check(call, container)?;
            let mut body = container.body.clone();
            let properties = body.entry("properties").or_insert_with(|| json!({}));
            properties["metadata"] = json!(super::blobs::metadata(request)?);
            properties["lastModifiedTime"] = json!(call.cx.now.to_string());
            let changed = resources::replace_body(call.cx, container, body)?;
            Ok(stamped(BlobResponse::new(StatusCode::OK), call.cx, &changed))
        }
        (&Method::DELETE, "") => {
            call.authorize(BlobAction::DeleteContainer, None)?;
            let container = required(present)?;
            check(call, container)?;
            let gone = call.cx.done_at(DELETING, &["delete container", &container.id.key()]);
            resources::start_deletion(call.cx, container.clone(), gone)?;
            Ok(BlobResponse::new(StatusCode::ACCEPTED))
        }
        _ => Err(request.unsupported()),
    }
}

/// The container, or the error of one that is missing.
pub(super) fn required(container: Option<&ArmResource>) -> Result<&ArmResource, BlobError> {
    container
        .ok_or_else(|| BlobError::not_found("ContainerNotFound", "The specified container does not exist."))
}

pub(super) fn etag(cx: &CallContext<'_>, container: &ArmResource) -> String {
    store::etag(cx.seed, &["container", &container.id.key(), &container.version.to_string()])
}

pub(super) fn modified(container: &ArmResource) -> Timestamp {
    let text = container.property("lastModifiedTime").and_then(Value::as_str);
    text.and_then(|it| it.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The level of public access as headers spell it; `None` without public access.
pub(super) fn public_access(container: &ArmResource) -> Option<String> {
    let level = container.property("publicAccess").and_then(Value::as_str).map(str::to_lowercase);
    level.filter(|it| it == "blob" || it == "container")
}

pub(super) fn metadata(container: &ArmResource) -> impl Iterator<Item = (&str, &str)> {
    let found = container.property("metadata").and_then(Value::as_object);
    found.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
}

fn check(call: &BlobCall<'_>, container: &ArmResource) -> Result<(), BlobError> {
    let etag = etag(call.cx, container);
    conditions::check(call.request.method, call.request.headers, Some((&etag, modified(container))))
}

fn stamped(mut response: BlobResponse, cx: &CallContext<'_>, container: &ArmResource) -> BlobResponse {
    response.set(ETAG.as_str(), &format!("\"{}\"", etag(cx, container)));
    response.set(LAST_MODIFIED.as_str(), &conditions::http_date(modified(container)));
    response
}

fn shown(cx: &CallContext<'_>, container: &ArmResource) -> BlobResponse {
    let mut response = stamped(BlobResponse::new(StatusCode::OK), cx, container);
    for (name, value) in metadata(container) {
        response.set(&format!("x-ms-meta-{name}"), value);
    }
    if let Some(level) = public_access(container) {
        response.set("x-ms-blob-public-access", &level);
    }
    for (name, value) in [
        ("x-ms-lease-status", "unlocked"),
        ("x-ms-lease-state", "available"),
        ("x-ms-has-immutability-policy", "false"),
        ("x-ms-has-legal-hold", "false"),
    ] {
        response.set(name, value);
    }
    response
}

fn create(call: &BlobCall<'_>, name: &str, found: Option<&ArmResource>) -> Result<BlobResponse, BlobFailure> {
    match found.map(|it| it.change) {
        Some(Change::Deleting) => {
            let message = "The specified container is being deleted. Try operation later.";
            return Err(BlobError::conflict("ContainerBeingDeleted", message).into());
        }
        Some(_) => {
            let message = "The specified container already exists.";
            return Err(BlobError::conflict("ContainerAlreadyExists", message).into());
        }
        None => {}
    }
    let level = match call.request.header("x-ms-blob-public-access") {
        None => "None",
        Some("blob") => "Blob",
        Some("container") => "Container",
        Some(other) => {
            let message = format!("The value {other} of the header x-ms-blob-public-access is invalid.");
            return Err(BlobError::bad_request("InvalidHeaderValue", message).into());
        }
    };
    if level != "None" && !access::permits_public_access(call.account) {
        return Err(access::public_access_not_permitted().into());
    }
    let metadata = super::blobs::metadata(call.request)?;
    let mut body = Map::new();
    body.insert("properties".to_owned(), json!({ "publicAccess": level, "metadata": metadata }));
    let created = storage::create_container(call.cx, call.account, name, body)?;
    Ok(stamped(BlobResponse::new(StatusCode::CREATED), call.cx, &created))
}
