//! Errors of a vault, in its envelope.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::json;

use crate::failure::Failure;

/// An error that a caller receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VaultError {
    pub(super) status: StatusCode,
    code: &'static str,
    message: String,
    pub(super) inner: Option<&'static str>,
}

impl VaultError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> VaultError {
        VaultError { status, code, message: message.into(), inner: None }
    }

    pub(super) fn with_inner(self, code: &'static str) -> VaultError {
        VaultError { inner: Some(code), ..self }
    }

    pub(super) fn bad_parameter(message: impl Into<String>) -> VaultError {
        VaultError::new(StatusCode::BAD_REQUEST, "BadParameter", message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> VaultError {
        VaultError::new(StatusCode::CONFLICT, "Conflict", message)
    }

    pub(super) fn response(&self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(inner) = self.inner {
            error["innererror"] = json!({ "code": inner });
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

/// The end of a request that does not succeed.
#[derive(Debug)]
pub(super) enum VaultFailure {
    Rejected(VaultError),
    Failed(Failure),
}

impl From<VaultError> for VaultFailure {
    fn from(error: VaultError) -> VaultFailure {
        VaultFailure::Rejected(error)
    }
}

impl<E: Into<Failure>> From<E> for VaultFailure {
    fn from(error: E) -> VaultFailure {
        VaultFailure::Failed(error.into())
    }
}
