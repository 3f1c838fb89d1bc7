//! Conversion of kubelink errors into errors of a step.

use api::admin::Owner;
use api::error::{Class, Classify};
use kubelink::apply::ApplyError;
use kubelink::drain::DrainError;
use kubelink::{Failure, LinkError};

use crate::engine::{Obstacle, PollStatus, Report, StepError, StepErrorKind};

impl From<LinkError> for StepError {
    fn from(error: LinkError) -> StepError {
        let pause = error.retry_after();
        StepError::new(kind(&error), code(&error.failure), error.to_string())
            .with_retry_after(pause)
            .with_source(error)
    }
}

impl From<DrainError> for StepError {
    fn from(error: DrainError) -> StepError {
        let (kind, code) = match &error {
            DrainError::Refused { .. } => (StepErrorKind::Terminal, "DrainRefused"),
            DrainError::Stalled { .. } => (StepErrorKind::Transient, "DrainStalled"),
            // The step was stopped on request; the requester decides what follows.
            DrainError::Cancelled { .. } => (StepErrorKind::Transient, "Stopped"),
            DrainError::Link(error) => (kind(error), code(&error.failure)),
        };
        StepError::new(kind, code, error.to_string()).with_source(error)
    }
}

impl From<ApplyError> for StepError {
    fn from(error: ApplyError) -> StepError {
        let (kind, code, pause) = match &error {
            ApplyError::Documents(_) => (StepErrorKind::Terminal, "Invalid", None),
            ApplyError::Refused { failures } => (
                StepErrorKind::Terminal,
                failures.first().map_or("Refused", |first| code(&first.failure)),
                None,
            ),
            ApplyError::Stopped { failure, .. } => {
                (kind(failure), code(&failure.failure), failure.retry_after())
            }
        };
        StepError::new(kind, code, error.to_string()).with_retry_after(pause).with_source(error)
    }
}

/// The kind of an error: an unreachable cluster is waited for, everything else follows its class.
fn kind(error: &LinkError) -> StepErrorKind {
    match (&error.failure, error.class()) {
        (Failure::ConnectionRefused(_) | Failure::Connection(_) | Failure::Timeout(_), _) => {
            StepErrorKind::Unreachable
        }
        (_, Class::Transient) => StepErrorKind::Transient,
        (_, Class::Terminal) => StepErrorKind::Terminal,
    }
}

fn code(failure: &Failure) -> &'static str {
    match failure {
        Failure::ConnectionRefused(_) | Failure::Connection(_) | Failure::Timeout(_) => "Unreachable",
        Failure::Tls { .. } => "Untrusted",
        Failure::Unauthorized => "Unauthorized",
        Failure::Forbidden { .. } => "Forbidden",
        Failure::NotFound { .. } => "NotFound",
        Failure::AlreadyExists { .. } => "AlreadyExists",
        Failure::Conflict { .. } => "Conflict",
        Failure::FieldConflict { .. } => "FieldConflict",
        Failure::Gone { .. } => "Gone",
        Failure::Invalid { .. } => "Invalid",
        Failure::TooManyRequests { .. } => "TooManyRequests",
        Failure::Server { .. } => "ServerError",
        Failure::UnexpectedStatus { .. } | Failure::InvalidResponse(_) => "UnexpectedAnswer",
        Failure::UnknownKind { .. } => "UnknownKind",
        Failure::Request(_) => "BadRequest",
        Failure::TimeLimit { .. } => "TimeLimit",
        Failure::Precondition { .. } => "Refused",
    }
}

/// The status of a wait whose time is over; any other failure stays an error.
pub fn still_waiting(error: LinkError) -> Result<PollStatus, StepError> {
    match &error.failure {
        Failure::TimeLimit { waiting_for, .. } => {
            Ok(PollStatus::Blocked(waiting(&error.target, waiting_for)))
        }
        _ => Err(error.into()),
    }
}

/// The report of a wait for an object in the cluster.
pub(crate) fn waiting(object: &str, what: &str) -> Report {
    let obstacle =
        Obstacle { what: object.to_owned(), message: format!("waiting for {what}"), owner: Owner::Customer };
    Report { message: format!("Waiting for {object}: {what}"), obstacles: vec![obstacle] }
}
