//! Key Vaults: secrets and certificates, each vault on a listener of its own.
//!
//! A request without a token receives the challenge that names the authority. Callers need the data action of a role, or an entry among the
//! access policies of a vault that does not use roles. Deleted objects keep their names until they are purged or recovered.

pub(crate) mod authority;
mod certificates;
mod error;
mod issuance;
pub(crate) mod issue;
mod objects;
mod pkcs12;
mod policy;
mod secrets;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::arm::kinds::vaults::VAULT;
use crate::arm::{ArmResource, Change, access, store};
use crate::call_context::{CallContext, FaultEffects};
use crate::entra::{self, Caller};
use crate::failure::Failure;
use crate::fault_injection::{InjectedError, claims_challenge, with_faults};
use crate::identities;
use crate::simulator::Simulator;
use error::{VaultError, VaultFailure};
use objects::{ObjectKind, VaultScope};

/// The audience of tokens for vaults.
const AUDIENCE: &str = "https://vault.azure.net";

/// Azure accepts 25 KiB of secret; certificates with long chains need more.
const BODY_BYTES_MAX: usize = 512 * 1024;
const PAGE_ITEMS_MAX: usize = 25;
const RETENTION_DAYS: i64 = 90;
const NAME_CHARS_MAX: usize = 127;

#[derive(Clone)]
struct VaultState {
    simulator: Arc<Simulator>,
    name: Arc<str>,
}

/// The routes of one vault.
pub(crate) fn routes(simulator: Arc<Simulator>, name: &str) -> Router {
    Router::new().fallback(answer).with_state(VaultState { simulator, name: name.to_lowercase().into() })
}

/// Removes what a vault held that was purged.
pub(crate) fn purge(cx: &CallContext<'_>, vault: &str) -> Result<(), Failure> {
    objects::purge_vault(cx, vault)
}

/// A request on the objects of a vault.
struct VaultRequest<'a> {
    method: &'a Method,
    segments: Vec<String>,
    query: Vec<(String, String)>,
    body: Value,
}

impl VaultRequest<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A successful response.
struct VaultResponse {
    status: StatusCode,
    body: Option<Value>,
}

impl VaultResponse {
    fn ok(body: Value) -> VaultResponse {
        VaultResponse { status: StatusCode::OK, body: Some(body) }
    }
}

async fn answer(State(state): State<VaultState>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut response = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => {
            let query = head.uri.query().unwrap_or_default();
            respond(&state, &head.method, head.uri.path(), query, &head.headers, &body.to_bytes()).await
        }
        Err(_) => VaultError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("The request body exceeds {BODY_BYTES_MAX} bytes."),
        )
        .response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-ms-keyvault-region", HeaderValue::from_static("eastus"));
    let id = HeaderValue::from_str(&Uuid::new_v4().to_string());
    if let Ok(id) = id {
        headers.insert("x-ms-request-id", id);
    }
    let client = HeaderName::from_static("x-ms-client-request-id");
    if let Some(sent) = head.headers.get(&client) {
        headers.insert(client, sent.clone());
    }
    response
}

async fn respond(
    state: &VaultState,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    let VaultState { simulator, name } = state;
    let challenge = || {
        let tenant = identities::tenant(simulator.seed);
        let authority = &simulator.endpoints().authority;
        format!("Bearer authorization=\"{authority}/{tenant}\", resource=\"{AUDIENCE}\"")
    };
    let authenticated =
        simulator.within(FaultEffects::default(), |cx| entra::authenticate(cx, headers, &[AUDIENCE]));
    let caller = match authenticated {
        Ok(caller) => caller,
        Err(Failure::Arm(error)) => return challenged(&error.message, &challenge()),
        Err(failure) => return failed(&failure),
    };
    let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let decode = |it: &str| percent_encoding::percent_decode_str(it).decode_utf8_lossy().into_owned();
    let segments: Vec<String> = path.split('/').filter(|it| !it.is_empty()).map(decode).collect();
    let parsed = match body.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_slice(body),
    };
    let Ok(body) = parsed else {
        return VaultError::bad_parameter("The request body is not valid JSON.").response();
    };
    let request = VaultRequest { method, segments, query, body };
    let (verb, subject) = match simulator.within(FaultEffects::default(), |cx| classify(cx, name, &request)) {
        Ok(classified) => classified,
        Err(failure) => return failed(&failure),
    };
    let injected = |error: InjectedError| match error {
        InjectedError::Throttled => VaultError::new(
            error.status(),
            "Throttled",
            "The request was not processed because too many requests were received.",
        )
        .response(),
        InjectedError::Unavailable => {
            VaultError::new(error.status(), "ServiceUnavailable", "The vault is unavailable.").response()
        }
        InjectedError::Denied => forbidden(&caller, verb, &subject, "ForbiddenByRbac").response(),
        InjectedError::TokenExpired => challenged("AKV10022: The token expired.", &challenge()),
        InjectedError::ClaimsMissing => {
            let challenge = format!("{}, {}", challenge(), claims_challenge());
            challenged("AKV10023: The token lacks claims.", &challenge)
        }
    };
    with_faults(simulator, verb, &subject, injected, |effects| {
        let done = simulator.within(effects, |cx| match handle(cx, name, &caller, &request) {
            Ok(response) => Ok(Ok(response)),
            Err(VaultFailure::Rejected(error)) => Ok(Err(error)),
            Err(VaultFailure::Failed(failure)) => Err(failure),
        });
        match done {
            Ok(Ok(VaultResponse { status, body: Some(body) })) => (status, Json(body)).into_response(),
            Ok(Ok(VaultResponse { status, body: None })) => status.into_response(),
            Ok(Err(error)) => error.response(),
            Err(failure) => failed(&failure),
        }
    })
    .await
}

fn challenged(message: &str, challenge: &str) -> Response {
    let mut response = VaultError::new(StatusCode::UNAUTHORIZED, "Unauthorized", message).response();
    if let Ok(value) = HeaderValue::from_str(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

fn failed(failure: &Failure) -> Response {
    tracing::error!(error = failure as &dyn std::error::Error, "A vault failed");
    VaultError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", "The vault failed.").response()
}

/// Verb and subject for fault rules.
fn classify(
    cx: &CallContext<'_>,
    vault: &str,
    request: &VaultRequest<'_>,
) -> Result<(&'static str, String), Failure> {
    let name = request.segments.get(1).cloned().unwrap_or_default();
    let collection = request.segments.first().map(String::as_str).unwrap_or_default();
    let is_secret = collection.to_lowercase().ends_with("secrets");
    let verb = match (is_secret, request.method) {
        (true, &Method::GET) => "secret",
        (true, &Method::DELETE) => "deleteSecret",
        (true, _) => "putSecret",
        (false, &Method::GET) => "certificate",
        (false, &Method::DELETE) => "deleteCertificate",
        (false, _) => {
            let (url, name_of_vault) = (String::new(), vault.to_owned());
            let scope = VaultScope { name: name_of_vault, url, retention_days: RETENTION_DAYS };
            match objects::present(cx, &scope, ObjectKind::Certificate, &name)? {
                Some(_) => "renewCertificate",
                None => "ensureCertificate",
            }
        }
    };
    Ok((verb, name))
}

fn handle(
    cx: &CallContext<'_>,
    name: &str,
    caller: &Caller,
    request: &VaultRequest<'_>,
) -> Result<VaultResponse, VaultFailure> {
    let resource = store::named(cx.db, VAULT, name)?.filter(|it| it.change != Change::Deleting);
    let Some(resource) = resource else {
        let message = format!("The vault '{name}' does not exist.");
        return Err(VaultError::new(StatusCode::NOT_FOUND, "VaultNotFound", message).into());
    };
    if request.parameter("api-version").is_none_or(str::is_empty) {
        return Err(VaultError::bad_parameter("The query parameter 'api-version' is missing.").into());
    }
    let retention = resource.property("softDeleteRetentionInDays").and_then(Value::as_i64);
    let vault = VaultScope {
        name: name.to_owned(),
        url: cx.endpoints.vaults.get(name).cloned().unwrap_or_default(),
        retention_days: retention.unwrap_or(RETENTION_DAYS),
    };
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let (kind, deleted) = match segments.first().map(|it| it.to_lowercase()).as_deref() {
        Some("secrets") => (ObjectKind::Secret, false),
        Some("certificates") => (ObjectKind::Certificate, false),
        Some("deletedsecrets") => (ObjectKind::Secret, true),
        Some("deletedcertificates") => (ObjectKind::Certificate, true),
        _ => return Err(unsupported(request)),
    };
    if let Some(name) = segments.get(1) {
        check_name(kind, name)?;
    }
    let authorize = |action: &str| authorize(cx, caller, &resource, kind, action);
    let rest = segments.get(1..).unwrap_or_default();
    match (kind, deleted) {
        (ObjectKind::Secret, false) => secrets::handle(cx, &vault, request, rest, &authorize),
        (ObjectKind::Certificate, false) => certificates::handle(cx, &vault, request, rest, &authorize),
        (kind, true) => handle_deleted(cx, &vault, request, kind, rest, &authorize),
    }
}

fn unsupported(request: &VaultRequest<'_>) -> VaultFailure {
    let path = request.segments.join("/");
    match *request.method {
        Method::GET | Method::PUT | Method::POST | Method::PATCH | Method::DELETE => {
            VaultError::new(StatusCode::NOT_FOUND, "NotFound", format!("The path '/{path}' does not exist."))
        }
        _ => VaultError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            format!("The method {} is not allowed on '/{path}'.", request.method),
        ),
    }
    .into()
}

fn check_name(kind: ObjectKind, name: &str) -> Result<(), VaultError> {
    let is_sound = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    match is_sound {
        true => Ok(()),
        false => {
            let path = kind.path();
            Err(VaultError::bad_parameter(format!(
                "The request URI contains an invalid name: {name}. Names of {path} have 1 to {NAME_CHARS_MAX} letters, digits and hyphens."
            )))
        }
    }
}

/// The data action of an operation on objects, and its name in access policies.
fn action_names(kind: ObjectKind, action: &str) -> (String, String) {
    let permission = match action {
        "getSecret" | "read" => "get",
        "setSecret" => "set",
        "readMetadata" => "list",
        other => other,
    };
    let suffix = if matches!(action, "read" | "delete") { "" } else { "/action" };
    (format!("Microsoft.KeyVault/vaults/{}/{action}{suffix}", kind.path()), permission.to_owned())
}

/// Requires that the caller may perform an action, by role or by access policy.
fn authorize(
    cx: &CallContext<'_>,
    caller: &Caller,
    vault: &ArmResource,
    kind: ObjectKind,
    action: &str,
) -> Result<(), VaultFailure> {
    let (data_action, permission) = action_names(kind, action);
    if access::allows_data(cx, caller, &data_action, vault.id.as_str())? {
        return Ok(());
    }
    let uses_roles = vault.property("enableRbacAuthorization").and_then(Value::as_bool).unwrap_or(false);
    if uses_roles {
        return Err(forbidden(caller, &data_action, vault.id.as_str(), "ForbiddenByRbac").into());
    }
    let policies = vault.property("accessPolicies").and_then(Value::as_array);
    let is_granted = policies.into_iter().flatten().any(|policy| {
        let is_caller =
            policy["objectId"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(&caller.object_id));
        let granted = policy["permissions"][kind.path()].as_array();
        let allows = |it: &str| it.eq_ignore_ascii_case(&permission) || it.eq_ignore_ascii_case("all");
        is_caller && granted.into_iter().flatten().filter_map(Value::as_str).any(allows)
    });
    match is_granted {
        true => Ok(()),
        false => Err(forbidden(caller, &permission, vault.id.as_str(), "ForbiddenByPolicy").into()),
    }
}

fn forbidden(caller: &Caller, action: &str, what: &str, inner: &'static str) -> VaultError {
    let message = format!(
        "Caller is not authorized to perform action on resource. Caller: appid={};oid={}. Action: '{action}'. Resource: '{what}'.",
        caller.client_id, caller.object_id
    );
    VaultError::new(StatusCode::FORBIDDEN, "Forbidden", message).with_inner(inner)
}

/// The error of a name that is not there.
fn missing(kind: ObjectKind, name: &str) -> VaultFailure {
    let (code, what) = match kind {
        ObjectKind::Secret => ("SecretNotFound", "secret"),
        ObjectKind::Certificate => ("CertificateNotFound", "certificate"),
    };
    let message = format!("A {what} with (name/id) {name} was not found in this key vault.");
    VaultError::new(StatusCode::NOT_FOUND, code, message).into()
}

/// Requires that a name is not that of a deleted object.
fn check_not_deleted(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
) -> Result<(), VaultFailure> {
    let Some(deletion) = objects::find(cx, vault, kind, name)?.and_then(|it| it.deletion) else {
        return Ok(());
    };
    let (state, inner) = match cx.now < deletion.completed {
        true => ("being deleted", "ObjectIsBeingDeleted"),
        false => (
            "in a deleted but recoverable state, and its name cannot be reused",
            "ObjectIsDeletedButRecoverable",
        ),
    };
    let path = kind.path().trim_end_matches('s');
    Err(VaultError::conflict(format!("The {path} {name} is currently {state}.")).with_inner(inner).into())
}

/// One page of a list. The token is the number of items before the page.
fn page(
    vault: &VaultScope,
    request: &VaultRequest<'_>,
    items: Vec<Value>,
) -> Result<VaultResponse, VaultFailure> {
    let limit = match request.parameter("maxresults").map(str::parse::<usize>) {
        None => PAGE_ITEMS_MAX,
        Some(Ok(limit)) if (1..=PAGE_ITEMS_MAX).contains(&limit) => limit,
        Some(_) => {
            let message = format!("The query parameter 'maxresults' must be between 1 and {PAGE_ITEMS_MAX}.");
            return Err(VaultError::bad_parameter(message).into());
        }
    };
    let before = match request.parameter("$skiptoken").map(str::parse::<usize>) {
        None => 0,
        Some(Ok(before)) => before,
        Some(Err(_)) => {
            return Err(VaultError::bad_parameter("The query parameter '$skiptoken' is invalid.").into());
        }
    };
    let next = before.saturating_add(limit);
    let link = (next < items.len()).then(|| {
        let version = request.parameter("api-version").unwrap_or_default();
        let path = request.segments.join("/");
        format!("{}/{path}?api-version={version}&$skiptoken={next}&maxresults={limit}", vault.url)
    });
    let value: Vec<Value> = items.into_iter().skip(before).take(limit).collect();
    Ok(VaultResponse::ok(json!({ "value": value, "nextLink": link })))
}

/// Requests on deleted objects: read, list, recover, purge.
fn handle_deleted(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    request: &VaultRequest<'_>,
    kind: ObjectKind,
    rest: &[&str],
    authorize: &dyn Fn(&str) -> Result<(), VaultFailure>,
) -> Result<VaultResponse, VaultFailure> {
    let show = |object: &objects::VaultObject, full: bool| match kind {
        ObjectKind::Secret => secrets::shown_deleted(cx, vault, object),
        ObjectKind::Certificate => certificates::shown_deleted(cx, vault, object, full),
    };
    let read = if kind == ObjectKind::Secret { "readMetadata" } else { "read" };
    let find = |name: &str| {
        let found = objects::find(cx, vault, kind, name)?;
        let is_deleted = |it: &objects::Deletion| it.completed <= cx.now;
        Ok::<_, VaultFailure>(found.filter(|it| it.deletion.as_ref().is_some_and(is_deleted)))
    };
    match (request.method, rest) {
        (&Method::GET, []) => {
            authorize(read)?;
            let mut shown = Vec::new();
            for object in objects::all(cx, vault, kind, true)? {
                if object.deletion.as_ref().is_some_and(|it| it.completed <= cx.now) {
                    shown.push(show(&object, false)?);
                }
            }
            page(vault, request, shown)
        }
        (&Method::GET, [name]) => {
            authorize(read)?;
            let object = find(name)?.ok_or_else(|| missing(kind, name))?;
            Ok(VaultResponse::ok(show(&object, true)?))
        }
        (&Method::POST, [name, "recover"]) => {
            authorize("recover")?;
            let mut object = find(name)?.ok_or_else(|| missing(kind, name))?;
            object.deletion = None;
            objects::keep(cx, vault, kind, &object)?;
            let shown = match kind {
                ObjectKind::Secret => secrets::newest_properties(cx, vault, &object)?,
                ObjectKind::Certificate => certificates::newest(cx, vault, &object)?,
            };
            Ok(VaultResponse::ok(shown))
        }
        (&Method::DELETE, [name]) => {
            authorize("purge")?;
            find(name)?.ok_or_else(|| missing(kind, name))?;
            objects::purge(cx, vault, kind, name)?;
            Ok(VaultResponse { status: StatusCode::NO_CONTENT, body: None })
        }
        _ => Err(unsupported(request)),
    }
}

/// The members of a deleted object beside its own.
fn add_deletion(vault: &VaultScope, kind: ObjectKind, object: &objects::VaultObject, shown: &mut Value) {
    if let Some(deletion) = &object.deletion {
        shown["recoveryId"] = json!(format!("{}/{}/{}", vault.url, kind.deleted_path(), object.name));
        shown["deletedDate"] = json!(deletion.at.as_second());
        shown["scheduledPurgeDate"] = json!(deletion.purged.as_second());
    }
}
