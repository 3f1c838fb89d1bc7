//! The instance metadata service: what a machine is, tokens of its identities, and events that the cloud announces to it.
//!
//! A real one is reached from inside a machine. Here the path says which machine asks: `/machines/{name}/metadata/…`, so that
//! clients only need another base address. Without the prefix, no machine asks: tokens need an identity by name, and there are no events.

mod events;
mod token;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::arm::{ArmResource, store};
use crate::call_context::{CallContext, FaultEffects};
use crate::failure::Failure;
use crate::simulator::Simulator;

pub(crate) use events::{announce, events_of, interrupt};

const MACHINE_TYPE: &str = "Microsoft.Compute/virtualMachines";

/// The routes, plain and below `/machines/{name}`.
pub(crate) fn routes(simulator: Arc<Simulator>) -> Router {
    let below = |prefix: &str| {
        Router::new()
            .route(&format!("{prefix}/metadata/instance"), get(instance))
            .route(&format!("{prefix}/metadata/identity/oauth2/token"), get(token::token))
            .route(&format!("{prefix}/metadata/scheduledevents"), get(events::list).post(events::start))
    };
    below("").merge(below("/machines/{name}")).with_state(simulator)
}

/// Who asks, and with which parameters.
struct MetadataRequest {
    machine: Option<String>,
    query: Vec<(String, String)>,
}

impl MetadataRequest {
    /// Reads a request; every one needs the header `Metadata: true` and an api-version.
    fn read(
        machine: Option<Path<String>>,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<MetadataRequest, Box<Response>> {
        let is_meant = headers.get("metadata").is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"true"));
        if !is_meant {
            let why = "Bad request. Required metadata header not specified or not correct";
            return Err(Box::new(rejected(StatusCode::BAD_REQUEST, why)));
        }
        let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
        let request = MetadataRequest { machine: machine.map(|it| it.0), query };
        match request.parameter("api-version") {
            Some(_) => Ok(request),
            None => {
                let why = "Bad request. api-version was not specified in the request";
                Err(Box::new(rejected(StatusCode::BAD_REQUEST, why)))
            }
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).filter(|it| !it.is_empty())
    }

    /// The machine that asks.
    fn machine(&self, cx: &CallContext<'_>) -> Result<Option<ArmResource>, Failure> {
        let Some(name) = &self.machine else { return Ok(None) };
        let machines = store::of_type_anywhere(cx.db, MACHINE_TYPE)?;
        Ok(machines.into_iter().find(|it| it.id.name().eq_ignore_ascii_case(name)))
    }
}

fn rejected(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

/// Carries out the work of a request in one transaction.
fn respond(
    simulator: &Simulator,
    work: impl FnOnce(&CallContext<'_>) -> Result<Response, Failure>,
) -> Response {
    simulator.within(FaultEffects::default(), work).unwrap_or_else(|failure| {
        tracing::error!(error = &failure as &dyn std::error::Error, "The metadata service failed");
        rejected(StatusCode::INTERNAL_SERVER_ERROR, "Unexpected error")
    })
}

async fn instance(
    State(simulator): State<Arc<Simulator>>,
    machine: Option<Path<String>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let request = match MetadataRequest::read(machine, &headers, query.as_deref()) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    respond(&simulator, |cx| {
        Ok(match request.machine(cx)? {
            Some(machine) => Json(described(&machine)).into_response(),
            None => rejected(StatusCode::NOT_FOUND, "Not found"),
        })
    })
}

fn described(machine: &ArmResource) -> Value {
    let property = |name: &str| machine.property(name).cloned().unwrap_or(Value::Null);
    let tags = machine.body.get("tags").and_then(Value::as_object);
    let listed: Vec<Value> =
        tags.into_iter().flatten().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let joined: Vec<String> = tags
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}:{}", value.as_str().unwrap_or_default()))
        .collect();
    let zone = machine.body.get("zones").and_then(|it| it[0].as_str()).unwrap_or_default();
    json!({
        "compute": {
            "azEnvironment": "AzurePublicCloud",
            "location": machine.location(),
            "name": machine.id.name(),
            "osType": "Linux",
            "provider": "Microsoft.Compute",
            "resourceGroupName": machine.id.resource_group(),
            "resourceId": machine.id.as_str(),
            "subscriptionId": machine.id.subscription(),
            "tags": joined.join(";"),
            "tagsList": listed,
            "vmId": property("vmId"),
            "vmSize": property("hardwareProfile")["vmSize"],
            "zone": zone,
        },
        "network": { "interface": [] },
    })
}
