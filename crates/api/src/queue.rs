//! Rows of the queue as a reader sees them: one piece of work, and the limits on how much runs at once.
//!
//! The store reads them, and the decisions about waiting work are functions of them.

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::doc::WorkResult;
use crate::work::{Cancellation, WorkKind, WorkState};

/// One piece of work, in any state.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkView {
    /// Its id.
    pub id: Uuid,
    /// Its lane.
    pub lane: Uuid,
    /// Who carries it out.
    pub kind: WorkKind,
    /// Its state.
    pub state: WorkState,
    /// Attempts so far.
    pub attempt: i32,
    /// When it was asked to run.
    pub run_after: Timestamp,
    /// When it can run next; its end for what has ended.
    pub due_at: Timestamp,
    /// Never begun at or after.
    pub run_before: Option<Timestamp>,
    /// Among those due at the same time, lower goes first.
    pub priority: i32,
    /// The last step that was checkpointed.
    pub step: Option<String>,
    /// What that step left.
    pub checkpoint: Option<Value>,
    /// The fence that it was last held under.
    pub fence: i64,
    /// When it was enqueued.
    pub created: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// Its result, once it has finished.
    pub result: Option<WorkResult>,
    /// What asked for it.
    pub origin: Option<String>,
    /// The budgets that count it while it runs, if they are configured.
    pub budgets: Vec<String>,
    /// Whether it has begun and is on its way to its end: somebody asked for that while it rested, or what it did is being
    /// taken back. No budget holds it up.
    pub ending: bool,
    /// The last request to cancel it; none for work that has finished, whose result names the request.
    pub cancellation: Option<Cancellation>,
}

impl WorkView {
    /// Whether it is pending and no attempt at it was ever started.
    pub fn is_fresh(&self) -> bool {
        self.state == WorkState::Pending && self.attempt == 0 && self.started.is_none()
    }
}

/// A limit on how much runs at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// `fleet`, `region/L`, `subscription/S`, `task/T`.
    pub key: String,
    /// At most so many; 0 stops new starts.
    pub limit: u32,
    /// So many run.
    pub used: u32,
    /// So many lanes wait for it.
    pub parked: u32,
}

/// Whether a full budget holds up the whole lane, or only the work that names it: a task's holds up the task's work, those
/// of fleet, region and subscription hold up all work of a cluster.
pub fn holds_lane(budget: &str) -> bool {
    !budget.starts_with("task/")
}
