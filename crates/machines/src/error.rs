//! Why a reconcile failed.

use std::fmt;

use controller::RequestError;

/// A reconcile that is tried again with backoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// A request of the API server failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The object is invalid, or an operation on what it stands for failed.
    #[error("{0}")]
    Failed(String),
}

impl ReconcileError {
    /// The error of a request that is made without an informer.
    pub(crate) fn request(
        verb: &'static str,
        target: impl fmt::Display,
        error: kube::Error,
    ) -> ReconcileError {
        RequestError::new(verb, target, error).into()
    }

    /// Whether an object changed since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, ReconcileError::Request(error) if error.is_conflict())
    }
}

/// The action after a reconcile. An object that changed while it was written is no failure: it is looked at again.
pub(crate) fn unless_conflict(
    result: Result<controller::Action, ReconcileError>,
) -> Result<controller::Action, ReconcileError> {
    match result {
        Err(error) if error.is_conflict() => Ok(controller::Action::After(crate::context::CONFLICT_REQUEUE)),
        other => other,
    }
}
