//! One request of a script: what is sent, what is expected, and which part of the response is compared.

use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::script::{Exchange, Script};

/// Longer than any request takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Headers that are compared besides the body.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "warning", "allow"];

/// A request that is sent when it is awaited; returns the body of the response.
#[must_use]
pub(crate) struct Request<'a> {
    script: &'a mut Script,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Payload,
    expected: u16,
    hidden: Vec<&'static str>,
    only: Vec<&'static str>,
    until: Option<(&'static str, Value)>,
    is_anonymous: bool,
}

enum Payload {
    None,
    Json(Value),
    Bytes(Vec<u8>),
}

impl<'a> Request<'a> {
    pub(crate) fn new(script: &'a mut Script, method: &'static str, path: &str, body: Value) -> Request<'a> {
        Request {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: if body.is_null() { Payload::None } else { Payload::Json(body) },
            expected: if method == "POST" { 201 } else { 200 },
            hidden: Vec::new(),
            only: Vec::new(),
            until: None,
            is_anonymous: false,
            script,
        }
    }

    /// Sets the expected status code of both servers; the default is 201 for POST and 200 for all others.
    pub(crate) fn expect(mut self, status: u16) -> Request<'a> {
        self.expected = status;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Request<'a> {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn accept(self, kind: &str) -> Request<'a> {
        self.header("accept", kind)
    }

    /// Sends the request as another user, as `kubectl --as` does.
    pub(crate) fn by(self, user: &str) -> Request<'a> {
        let user = self.script.names.expand(user);
        self.header("impersonate-user", &user)
    }

    /// Sends the request without the administrator's certificate.
    pub(crate) fn anonymous(mut self) -> Request<'a> {
        self.is_anonymous = true;
        self
    }

    /// Sends the request with this token alone.
    pub(crate) fn token(self, token: &str) -> Request<'a> {
        self.anonymous().header("authorization", &format!("Bearer {token}"))
    }

    /// Requests a table, as kubectl does.
    pub(crate) fn table(self) -> Request<'a> {
        self.accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    }

    pub(crate) fn content_type(self, kind: &str) -> Request<'a> {
        self.header("content-type", kind)
    }

    /// Sends these bytes as the body.
    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Request<'a> {
        self.body = Payload::Bytes(body.into());
        self
    }

    /// Sets the body of a DELETE.
    pub(crate) fn options(mut self, body: Value) -> Request<'a> {
        self.body = Payload::Json(body);
        self
    }

    /// Excludes a part of the response that depends on concurrent changes.
    pub(crate) fn without(mut self, pointer: &'static str) -> Request<'a> {
        self.hidden.push(pointer);
        self
    }

    /// Compares only this part of the response.
    pub(crate) fn only(mut self, pointer: &'static str) -> Request<'a> {
        self.only.push(pointer);
        self
    }

    /// Repeats the request until the response has this value; only the last response is recorded.
    pub(crate) fn until(mut self, pointer: &'static str, value: Value) -> Request<'a> {
        self.until = Some((pointer, value));
        self
    }

    async fn send(self) -> Value {
        let start = tokio::time::Instant::now();
        loop {
            let answer = tokio::time::timeout(TIMEOUT, self.exchange()).await;
            let Ok((status, headers, body)) = answer else {
                panic!("{} {} got no response within {TIMEOUT:?}", self.method, self.path)
            };
            let settled = status == self.expected
                && self
                    .until
                    .as_ref()
                    .is_none_or(|(pointer, value)| body.pointer(pointer).unwrap_or(&Value::Null) == value);
            if !settled && self.until.is_some() && start.elapsed() < TIMEOUT {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            assert!(
                settled,
                "{} {}: expected {}, got {status}: {body}",
                self.method, self.path, self.expected
            );
            self.note(status, headers, body.clone());
            return body;
        }
    }

    fn client(&self) -> &kube::Client {
        if self.is_anonymous { &self.script.anonymous } else { &self.script.client }
    }

    async fn exchange(&self) -> (u16, Vec<(String, String)>, Value) {
        let names = &self.script.names;
        let mut request = http::Request::builder().method(self.method).uri(names.expand(&self.path));
        let body = match &self.body {
            Payload::None => Vec::new(),
            Payload::Json(body) => names.expand(&body.to_string()).into_bytes(),
            Payload::Bytes(body) => body.clone(),
        };
        if !body.is_empty() && !self.headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body)).expect("a request that can be sent");
        let response = match self.client().send(request).await {
            Ok(response) => response,
            Err(error) => panic!("{} {} was not answered: {error}", self.method, self.path),
        };
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole answer").to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let headers = HEADERS
            .iter()
            .flat_map(|name| parts.headers.get_all(*name).iter().map(|value| ((*name).to_owned(), value)))
            .map(|(name, value)| (name, String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        (parts.status.as_u16(), headers, body)
    }

    fn note(self, status: u16, headers: Vec<(String, String)>, mut body: Value) {
        let names = &self.script.names;
        if !self.only.is_empty() {
            body =
                self.only.iter().map(|pointer| body.pointer(pointer).cloned().unwrap_or_default()).collect();
        }
        for pointer in &self.hidden {
            remove(&mut body, pointer);
        }
        names.value(&mut body);
        let headers = headers.into_iter().map(|(name, value)| (name, names.text(&value))).collect();
        let description = format!("{} {}", self.method, self.path);
        self.script.note(Exchange { request: description, status, headers, body });
    }
}

/// Removes the value at a pointer; `*` stands for every item of a list.
fn remove(value: &mut Value, pointer: &str) {
    let Some((first, rest)) = pointer.strip_prefix('/').map(|it| it.split_once('/').unwrap_or((it, "")))
    else {
        return;
    };
    match value {
        Value::Object(fields) if rest.is_empty() => drop(fields.remove(first)),
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(first) {
                remove(field, &format!("/{rest}"));
            }
        }
        Value::Array(items) if first == "*" => {
            items.iter_mut().for_each(|item| remove(item, &format!("/{rest}")));
        }
        Value::Array(items) => {
            if let Some(item) = first.parse::<usize>().ok().and_then(|place| items.get_mut(place)) {
                remove(item, &format!("/{rest}"));
            }
        }
        _ => {}
    }
}

impl<'a> IntoFuture for Request<'a> {
    type Output = Value;
    type IntoFuture = Pin<Box<dyn Future<Output = Value> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
