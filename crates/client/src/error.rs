//! Errors of requests to the server.

use std::fmt;
use std::time::Duration;

use api::admin::{ErrorBody, ErrorEnvelope};
use http::StatusCode;

use crate::context::ContextError;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server responded with an error status.
    #[error("{0}")]
    Response(ErrorResponse),
    /// The server could not be reached.
    #[error(
        "cannot reach server {server}: {cause}; check that `shipshape up` is running there, or choose another server (`shipshape context list`)"
    )]
    Unreachable {
        /// Address of the server.
        server: String,
        /// Innermost cause.
        cause: String,
    },
    /// No complete response arrived within the timeout.
    #[error(
        "server {server} did not respond within {timeout:?}; try again, and check its /readyz if the timeout persists"
    )]
    TimedOut {
        /// Address of the server.
        server: String,
        /// Timeout of the request.
        timeout: Duration,
    },
    /// The response does not have the expected form.
    #[error(
        "invalid response of server {server} to {request}: {cause}; check that client and server have the same version (`shipshape version`)"
    )]
    InvalidResponse {
        /// Address of the server.
        server: String,
        /// Path of the request, or the part of the response that is invalid.
        request: String,
        /// Parse error.
        cause: String,
    },
    /// The context cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
}

impl ClientError {
    /// HTTP status of an error response.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            ClientError::Response(response) => Some(response.status),
            ClientError::Unreachable { .. }
            | ClientError::TimedOut { .. }
            | ClientError::InvalidResponse { .. }
            | ClientError::Context(_) => None,
        }
    }

    /// Whether the server responded that the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether a retry may succeed: the server is unreachable, slow, throttling or failing.
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::TimedOut { .. } => true,
            ClientError::Response(response) => {
                response.status.is_server_error() || response.status == StatusCode::TOO_MANY_REQUESTS
            }
            ClientError::InvalidResponse { .. } | ClientError::Context(_) => false,
        }
    }
}

/// Error response of the server, read from its error envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Error code, such as `InvalidParameter`.
    pub code: String,
    /// Error message.
    pub message: String,
    /// Member or parameter with the error; may be empty.
    pub target: String,
}

impl ErrorResponse {
    /// Parses an error response. Without an envelope, the message is the status and the start of the body.
    pub(crate) fn parse(status: StatusCode, body: &[u8]) -> ErrorResponse {
        const TEXT_MAX: usize = 300; // enough to recognise the error page of a proxy
        if let Ok(ErrorEnvelope { error: ErrorBody { code, message, target } }) = serde_json::from_slice(body)
        {
            return ErrorResponse { status, code, message, target };
        }
        let text: String = String::from_utf8_lossy(body).chars().take(TEXT_MAX).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        let message = if text.is_empty() { reason.to_owned() } else { format!("{reason}: {text}") };
        ErrorResponse { status, code: status.as_str().to_owned(), message, target: String::new() }
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.trim_end_matches('.'))?;
        match self.target.is_empty() || self.message.contains(&self.target) {
            true => write!(f, " ({})", self.code),
            false => write!(f, " ({}, {})", self.code, self.target),
        }
    }
}
