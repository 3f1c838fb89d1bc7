//! Errors of Azure's services, read from whatever came back: JSON of several shapes, XML, HTML of a proxy, nothing.
//!
//! The libraries parse error bodies as borrowed text and give up on escapes, so bodies are parsed here. The code decides the class
//! (`class.rs`); the text is for people, shortened and without anything that looks like a credential.

mod body;
mod class;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::error::{Class, Classify as _};
use cloud::CloudError;
use serde_json::Value;

use crate::headers::Correlation;
use crate::redact::redact;

pub(crate) use body::shorten;

/// Longest text of a message that is kept.
const MESSAGE_CHARS_MAX: usize = 1000;
/// Longest code.
const CODE_CHARS_MAX: usize = 100;

/// A response that is no success, as far as it could be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceError {
    /// The HTTP status; 0 for the failure of an operation.
    pub(crate) status: u16,
    /// The code, empty when the body has none.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The codes of details and of inner errors.
    pub(crate) details: Vec<String>,
    /// The policy that forbids the request.
    pub(crate) policy: Option<String>,
    /// How long the service asks to wait.
    pub(crate) retry_after: Option<Duration>,
    /// The ids under which the request is known.
    pub(crate) correlation: Correlation,
    /// Whether the body is of somebody else, such as the page of a proxy.
    pub(crate) is_foreign: bool,
}

/// The call that failed, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallName<'a> {
    /// The verb, such as `PUT`.
    pub(crate) method: &'a str,
    /// The subject, such as a resource id.
    pub(crate) subject: &'a str,
    /// The principal that made the call.
    pub(crate) principal: &'a str,
}

impl CallName<'_> {
    /// The call with a note about it, for errors of calls.
    pub(crate) fn with_note(&self, note: &str) -> String {
        match note.trim().trim_end_matches('.') {
            "" => format!("{} {}", self.method, self.subject),
            note => format!("{} {} ({note})", self.method, self.subject),
        }
    }
}

impl ServiceError {
    /// Reads a body. Never fails: what cannot be read becomes a message that says so.
    pub(crate) fn parse(status: u16, body: &[u8]) -> ServiceError {
        let mut error = ServiceError { status, ..ServiceError::default() };
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => error.read(&value),
            Err(_) => {
                error.code = body::text_between(body, "<Code>", "</Code>");
                error.message = body::describe(body);
                error.is_foreign = error.code.is_empty() && !body.trim_ascii().is_empty();
            }
        }
        error.tidy()
    }

    /// Reads an error object: that of an envelope, or of a failed operation.
    pub(crate) fn from_value(value: &Value) -> ServiceError {
        let mut error = ServiceError::default();
        error.read(value);
        error.tidy()
    }

    fn tidy(mut self) -> ServiceError {
        self.code = shorten(&redact(&self.code), CODE_CHARS_MAX);
        self.message = shorten(&redact(&self.message), MESSAGE_CHARS_MAX);
        self
    }

    fn read(&mut self, value: &Value) {
        let error = match value.get("error") {
            Some(inner @ Value::Object(_)) => inner,
            _ => value,
        };
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        self.code = text(error, "code");
        self.message = text(error, "message");
        if self.code.is_empty() {
            // The form of Entra ID and of the metadata service.
            self.code = text(value, "error");
        }
        if self.message.is_empty() {
            self.message = text(value, "error_description");
        }
        let mut inner = error.get("innererror");
        while let Some(value) = inner {
            self.details.push(text(value, "code"));
            inner = if self.details.len() < 8 { value.get("innererror") } else { None };
        }
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten().take(16) {
            self.details.push(text(detail, "code"));
            if self.message.is_empty() {
                self.message = text(detail, "message");
            }
        }
        self.details.retain(|it| !it.is_empty());
        for info in error.get("additionalInfo").and_then(Value::as_array).into_iter().flatten().take(16) {
            let info = info.get("info").unwrap_or(info);
            let name = ["policyAssignmentDisplayName", "policyAssignmentName", "policyDefinitionName"]
                .into_iter()
                .map(|member| shorten(&text(info, member), CODE_CHARS_MAX))
                .find(|it| !it.is_empty());
            self.policy = self.policy.take().or(name);
        }
    }

    /// Whether the code or one of the details' codes is among these.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        let is = |code: &str| codes.iter().any(|it| it.eq_ignore_ascii_case(code));
        is(&self.code) || self.details.iter().any(|it| is(it))
    }
}

/// Whether repeating an idempotent call at once may help.
pub(crate) fn is_worth_repeating(error: &CloudError) -> bool {
    matches!(error, CloudError::Unavailable { .. }) && error.class() == Class::Transient
}
