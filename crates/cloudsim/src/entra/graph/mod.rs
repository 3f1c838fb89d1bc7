//! The part of Microsoft Graph that `az` needs: applications and service principals. A principal is an application and its service
//! principal; a managed identity is a service principal alone. An application has one secret, which a new one replaces.
//!
//! Everybody may read. Writing needs a principal that may do everything, which stands for a directory role.

mod directory;
mod filter;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};

use super::{Caller, authenticate};
use crate::arm::ArmError;
use crate::call_context::{CallContext, FaultEffects};
use crate::failure::Failure;
use crate::identities;
use crate::settings::Rights;
use crate::simulator::Simulator;
use directory::DirectoryObject;
use filter::Filter;

const AUDIENCE: &str = "https://graph.microsoft.com";

type Shared = State<Arc<Simulator>>;

/// The routes, which are those of version 1.0.
pub(crate) fn graph_routes(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/v1.0/servicePrincipals", get(service_principals).post(create_service_principal))
        .route("/v1.0/servicePrincipals/{id}", get(service_principal).delete(delete_service_principal))
        .route("/v1.0/applications", get(applications).post(create_application))
        .route("/v1.0/applications/{id}", get(application).delete(delete_application))
        .route("/v1.0/applications/{id}/addPassword", post(add_password))
        .route("/v1.0/directoryObjects/getByIds", post(by_ids))
        .route("/v1.0/{*rest}", axum::routing::any(unknown))
        .with_state(simulator)
}

/// Carries out a request of an authenticated caller in one transaction.
fn respond(
    simulator: &Simulator,
    headers: &HeaderMap,
    success: StatusCode,
    work: impl FnOnce(&CallContext<'_>, &Caller) -> Result<Value, Failure>,
) -> Response {
    let done = simulator.within(FaultEffects::default(), |cx| {
        // A cloud that is registered by its address has that of Graph as audience.
        let caller = authenticate(cx, headers, &[AUDIENCE, &cx.endpoints.authority])?;
        work(cx, &caller)
    });
    match done {
        Ok(Value::Null) => success.into_response(),
        Ok(body) => (success, Json(body)).into_response(),
        Err(Failure::Arm(error)) => (error.status, Json(error_body(&error))).into_response(),
        Err(failure) => {
            tracing::error!(
                error = &failure as &dyn std::error::Error,
                "The emulated Microsoft Graph failed"
            );
            let error =
                ArmError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", "Graph failed.");
            (error.status, Json(error_body(&error))).into_response()
        }
    }
}

fn error_body(error: &ArmError) -> Value {
    json!({ "error": { "code": error.code, "message": error.message } })
}

fn page(values: Vec<Value>) -> Value {
    json!({ "value": values })
}

fn absent(id: &str) -> Failure {
    let message = format!(
        "Resource '{id}' does not exist or one of its queried reference-property objects are not present."
    );
    ArmError::not_found("Request_ResourceNotFound", message).into()
}

fn read(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body)
        .map_err(|_| ArmError::bad_request("BadRequest", "Unable to read JSON request payload.").into())
}

fn text<'a>(body: &'a Value, member: &str) -> Result<&'a str, Failure> {
    body[member].as_str().filter(|it| !it.is_empty()).ok_or_else(|| {
        let message = format!("A value is required for property '{member}' of the resource.");
        ArmError::bad_request("Request_BadRequest", message).into()
    })
}

/// Requires a caller that may do everything.
fn check_writer(cx: &CallContext<'_>, caller: &Caller) -> Result<(), Failure> {
    let found = identities::find_principal(cx, &caller.client_id)?;
    match found.is_some_and(|it| it.known.rights == Rights::Everywhere) {
        true => Ok(()),
        false => {
            let message = "Insufficient privileges to complete the operation.";
            Err(ArmError::new(StatusCode::FORBIDDEN, "Authorization_RequestDenied", message).into())
        }
    }
}

/// The filter in the query of a list; none matches everything.
fn filter_of(uri: &Uri) -> Result<Filter, Failure> {
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let given = query.into_owned().find(|(name, _)| name == "$filter").map(|(_, value)| value);
    let given = given.unwrap_or_default();
    Filter::parse(&given).ok_or_else(|| {
        let message = format!("Unsupported or invalid query filter clause: {given}");
        ArmError::bad_request("Request_UnsupportedQuery", message).into()
    })
}

async fn service_principals(State(simulator): Shared, headers: HeaderMap, uri: Uri) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, _| {
        let filter = filter_of(&uri)?;
        let found = directory::service_principals(cx)?;
        Ok(page(
            found.iter().filter(|it| filter.matches(it)).map(DirectoryObject::service_principal).collect(),
        ))
    })
}

async fn service_principal(State(simulator): Shared, headers: HeaderMap, Path(id): Path<String>) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, _| {
        let found = directory::service_principals(cx)?.into_iter().find(|it| it.has_object_id(&id));
        Ok(found.ok_or_else(|| absent(&id))?.service_principal())
    })
}

async fn create_service_principal(State(simulator): Shared, headers: HeaderMap, body: Bytes) -> Response {
    respond(&simulator, &headers, StatusCode::CREATED, |cx, caller| {
        check_writer(cx, caller)?;
        let body = read(&body)?;
        directory::create_service_principal(cx, text(&body, "appId")?)
    })
}

async fn delete_service_principal(
    State(simulator): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    respond(&simulator, &headers, StatusCode::NO_CONTENT, |cx, caller| {
        check_writer(cx, caller)?;
        let found = directory::service_principals(cx)?.into_iter().find(|it| it.has_object_id(&id));
        directory::delete_service_principal(cx, &found.ok_or_else(|| absent(&id))?)
    })
}

async fn applications(State(simulator): Shared, headers: HeaderMap, uri: Uri) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, _| {
        let filter = filter_of(&uri)?;
        let found = directory::applications(cx)?;
        Ok(page(found.iter().filter(|it| filter.matches(it)).map(|it| it.application(cx.seed)).collect()))
    })
}

fn find_application(cx: &CallContext<'_>, id: &str) -> Result<DirectoryObject, Failure> {
    let found = directory::applications(cx)?.into_iter().find(|it| it.has_application_id(cx.seed, id));
    found.ok_or_else(|| absent(id))
}

async fn application(State(simulator): Shared, headers: HeaderMap, Path(id): Path<String>) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, _| Ok(find_application(cx, &id)?.application(cx.seed)))
}

async fn create_application(State(simulator): Shared, headers: HeaderMap, body: Bytes) -> Response {
    respond(&simulator, &headers, StatusCode::CREATED, |cx, caller| {
        check_writer(cx, caller)?;
        let body = read(&body)?;
        directory::create_application(cx, text(&body, "displayName")?)
    })
}

async fn delete_application(
    State(simulator): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    respond(&simulator, &headers, StatusCode::NO_CONTENT, |cx, caller| {
        check_writer(cx, caller)?;
        identities::delete_principal(cx, &find_application(cx, &id)?.app_id)?;
        Ok(Value::Null)
    })
}

async fn add_password(
    State(simulator): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, caller| {
        check_writer(cx, caller)?;
        let wanted = if body.is_empty() { Value::Null } else { read(&body)? };
        directory::add_password(cx, &find_application(cx, &id)?, &wanted["passwordCredential"])
    })
}

async fn by_ids(State(simulator): Shared, headers: HeaderMap, body: Bytes) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |cx, _| {
        let body = read(&body)?;
        let ids: Vec<&str> = body["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found = directory::service_principals(cx)?;
        let named = found.iter().filter(|it| ids.iter().any(|id| it.has_object_id(id)));
        Ok(page(
            named
                .map(|it| {
                    let mut shown = it.service_principal();
                    shown["@odata.type"] = json!("#microsoft.graph.servicePrincipal");
                    shown
                })
                .collect(),
        ))
    })
}

async fn unknown(State(simulator): Shared, headers: HeaderMap, uri: Uri) -> Response {
    respond(&simulator, &headers, StatusCode::OK, |_, _| {
        let segment = uri.path().split('/').nth(2).unwrap_or_default();
        let message = format!("Resource not found for the segment '{segment}'.");
        Err(ArmError::bad_request("BadRequest", message).into())
    })
}
