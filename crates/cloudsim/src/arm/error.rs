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
    pub(crate) target: Option<String>,
    /// Code and message of each cause.
    pub(crate) details: Vec<(String, String)>,
    /// Members of `additionalInfo`, such as the policy that denied a request.
    pub(crate) additional: Vec<Value>,
    /// The value of `Retry-After`.
    pub(crate) retry_after_seconds: Option<u64>,
}

impl ArmError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> ArmError {
        ArmError {
            status,
            code: code.to_owned(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            additional: Vec::new(),
            retry_after_seconds: None,
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
        self.target = Some(target.to_owned());
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
        if !self.additional.is_empty() {
            error["additionalInfo"] = json!(self.additional);
        }
        error
    }
}

impl From<ArmError> for Failure {
    fn from(error: ArmError) -> Failure {
        Failure::Arm(Box::new(error))
    }
}
