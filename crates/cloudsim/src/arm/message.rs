//! Requests and responses of the resource manager, apart from their transport.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::access::Caller;
use super::error::ArmError;
use crate::failure::Failure;

/// A request whose caller is authenticated.
pub(crate) struct ArmRequest<'a> {
    pub(crate) method: &'a Method,
    /// The path as it was sent.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(String, String)],
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// Scheme and host of this service as the caller addressed it.
    pub(crate) base: &'a str,
    pub(crate) caller: &'a Caller,
}

impl ArmRequest<'_> {
    /// The value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body; an absent one is null.
    pub(crate) fn json(&self) -> Result<Value, ArmError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(self.body).map_err(|error| {
            let message =
                format!("The request content was invalid and could not be deserialized: '{error}'.");
            ArmError::bad_request("InvalidRequestContent", message)
        })
    }

    /// The body, which must be an object.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, ArmError> {
        match self.json()? {
            Value::Object(members) => Ok(members),
            _ => Err(ArmError::bad_request(
                "InvalidRequestContent",
                "The request content was invalid and could not be deserialized: 'an object is expected'.",
            )),
        }
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArmResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// How long the response takes: a synchronous write is complete when it is answered.
    pub(crate) delay: Duration,
}

impl ArmResponse {
    pub(crate) fn new(status: StatusCode, body: Value) -> ArmResponse {
        ArmResponse { status, headers: Vec::new(), body: Some(body), delay: Duration::ZERO }
    }

    pub(crate) fn ok(body: Value) -> ArmResponse {
        ArmResponse::new(StatusCode::OK, body)
    }

    pub(crate) fn empty(status: StatusCode) -> ArmResponse {
        ArmResponse { status, headers: Vec::new(), body: None, delay: Duration::ZERO }
    }

    #[must_use]
    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> ArmResponse {
        self.headers.push((name, value.into()));
        self
    }

    /// A list without further pages.
    pub(crate) fn list(items: Vec<Value>) -> ArmResponse {
        ArmResponse::ok(json!({ "value": items }))
    }
}

/// The error of a method that a path does not have.
pub(crate) fn method_not_allowed(request: &ArmRequest<'_>) -> Failure {
    let message = format!("The requested resource does not support http method '{}'.", request.method);
    ArmError::new(StatusCode::METHOD_NOT_ALLOWED, "UnsupportedHttpMethod", message).into()
}
