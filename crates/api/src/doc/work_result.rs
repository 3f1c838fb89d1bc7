//! Result of a piece of work: the document that the queue keeps when the work has finished.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::members::take;
use super::{OperationError, StepName};

/// Result of a piece of work, written once when the work finishes.
///
/// Any JSON value can be read: a text is a message, members that this release does not know or that have another form are
/// kept in `other`, and values that are neither text nor object are read as an empty result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct WorkResult {
    /// Reason for machines.
    pub code: Option<ResultCode>,
    /// Reason in a sentence.
    pub message: Option<String>,
    /// Step in which the work finished.
    pub step: Option<StepName>,
    /// Person or service that requested the cancellation.
    pub by: Option<String>,
    /// Reason that was given with the request for cancellation.
    pub reason: Option<String>,
    /// Sentences about the effects that were undone. Absent when no worker wrote the result, because the work was withdrawn
    /// or timed out before it was claimed.
    pub undone: Option<Vec<String>>,
    /// Sentences about the effects that could not be undone; absent when there are none.
    pub undo_failed: Option<Vec<String>>,
    /// Error for the customer; absent when the customer only learns of an internal error.
    pub customer: Option<OperationError>,
    /// Members that other releases wrote.
    pub other: Map<String, Value>,
}

impl WorkResult {
    /// The result of a manifest that its schedule withdrew. Such a manifest comes back when its schedule wants it again.
    pub fn superseded() -> WorkResult {
        let message = "Cancelled by Scheduler as did not match current schedule settings";
        WorkResult::new(ResultCode::SUPERSEDED, message)
    }

    /// A result with a code and a message only.
    pub fn new(code: ResultCode, message: impl Into<String>) -> WorkResult {
        WorkResult { code: Some(code), message: Some(message.into()), ..WorkResult::default() }
    }

    /// Result of work that was cancelled before it started.
    pub fn cancelled(by: impl Into<String>, reason: Option<&str>) -> WorkResult {
        WorkResult {
            by: Some(by.into()),
            reason: reason.map(str::to_owned),
            ..WorkResult::new(ResultCode::CANCELLED, "cancelled")
        }
    }

    /// Whether the result has this code.
    pub fn has_code(&self, code: &ResultCode) -> bool {
        self.code.as_ref() == Some(code)
    }

    /// The message; empty when there is none.
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// The stored form.
    pub fn to_json(&self) -> Value {
        Value::from(self.clone())
    }
}

impl From<Value> for WorkResult {
    fn from(value: Value) -> WorkResult {
        let mut members = match value {
            Value::Object(members) => members,
            Value::String(message) => return WorkResult { message: Some(message), ..WorkResult::default() },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return WorkResult::default();
            }
        };
        WorkResult {
            code: take(&mut members, CODE),
            message: take(&mut members, MESSAGE),
            step: take(&mut members, STEP),
            by: take(&mut members, BY),
            reason: take(&mut members, REASON),
            undone: take(&mut members, UNDONE),
            undo_failed: take(&mut members, UNDO_FAILED),
            customer: take(&mut members, CUSTOMER),
            other: members,
        }
    }
}

impl From<WorkResult> for Value {
    fn from(result: WorkResult) -> Value {
        let WorkResult { code, message, step, by, reason, undone, undo_failed, customer, other } = result;
        let mut members = other;
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        put(CODE, code.map(|it| Value::from(it.as_str())));
        put(MESSAGE, message.map(Value::from));
        put(STEP, step.map(|it| Value::from(it.as_str())));
        put(BY, by.map(Value::from));
        put(REASON, reason.map(Value::from));
        put(UNDONE, undone.map(Value::from));
        put(UNDO_FAILED, undo_failed.map(Value::from));
        put(CUSTOMER, customer.and_then(|it| serde_json::to_value(it).ok()));
        Value::Object(members)
    }
}

const CODE: &str = "code";
const MESSAGE: &str = "message";
const STEP: &str = "step";
const BY: &str = "by";
const REASON: &str = "reason";
const UNDONE: &str = "undone";
const UNDO_FAILED: &str = "undoFailed";
const CUSTOMER: &str = "customer";

/// Reason for machines of a result or of a failed step. Steps choose their own; the constants are those on which something
/// is decided or which the engine itself writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResultCode(Cow<'static, str>);

impl ResultCode {
    /// All steps succeeded.
    pub const COMPLETED: ResultCode = ResultCode::from_static("Completed");
    /// Cancellation was requested.
    pub const CANCELLED: ResultCode = ResultCode::from_static("Cancelled");
    /// `run_before` passed before the work started.
    pub const TIMED_OUT: ResultCode = ResultCode::from_static("TimedOut");
    /// The schedule withdrew the work; it is revived when the schedule wants it again.
    pub const SUPERSEDED: ResultCode = ResultCode::from_static("Superseded");
    /// The cluster's document does not exist any more.
    pub const CLUSTER_GONE: ResultCode = ResultCode::from_static("ClusterGone");
    /// The manifest's document does not exist any more.
    pub const MANIFEST_GONE: ResultCode = ResultCode::from_static("ManifestGone");
    /// A step, or the making of a plan, panicked.
    pub const PANIC: ResultCode = ResultCode::from_static("Panic");
    /// A step took longer than its time limit.
    pub const STEP_TIMEOUT: ResultCode = ResultCode::from_static("StepTimeout");
    /// The time limit of the attempt passed.
    pub const TIME_LIMIT: ResultCode = ResultCode::from_static("TimeLimit");
    /// The undo of a step took longer than its time limit.
    pub const UNDO_TIMEOUT: ResultCode = ResultCode::from_static("UndoTimeout");
    /// Workers were lost in every attempt.
    pub const WORKER_LOST: ResultCode = ResultCode::from_static("WorkerLost");
    /// The checkpoint contradicts itself.
    pub const BROKEN: ResultCode = ResultCode::from_static("Broken");
    /// No node matches the step's selection.
    pub const NO_NODES: ResultCode = ResultCode::from_static("NoNodes");
    /// Something of that name exists and is not ours to change.
    pub const CONFLICT: ResultCode = ResultCode::from_static("Conflict");

    /// A code that is known when the program is compiled.
    pub const fn from_static(code: &'static str) -> ResultCode {
        ResultCode(Cow::Borrowed(code))
    }

    /// The stored form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ResultCode {
    fn from(code: String) -> ResultCode {
        ResultCode(Cow::Owned(code))
    }
}

impl From<&str> for ResultCode {
    fn from(code: &str) -> ResultCode {
        ResultCode::from(code.to_owned())
    }
}

impl From<&ResultCode> for ResultCode {
    fn from(code: &ResultCode) -> ResultCode {
        code.clone()
    }
}

impl Default for ResultCode {
    fn default() -> ResultCode {
        ResultCode::from_static("")
    }
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
#[path = "work_result_tests.rs"]
mod tests;
