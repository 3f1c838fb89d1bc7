//! What can go wrong between a client and the server.

use std::fmt;
use std::time::Duration;

use api::admin::{ErrorBody, ErrorEnvelope};
use http::StatusCode;

use crate::context::ContextError;

/// Why something that was asked of the server did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The server could not be reached.
    #[error(
        "the server {server} cannot be reached: {why}; is `shipshape up` running there, and is it the one that is meant? (`shipshape context list` shows the known ones)"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What happened.
        why: String,
    },
    /// The server was reached but took too long.
    #[error(
        "the server {server} did not answer within {limit:?}; try again, and look at its /readyz if it stays so"
    )]
    TooSlow {
        /// Its address.
        server: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The answer is not in the words that are agreed on.
    #[error(
        "the server {server} answered {what} in a form that this client does not know: {why}; are both of the same version? (`shipshape version`)"
    )]
    Garbled {
        /// Its address.
        server: String,
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// The context cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
}

impl ClientError {
    /// The status of the server's answer, if there was one that refused.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            ClientError::Refused(refusal) => Some(refusal.status),
            ClientError::Unreachable { .. }
            | ClientError::TooSlow { .. }
            | ClientError::Garbled { .. }
            | ClientError::Context(_) => None,
        }
    }

    /// Whether the server says that the thing is not there.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the same request may do better a little later: the server is away, slow, or in trouble of its own.
    pub fn may_pass(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::TooSlow { .. } => true,
            ClientError::Refused(refusal) => {
                refusal.status.is_server_error() || refusal.status == StatusCode::TOO_MANY_REQUESTS
            }
            ClientError::Garbled { .. } | ClientError::Context(_) => false,
        }
    }
}

/// The server's no, in the words of its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// The envelope's code.
    pub code: String,
    /// The envelope's sentence.
    pub message: String,
    /// The member or parameter that it is about; may be empty.
    pub target: String,
}

impl Refusal {
    /// What a refusing answer says; one without an envelope is shown by its status and the beginning of its text.
    pub(crate) fn read(status: StatusCode, body: &[u8]) -> Refusal {
        const TEXT_MAX: usize = 300; // enough of a proxy's page to know it by
        if let Ok(ErrorEnvelope { error: ErrorBody { code, message, target } }) = serde_json::from_slice(body)
        {
            return Refusal { status, code, message, target };
        }
        let text: String = String::from_utf8_lossy(body).chars().take(TEXT_MAX).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        let message = if text.is_empty() { reason.to_owned() } else { format!("{reason}: {text}") };
        Refusal { status, code: status.as_str().to_owned(), message, target: String::new() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.trim_end_matches('.'))?;
        match self.target.is_empty() || self.message.contains(&self.target) {
            true => write!(f, " ({})", self.code),
            false => write!(f, " ({}, {})", self.code, self.target),
        }
    }
}
