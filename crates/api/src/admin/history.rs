//! History of a manifest or operation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::doc::StepName;
use crate::work::WorkState;

/// An entry of the history of a piece of work. It is written in the transaction of the change that it describes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Time of the event.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// The event. Clients show names that they do not know as they are: newer releases may add some.
    #[schema(value_type = String)]
    pub event: EntryEvent,
    /// A person, or a service by its name.
    pub actor: String,
    /// The attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// The step.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub step: Option<StepName>,
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// An event that another release wrote, by its name.
    #[serde(untagged)]
    Other(String),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(event: &str) -> Entry {
        let stored = json!({"time": "2026-03-01T00:00:00Z", "event": event, "actor": "ada", "attempt": 1, "step": "drain"});
        let entry: Entry = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&entry).unwrap(), stored);
        entry
    }

    #[test]
    fn stored_entries_are_read_and_written_in_the_same_form() {
        assert_eq!(read("cancelRequested").event, EntryEvent::CancelRequested);
        assert_eq!(read("stepFinished").step.as_deref(), Some("drain"));
    }

    #[test]
    fn an_event_of_a_newer_release_keeps_its_name() {
        assert_eq!(read("hibernated").event, EntryEvent::Other("hibernated".to_owned()));
        let odd: Result<EntryEvent, _> = serde_json::from_value(Value::from(7));
        assert!(odd.is_err());
    }
}
