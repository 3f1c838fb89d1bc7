//! Calls of the resource manager: one way to send them, with their token, conditions, repetition and throttling.
//!
//! Idempotent calls are repeated a few times within a second; longer waits are the caller's. A POST is repeated only when it was
//! never sent. A subscription that throttles is not asked again before its time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use azure_core::error::ErrorKind;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{Context, HttpClient, Method, Pipeline, PipelineSendOptions, Request, Url};
use bytes::Bytes;
use cloud::CloudError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

use crate::credential::{Credentials, client_options};
use crate::error::{CallName, ServiceError, is_worth_repeating};

/// Pauses before the second and the third attempt of an idempotent call.
const REPEAT_AFTER: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// Attempts of a change that others prevented by changing the resource meanwhile.
pub(crate) const CHANGE_ATTEMPTS_MAX: usize = 4;
/// Pages of one list: more would be an endless loop.
const PAGES_MAX: usize = 500;
/// Longest wait that a service may ask for.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Wait after a 429 that names none.
const THROTTLE_DEFAULT: Duration = Duration::from_secs(10);
/// Longest wait for the result of a POST that has none at once.
const RESULT_WAIT_MAX: Duration = Duration::from_secs(45);
/// Characters of a query's value that need no escape.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The resource manager of a cloud.
#[derive(Debug)]
pub(crate) struct Arm {
    pipeline: Pipeline,
    base: Url,
    scope: String,
    pub(crate) credentials: Arc<Credentials>,
    throttled: Mutex<HashMap<String, Instant>>,
    writes: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) version: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<&'a Value>,
    pub(crate) condition: Condition<'a>,
    /// A token of another principal than the service.
    pub(crate) token: Option<&'a str>,
}

/// A condition of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition<'a> {
    None,
    /// The resource still has this etag.
    Unchanged(&'a str),
    /// The resource does not exist.
    Absent,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str, version: &'a str) -> Call<'a> {
        Call { method, path, version, query: &[], body: None, condition: Condition::None, token: None }
    }

    pub(crate) fn get(path: &'a str, version: &'a str) -> Call<'a> {
        Call::new(Method::Get, path, version)
    }
}

/// A successful response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Headers,
    body: Bytes,
}

impl Answer {
    /// The body as JSON; `Null` when there is none.
    pub(crate) fn json(&self, what: &str) -> Result<Value, CloudError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).map_err(|error| CloudError::UnexpectedResponse {
            what: format!(
                "{what} ({}): {}",
                self.status,
                ServiceError::parse(self.status, &self.body).message
            ),
            source: Some(Box::new(error)),
        })
    }

    pub(crate) fn header(&self, name: &'static str) -> Option<&str> {
        self.headers.get_optional_str(&HeaderName::from_static(name))
    }

    /// The URL of the operation that the call started.
    pub(crate) fn operation(&self) -> Option<&str> {
        self.header("azure-asyncoperation").or_else(|| self.header("location"))
    }
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
            throttled: Mutex::default(),
            writes: Mutex::default(),
        }
    }

    /// Sends a call. An error response is an error, classed by its code.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Answer, CloudError> {
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
        let subscription = subscription(url.path());
        self.check_throttled(&subscription)?;
        let is_idempotent = !matches!(call.method, Method::Post | Method::Patch);
        let mut renewed = false;
        let mut attempt = 0;
        loop {
            let token = match call.token {
                Some(token) => token.to_owned(),
                None => self.credentials.token(&self.scope).await?,
            };
            let outcome = self.exchange(url, &call, &token).await;
            let (error, was_sent) = match outcome {
                Ok(Exchange::Answer(answer)) => return Ok(answer),
                Ok(Exchange::Challenge(_, claims)) if !renewed && call.token.is_none() => {
                    // The token was revoked, or must carry further claims: once with a new one.
                    renewed = true;
                    self.credentials.renew(claims.as_deref());
                    continue;
                }
                Ok(Exchange::Challenge(error, _) | Exchange::Error(error)) => (error, true),
                Err(failure) => (failure.error, failure.was_sent),
            };
            if let CloudError::Throttled { after } = &error {
                self.throttle(&subscription, after.unwrap_or(THROTTLE_DEFAULT));
            }
            let may_repeat = is_worth_repeating(&error) && (is_idempotent || !was_sent);
            let Some(pause) = REPEAT_AFTER.get(attempt).filter(|_| may_repeat) else { return Err(error) };
            tokio::time::sleep(*pause).await;
            attempt += 1;
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
        let name = CallName {
            method: call.method.as_str(),
            subject: subject(call.path),
            principal: self.credentials.principal(),
        };
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let response = self.pipeline.send(&Context::new(), &mut request, Some(options)).await;
        let response = response.map_err(|error| SendFailure::new(error, name, &self.base))?;
        let (status, headers, body) = response.deconstruct();
        let answer = Answer { status: u16::from(status), headers, body: body.into() };
        let service_id = answer.header("x-ms-request-id").unwrap_or_default();
        tracing::debug!(
            method = name.method,
            subject = name.subject,
            status = answer.status,
            client_request_id = request_id,
            request_id = service_id,
            correlation_id = answer.header("x-ms-correlation-request-id").unwrap_or_default(),
            "Azure answered {} {} with {}",
            name.method,
            name.subject,
            answer.status
        );
        if (200..300).contains(&answer.status) {
            return Ok(Exchange::Answer(answer));
        }
        let mut error = ServiceError::parse(answer.status, &answer.body);
        error.retry_after = retry_after(&answer.headers);
        error.request_id = Some(service_id.to_owned()).filter(|it| !it.is_empty());
        if answer.status == 503 && error.retry_after.is_some() {
            return Ok(Exchange::Error(CloudError::Throttled { after: error.retry_after }));
        }
        let error = error.into_cloud_error(name);
        if answer.status == 401 {
            let claims = answer.header("www-authenticate").and_then(challenge_claims);
            return Ok(Exchange::Challenge(error, claims));
        }
        Ok(Exchange::Error(error))
    }

    /// A resource; `None` when it does not exist.
    pub(crate) async fn find(
        &self,
        path: &str,
        version: &str,
        query: &[(&str, &str)],
    ) -> Result<Option<Value>, CloudError> {
        match self.send(Call { query, ..Call::get(path, version) }).await {
            Ok(answer) => answer.json(path).map(Some),
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
        let mut page = self.send(call).await?.json(path)?;
        let mut items = Vec::new();
        for _ in 0..PAGES_MAX {
            if let Some(Value::Array(values)) = page.get_mut("value").map(Value::take) {
                items.extend(values);
            }
            let Some(next) = page.get("nextLink").and_then(Value::as_str).filter(|it| !it.is_empty()) else {
                return Ok(items);
            };
            page = self.send_to(&self.own_url(next, path)?, call).await?.json(path)?;
        }
        Err(CloudError::UnexpectedResponse {
            what: format!("GET {path}: the list does not end"),
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
            what: format!("{what}: the response refers to another host than the resource manager"),
            source: None,
        })
    }

    /// Reads an operation.
    pub(crate) async fn operation(&self, url: &str, what: &str) -> Result<Answer, CloudError> {
        let url = self.own_url(url, what)?;
        self.send_to(&url, Call::get(what, "")).await
    }

    /// Sends a POST and waits for its result, which some services give later. The POST itself is sent once.
    pub(crate) async fn post_for_result(
        &self,
        path: &str,
        version: &str,
        body: &Value,
    ) -> Result<Value, CloudError> {
        let mut answer =
            self.send(Call { body: Some(body), ..Call::new(Method::Post, path, version) }).await?;
        let until = Instant::now() + RESULT_WAIT_MAX;
        let mut location = answer.header("location").map(str::to_owned);
        while answer.status == 202 {
            let Some(url) = &location else { break };
            if Instant::now() >= until {
                let what =
                    format!("POST {path}: the result was not ready within {} s", RESULT_WAIT_MAX.as_secs());
                return Err(CloudError::Unavailable { what, source: None });
            }
            let pause = retry_after(&answer.headers).unwrap_or(Duration::from_secs(1));
            tokio::time::sleep(pause.min(Duration::from_secs(5))).await;
            answer = self.operation(url, path).await?;
            location = answer.header("location").map(str::to_owned).or(location);
        }
        answer.json(path)
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
        self.send_to(&url, call).await?.json(what)
    }

    /// Excludes other writes of this client to the same network, load balancer or identity.
    pub(crate) async fn exclusive(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.retain(|_, lock| lock.strong_count() > 0);
            let entry = writes.entry(key.to_lowercase()).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let lock = Arc::new(AsyncMutex::new(()));
                *entry = Arc::downgrade(&lock);
                lock
            })
        };
        lock.lock_owned().await
    }

    fn throttle(&self, subscription: &str, wait: Duration) {
        let until = Instant::now() + wait.min(WAIT_MAX);
        let mut throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = throttled.entry(subscription.to_owned()).or_insert(until);
        *entry = (*entry).max(until);
    }

    fn check_throttled(&self, subscription: &str) -> Result<(), CloudError> {
        let mut throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        throttled.retain(|_, until| *until > now);
        match throttled.get(subscription) {
            Some(until) => Err(CloudError::Throttled { after: Some(*until - now) }),
            None => Ok(()),
        }
    }
}

enum Exchange {
    Answer(Answer),
    Challenge(CloudError, Option<String>),
    Error(CloudError),
}

/// A call without a response.
struct SendFailure {
    error: CloudError,
    was_sent: bool,
}

impl SendFailure {
    fn new(error: azure_core::Error, name: CallName<'_>, base: &Url) -> SendFailure {
        let was_sent = !matches!(error.kind(), ErrorKind::Connection);
        let CallName { method, subject, .. } = name;
        let error = match error.kind() {
            ErrorKind::DataConversion => CloudError::UnexpectedResponse {
                what: format!("{method} {subject}: {error}"),
                source: Some(Box::new(error)),
            },
            ErrorKind::Connection => CloudError::Unavailable {
                what: format!(
                    "{method} {subject}; check that {} is right and reachable",
                    base.origin().ascii_serialization()
                ),
                source: Some(Box::new(error)),
            },
            _ => {
                CloudError::Unavailable { what: format!("{method} {subject}"), source: Some(Box::new(error)) }
            }
        };
        SendFailure { error, was_sent }
    }
}

/// The subject of a call: its path, without the provider of an extension.
fn subject(path: &str) -> &str {
    path.split("/providers/Microsoft.Authorization/permissions").next().unwrap_or(path)
}

fn subscription(path: &str) -> String {
    let mut segments = path.split('/').skip_while(|it| !it.eq_ignore_ascii_case("subscriptions"));
    segments.nth(1).unwrap_or_default().to_lowercase()
}

/// The wait that headers ask for: milliseconds first, whole seconds otherwise.
pub(crate) fn retry_after(headers: &Headers) -> Option<Duration> {
    let number = |name: &'static str| {
        headers.get_optional_str(&HeaderName::from_static(name)).and_then(|it| it.trim().parse::<u64>().ok())
    };
    let wait = number("retry-after-ms")
        .or_else(|| number("x-ms-retry-after-ms"))
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs));
    wait.map(|it| it.min(WAIT_MAX))
}

/// The claims of a challenge, which are base64 of JSON.
fn challenge_claims(challenge: &str) -> Option<String> {
    use base64::Engine as _;
    let rest = &challenge[challenge.find("claims=\"")? + 8..];
    let encoded = rest.split('"').next()?.trim_end_matches('=');
    let engines =
        [base64::engine::general_purpose::STANDARD_NO_PAD, base64::engine::general_purpose::URL_SAFE_NO_PAD];
    engines.into_iter().find_map(|it| it.decode(encoded).ok()).and_then(|it| String::from_utf8(it).ok())
}
