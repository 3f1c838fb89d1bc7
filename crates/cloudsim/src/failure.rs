//! Failures of a call: an error for the caller, or a defect of the simulator.

use cloud::ResourceId;

use crate::arm::ArmError;
use crate::protocol::CallError;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The call is rejected; the caller receives the error.
    #[error("{0:?}")]
    Refused(CallError),
    /// The resource manager rejects the request; the caller receives the error.
    #[error("{}: {}", .0.code, .0.message)]
    Arm(Box<ArmError>),
    /// The database failed.
    #[error("the database of the simulated cloud failed")]
    Database(#[from] rusqlite::Error),
    /// A stored document cannot be parsed.
    #[error("a stored document of the simulated cloud cannot be parsed")]
    Stored(#[from] serde_json::Error),
    /// A certificate cannot be issued.
    #[error(transparent)]
    Certificate(#[from] serve::pki::PkiError),
    /// Another internal error.
    #[error("{0}")]
    Broken(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Refused(error)
    }
}

pub(crate) fn not_found(what: impl ToString) -> Failure {
    CallError::NotFound { what: what.to_string() }.into()
}

pub(crate) fn invalid(reason: &str, why: impl Into<String>) -> Failure {
    CallError::Invalid { reason: reason.to_owned(), why: why.into() }.into()
}

pub(crate) fn conflict(what: impl ToString, why: impl Into<String>) -> Failure {
    CallError::Conflict { what: what.to_string(), why: why.into() }.into()
}

pub(crate) fn in_use(what: &ResourceId, by: impl ToString) -> Failure {
    CallError::InUse { what: what.to_string(), by: by.to_string() }.into()
}
