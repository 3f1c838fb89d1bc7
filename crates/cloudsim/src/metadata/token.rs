//! Tokens of managed identities, as a machine asks for them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::MetadataRequest;
use crate::arm::{ArmResource, store};
use crate::call_context::CallContext;
use crate::entra;
use crate::failure::Failure;
use crate::fault_injection::{InjectedError, with_faults};
use crate::simulator::Simulator;

pub(super) async fn token(
    State(simulator): State<Arc<Simulator>>,
    machine: Option<Path<String>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let request = match MetadataRequest::read(machine, &headers, query.as_deref()) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let Some(audience) = request.parameter("resource") else {
        return refused("invalid_request", "Required audience parameter not specified");
    };
    let named = ["client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"];
    let subject = named.iter().find_map(|it| request.parameter(it)).unwrap_or_default();
    let injected = |error: InjectedError| {
        let body =
            json!({ "error": "server_error", "error_description": "The identity endpoint is unavailable." });
        (error.status(), Json(body)).into_response()
    };
    with_faults(&simulator, "principal", subject, injected, |_| {
        super::respond(&simulator, |cx| {
            let Some(identity) = identity(cx, &request)? else {
                return Ok(refused("invalid_request", "Identity not found"));
            };
            Ok(match entra::issue_for_identity(cx, &identity, audience)? {
                Ok(issued) => Json(json!({
                    "access_token": issued.token,
                    "client_id": identity.property("clientId"),
                    "expires_in": issued.seconds.to_string(),
                    "ext_expires_in": issued.seconds.to_string(),
                    "expires_on": issued.expires.to_string(),
                    "not_before": (issued.expires - issued.seconds).to_string(),
                    "resource": issued.audience,
                    "token_type": "Bearer",
                }))
                .into_response(),
                Err(error) => refused("invalid_resource", &format!("AADSTS{}: {}", error.code, error.text)),
            })
        })
    })
    .await
}

fn refused(error: &str, why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error, "error_description": why }))).into_response()
}

/// The identity that a request names; else the only one of the machine that asks. A machine uses only identities that it has.
fn identity(cx: &CallContext<'_>, request: &MetadataRequest) -> Result<Option<ArmResource>, Failure> {
    let machine = request.machine(cx)?;
    let of_machine: Option<Vec<String>> = machine.map(|it| {
        let identities = it.body.get("identity").and_then(|it| it["userAssignedIdentities"].as_object());
        identities.into_iter().flatten().map(|(id, _)| id.to_lowercase()).collect()
    });
    let is = |resource: &ArmResource, property: &str, wanted: &str| {
        let found = resource.property(property).and_then(Value::as_str);
        found.is_some_and(|it| it.eq_ignore_ascii_case(wanted))
    };
    let parameter = |names: &[&str]| names.iter().find_map(|it| request.parameter(it));
    let found = if let Some(client) = parameter(&["client_id"]) {
        entra::find_identity(cx, |it| is(it, "clientId", client))?
    } else if let Some(object) = parameter(&["object_id", "principal_id"]) {
        entra::find_identity(cx, |it| is(it, "principalId", object))?
    } else {
        let only = match of_machine.as_deref() {
            Some([only]) => Some(only.as_str()),
            _ => None,
        };
        match parameter(&["msi_res_id", "mi_res_id"]).or(only).and_then(|id| id.parse().ok()) {
            Some(id) => store::visible(cx, &id)?,
            None => None,
        }
    };
    Ok(found.filter(|it| of_machine.as_ref().is_none_or(|ids| ids.contains(&it.id.key()))))
}
