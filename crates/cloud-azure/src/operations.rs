//! Long operations, which the client starts and never waits for.
//!
//! The state of a resource is that of the resource itself. Its operation is asked only for the reason of a failure, and for a
//! resource that is not there yet or no longer. An operation that vanished or cannot be read says nothing: the resource decides.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::error::{Class, Classify as _};
use cloud::{CloudError, ResourceId, ResourceRequest};
use serde_json::Value;
use tokio::time::Instant;

use crate::arm::{Arm, CallFailure, OPERATION_SPREADS_WITHIN, is_unreadable};
use crate::error::ServiceError;

/// Operations that are remembered; the oldest is forgotten for a further one.
const OPERATIONS_MAX: usize = 4096;
/// Age from which an operation is no evidence any more.
const AGE_MAX: Duration = Duration::from_secs(2 * 3600);
/// How long a written resource may be invisible to those that refer to it.
const SPREADS_WITHIN: Duration = Duration::from_secs(180);
/// Writes that are remembered.
const WRITES_MAX: usize = 4096;

/// The operations that this client has started.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    entries: Mutex<Entries>,
    writes: Mutex<HashMap<String, Instant>>,
}

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<String, Operation>,
    order: VecDeque<String>,
}

/// An operation of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) url: String,
    pub(crate) kind: OperationKind,
    started: Instant,
}

/// What an operation does.
#[derive(Debug, Clone)]
pub(crate) enum OperationKind {
    /// It brings the resource to what was requested.
    Put(Box<ResourceRequest>),
    /// It deletes the resource.
    Delete,
}

/// The state of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationState {
    InProgress,
    Succeeded,
    Failed(ServiceError),
    /// It does not exist any more, or cannot be read.
    Unknown,
}

impl Operations {
    pub(crate) fn remember(&self, id: &ResourceId, url: &str, kind: OperationKind) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = id.key();
        let operation = Operation { url: url.to_owned(), kind, started: Instant::now() };
        if entries.by_id.insert(key.clone(), operation).is_none() {
            entries.order.push_back(key);
        }
        while entries.order.len() > OPERATIONS_MAX {
            if let Some(oldest) = entries.order.pop_front() {
                entries.by_id.remove(&oldest);
            }
        }
    }

    pub(crate) fn forget(&self, id: &ResourceId) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = id.key();
        if entries.by_id.remove(&key).is_some() {
            entries.order.retain(|it| *it != key);
        }
    }

    /// Remembers that a resource was written.
    pub(crate) fn note_write(&self, id: &ResourceId) {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        if writes.len() >= WRITES_MAX {
            writes.retain(|_, at| at.elapsed() < SPREADS_WITHIN);
        }
        if writes.len() < WRITES_MAX {
            writes.insert(id.key(), Instant::now());
        }
    }

    /// The error of a write, where something is missing that this client has written just before: it is not visible yet.
    pub(crate) fn with_visibility(&self, error: CloudError, subject: &ResourceId) -> CloudError {
        let CloudError::NotFound { what } = error else { return error };
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = writes.get(&what.to_lowercase()).is_some_and(|at| at.elapsed() < SPREADS_WITHIN);
        if !is_recent {
            return CloudError::NotFound { what };
        }
        let why = format!("{what} was written just before and is not visible yet");
        CloudError::Busy { what: subject.to_string(), code: "ResourceNotFound".to_owned(), why, after: None }
    }

    pub(crate) fn of(&self, id: &ResourceId) -> Option<Operation> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.by_id.get(&id.key()).filter(|it| it.started.elapsed() < AGE_MAX).cloned()
    }

    /// The state of an operation.
    pub(crate) async fn state(
        &self,
        arm: &Arm,
        id: &ResourceId,
        operation: &Operation,
    ) -> Result<OperationState, CloudError> {
        let what = format!("the operation of {id}");
        let answer = match arm.operation(&operation.url, id.as_str()).await {
            Ok(answer) => answer,
            Err(CallFailure::Other(error)) if error.class() == Class::Transient => return Err(error),
            Err(CallFailure::Other(_)) => return Ok(OperationState::Unknown),
            Err(CallFailure::Rejected(error)) => return operation.rejected(error),
        };
        // A result that is no JSON is the resource's own matter.
        let body = answer.json(&what).unwrap_or_default();
        let status = body.get("status").and_then(Value::as_str).unwrap_or_default().to_lowercase();
        Ok(match status.as_str() {
            "succeeded" => OperationState::Succeeded,
            "failed" => OperationState::Failed(ServiceError::from_value(&body)),
            "canceled" | "cancelled" => OperationState::Failed(canceled(ServiceError::from_value(&body))),
            "" if answer.status == 202 => OperationState::InProgress,
            "" => OperationState::Succeeded,
            _ => OperationState::InProgress,
        })
    }
}

impl Operation {
    /// The state of an operation whose poll was rejected. The URL of a result answers with the error of the operation itself.
    fn rejected(&self, error: ServiceError) -> Result<OperationState, CloudError> {
        let is_new = self.started.elapsed() < OPERATION_SPREADS_WITHIN;
        match error.status {
            429 => Err(CloudError::Throttled { after: error.retry_after }),
            status if is_unreadable(status) && is_new => Ok(OperationState::InProgress),
            status if is_unreadable(status) || status == 401 || error.is_foreign => {
                Ok(OperationState::Unknown)
            }
            // Reading operations needs a right of its own.
            403 if error.has_code(&["AuthorizationFailed", "LinkedAuthorizationFailed"]) => {
                Ok(OperationState::Unknown)
            }
            400..=499 => Ok(OperationState::Failed(error)),
            _ => Ok(OperationState::Unknown),
        }
    }
}

/// The error of an operation that somebody has cancelled, which often has none.
fn canceled(error: ServiceError) -> ServiceError {
    let text = |found: String, other: &str| if found.is_empty() { other.to_owned() } else { found };
    ServiceError {
        code: text(error.code.clone(), "Canceled"),
        message: text(error.message.clone(), "the operation was canceled"),
        ..error
    }
}
