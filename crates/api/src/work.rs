//! The words of the queue: what kinds of exclusive work there are, and the states that one passes through.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Who carries the work out.
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

    /// The word in the store and on the wire.
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
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<WorkKind, UnknownWord> {
        match text {
            "operation" => Ok(WorkKind::Operation),
            "manifest" => Ok(WorkKind::Manifest),
            other => Err(UnknownWord {
                what: "kind of work",
                word: other.to_owned(),
                accepted: "operation, manifest",
            }),
        }
    }
}

/// The state of a piece of work; MIMO's seven, for operations as for manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkState {
    /// Waits for its time, its turn or its next attempt.
    Pending,
    /// Somebody holds its lane and works on it.
    InProgress,
    /// Done.
    Completed,
    /// Ended by an error that trying again cannot mend.
    Failed,
    /// Ended because its attempts are spent; the last error is kept.
    RetriesExceeded,
    /// Its time to begin passed before anything was begun.
    TimedOut,
    /// Withdrawn by a person or by what had asked for it.
    Cancelled,
}

/// What happens to a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkEvent {
    /// A worker took its lane.
    Claimed,
    /// The worker gave it back to continue later: a back-off, a pre-emption, an orderly shutdown.
    Yielded,
    /// The worker was lost; another continues under a new fence.
    TakenOver,
    /// All steps are done.
    Finished,
    /// A terminal error.
    Faulted,
    /// The last attempt failed.
    AttemptsSpent,
    /// `run_before` passed and nothing had been begun.
    WindowClosed,
    /// Somebody withdrew it (running work: after its undo).
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

    /// Whether nothing can happen to it any more.
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

    /// The word in the store and on the wire.
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
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<WorkState, UnknownWord> {
        WorkState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownWord {
            what: "state",
            word: text.to_owned(),
            accepted: "Pending, InProgress, Completed, Failed, RetriesExceeded, TimedOut, Cancelled",
        })
    }
}

/// How a piece of work ended in the hands of the one who held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// All steps are done.
    Completed,
    /// A terminal error.
    Failed,
    /// The last attempt failed.
    RetriesExceeded,
    /// Stopped because somebody asked for it.
    Cancelled,
}

impl Ending {
    /// The event that this ending is.
    pub fn event(self) -> WorkEvent {
        match self {
            Ending::Completed => WorkEvent::Finished,
            Ending::Failed => WorkEvent::Faulted,
            Ending::RetriesExceeded => WorkEvent::AttemptsSpent,
            Ending::Cancelled => WorkEvent::Withdrawn,
        }
    }

    /// The state that it leads to.
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

/// A move that the state machine does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work in state {from} cannot be {event:?}")]
pub struct IllegalTransition {
    /// The state it was in.
    pub from: WorkState,
    /// What was to happen to it.
    pub event: WorkEvent,
}

/// A word on the wire or in the store that means nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{word}\" is no {what}; accepted: {accepted}")]
pub struct UnknownWord {
    /// What the word should have named.
    pub what: &'static str,
    /// The word itself.
    pub word: String,
    /// The words that would do.
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
    fn words_are_read_back_as_written_and_others_are_refused_by_name() {
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
