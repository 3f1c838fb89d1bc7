//! Why a call was not done: refused with a reason, or broken on our side.

use cloud::ResourceId;

use crate::protocol::Refusal;

/// Why a call was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The caller is told.
    #[error("{0:?}")]
    Refused(Refusal),
    /// The database failed.
    #[error("the database of the simulated cloud failed")]
    Database(#[from] rusqlite::Error),
    /// What is stored cannot be read.
    #[error("what the simulated cloud has stored cannot be read")]
    Stored(#[from] serde_json::Error),
    /// A certificate cannot be issued.
    #[error(transparent)]
    Certificate(#[from] serve::pki::PkiError),
    /// Something else on our side.
    #[error("{0}")]
    Broken(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

pub(crate) fn not_found(what: impl ToString) -> Failure {
    Refusal::NotFound { what: what.to_string() }.into()
}

pub(crate) fn invalid(reason: &str, why: impl Into<String>) -> Failure {
    Refusal::Invalid { reason: reason.to_owned(), why: why.into() }.into()
}

pub(crate) fn conflict(what: impl ToString, why: impl Into<String>) -> Failure {
    Refusal::Conflict { what: what.to_string(), why: why.into() }.into()
}

pub(crate) fn in_use(what: &ResourceId, by: impl ToString) -> Failure {
    Refusal::InUse { what: what.to_string(), by: by.to_string() }.into()
}
