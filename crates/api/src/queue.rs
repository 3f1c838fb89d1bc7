//! Rows of the queue: pieces of work, and budgets that limit how much runs at once.
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
    /// Its kind, which decides the service that runs it.
    pub kind: WorkKind,
    /// Its state.
    pub state: WorkState,
    /// Attempts so far.
    pub attempt: i32,
    /// Earliest start that was requested.
    pub run_after: Timestamp,
    /// Earliest next start; the time of its end when it has finished.
    pub due_at: Timestamp,
    /// It must not start at or after this time.
    pub run_before: Option<Timestamp>,
    /// Of work that is due at the same time, the lowest value starts first.
    pub priority: i32,
    /// The last step that was checkpointed.
    pub step: Option<String>,
    /// Checkpoint of that step.
    pub checkpoint: Option<Value>,
    /// Fence of its last lease.
    pub fence: i64,
    /// When it was enqueued.
    pub created: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it finished.
    pub finished: Option<Timestamp>,
    /// Its result, once it has finished.
    pub result: Option<WorkResult>,
    /// Id of the schedule that requested it.
    pub origin: Option<String>,
    /// The budgets that count it while it runs, if they are configured.
    pub budgets: Vec<String>,
    /// Whether it has started and is being cancelled or undone: cancellation was requested while it waited, or its steps are being
    /// undone. No budget delays it.
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
    /// Maximum number that runs at once; 0 stops new starts.
    pub limit: u32,
    /// Number that runs now.
    pub used: u32,
    /// Number of lanes that wait for it.
    pub parked: u32,
}

/// Whether a full budget delays the whole lane or only the work that names it: a task's budget delays the task's work, those
/// of fleet, region and subscription delay all work of a cluster.
pub fn holds_lane(budget: &str) -> bool {
    !budget.starts_with("task/")
}
