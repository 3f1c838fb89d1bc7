//! Kinds, states and outcomes of work in the queue.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kind of exclusive work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    /// A customer's create, update or delete; carried out by the backend, ahead of all maintenance.
    Operation,
    /// A maintenance manifest; carried out by the actuator.
    Manifest,
}

impl WorkKind {
    /// All kinds, in the order in which a lane serves them.
    pub const ALL: [WorkKind; 2] = [WorkKind::Operation, WorkKind::Manifest];

    /// Name in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkKind::Operation => "operation",
            WorkKind::Manifest => "manifest",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WorkKind {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<WorkKind, UnknownValue> {
        match text {
            "operation" => Ok(WorkKind::Operation),
            "manifest" => Ok(WorkKind::Manifest),
            other => Err(UnknownValue {
                what: "kind of work",
                value: other.to_owned(),
                accepted: "operation, manifest",
            }),
        }
    }
}

/// State of a piece of work: the seven states of MIMO, for operations and manifests alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkState {
    /// Waits for its time, its turn or its next attempt.
    Pending,
    /// A worker holds its lane and runs it.
    InProgress,
    /// All steps succeeded.
    Completed,
    /// Failed with an error that a retry cannot fix.
    Failed,
    /// Failed in its last attempt; the result holds the last error.
    RetriesExceeded,
    /// `run_before` passed before it started.
    TimedOut,
    /// Cancelled by a person, or withdrawn by its schedule.
    Cancelled,
}

/// Event that changes the state of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkEvent {
    /// A worker claimed its lane.
    Claimed,
    /// The worker released it to continue later: a backoff, a pre-emption, an orderly shutdown.
    Yielded,
    /// The worker was lost; another continues under a new fence.
    TakenOver,
    /// All steps succeeded.
    Finished,
    /// A terminal error.
    Faulted,
    /// The last attempt failed.
    AttemptsSpent,
    /// `run_before` passed before it started.
    WindowClosed,
    /// It was cancelled or withdrawn (running work: after its undo).
    Withdrawn,
}

impl WorkState {
    /// Every state.
    pub const ALL: [WorkState; 7] = [
        WorkState::Pending,
        WorkState::InProgress,
        WorkState::Completed,
        WorkState::Failed,
        WorkState::RetriesExceeded,
        WorkState::TimedOut,
        WorkState::Cancelled,
    ];

    /// The only way a piece of work changes state. Anything not listed is a bug in the caller.
    pub fn on(self, event: WorkEvent) -> Result<WorkState, IllegalTransition> {
        use {WorkEvent as E, WorkState as S};
        match (self, event) {
            (S::Pending, E::Claimed) => Ok(S::InProgress),
            (S::Pending, E::WindowClosed) => Ok(S::TimedOut),
            (S::Pending | S::InProgress, E::Withdrawn) => Ok(S::Cancelled),
            (S::InProgress, E::Yielded) => Ok(S::Pending),
            (S::InProgress, E::TakenOver) => Ok(S::InProgress),
            (S::InProgress, E::Finished) => Ok(S::Completed),
            (S::InProgress, E::Faulted) => Ok(S::Failed),
            (S::InProgress, E::AttemptsSpent) => Ok(S::RetriesExceeded),
            (from, event) => Err(IllegalTransition { from, event }),
        }
    }

    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        match self {
            WorkState::Pending | WorkState::InProgress => false,
            WorkState::Completed
            | WorkState::Failed
            | WorkState::RetriesExceeded
            | WorkState::TimedOut
            | WorkState::Cancelled => true,
        }
    }

    /// Name in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkState::Pending => "Pending",
            WorkState::InProgress => "InProgress",
            WorkState::Completed => "Completed",
            WorkState::Failed => "Failed",
            WorkState::RetriesExceeded => "RetriesExceeded",
            WorkState::TimedOut => "TimedOut",
            WorkState::Cancelled => "Cancelled",
        }
    }
}

impl fmt::Display for WorkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WorkState {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<WorkState, UnknownValue> {
        WorkState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownValue {
            what: "state",
            value: text.to_owned(),
            accepted: "Pending, InProgress, Completed, Failed, RetriesExceeded, TimedOut, Cancelled",
        })
    }
}

/// Outcome of a piece of work that a worker held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// All steps succeeded.
    Completed,
    /// A terminal error.
    Failed,
    /// The last attempt failed.
    RetriesExceeded,
    /// Stopped because cancellation was requested.
    Cancelled,
}

impl Ending {
    /// The event that leads to this outcome.
    pub fn event(self) -> WorkEvent {
        match self {
            Ending::Completed => WorkEvent::Finished,
            Ending::Failed => WorkEvent::Faulted,
            Ending::RetriesExceeded => WorkEvent::AttemptsSpent,
            Ending::Cancelled => WorkEvent::Withdrawn,
        }
    }

    /// The final state.
    pub fn state(self) -> WorkState {
        match self {
            Ending::Completed => WorkState::Completed,
            Ending::Failed => WorkState::Failed,
            Ending::RetriesExceeded => WorkState::RetriesExceeded,
            Ending::Cancelled => WorkState::Cancelled,
        }
    }
}

/// Request to cancel a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// Person or service that requested it.
    pub requested_by: String,
    /// Reason that was given with the request.
    pub reason: Option<String>,
    /// Time of the request, by the store's clock.
    pub requested_at: Timestamp,
}

/// A transition that the state machine does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work in state {from} cannot be {event:?}")]
pub struct IllegalTransition {
    /// The state of the work.
    pub from: WorkState,
    /// The event that the state does not allow.
    pub event: WorkEvent,
}

/// A text from a request or the store that names no value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{value}\" is no {what}; accepted: {accepted}")]
pub struct UnknownValue {
    /// What the text should have named.
    pub what: &'static str,
    /// The text.
    pub value: String,
    /// The accepted names.
    pub accepted: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_a_terminal_state() {
        let events = [
            WorkEvent::Claimed,
            WorkEvent::Yielded,
            WorkEvent::TakenOver,
            WorkEvent::Finished,
            WorkEvent::Faulted,
            WorkEvent::AttemptsSpent,
            WorkEvent::WindowClosed,
            WorkEvent::Withdrawn,
        ];
        for state in WorkState::ALL.into_iter().filter(|state| state.is_terminal()) {
            for event in events {
                assert_eq!(state.on(event), Err(IllegalTransition { from: state, event }));
            }
        }
    }

    #[test]
    fn only_pending_work_can_time_out() {
        assert_eq!(WorkState::Pending.on(WorkEvent::WindowClosed), Ok(WorkState::TimedOut));
        assert!(WorkState::InProgress.on(WorkEvent::WindowClosed).is_err());
    }

    #[test]
    fn every_ending_is_a_legal_move_of_running_work() {
        for ending in [Ending::Completed, Ending::Failed, Ending::RetriesExceeded, Ending::Cancelled] {
            assert_eq!(WorkState::InProgress.on(ending.event()), Ok(ending.state()));
        }
    }

    #[test]
    fn names_are_parsed_as_written_and_others_are_rejected() {
        for state in WorkState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for kind in WorkKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let refusal = "pending".parse::<WorkState>().unwrap_err().to_string();
        assert!(refusal.starts_with("\"pending\" is no state; accepted: Pending"), "{refusal}");
    }
}
