//! Errors of the API as a `Status`, with the texts of the real server, because people and programs read them.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::schema::FieldError;

/// An error response: an HTTP status code and the contents of its `Status`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`; empty where the real server sends none.
    pub reason: Cow<'static, str>,
    /// The message for people.
    pub message: String,
    /// `details` of the Status, or null.
    pub details: Value,
    /// Seconds for a `Retry-After` header.
    pub retry_after: Option<u32>,
    /// A new continue token, for a list whose snapshot has expired.
    pub continue_token: Option<String>,
}

/// The result of an API operation.
pub type ApiResult<T> = Result<T, StatusError>;

impl StatusError {
    /// An error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> StatusError {
        StatusError {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: Value::Null,
            retry_after: None,
            continue_token: None,
        }
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> StatusError {
        StatusError::new(400, "BadRequest", message)
    }

    /// 404 for an object.
    pub fn not_found(kind: &Kind, name: &str) -> StatusError {
        StatusError::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified())).about(
            kind.group(),
            kind.plural(),
            name,
        )
    }

    /// 404 for a resource that is not served.
    pub fn no_such_resource() -> StatusError {
        let mut failure =
            StatusError::new(404, "NotFound", "the server could not find the requested resource");
        failure.details = json!({});
        failure
    }

    /// 405.
    pub fn method_not_allowed() -> StatusError {
        let mut failure = StatusError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = json!({});
        failure
    }

    /// 409: the name is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> StatusError {
        StatusError::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified()))
            .about(kind.group(), kind.plural(), name)
    }

    /// 409: the object is not in the state that the client expects.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> StatusError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        StatusError::new(409, "Conflict", message).about(kind.group(), kind.plural(), name)
    }

    /// 409 on a subresource.
    pub fn conflict_on(kind: &Kind, resource: &str, name: &str, why: &str) -> StatusError {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        StatusError::new(409, "Conflict", message).about(kind.group(), resource, name)
    }

    /// 409: the client has an old resourceVersion.
    pub fn modified(kind: &Kind, name: &str) -> StatusError {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        StatusError::conflict(kind, name, why)
    }

    /// 403 for one object.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> StatusError {
        StatusError::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.qualified()))
            .about(kind.group(), kind.plural(), name)
    }

    /// 422 with all causes.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[FieldError]) -> StatusError {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let summary = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut failure =
            StatusError::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {summary}"))
                .about(group, kind, name);
        failure.details["causes"] = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field}))
            .collect();
        failure
    }

    /// 410: the resource version is no longer available.
    pub fn expired(message: impl Into<String>) -> StatusError {
        StatusError::new(410, "Expired", message)
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> StatusError {
        let mut failure =
            StatusError::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.details = json!({"causes": [{"message": message.to_string()}]});
        failure
    }

    /// 401.
    pub fn unauthorized() -> StatusError {
        StatusError::new(401, "Unauthorized", "Unauthorized")
    }

    /// Sets the object in the details.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> StatusError {
        let mut details = serde_json::Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        self.details = Value::Object(details);
        self
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
