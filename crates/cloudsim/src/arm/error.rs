//! Errors of the resource manager, in Azure's envelope.

use http::StatusCode;
use serde_json::{Value, json};

use crate::failure::Failure;

/// An error response: `{"error": {"code", "message", …}}` with its status.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArmError {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) target: Option<Box<str>>,
    /// Code and message of each cause.
    pub(crate) details: Vec<(String, String)>,
    /// The element of `additionalInfo`, such as the policy that denied a request.
    pub(crate) additional: Option<Box<Value>>,
    pub(crate) retry_after: Option<RetryAfter>,
}

/// When a client should repeat a request, and the header that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    /// `Retry-After`
    Seconds(u64),
    /// `retry-after-ms`
    Millis(u64),
}

impl ArmError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> ArmError {
        ArmError {
            status,
            code: code.to_owned(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            additional: None,
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(code: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn conflict(code: &str, message: impl Into<String>) -> ArmError {
        ArmError::new(StatusCode::CONFLICT, code, message)
    }

    #[must_use]
    pub(crate) fn with_target(mut self, target: &str) -> ArmError {
        self.target = Some(target.into());
        self
    }

    #[must_use]
    pub(crate) fn with_retry_after(mut self, retry_after: RetryAfter) -> ArmError {
        self.retry_after = Some(retry_after);
        self
    }

    #[must_use]
    pub(crate) fn with_detail(mut self, code: &str, message: impl Into<String>) -> ArmError {
        self.details.push((code.to_owned(), message.into()));
        self
    }

    /// The body of the response.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": self.error() })
    }

    /// The object `error` of the envelope and of failed operations.
    pub(crate) fn error(&self) -> Value {
        let details: Vec<Value> =
            self.details.iter().map(|(code, message)| json!({ "code": code, "message": message })).collect();
        let mut error = json!({ "code": self.code, "message": self.message, "details": details });
        if let Some(target) = &self.target {
            error["target"] = json!(target);
        }
        if let Some(additional) = &self.additional {
            error["additionalInfo"] = json!([additional]);
        }
        error
    }
}

impl From<ArmError> for Failure {
    fn from(error: ArmError) -> Failure {
        Failure::Arm(Box::new(error))
    }
}
