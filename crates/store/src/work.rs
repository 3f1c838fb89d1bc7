//! The queue's nouns: work, lanes, holds. The algorithms are with each engine; what they promise is said here.
//!
//! A **lane** is one cluster's (or subscription's) row in the queue: its head (the first pending work), its holder,
//! its lease and its fence. At most one piece of work of a lane runs at any time, across all hosts. Inside a lane
//! the order is: operations, then begun manifests, then fresh ones; among equals the earliest due, then the lower
//! priority, then the smaller id.

use std::time::Duration;

use api::admin::Entry;
use api::doc::WorkResult;
pub use api::queue::{Budget, WorkView, holds_lane};
use api::work::{Ending, WorkKind};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;

/// How long a claim holds its lane without renewal.
pub const LEASE: Duration = Duration::from_secs(60);

/// How often a holder renews.
pub const RENEWAL: Duration = Duration::from_secs(20);

/// A holder whose last successful renewal is older than this, by its own monotonic clock, starts no further step:
/// the rest of the lease is for the step in hand and for clocks that drift.
pub const SELF_STOP: Duration = Duration::from_secs(40);

/// The longest pause between two looks at the queue, when no wake-up came.
pub const SAFETY_POLL: Duration = Duration::from_secs(5);

/// The most that one claim takes: a lane that is claimed must be started at once.
pub const CLAIM_MAX: usize = 50;

/// The most that one round takes over from lost holders.
pub const TAKE_OVER_MAX: usize = 100;

/// The most rows that one transaction enqueues; larger plans are cut into such blocks.
pub const ENQUEUE_MAX: usize = 1000;

/// Closed at one touch of a lane; the rest at the next.
pub(crate) const EXPIRE_BATCH: usize = 100;

/// Set aside at one touch of a lane; the rest at the next.
pub(crate) const PARK_BATCH: usize = 100;

/// Operations go before all maintenance.
pub(crate) const CLASS_OPERATION: i64 = 0;
/// Work that has taken some effect.
pub(crate) const CLASS_BEGUN: i64 = 1;
/// A manifest that has taken no effect yet.
pub(crate) const CLASS_FRESH: i64 = 2;
/// The same, set aside until a budget of its own has room. In the lane's order it is a fresh one; as a class of its own it
/// stands behind all that is not held up.
pub(crate) const CLASS_ASIDE: i64 = 3;

/// The class that new work of a kind has.
pub(crate) fn first_class(kind: WorkKind) -> i64 {
    match kind {
        WorkKind::Operation => CLASS_OPERATION,
        WorkKind::Manifest => CLASS_FRESH,
    }
}

/// Work to be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWork {
    /// Its id; that of the document which asked for it. A second enqueue under the same id is refused.
    pub id: Uuid,
    /// The lane: the uuid of the cluster (or subscription) that it needs for itself.
    pub lane: Uuid,
    /// Who carries it out.
    pub kind: WorkKind,
    /// Not before; at once when absent.
    pub run_after: Option<Timestamp>,
    /// Never begun at or after; no limit when absent.
    pub run_before: Option<Timestamp>,
    /// Among those due at the same time, lower goes first.
    pub priority: i32,
    /// The budgets that count it while it runs, if they are configured: `fleet`, `region/L`, `task/T`…
    pub budgets: Vec<String>,
    /// What asked for it, if that may ask for it back: the id of a schedule.
    pub origin: Option<String>,
}

impl NewWork {
    /// Work that may begin at once, with no limit, priority 0, no budgets and no origin.
    pub fn new(id: Uuid, lane: Uuid, kind: WorkKind) -> NewWork {
        NewWork {
            id,
            lane,
            kind,
            run_after: None,
            run_before: None,
            priority: 0,
            budgets: Vec::new(),
            origin: None,
        }
    }
}

/// The right to work: whoever has it may write, until somebody else has a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkLease {
    /// The work.
    pub work: Uuid,
    /// Its lane.
    pub lane: Uuid,
    /// The process that holds it.
    pub owner: Uuid,
    /// Which holding of this lane it is; every write of the holder carries it, and a stale one changes nothing.
    pub fence: i64,
}

/// Work that the caller now holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedWork {
    /// The right to it.
    pub lease: WorkLease,
    /// What kind it is.
    pub kind: WorkKind,
    /// Which attempt this is, from 1.
    pub attempt: i32,
    /// The last step that was checkpointed.
    pub step: Option<String>,
    /// What that step left for the next.
    pub checkpoint: Option<Value>,
    /// When it was asked to run.
    pub run_after: Timestamp,
    /// Whether it was taken over from a holder that was lost.
    pub taken_over: bool,
    /// When it came into these hands, by the store's clock.
    pub claimed_at: Timestamp,
    /// Whether it was never begun before.
    pub first: bool,
    /// What its holder is asked to do; only what was taken over can bring a wish along.
    pub signals: Signals,
}

/// What a holder is asked to do, besides going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// A customer's operation waits behind this manifest: stop at the next safe point and yield.
    pub preempt: bool,
    /// Somebody asked for this work to be cancelled.
    pub cancel: bool,
}

/// A lane that is still the caller's after a renewal. What is not among the answers is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewedLease {
    /// The lane.
    pub lane: Uuid,
    /// The fence that it is held under.
    pub fence: i64,
    /// What its holder is asked to do.
    pub signals: Signals,
}

/// The end of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The right to it.
    pub lease: WorkLease,
    /// How it ended.
    pub ending: Ending,
    /// What is stored of it.
    pub result: WorkResult,
    /// What is told of it, in order; written with the end or not at all.
    pub entries: Vec<Entry>,
}

impl Completion {
    /// An end of which nothing is told but its result.
    pub fn new(lease: WorkLease, ending: Ending, result: impl Into<WorkResult>) -> Completion {
        Completion { lease, ending, result: result.into(), entries: Vec::new() }
    }
}

/// What became of ends and of a claim that went to the store together. The one may succeed without the other.
#[derive(Debug)]
pub struct CompleteAndClaimResult {
    /// What became of each end, in order.
    pub completed: Result<Vec<CompletionOutcome>, StoreError>,
    /// What was claimed.
    pub claimed: Result<Vec<ClaimedWork>, StoreError>,
}

/// Giving work back to be continued later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The right to it.
    pub lease: WorkLease,
    /// How long it shall rest, by the store's clock.
    pub delay: Duration,
    /// Whether the attempt counts: a failed one does; a pre-emption, an orderly shutdown or a parked one does not.
    pub attempt_spent: bool,
    /// The step and what it leaves for the next holder; what was checkpointed before stays when absent. Unlike
    /// [`Transaction::checkpoint`](crate::Transaction::checkpoint) it does not make fresh work begun: who gives work back
    /// before its first step leaves its place in the lane as it was, and (unless the attempt is spent) may still be too late
    /// to begin.
    pub checkpoint: Option<(String, Value)>,
    /// Whether the work has taken some effect: it is then begun, as by a checkpoint. Nobody withdraws it any more; it is asked
    /// to end, and undoes what it did.
    pub started: bool,
    /// Refused when somebody has asked for the work's end meanwhile: a wish that was accepted must not be lost with the
    /// hand-back. Not set by who knows of the wish and leaves the work on its way to that end: begun work that is given back
    /// without this is held up by no budget any more.
    pub unless_cancelled: bool,
    /// What is told of it, in order; written with the hand-back or not at all.
    pub entries: Vec<Entry>,
}

impl Release {
    /// A hand-back that leaves the checkpoint as it is and of which nothing is told.
    pub fn new(lease: WorkLease, rest: Duration, attempt_spent: bool) -> Release {
        Release {
            lease,
            delay: rest,
            attempt_spent,
            checkpoint: None,
            started: false,
            unless_cancelled: false,
            entries: Vec::new(),
        }
    }
}

/// What the caller of a batch learns of each of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionOutcome {
    /// It is written.
    Done,
    /// The hold was stale; nothing of this item is written.
    Lost,
}

/// A lane as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub lane: Uuid,
    /// The kind of its head; none when nothing is pending.
    pub head_kind: Option<WorkKind>,
    /// When its head is due.
    pub head_at: Option<Timestamp>,
    /// The budget that it waits for.
    pub parked_on: Option<String>,
    /// The process that holds it.
    pub owner: Option<Uuid>,
    /// Until when, unless renewed.
    pub lease_until: Option<Timestamp>,
    /// The fence of the present or last holding.
    pub fence: i64,
    /// What runs in it.
    pub running: Option<Uuid>,
    /// What its holder is asked to do.
    pub signals: Signals,
}

/// So many rows are looked at to count what waits; a longer queue counts as one of this length.
pub(crate) const QUEUE_LOOK: usize = 10_000;

/// How a kind of work stands, at a cost that does not grow with the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueView {
    /// Lanes that nobody holds and whose first work is due, those that wait for a budget included. Behind running
    /// work nothing is due: its turn has not come.
    pub due: u64,
    /// Pending pieces of work, among the first 10,000 live ones.
    pub pending: u64,
    /// Pieces of work that somebody holds.
    pub running: u64,
    /// Since when the one that has waited longest has been due. Expedited work has no due time of its own and is
    /// not looked at.
    pub oldest_due: Option<Timestamp>,
}

/// How a bounded walk over the queue went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepProgress {
    /// How many it changed.
    pub changed: usize,
    /// Where to go on; none when it came to the end.
    pub next: Option<Uuid>,
}
