//! History of a manifest or operation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::work::WorkState;

/// An entry of the history of a piece of work. It is written in the transaction of the change that it describes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Time of the event.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// The event.
    pub event: EntryEvent,
    /// A person, or a service by its name.
    pub actor: String,
    /// The attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// The step.
    #[serde(default)]
    pub step: Option<String>,
    /// The state before.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub from: Option<WorkState>,
    /// The state after.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub to: Option<WorkState>,
    /// Details: a reason, an error, a result, a log.
    #[serde(default)]
    pub message: Option<String>,
    /// Duration of the step or attempt.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// The request or run that it belongs to.
    #[serde(default)]
    pub correlation_id: Option<Uuid>,
}

/// Event in the history of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum EntryEvent {
    /// It was created.
    Created,
    /// A worker claimed it; the start of an attempt.
    Claimed,
    /// A step started.
    StepStarted,
    /// A step succeeded.
    StepFinished,
    /// A step failed.
    StepFailed,
    /// The attempt failed; it will be retried.
    Retried,
    /// It was released without an error: pre-empted, parked, or its worker shut down.
    Yielded,
    /// Its worker was lost and another one continues.
    TakenOver,
    /// Cancellation was requested.
    CancelRequested,
    /// A step was undone.
    Undone,
    /// It was moved to the front of its cluster's queue.
    Expedited,
    /// It had been withdrawn by its schedule and is pending again.
    Revived,
    /// It finished.
    Finished,
}

impl Entry {
    /// An entry with its required members only.
    pub fn new(time: Timestamp, event: EntryEvent, actor: impl Into<String>, attempt: i32) -> Entry {
        Entry {
            time,
            event,
            actor: actor.into(),
            attempt,
            step: None,
            from: None,
            to: None,
            message: None,
            duration_ms: None,
            correlation_id: None,
        }
    }
}
