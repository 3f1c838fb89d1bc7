//! Scheduled events: announced by a setting, listed to the machine that they concern, and started when it agrees.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use cloud::ResourceId;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{MetadataRequest, rejected, respond};
use crate::arm::kinds::machines;
use crate::call_context::CallContext;
use crate::database;
use crate::failure::{Failure, invalid};
use crate::seed;
use crate::settings::ScheduledEvent;
use crate::simulator::Simulator;

const EVENTS: &str = "scheduled-events";

const SCHEDULED: &str = "Scheduled";
const STARTED: &str = "Started";
/// The cloud evicts a spot machine.
const PREEMPT: &str = "Preempt";

/// The events of a machine. The incarnation rises with every change.
#[derive(Default, Serialize, Deserialize)]
struct StoredEvents {
    incarnation: u64,
    events: Vec<ScheduledEvent>,
}

fn stored(cx: &CallContext<'_>, machine: &str) -> Result<StoredEvents, Failure> {
    Ok(database::record(cx.db, EVENTS, &machine.to_lowercase())?.unwrap_or_default())
}

/// Announces an event, changes it, or withdraws it.
pub(crate) fn announce(cx: &CallContext<'_>, event: &ScheduledEvent) -> Result<(), Failure> {
    let mut kept = stored(cx, &event.machine)?;
    kept.incarnation += 1;
    kept.events.retain(|it| it.id != event.id);
    if event.status.is_some() {
        kept.events.push(event.clone());
    }
    if event.event_type == PREEMPT {
        let at = event.not_before.filter(|_| event.status.as_deref() != Some(STARTED)).unwrap_or(cx.now);
        machines::preempt(cx, &event.machine, event.status.as_ref().map(|_| at))?;
    }
    database::write(cx.db, EVENTS, &event.machine.to_lowercase(), &kept)
}

/// Announces that a spot machine is evicted when its notice has passed. An eviction that was announced before keeps its time.
pub(crate) fn interrupt(cx: &CallContext<'_>, machine: &ResourceId, notice: Duration) -> Result<(), Failure> {
    machines::check_interruptible(cx, machine)?;
    let name = machine.name();
    for earlier in events_of(cx, name)?.into_iter().filter(|it| it.event_type == PREEMPT) {
        if earlier.not_before.is_some_and(|at| cx.now < at) {
            return Ok(());
        }
        // The machine was evicted, and was started again since.
        announce(cx, &ScheduledEvent { status: None, ..earlier })?;
    }
    let at = cx.now.checked_add(notice).map_err(|_| invalid("noticeSeconds", "must be a time that comes"))?;
    let event = ScheduledEvent {
        machine: name.to_owned(),
        id: seed::uuid(cx.seed, &["event", &machine.key(), &cx.now.to_string()]).to_string().to_uppercase(),
        event_type: PREEMPT.to_owned(),
        status: Some(SCHEDULED.to_owned()),
        not_before: Some(at),
        description: String::new(),
        duration_seconds: -1,
    };
    announce(cx, &event)
}

/// The events of a machine.
pub(crate) fn events_of(cx: &CallContext<'_>, machine: &str) -> Result<Vec<ScheduledEvent>, Failure> {
    Ok(stored(cx, machine)?.events)
}

fn shown(event: &ScheduledEvent) -> Value {
    let status = event.status.as_deref().unwrap_or(SCHEDULED);
    let begins = event.not_before.filter(|_| status == SCHEDULED);
    json!({
        "EventId": event.id,
        "EventStatus": status,
        "EventType": event.event_type,
        "ResourceType": "VirtualMachine",
        "Resources": [event.machine],
        "NotBefore": begins.map(|it| it.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap_or_default(),
        "Description": event.description,
        "EventSource": "Platform",
        "DurationInSeconds": event.duration_seconds,
    })
}

pub(super) async fn list(
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
        let kept = stored(cx, request.machine.as_deref().unwrap_or_default())?;
        let events: Vec<Value> = kept.events.iter().map(shown).collect();
        Ok(Json(json!({ "DocumentIncarnation": kept.incarnation, "Events": events })).into_response())
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequests {
    start_requests: Vec<StartRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequest {
    event_id: String,
}

/// The machine agrees that events start now.
pub(super) async fn start(
    State(simulator): State<Arc<Simulator>>,
    machine: Option<Path<String>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let request = match MetadataRequest::read(machine, &headers, query.as_deref()) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let Ok(agreed) = serde_json::from_slice::<StartRequests>(&body) else {
        return rejected(StatusCode::BAD_REQUEST, "Bad request. StartRequests is missing or malformed");
    };
    let response = respond(&simulator, |cx| {
        let name = request.machine.as_deref().unwrap_or_default().to_lowercase();
        let mut kept = stored(cx, &name)?;
        for StartRequest { event_id } in &agreed.start_requests {
            let Some(event) = kept.events.iter_mut().find(|it| it.id == *event_id) else {
                return Ok(rejected(StatusCode::BAD_REQUEST, "Bad request. Unknown EventId"));
            };
            event.status = Some(STARTED.to_owned());
            if event.event_type == PREEMPT {
                machines::preempt(cx, &name, Some(cx.now))?;
            }
        }
        kept.incarnation += 1;
        database::write(cx.db, EVENTS, &name, &kept)?;
        Ok(StatusCode::OK.into_response())
    });
    simulator.notify_all();
    response
}
