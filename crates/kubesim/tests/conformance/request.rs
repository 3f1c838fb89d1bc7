//! One request of a conversation: what is sent, what is expected, what of the answer is compared.

use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::script::{Heard, Script};

/// No server takes longer, unless the machine also compiles.
const PATIENCE: Duration = Duration::from_secs(60);
/// What clients read besides the body.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "warning", "allow"];

/// A request that is sent when it is awaited; the answer's body as it came.
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
            script,
        }
    }

    /// The status code that both servers must answer with; 201 for POST and 200 for all else when nothing is said.
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

    /// As a table, as kubectl asks for it.
    pub(crate) fn table(self) -> Request<'a> {
        self.accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    }

    pub(crate) fn content_type(self, kind: &str) -> Request<'a> {
        self.header("content-type", kind)
    }

    /// The body as it is, whatever it is.
    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Request<'a> {
        self.body = Payload::Bytes(body.into());
        self
    }

    /// The body of a DELETE.
    pub(crate) fn options(mut self, body: Value) -> Request<'a> {
        self.body = Payload::Json(body);
        self
    }

    /// Of the answer this is not compared: it hangs on when somebody else did something.
    pub(crate) fn without(mut self, pointer: &'static str) -> Request<'a> {
        self.hidden.push(pointer);
        self
    }

    /// Of the answer only this is compared.
    pub(crate) fn only(mut self, pointer: &'static str) -> Request<'a> {
        self.only.push(pointer);
        self
    }

    /// Asks again until the answer has this; only the last answer is noted.
    pub(crate) fn until(mut self, pointer: &'static str, value: Value) -> Request<'a> {
        self.until = Some((pointer, value));
        self
    }

    async fn send(self) -> Value {
        let begun = tokio::time::Instant::now();
        loop {
            let answer = tokio::time::timeout(PATIENCE, self.exchange()).await;
            let Ok((status, headers, body)) = answer else {
                panic!("{} {} was not answered in {PATIENCE:?}", self.method, self.path)
            };
            let settled = status == self.expected
                && self
                    .until
                    .as_ref()
                    .is_none_or(|(pointer, value)| body.pointer(pointer).unwrap_or(&Value::Null) == value);
            if !settled && self.until.is_some() && begun.elapsed() < PATIENCE {
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

    async fn exchange(&self) -> (u16, Vec<(String, String)>, Value) {
        let names = &self.script.names;
        let mut request = http::Request::builder().method(self.method).uri(names.fill_in(&self.path));
        let body = match &self.body {
            Payload::None => Vec::new(),
            Payload::Json(body) => names.fill_in(&body.to_string()).into_bytes(),
            Payload::Bytes(body) => body.clone(),
        };
        if !body.is_empty() && !self.headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body)).expect("a request that can be sent");
        let response = match self.script.client.send(request).await {
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
        let asked = format!("{} {}", self.method, self.path);
        self.script.note(Heard { asked, status, headers, body });
    }
}

/// Removes what a pointer leads to; `*` stands for every item of a list.
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
