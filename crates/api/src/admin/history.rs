//! What happened to a manifest, entry by entry.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::work::WorkState;

/// One thing that happened to a piece of work. Entries are written in the transaction of what they tell of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// What.
    pub event: EntryEvent,
    /// A person, or a service by its name.
    pub actor: String,
    /// In which attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// In which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub from: Option<WorkState>,
    /// The state after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<WorkState>,
    /// In a sentence: a reason, an error, a result, a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The request or run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
}

/// What can happen to a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum EntryEvent {
    /// It was asked for.
    Created,
    /// A worker took it; the beginning of an attempt.
    Claimed,
    /// A step began.
    StepStarted,
    /// A step ended well.
    StepFinished,
    /// A step ended in an error.
    StepFailed,
    /// The attempt failed and another will follow.
    Retried,
    /// It was given back without fault of its own: pre-empted, parked, drained.
    Yielded,
    /// Its worker was lost and another goes on.
    TakenOver,
    /// Somebody asked for its end.
    CancelRequested,
    /// What a step had done was undone.
    Undone,
    /// It was made the next of its cluster.
    Expedited,
    /// It was withdrawn by its schedule and is wanted again.
    Revived,
    /// It ended.
    Finished,
}

impl Entry {
    /// An entry with nothing but its time, its event, who made it and the attempt.
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
