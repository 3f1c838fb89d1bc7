//! The door: HTTP on the loopback interface, for whoever has the token.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::desk::{Desk, bent_by};
use crate::failure::{Failure, invalid};
use crate::faults::{FaultRule, Moment, Trouble};
use crate::protocol::{Call, Refusal, Refused};
use crate::room::{Bent, Room};
use crate::settings::Setting;
use crate::vault;

#[derive(Clone)]
struct Hall {
    desk: Arc<Desk>,
    token: Arc<str>,
}

/// The routes.
pub(crate) fn routes(desk: Arc<Desk>, token: &str) -> Router {
    let hall = Hall { desk, token: token.into() };
    Router::new()
        .route("/call", post(call))
        .route("/sim/settings", post(settings))
        .route("/sim/faults", get(faults).post(inject).delete(clear))
        .route("/sim/authority", get(authority))
        .layer(middleware::from_fn_with_state(hall.clone(), guard))
        .with_state(hall)
}

/// Only those who have the token come in.
async fn guard(State(hall): State<Hall>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    if given.is_some_and(|given| is_same(given, &hall.token)) {
        return next.run(request).await;
    }
    let why = "the bearer token is not the one of this simulated cloud".to_owned();
    refused(Refusal::Credential { who: "the caller".to_owned(), why })
}

/// Compares in a time that does not tell where two texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| invalid("InvalidRequestContent", error.to_string()))
}

fn refused(refusal: Refusal) -> Response {
    let status = refusal.status();
    let after = match &refusal {
        Refusal::Throttled { after_seconds } => *after_seconds,
        _ => None,
    };
    let mut response = (status, Json(Refused { error: refusal })).into_response();
    if let Some(seconds) = after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn answered(what: &str, done: Result<Value, Failure>) -> Response {
    match done {
        Ok(value) => Json(value).into_response(),
        Err(Failure::Refused(refusal)) => refused(refusal),
        Err(failure) => {
            tracing::error!(
                error = &failure as &dyn std::error::Error,
                "The simulated cloud failed at {what}"
            );
            refused(Refusal::Unavailable { what: what.to_owned() })
        }
    }
}

/// An answer that breaks off, so that the connection does.
fn broken() -> Response {
    let cut = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
    let head = [(CONTENT_TYPE, "application/json")];
    (StatusCode::OK, head, Body::from_stream(cut)).into_response()
}

async fn call(State(hall): State<Hall>, body: Bytes) -> Response {
    let call: Call = match read(&body) {
        Ok(call) => call,
        Err(failure) => return answered("a call", Err(failure)),
    };
    let what = format!("{call:?}");
    let met =
        hall.desk.faults.meet(call.verb(), &call.subject(), |it| !matches!(it, Trouble::InstallFails { .. }));
    if let Some(trouble) = &met {
        tracing::debug!("{what}: {trouble}");
    }
    match &met {
        Some(Trouble::Throttled { after_seconds }) => {
            return refused(Refusal::Throttled { after_seconds: Some(*after_seconds) });
        }
        Some(Trouble::Unavailable { when: Moment::Before }) => return refused(Refusal::Unavailable { what }),
        Some(Trouble::Reset { when: Moment::Before }) => return broken(),
        Some(Trouble::Hangs { millis, when: Moment::Before }) => {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
        }
        _ => {}
    }
    let bent = met.as_ref().map_or(Ok(Bent::default()), |trouble| bent_by(trouble, &call));
    let install_fails_at = hall.desk.install_fails_at(&call);
    let done = bent.and_then(|bent| hall.desk.perform(&call, Bent { install_fails_at, ..bent }));
    match met {
        Some(Trouble::Unavailable { when: Moment::After }) => refused(Refusal::Unavailable { what }),
        Some(Trouble::Reset { when: Moment::After }) => broken(),
        Some(Trouble::Hangs { millis, when: Moment::After }) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            answered(&what, done)
        }
        _ => answered(&what, done),
    }
}

async fn settings(State(hall): State<Hall>, body: Bytes) -> Response {
    let done = read::<Setting>(&body).and_then(|setting| hall.desk.arrange(&setting));
    answered("a setting", done)
}

async fn faults(State(hall): State<Hall>) -> Response {
    Json(hall.desk.faults.present()).into_response()
}

async fn inject(State(hall): State<Hall>, body: Bytes) -> Response {
    let done = read::<FaultRule>(&body).map(|rule| {
        hall.desk.faults.inject(rule);
        Value::Null
    });
    answered("a fault", done)
}

async fn clear(State(hall): State<Hall>) -> Response {
    hall.desk.faults.clear();
    Json(Value::Null).into_response()
}

/// The certificate of the vault's authority, for those who check what it issued.
async fn authority(State(hall): State<Hall>) -> Response {
    let told = |room: &Room<'_>| Ok(Value::String(vault::authority_pem(room)?));
    answered("the authority", hall.desk.within(Bent::default(), told))
}
