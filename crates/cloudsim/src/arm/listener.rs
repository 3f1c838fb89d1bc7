//! The HTTP side of the resource manager: bodies, headers, faults, and errors as responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use uuid::Uuid;

use super::error::{ArmError, RetryAfter};
use super::message::{ArmRequest, ArmResponse};
use super::path::{self, Target};
use super::{access, dispatch, forward};
use crate::call_context::FaultEffects;
use crate::failure::Failure;
use crate::fault_injection::claims_challenge;
use crate::faults::{CloudFault, FaultTiming};
use crate::protocol::CallError;
use crate::simulator::Simulator;
use crate::sizes;

const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Requests that Azure lets a principal make per hour; only the headers show them.
const READS: u64 = 12_000;
const WRITES: u64 = 1_200;

#[derive(Clone)]
struct ListenerState {
    simulator: Arc<Simulator>,
    /// The number of requests, for the headers that tell how many are left.
    requests: Arc<AtomicU64>,
}

/// The resource manager as the fallback of its listener.
pub(crate) fn routes(simulator: Arc<Simulator>) -> Router {
    Router::new().fallback(answer).with_state(ListenerState { simulator, requests: Arc::default() })
}

async fn answer(State(state): State<ListenerState>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let authority = head.uri.authority().map(ToString::to_string);
    let host = authority.or_else(|| head.headers.get(HOST)?.to_str().ok().map(str::to_owned));
    let base = match host {
        Some(host) => format!("https://{host}"),
        None => state.simulator.endpoints().resource_manager.clone(),
    };
    let response = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            respond(&state.simulator, &head.method, &head.uri, &head.headers, &body, &base).await
        }
        Err(_) => {
            let message =
                format!("The request content size exceeds the maximum size of {BODY_BYTES_MAX} bytes.");
            rejected(&ArmError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestContentTooLarge", message), "")
        }
    };
    let count = state.requests.fetch_add(1, Ordering::Relaxed);
    with_headers(response, &head.method, &head.headers, count)
}

/// Adds the headers that every response has.
fn with_headers(mut response: Response, method: &Method, sent: &HeaderMap, count: u64) -> Response {
    let id = Uuid::new_v4().to_string();
    let headers = response.headers_mut();
    // A response that was forwarded has the ids of its provider.
    let is_forwarded = headers.contains_key("x-ms-request-id");
    let mut insert = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    insert("x-ms-routing-request-id", &format!("SIMULATED:{id}"));
    if !is_forwarded {
        insert("x-ms-request-id", &id);
        let correlation = sent.get("x-ms-correlation-request-id").and_then(|it| it.to_str().ok());
        insert("x-ms-correlation-request-id", correlation.unwrap_or(&id));
    }
    if let Some(client) = sent.get("x-ms-client-request-id").and_then(|it| it.to_str().ok()) {
        insert("x-ms-client-request-id", client);
    }
    let (name, limit) = match *method {
        Method::GET | Method::HEAD => ("x-ms-ratelimit-remaining-subscription-reads", READS),
        Method::DELETE => ("x-ms-ratelimit-remaining-subscription-deletes", READS),
        _ => ("x-ms-ratelimit-remaining-subscription-writes", WRITES),
    };
    // The window slides, so that the number never reaches zero.
    insert(name, &(limit - 1 - count % (limit / 2)).to_string());
    insert("cache-control", "no-cache");
    response
}

/// The response to a request before it is rendered.
enum Outcome {
    Own(ArmResponse),
    /// That of a resource provider outside the emulator.
    Forwarded(Response),
}

async fn respond(
    simulator: &Arc<Simulator>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
    base: &str,
) -> Response {
    let authority = format!("{base}/{}", simulator.endpoints().tenant_id);
    let query = path::query(uri.query().unwrap_or_default());
    let parsed = path::parse(uri.path());
    let (verb, subject) = match &parsed {
        Ok(target) => dispatch::classify(method, target),
        Err(_) => ("get", uri.path().to_owned()),
    };
    let fault = simulator.faults.meet(verb, &subject, |it| !matches!(it, CloudFault::InstallFails { .. }));
    if let Some(fault) = &fault {
        tracing::debug!("{verb} {subject}: {fault}");
    }
    let effects = match before_effect(fault.as_ref(), &subject).await {
        Ok(effects) => effects,
        Err(Injected::Error(error)) => return rejected(&error, &authority),
        Err(Injected::Reset) => return broken(),
        Err(Injected::Challenge(header)) => {
            let error = ArmError::new(
                StatusCode::UNAUTHORIZED,
                "ExpiredAuthenticationToken",
                "The access token expiry UTC time is earlier than current UTC time.",
            );
            return challenged(&error, &header);
        }
    };
    let providers = &simulator.providers;
    let target = parsed.as_ref().ok();
    let registration = target.and_then(|it| forward::find_registration(providers, method, it));
    let done = match target.and_then(|it| forward::find_route(providers, method, it)) {
        Some(route) => {
            let request = forward::ForwardedRequest { method, uri, query: &query, headers, body, base };
            Box::pin(forward::respond(simulator, effects, request, &route)).await.map(Outcome::Forwarded)
        }
        None => {
            perform(simulator, effects, method, uri, &query, headers, body, base, parsed).map(Outcome::Own)
        }
    };
    if let Some((subscription, namespace, is_registered)) = registration.filter(|_| done.is_ok()) {
        forward::notify(simulator, &namespace, &subscription, is_registered).await;
    }
    match &fault {
        Some(CloudFault::Unavailable { when: FaultTiming::After }) => {
            return rejected(&unavailable(), &authority);
        }
        Some(CloudFault::Reset { when: FaultTiming::After }) => return broken(),
        Some(CloudFault::Delayed { millis, when: FaultTiming::After }) => {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
        }
        _ => {}
    }
    match done {
        Ok(Outcome::Own(response)) => {
            if !response.delay.is_zero() {
                tokio::time::sleep(response.delay).await;
            }
            render(method, response)
        }
        Ok(Outcome::Forwarded(response)) => response,
        Err(Failure::Arm(error)) => rejected(&error, &authority),
        Err(Failure::Refused(error)) => rejected(&translated(error), &authority),
        Err(failure) => {
            tracing::error!(
                error = &failure as &dyn std::error::Error,
                "The emulated resource manager failed at {verb} {subject}"
            );
            rejected(&unavailable(), &authority)
        }
    }
}

/// Carries out a request in one transaction.
#[expect(clippy::too_many_arguments, reason = "the parts of one request")]
fn perform(
    simulator: &Arc<Simulator>,
    effects: FaultEffects,
    method: &Method,
    uri: &Uri,
    query: &[(String, String)],
    headers: &HeaderMap,
    body: &[u8],
    base: &str,
    parsed: Result<Target, ArmError>,
) -> Result<ArmResponse, Failure> {
    let target = parsed.and_then(|target| path::check_api_version(query).map(|()| target));
    if let (&Method::PUT, Ok(Target::Resource { id, type_name })) = (method, &target)
        && type_name.eq_ignore_ascii_case(super::own::VAULT_TYPE)
        && super::own::is_vault_name(id.name())
    {
        simulator.within(FaultEffects::default(), |cx| access::authenticate(cx, headers))?;
        // Its address is a part of the response.
        simulator.ensure_vault(id.name())?;
    }
    let (target, response) = simulator.within(effects, |cx| {
        let caller = access::authenticate(cx, headers)?;
        let (target, path) = (target?, uri.path());
        let request = ArmRequest { method, path, query, headers, body, base, caller: &caller };
        let response = dispatch::handle(cx, &request, &target)?;
        Ok((target, response))
    })?;
    let changed = match (method, &target) {
        (
            &Method::PUT | &Method::PATCH | &Method::DELETE,
            Target::Resource { id, .. } | Target::Group { group: id },
        ) => Some(id),
        // An action, such as the stop of a machine.
        (&Method::POST, Target::Collection { parent: Some(id), .. }) => Some(id),
        _ => None,
    };
    if let Some(id) = changed {
        simulator.notify_group(id);
    }
    Ok(response)
}

/// A fault in place of a response.
enum Injected {
    Error(ArmError),
    Reset,
    /// 401 with this challenge.
    Challenge(String),
}

/// What a fault does before a request has its effect.
async fn before_effect(fault: Option<&CloudFault>, subject: &str) -> Result<FaultEffects, Injected> {
    let millis = Duration::from_millis;
    let mut effects = FaultEffects::default();
    match fault {
        None => {}
        Some(CloudFault::Throttled { after_seconds }) => {
            return Err(Injected::Error(throttled(RetryAfter::Seconds(*after_seconds))));
        }
        Some(CloudFault::ThrottledBriefly { after_millis }) => {
            return Err(Injected::Error(throttled(RetryAfter::Millis(*after_millis))));
        }
        Some(CloudFault::Unavailable { when: FaultTiming::Before }) => {
            return Err(Injected::Error(unavailable()));
        }
        Some(CloudFault::Reset { when: FaultTiming::Before }) => return Err(Injected::Reset),
        Some(CloudFault::Delayed { millis: delay, when: FaultTiming::Before }) => {
            tokio::time::sleep(millis(*delay)).await;
        }
        Some(CloudFault::Quota { quota }) => {
            return Err(Injected::Error(sizes::quota_exceeded(quota, "", 0, 0, 1)));
        }
        Some(CloudFault::Denied {}) => {
            let message = format!(
                "The client does not have authorization to perform this action over scope '{subject}'."
            );
            return Err(Injected::Error(ArmError::new(
                StatusCode::FORBIDDEN,
                "AuthorizationFailed",
                message,
            )));
        }
        Some(CloudFault::Conflict { after_seconds }) => {
            let message = format!(
                "Another operation on this or dependent resource is in progress: {subject}. Please retry later."
            );
            let error = ArmError::conflict("AnotherOperationInProgress", message);
            return Err(Injected::Error(error.with_retry_after(RetryAfter::Seconds(*after_seconds))));
        }
        Some(CloudFault::TokenExpires {}) => return Err(Injected::Challenge(String::new())),
        Some(CloudFault::Claims {}) => return Err(Injected::Challenge(claims_challenge())),
        Some(CloudFault::ProvisioningFails { code, message }) => {
            let failure = cloud::ResourceFailure { code: code.clone(), message: message.clone() };
            effects.fails_later = Some(failure);
        }
        Some(CloudFault::DelayedVisibility { millis: delay }) => effects.unseen = millis(*delay),
        Some(CloudFault::DelayedPropagation { millis: delay }) => effects.late = millis(*delay),
        Some(CloudFault::OperationLost {}) => effects.operation_lost = true,
        Some(CloudFault::OperationHangs {}) => effects.operation_hangs = true,
        Some(CloudFault::Policy { name }) => effects.denying_policy = Some(name.clone()),
        Some(
            CloudFault::Unavailable { when: FaultTiming::After }
            | CloudFault::Reset { when: FaultTiming::After }
            | CloudFault::Delayed { when: FaultTiming::After, .. }
            | CloudFault::InstallFails { .. }
            | CloudFault::HandshakeFails {},
        ) => {}
    }
    Ok(effects)
}

fn throttled(retry_after: RetryAfter) -> ArmError {
    let message = "Number of requests exceeded the limit for this subscription. Please try again later.";
    ArmError::new(StatusCode::TOO_MANY_REQUESTS, "SubscriptionRequestsThrottled", message)
        .with_retry_after(retry_after)
}

fn unavailable() -> ArmError {
    let message = "The service is unavailable. Please try again later.";
    ArmError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
}

/// An error of the parts that are shared with the private protocol.
fn translated(error: CallError) -> ArmError {
    match error {
        CallError::NotFound { what } => ArmError::not_found("NotFound", format!("{what} was not found.")),
        CallError::Conflict { what, why } => ArmError::conflict("Conflict", format!("{what}: {why}.")),
        CallError::Invalid { reason, why } => ArmError::bad_request(&reason, why),
        CallError::Denied { who, action, what } => {
            let message = format!(
                "The client '{who}' does not have authorization to perform action '{action}' over scope '{what}'."
            );
            ArmError::new(StatusCode::FORBIDDEN, "AuthorizationFailed", message)
        }
        CallError::Credential { why, .. } => {
            ArmError::new(StatusCode::UNAUTHORIZED, "InvalidAuthenticationToken", why)
        }
        CallError::Quota { quota, limit, used, wanted } => {
            sizes::quota_exceeded(&quota, "", limit, used, wanted)
        }
        CallError::InUse { what, by } => {
            ArmError::bad_request("ResourceInUse", format!("{what} is in use by {by}."))
        }
        CallError::Locked { what, action } => {
            let message =
                format!("The scope '{what}' cannot perform {action} operation because it is locked.");
            ArmError::conflict("ScopeLocked", message)
        }
        CallError::Throttled { after_seconds } => {
            let mut error =
                ArmError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "Too many requests.");
            error.retry_after = after_seconds.map(RetryAfter::Seconds);
            error
        }
        CallError::Unavailable { .. } => unavailable(),
    }
}

fn render(method: &Method, response: ArmResponse) -> Response {
    let ArmResponse { status, headers, body, delay: _ } = response;
    let mut rendered = match body.filter(|_| !dispatch::has_no_body(method, status)) {
        Some(body) => json(status, body.to_string()),
        None => status.into_response(),
    };
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            rendered.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    rendered
}

fn json(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json; charset=utf-8")], text).into_response()
}

/// An error as a response. One of authentication tells where tokens are issued.
fn rejected(error: &ArmError, authority: &str) -> Response {
    if error.status == StatusCode::UNAUTHORIZED {
        let challenge = format!(
            "authorization_uri=\"{authority}\", error=\"invalid_token\", error_description=\"The access token is missing or invalid.\""
        );
        return challenged(error, &challenge);
    }
    let mut response = json(error.status, error.body().to_string());
    match error.retry_after {
        Some(RetryAfter::Seconds(seconds)) => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Some(RetryAfter::Millis(millis)) => {
            response.headers_mut().insert("retry-after-ms", HeaderValue::from(millis));
        }
        None => {}
    }
    response.headers_mut().insert("x-ms-failure-cause", HeaderValue::from_static("gateway"));
    response
}

fn challenged(error: &ArmError, challenge: &str) -> Response {
    let mut response = json(error.status, error.body().to_string());
    let challenge = match challenge {
        "" => {
            "Bearer error=\"invalid_token\", error_description=\"The access token has expired.\"".to_owned()
        }
        challenge => format!("Bearer {challenge}"),
    };
    if let Ok(value) = HeaderValue::from_str(&challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

/// A response body that fails, so that the connection is reset.
fn broken() -> Response {
    let cut = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
    (StatusCode::OK, [(CONTENT_TYPE, "application/json")], Body::from_stream(cut)).into_response()
}
