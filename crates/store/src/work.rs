//! Types of the queue: work, lanes, leases. The engines implement the algorithms; the guarantees are stated here.
//!
//! A **lane** is one cluster's (or subscription's) row in the queue: its head (the first pending work), its holder,
//! its lease and its fence. At most one piece of work of a lane runs at any time, across all hosts. Inside a lane the
//! order is: operations, then started manifests, then unstarted ones; among equals the earliest due, then the lower
//! priority, then the smaller id.

use std::time::Duration;

use api::admin::Entry;
use api::doc::WorkResult;
pub use api::queue::{Budget, WorkView, holds_lane};
use api::work::{Cancellation, Ending, WorkKind};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;

/// Duration of a lease without renewal.
pub const LEASE: Duration = Duration::from_secs(60);

/// Interval of renewals.
pub const RENEWAL: Duration = Duration::from_secs(20);

/// Age of the last successful renewal, by the holder's monotonic clock, beyond which it starts no further step: the
/// rest of the lease is for the current step and for clock drift.
pub const SELF_STOP: Duration = Duration::from_secs(40);

/// Longest pause between two polls when no notification arrives.
pub const SAFETY_POLL: Duration = Duration::from_secs(5);

/// Most work in one claim: claimed work must start at once.
pub const CLAIM_MAX: usize = 50;

/// Most work taken over from lost holders in one call.
pub const TAKE_OVER_MAX: usize = 100;

/// Most rows enqueued in one transaction; larger plans are split.
pub const ENQUEUE_MAX: usize = 1000;

/// Late rows of a lane timed out in one access; the rest in the next.
pub(crate) const EXPIRE_BATCH: usize = 100;

/// Rows of a lane moved to side queues in one access; the rest in the next.
pub(crate) const PARK_BATCH: usize = 100;

/// Operations come before all maintenance.
pub(crate) const CLASS_OPERATION: i64 = 0;
/// Work that has taken effect.
pub(crate) const CLASS_STARTED: i64 = 1;
/// A manifest without effect so far.
pub(crate) const CLASS_FRESH: i64 = 2;
/// An unstarted manifest in a side queue, until its budget has capacity. It keeps its place in the lane's order; as a
/// separate class it comes behind all unblocked work.
pub(crate) const CLASS_PARKED: i64 = 3;

/// Class of new work of a kind.
pub(crate) fn first_class(kind: WorkKind) -> i64 {
    match kind {
        WorkKind::Operation => CLASS_OPERATION,
        WorkKind::Manifest => CLASS_FRESH,
    }
}

/// Work to be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWork {
    /// Id; that of its document. A second enqueue under the same id fails.
    pub id: Uuid,
    /// Lane: the uuid of the cluster (or subscription) that it needs exclusively.
    pub lane: Uuid,
    /// Kind of worker that runs it.
    pub kind: WorkKind,
    /// Earliest start; at once when absent.
    pub run_after: Option<Timestamp>,
    /// Latest start, exclusive; no limit when absent.
    pub run_before: Option<Timestamp>,
    /// Among work due at the same time, lower comes first.
    pub priority: i32,
    /// Budgets that count it while it runs, if they are configured: `fleet`, `region/L`, `task/T`…
    pub budgets: Vec<String>,
    /// Requester that may withdraw it: the id of a schedule.
    pub origin: Option<String>,
}

impl NewWork {
    /// Work that may start at once, with no limit, priority 0, no budgets and no origin.
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

/// Right of a holder to run and write work, until another holder has a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkLease {
    /// The work.
    pub work: Uuid,
    /// Its lane.
    pub lane: Uuid,
    /// Process that holds it.
    pub owner: Uuid,
    /// Number of this holding of the lane; every write of the holder carries it, and a stale one changes nothing.
    pub fence: i64,
}

/// Work that the caller holds now.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedWork {
    /// Lease on the work.
    pub lease: WorkLease,
    /// Its kind.
    pub kind: WorkKind,
    /// Number of this attempt, from 1.
    pub attempt: i32,
    /// Last checkpointed step.
    pub step: Option<String>,
    /// Data of that step for the next one.
    pub checkpoint: Option<Value>,
    /// Requested start.
    pub run_after: Timestamp,
    /// Whether it was taken over from a lost holder.
    pub taken_over: bool,
    /// Time of the claim, by the store's clock.
    pub claimed_at: Timestamp,
    /// Whether it never started before.
    pub first: bool,
    /// Signals to the holder; only work that was taken over can have any.
    pub signals: Signals,
    /// The last request to cancel it.
    pub cancellation: Option<Cancellation>,
}

/// Signals to a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// A customer's operation waits behind this manifest: stop at the next safe point and release.
    pub preempt: bool,
    /// Cancellation of this work was requested.
    pub cancel: bool,
}

/// A lane that the caller still holds after a renewal. Lanes missing in the result are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewedLease {
    /// The lane.
    pub lane: Uuid,
    /// Fence under which it is held.
    pub fence: i64,
    /// Signals to its holder.
    pub signals: Signals,
}

/// Completion of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Lease on the work.
    pub lease: WorkLease,
    /// Outcome.
    pub ending: Ending,
    /// Result to store.
    pub result: WorkResult,
    /// Entries, in order; written with the completion or not at all.
    pub entries: Vec<Entry>,
}

impl Completion {
    /// A completion without entries.
    pub fn new(lease: WorkLease, ending: Ending, result: impl Into<WorkResult>) -> Completion {
        Completion { lease, ending, result: result.into(), entries: Vec::new() }
    }
}

/// Results of completions and a claim that were sent together. Either may succeed without the other.
#[derive(Debug)]
pub struct CompleteAndClaimResult {
    /// Outcome of each completion, in order.
    pub completed: Result<Vec<CompletionOutcome>, StoreError>,
    /// Claimed work.
    pub claimed: Result<Vec<ClaimedWork>, StoreError>,
}

/// Release of work, to be continued later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Lease on the work.
    pub lease: WorkLease,
    /// Delay until it is due again, by the store's clock.
    pub delay: Duration,
    /// Whether the attempt counts: a failed one does; a pre-emption, a graceful shutdown or a precondition that is
    /// not met does not.
    pub attempt_spent: bool,
    /// Step and data for the next holder; an earlier checkpoint stays when absent. Unlike
    /// [`Transaction::checkpoint`](crate::Transaction::checkpoint) it does not mark work as started: work released
    /// before its first step keeps its place in the lane, and (unless the attempt counts) may still time out before
    /// it starts.
    pub checkpoint: Option<(String, Value)>,
    /// Whether the work has taken effect: it then counts as started, as by a checkpoint. It can no longer be
    /// withdrawn, only requested to cancel and undo.
    pub started: bool,
    /// Fails when cancellation was requested meanwhile: an accepted request must not be lost with the release. Not
    /// set by a holder that knows of the request and leaves the work to be completed: started work released
    /// without this is no longer blocked by budgets.
    pub unless_cancelled: bool,
    /// Entries, in order; written with the release or not at all.
    pub entries: Vec<Entry>,
}

impl Release {
    /// A release that keeps the checkpoint and adds no entries.
    pub fn new(lease: WorkLease, delay: Duration, attempt_spent: bool) -> Release {
        Release {
            lease,
            delay,
            attempt_spent,
            checkpoint: None,
            started: false,
            unless_cancelled: false,
            entries: Vec::new(),
        }
    }
}

/// Outcome of one completion in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionOutcome {
    /// It is written.
    Done,
    /// The lease was stale; nothing of this item is written.
    Lost,
}

/// A lane as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub lane: Uuid,
    /// Kind of its head; none when nothing is pending.
    pub head_kind: Option<WorkKind>,
    /// Due time of its head.
    pub head_at: Option<Timestamp>,
    /// Budget that it waits for.
    pub parked_on: Option<String>,
    /// Process that holds it.
    pub owner: Option<Uuid>,
    /// Expiry of the lease, unless renewed.
    pub lease_until: Option<Timestamp>,
    /// Fence of the current or last lease.
    pub fence: i64,
    /// Running work.
    pub running: Option<Uuid>,
    /// Signals to its holder.
    pub signals: Signals,
}

/// Most rows read to count pending work; a longer queue is reported with this length.
pub(crate) const QUEUE_COUNT_MAX: usize = 10_000;

/// Figures of the queue of a kind, at a cost independent of the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueView {
    /// Free lanes whose first work is due, including those that wait for a budget. Work behind running work is not
    /// due.
    pub due: u64,
    /// Pending pieces of work, among the first 10,000 live ones.
    pub pending: u64,
    /// Claimed pieces of work.
    pub running: u64,
    /// Due time of the work that has waited longest. Expedited work has no due time of its own and is left out.
    pub oldest_due: Option<Timestamp>,
}

/// Progress of a bounded sweep over the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepProgress {
    /// Changed rows.
    pub changed: usize,
    /// Where to continue; none at the end.
    pub next: Option<Uuid>,
}
