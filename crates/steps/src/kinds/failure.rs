//! What went wrong on a cluster, as the engine understands it.

use api::admin::Owner;
use api::error::{Class, Classify};
use kubelink::apply::ApplyError;
use kubelink::drain::DrainError;
use kubelink::{Failure, LinkError};

use crate::engine::{Look, Obstacle, Report, StepError, StepErrorKind};

impl From<LinkError> for StepError {
    fn from(error: LinkError) -> StepError {
        let pause = error.retry_after();
        StepError::new(kind(&error), code(&error.failure), error.to_string()).after(pause).because(error)
    }
}

impl From<DrainError> for StepError {
    fn from(error: DrainError) -> StepError {
        let (kind, code) = match &error {
            DrainError::Refused { .. } => (StepErrorKind::Terminal, "DrainRefused"),
            DrainError::Stalled { .. } => (StepErrorKind::Transient, "DrainStalled"),
            // Somebody wanted it to end, who also says what comes next.
            DrainError::Cancelled { .. } => (StepErrorKind::Transient, "Stopped"),
            DrainError::Link(error) => (kind(error), code(&error.failure)),
        };
        StepError::new(kind, code, error.to_string()).because(error)
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
        StepError::new(kind, code, error.to_string()).after(pause).because(error)
    }
}

/// What may be done: a cluster that does not answer is waited for, everything else is as its class says.
fn kind(error: &LinkError) -> StepErrorKind {
    match (&error.failure, error.class()) {
        (Failure::Refused(_) | Failure::Connection(_) | Failure::NoAnswer(_), _) => {
            StepErrorKind::Unreachable
        }
        (_, Class::Transient) => StepErrorKind::Transient,
        (_, Class::Terminal) => StepErrorKind::Terminal,
    }
}

fn code(failure: &Failure) -> &'static str {
    match failure {
        Failure::Refused(_) | Failure::Connection(_) | Failure::NoAnswer(_) => "Unreachable",
        Failure::Untrusted { .. } => "Untrusted",
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
        Failure::Answer { .. } | Failure::Unreadable(_) => "UnexpectedAnswer",
        Failure::UnknownKind { .. } => "UnknownKind",
        Failure::Request(_) => "BadRequest",
        Failure::TimeLimit { .. } => "TimeLimit",
        Failure::Refusal { .. } => "Refused",
    }
}

/// What a verb waited for when its time was over; any other failure stays one.
pub fn still_waiting(error: LinkError) -> Result<Look, StepError> {
    match &error.failure {
        Failure::TimeLimit { waiting_for, .. } => Ok(Look::Held(waiting(&error.target, waiting_for))),
        _ => Err(error.into()),
    }
}

/// The report of a wait for something of an object in the cluster.
pub(crate) fn waiting(object: &str, what: &str) -> Report {
    let obstacle =
        Obstacle { what: object.to_owned(), message: format!("waiting for {what}"), owner: Owner::Customer };
    Report { message: format!("Waiting for {object}: {what}"), obstacles: vec![obstacle] }
}
