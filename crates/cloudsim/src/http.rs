//! What only a simulator can do, over HTTP: settings, faults and the installer, protected by the bearer token.

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

use crate::call_context::{CallContext, FaultEffects};
use crate::failure::{Failure, invalid};
use crate::faults::{CloudFault, FaultRule, FaultTiming};
use crate::keyvault::authority;
use crate::protocol::{CallError, ErrorBody, InstallCall};
use crate::settings::Setting;
use crate::simulator::Simulator;

#[derive(Clone)]
struct HttpState {
    simulator: Arc<Simulator>,
    token: Arc<str>,
}

/// The routes: everything below `/sim`.
pub(crate) fn routes(simulator: Arc<Simulator>, token: &str) -> Router {
    let state = HttpState { simulator, token: token.into() };
    Router::new()
        .route("/sim/settings", post(settings))
        .route("/sim/faults", get(faults).post(inject).delete(clear))
        .route("/sim/authority", get(authority_certificate))
        .route("/sim/installations", post(install_call))
        .route_layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

/// Rejects requests without the token.
async fn guard(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    if given.is_some_and(|given| is_same(given, &state.token)) {
        return next.run(request).await;
    }
    let why = "the bearer token is not the one of this simulated cloud".to_owned();
    refused(CallError::Credential { who: "the caller".to_owned(), why })
}

/// Compares in constant time.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| invalid("InvalidRequestContent", error.to_string()))
}

fn refused(error: CallError) -> Response {
    let status = error.status();
    let after = match &error {
        CallError::Throttled { after_seconds } => *after_seconds,
        _ => None,
    };
    let mut response = (status, Json(ErrorBody { error })).into_response();
    if let Some(seconds) = after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn answered(what: &str, done: Result<Value, Failure>) -> Response {
    match done {
        Ok(value) => Json(value).into_response(),
        Err(Failure::Refused(error)) => refused(error),
        Err(failure) => {
            tracing::error!(
                error = &failure as &dyn std::error::Error,
                "The simulated cloud failed at {what}"
            );
            refused(CallError::Unavailable { what: what.to_owned() })
        }
    }
}

/// A response body that fails, so that the connection is reset.
fn broken() -> Response {
    let cut = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
    let head = [(CONTENT_TYPE, "application/json")];
    (StatusCode::OK, head, Body::from_stream(cut)).into_response()
}

/// Whether a fault can befall a call of the installer, which has neither operations nor policies nor tokens that expire.
fn is_of_calls(fault: &CloudFault) -> bool {
    !matches!(
        fault,
        CloudFault::InstallFails { .. }
            | CloudFault::OperationLost {}
            | CloudFault::OperationHangs {}
            | CloudFault::Policy { .. }
            | CloudFault::TokenExpires {}
            | CloudFault::Claims {}
            | CloudFault::Conflict { .. }
            | CloudFault::HandshakeFails {}
    )
}

/// The calls of the installer, which Azure does not have.
async fn install_call(State(state): State<HttpState>, body: Bytes) -> Response {
    let call: InstallCall = match read(&body) {
        Ok(call) => call,
        Err(failure) => return answered("a call", Err(failure)),
    };
    let what = format!("{call:?}");
    let met = state.simulator.faults.meet(call.verb(), &call.subject(), is_of_calls);
    if let Some(fault) = &met {
        tracing::debug!("{what}: {fault}");
    }
    match &met {
        Some(CloudFault::Throttled { after_seconds }) => {
            return refused(CallError::Throttled { after_seconds: Some(*after_seconds) });
        }
        Some(CloudFault::Unavailable { when: FaultTiming::Before }) => {
            return refused(CallError::Unavailable { what });
        }
        Some(CloudFault::Reset { when: FaultTiming::Before }) => return broken(),
        Some(CloudFault::Denied {}) => {
            let (action, what) = (call.verb().to_owned(), call.subject());
            return refused(CallError::Denied { who: "this service".to_owned(), action, what });
        }
        Some(CloudFault::Delayed { millis, when: FaultTiming::Before }) => {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
        }
        _ => {}
    }
    let done = state.simulator.perform(&call);
    match met {
        Some(CloudFault::Unavailable { when: FaultTiming::After }) => {
            refused(CallError::Unavailable { what })
        }
        Some(CloudFault::Reset { when: FaultTiming::After }) => broken(),
        Some(CloudFault::Delayed { millis, when: FaultTiming::After }) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            answered(&what, done)
        }
        _ => answered(&what, done),
    }
}

async fn settings(State(state): State<HttpState>, body: Bytes) -> Response {
    let done = read::<Setting>(&body).and_then(|setting| state.simulator.arrange(&setting));
    answered("a setting", done)
}

async fn faults(State(state): State<HttpState>) -> Response {
    Json(state.simulator.faults.present()).into_response()
}

async fn inject(State(state): State<HttpState>, body: Bytes) -> Response {
    let inject = |rule| state.simulator.faults.inject(rule);
    let done = read::<FaultRule>(&body)
        .and_then(|rule| inject(rule).map_err(|error| invalid("InvalidFaultRule", error.to_string())))
        .map(|()| Value::Null);
    answered("a fault", done)
}

async fn clear(State(state): State<HttpState>) -> Response {
    state.simulator.faults.clear();
    Json(Value::Null).into_response()
}

/// The certificate of the vault's authority, for verifiers of the certificates that it issued.
async fn authority_certificate(State(state): State<HttpState>) -> Response {
    let authority = |cx: &CallContext<'_>| Ok(Value::String(authority::certificate_pem(cx)?));
    answered("the authority", state.simulator.within(FaultEffects::default(), authority))
}
