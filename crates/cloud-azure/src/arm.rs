//! Calls of the resource manager: one way to send them, with their token, conditions, repetition and throttling.
//!
//! Idempotent calls are repeated a few times within a second; longer waits are the caller's. A POST is repeated only when it was
//! never sent. A subscription that throttles is not asked again before its time. A token is sent to the resource manager alone:
//! URLs in responses are followed only when they lead there.

use std::sync::Arc;
use std::time::Duration;

use azure_core::http::{Context, HttpClient, Method, Pipeline, PipelineSendOptions, Request, Url};
use cloud::CloudError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::{check_path, subject, subscription};
use crate::credential::{Credentials, TokenClaims, client_options};
use crate::error::{CallName, ServiceError, is_worth_repeating};
use crate::headers::{Correlation, challenge_claims, remaining_requests};
use crate::limits::{LimitKey, Limits};
use crate::transport::NoResponse;
use crate::write_locks::WriteLocks;

pub(crate) use crate::call::{Answer, Call, Condition};
pub(crate) use crate::headers::retry_after;

/// Longest pauses before the second and the third attempt of an idempotent call. A part of each is left to chance, so that many calls
/// that fail together do not come again together.
const REPEAT_AFTER: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// Longest wait of a throttled call that is repeated here; longer ones are the caller's.
const BRIEF_THROTTLING_MAX: Duration = Duration::from_millis(500);
/// A call that has taken longer is not repeated: its caller has waited enough.
const REPEAT_WITHIN: Duration = Duration::from_secs(5);
/// Attempts of a change that others prevented by changing the resource meanwhile.
pub(crate) const CHANGE_ATTEMPTS_MAX: usize = 4;
/// Pages of one list: more would be an endless loop.
const PAGES_MAX: usize = 500;
/// Longest wait for the result of a POST that has none at once.
const RESULT_WAIT_MAX: Duration = Duration::from_secs(45);
/// Pause between two reads of a result, when the service names none, and the longest that it may name.
const RESULT_PAUSE: Duration = Duration::from_secs(1);
const RESULT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a new operation may be unreadable without having vanished: its URL is known before every part of the service knows it.
pub(crate) const OPERATION_SPREADS_WITHIN: Duration = Duration::from_secs(30);
/// Characters of a query's value that need no escape.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The resource manager of a cloud.
#[derive(Debug)]
pub(crate) struct Arm {
    pipeline: Pipeline,
    base: Url,
    scope: String,
    pub(crate) credentials: Arc<Credentials>,
    limits: Limits,
    writes: WriteLocks,
}

/// A call without a successful response.
pub(crate) enum CallFailure {
    /// The service has answered with an error.
    Rejected(ServiceError),
    /// There is no response, or none of this service.
    Other(CloudError),
}

impl Arm {
    pub(crate) fn new(
        base: Url,
        scope: &str,
        credentials: Arc<Credentials>,
        http: Arc<dyn HttpClient>,
    ) -> Arm {
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            client_options(http),
            Vec::new(),
            Vec::new(),
            None,
        );
        Arm {
            pipeline,
            base,
            scope: scope.to_owned(),
            credentials,
            limits: Limits::default(),
            writes: WriteLocks::default(),
        }
    }

    /// Sends a call. An error response is an error, classed by its code.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Answer, CloudError> {
        check_path(call.path)?;
        debug_assert!(
            crate::actions::is_listed(call.method, call.path),
            "no action is listed for {} {}",
            call.method,
            call.path
        );
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), call.path));
        let mut query = format!("api-version={}", call.version);
        for (name, value) in call.query {
            query.push_str(&format!("&{name}={}", utf8_percent_encode(value, QUERY)));
        }
        url.set_query(Some(&query));
        self.send_to(&url, call).await
    }

    async fn send_to(&self, url: &Url, call: Call<'_>) -> Result<Answer, CloudError> {
        self.try_send_to(url, call).await.map_err(|failure| match failure {
            CallFailure::Rejected(error) => error.into_cloud_error(self.name(&call)),
            CallFailure::Other(error) => error,
        })
    }

    fn name<'a>(&'a self, call: &Call<'a>) -> CallName<'a> {
        CallName {
            method: call.method.as_str(),
            subject: subject(call.path),
            principal: self.credentials.principal(),
        }
    }

    async fn try_send_to(&self, url: &Url, call: Call<'_>) -> Result<Answer, CallFailure> {
        let limit = self.limit_key(url, &call);
        if let Err(throttled) = self.limits.check(&limit) {
            // Another call was throttled for a moment: this one comes after that moment.
            match throttled.retry_after().filter(|it| *it <= BRIEF_THROTTLING_MAX) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(CallFailure::Other(throttled)),
            }
        }
        let started = Instant::now();
        let mut is_renewed = false;
        let mut attempt = 0;
        loop {
            let (token, generation) = match call.token {
                Some(token) => (token.to_owned(), None),
                None => {
                    let token =
                        self.credentials.service_token(&self.scope).await.map_err(CallFailure::Other)?;
                    (token.text, Some(token.generation))
                }
            };
            let (failure, was_sent) = match self.exchange(url, &call, &token).await {
                Ok(Exchange::Answer(answer)) => return Ok(answer),
                Ok(Exchange::Rejected { error, challenge }) => {
                    if let (401, Some(generation), false) = (error.status, generation, is_renewed) {
                        // The token was revoked, or must carry further claims: once with a new one.
                        is_renewed = true;
                        self.credentials.renew(generation, challenge.as_deref());
                        continue;
                    }
                    (CallFailure::Rejected(error), true)
                }
                Err(failure) => (CallFailure::Other(failure.error), failure.was_sent),
            };
            // A throttled call had no effect, so it is repeated whatever its method, when the wait is short.
            let mut wait = Duration::ZERO;
            let is_transient = match &failure {
                CallFailure::Rejected(error) => {
                    let error = error.clone().into_cloud_error(self.name(&call));
                    if let CloudError::Throttled { after } = &error {
                        self.limits.throttle(&limit, *after);
                        wait = after.unwrap_or(Duration::MAX);
                        wait <= BRIEF_THROTTLING_MAX
                    } else {
                        is_worth_repeating(&error) && (call.is_idempotent() || !was_sent)
                    }
                }
                CallFailure::Other(error) => is_worth_repeating(error) && (call.is_idempotent() || !was_sent),
            };
            let may_repeat = is_transient && started.elapsed() < REPEAT_WITHIN;
            let Some(pause) = REPEAT_AFTER.get(attempt).filter(|_| may_repeat) else { return Err(failure) };
            tokio::time::sleep(wait.max(pause.mul_f64(0.5 + 0.5 * chance()))).await;
            attempt += 1;
        }
    }

    fn limit_key(&self, url: &Url, call: &Call<'_>) -> LimitKey {
        let principal = match call.token {
            None => self.credentials.principal().to_owned(),
            Some(token) => TokenClaims::read(token).map(|it| it.oid).unwrap_or_default(),
        };
        LimitKey {
            host: url.host_str().unwrap_or_default().to_owned(),
            subscription: subscription(url.path()),
            principal,
        }
    }

    async fn exchange(&self, url: &Url, call: &Call<'_>, token: &str) -> Result<Exchange, SendFailure> {
        let request_id = Uuid::new_v4().to_string();
        let mut request = Request::new(url.clone(), call.method);
        request.insert_header("accept", "application/json");
        request.insert_header("authorization", format!("Bearer {token}"));
        request.insert_header("x-ms-client-request-id", request_id.clone());
        match call.condition {
            Condition::None => {}
            Condition::Unchanged(etag) => request.insert_header("if-match", etag.to_owned()),
            Condition::Absent => request.insert_header("if-none-match", "*"),
        }
        if let Some(body) = call.body {
            request.insert_header("content-type", "application/json");
            request.set_body(body.to_string());
        }
        let name = self.name(call);
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let response = self.pipeline.send(&Context::new(), &mut request, Some(options)).await;
        let response = response.map_err(|error| SendFailure::new(error, name, url))?;
        let (status, headers, body) = response.deconstruct();
        let answer = Answer { status: u16::from(status), headers, body: body.into() };
        let correlation = Correlation::read(&request_id, &answer.headers);
        if (200..300).contains(&answer.status) {
            log_answer(name, &answer, &correlation);
            return Ok(Exchange::Answer(answer));
        }
        let mut error = ServiceError::parse(answer.status, &answer.body);
        log_rejection(name, &answer, &correlation, &error);
        error.retry_after = retry_after(&answer.headers);
        error.correlation = correlation;
        let challenge = answer.header("www-authenticate").and_then(challenge_claims);
        Ok(Exchange::Rejected { error, challenge })
    }

    /// A resource; `None` when it does not exist.
    pub(crate) async fn find(
        &self,
        path: &str,
        version: &str,
        query: &[(&str, &str)],
    ) -> Result<Option<Value>, CloudError> {
        match self.send(Call { query, ..Call::get(path, version) }).await {
            Ok(answer) => answer.json(&format!("GET {path}")).map(Some),
            Err(CloudError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All items of a list, page by page.
    pub(crate) async fn list(
        &self,
        path: &str,
        version: &str,
        query: &[(&str, &str)],
        token: Option<&str>,
    ) -> Result<Vec<Value>, CloudError> {
        let call = Call { query, token, ..Call::get(path, version) };
        let what = format!("GET {path}");
        let mut page = self.send(call).await?.json(&what)?;
        let mut items = Vec::new();
        for _ in 0..PAGES_MAX {
            if let Some(Value::Array(values)) = page.get_mut("value").map(Value::take) {
                items.extend(values);
            }
            let Some(next) = page.get("nextLink").and_then(Value::as_str).filter(|it| !it.is_empty()) else {
                return Ok(items);
            };
            let next = self.own_url(next, &what)?;
            page = self.send_to(&next, call).await?.json(&what)?;
        }
        Err(CloudError::UnexpectedResponse {
            what: format!("{what} (the list has more than {PAGES_MAX} pages)"),
            source: None,
        })
    }

    /// A URL that the service gave, which must be one of the service: a token is sent to it.
    fn own_url(&self, url: &str, what: &str) -> Result<Url, CloudError> {
        let parsed = Url::parse(url).ok().filter(|it| {
            it.scheme() == self.base.scheme()
                && it.host_str() == self.base.host_str()
                && it.port_or_known_default() == self.base.port_or_known_default()
        });
        parsed.ok_or_else(|| CloudError::UnexpectedResponse {
            what: format!("{what} (it refers to another host than setting resource_manager)"),
            source: None,
        })
    }

    /// Reads an operation.
    pub(crate) async fn operation(&self, url: &str, what: &str) -> Result<Answer, CallFailure> {
        let url = self.own_url(url, what).map_err(CallFailure::Other)?;
        self.try_send_to(&url, Call::get(what, "")).await
    }

    /// Sends a POST and waits for its result, which some services give later. The POST itself is sent once.
    pub(crate) async fn post_for_result(
        &self,
        path: &str,
        version: &str,
        body: &Value,
    ) -> Result<Value, CloudError> {
        let what = format!("POST {path}");
        let call = Call { body: Some(body), ..Call::new(Method::Post, path, version) };
        let mut answer = self.send(call).await?;
        let started = Instant::now();
        let mut location = answer.header("location").map(str::to_owned);
        let mut is_first = true;
        while answer.status == 202 {
            let Some(url) = &location else { break };
            if started.elapsed() >= RESULT_WAIT_MAX {
                let what = format!("{what} (no result within {} s)", RESULT_WAIT_MAX.as_secs());
                return Err(CloudError::Unavailable { what, source: None });
            }
            // The result is often there at once.
            if !is_first {
                let pause = retry_after(&answer.headers).unwrap_or(RESULT_PAUSE);
                tokio::time::sleep(pause.min(RESULT_PAUSE_MAX)).await;
            }
            is_first = false;
            match self.operation(url, path).await {
                Ok(next) => {
                    location = next.header("location").map(str::to_owned).or(location);
                    answer = next;
                }
                Err(CallFailure::Rejected(error))
                    if is_unreadable(error.status) && started.elapsed() < OPERATION_SPREADS_WITHIN => {}
                Err(CallFailure::Rejected(error)) if error.status == 404 => {
                    // The operation is gone, and its result with it: the caller may begin anew.
                    let what = format!("{what} (its operation has vanished)");
                    return Err(CloudError::Unavailable { what, source: None });
                }
                Err(CallFailure::Rejected(error)) => {
                    let call = Call::new(Method::Post, path, version);
                    return Err(error.into_cloud_error(self.name(&call)));
                }
                Err(CallFailure::Other(error)) => return Err(error),
            }
        }
        answer.json(&what)
    }

    /// Sends a POST to another service that speaks like the resource manager, with a token of that service.
    pub(crate) async fn post_elsewhere(
        &self,
        mut url: Url,
        version: &str,
        body: &Value,
        token: &str,
        what: &str,
    ) -> Result<Value, CloudError> {
        url.query_pairs_mut().append_pair("api-version", version);
        let call = Call { body: Some(body), token: Some(token), ..Call::new(Method::Post, what, version) };
        self.send_to(&url, call).await?.json(&format!("POST {url} about {what}"))
    }

    /// Excludes other writes of this client to the same network, load balancer or identity.
    pub(crate) async fn exclusive(&self, key: &str) -> OwnedMutexGuard<()> {
        self.writes.lock(key).await
    }
}

/// A number from 0 to 1.
fn chance() -> f64 {
    f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0
}

/// Whether a status says nothing about an operation, only that it cannot be read now.
pub(crate) fn is_unreadable(status: u16) -> bool {
    matches!(status, 404 | 408 | 500..=599)
}

fn log_answer(name: CallName<'_>, answer: &Answer, ids: &Correlation) {
    tracing::debug!(
        method = name.method,
        subject = name.subject,
        status = answer.status,
        client_request_id = ids.client,
        request_id = ids.request,
        correlation_id = ids.correlation,
        "Azure answered {} {} with {}",
        name.method,
        name.subject,
        answer.status
    );
}

/// Rejections are logged with all ids: errors that customers see carry none.
fn log_rejection(name: CallName<'_>, answer: &Answer, ids: &Correlation, error: &ServiceError) {
    let (status, code) = (answer.status, &error.code);
    if status == 404 && name.method == "GET" {
        // The usual answer about something that does not exist yet.
        return log_answer(name, answer, ids);
    }
    tracing::info!(
        method = name.method,
        subject = name.subject,
        status,
        code,
        client_request_id = ids.client,
        request_id = ids.request,
        correlation_id = ids.correlation,
        remaining = remaining_requests(&answer.headers),
        "Azure rejected {} {} with {status} {code}",
        name.method,
        name.subject
    );
}

enum Exchange {
    Answer(Answer),
    Rejected {
        error: ServiceError,
        /// The claims that a challenge asks for.
        challenge: Option<String>,
    },
}

/// A call without a response.
struct SendFailure {
    error: CloudError,
    was_sent: bool,
}

impl SendFailure {
    fn new(error: azure_core::Error, name: CallName<'_>, url: &Url) -> SendFailure {
        let cause = NoResponse::of(&error);
        let address = url.origin().ascii_serialization();
        let what = name.with_note(&cause.describe(&address, "resource_manager"));
        let source = Some(error.into());
        let error = match cause {
            NoResponse::TooLarge => CloudError::UnexpectedResponse { what, source },
            _ => CloudError::Unavailable { what, source },
        };
        SendFailure { error, was_sent: cause.was_sent() }
    }
}

#[cfg(test)]
mod tests;
