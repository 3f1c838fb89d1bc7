//! A pool of workers: claims lanes of one kind of work for its free slots, renews all their leases together, stops work whose
//! lease it could not renew before another process can claim it, takes over work of processes that were lost, and releases
//! what it holds at shutdown.
//!
//! The store wakes the pool; polling is only the safety net. A [`WorkHandler`] defines what the work consists of and what is
//! written when it finishes. There are two: the actuator's for manifests and the backend's for operations.

mod claim;
mod completions;
mod heartbeat;
mod leases;
mod poll_interval;
mod run;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::error::{Class, Classify as _};
use api::work::WorkKind;
use backon::BackoffBuilder as _;
use futures_util::future::BoxFuture;
use store::{
    ClaimedWork, Completion, CompletionOutcome, LEASE, PreparedCompletion, RENEWAL, Release, SELF_STOP,
    Store, StoreError,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::backoff::store_backoff;
use crate::engine::{RunControl, RunOutcome, WaitingCode};
pub use completions::CompletionQueue;
use completions::{QueuedCompletion, log_rejected};
use leases::HeldLeases;
use poll_interval::PollInterval;

/// Durations of leases and of what depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim holds its lane without renewal.
    pub lease: Duration,
    /// Interval between two renewals.
    pub renewal: Duration,
    /// Time after the last successful renewal at which the pool stops its work.
    pub self_stop: Duration,
    /// Shortest interval between two searches for work of lost processes; the longest is twice as long.
    pub take_over: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        // One search is one small read: work of a lost process continues within two seconds after its lease expired.
        Timing { lease: LEASE, renewal: RENEWAL, self_stop: SELF_STOP, take_over: Duration::from_secs(1) }
    }
}

/// Defines what the work of a pool consists of.
pub trait WorkHandler: Send + Sync + 'static {
    /// What is read about claimed work before it runs. The handler may also keep its own state of the run in it.
    type Facts: Send + 'static;

    /// The pool that runs this handler.
    fn pool(&self) -> &WorkerPool;

    /// Reads the facts of work that was claimed together: one for each, in order.
    fn read(
        &self,
        claimed: &[ClaimedWork],
    ) -> impl Future<Output = Result<Vec<Self::Facts>, StoreError>> + Send;

    /// Runs the plan of the work from its last checkpoint. The pool writes the outcome.
    fn run(&self, attempt: &Attempt, facts: &mut Self::Facts) -> impl Future<Output = RunOutcome> + Send;

    /// Writes a completion, by [`WorkerPool::complete`] or in a transaction of its own. Returns whether it is written; if it is
    /// not, the lease was lost.
    fn complete(
        &self,
        attempt: &Attempt,
        facts: &Self::Facts,
        completion: Completion,
    ) -> impl Future<Output = bool> + Send;

    /// Called after the work was released, to be continued later.
    fn released(
        &self,
        facts: &Self::Facts,
        yielding: &Release,
        reason: WaitingCode,
    ) -> impl Future<Output = ()> + Send;

    /// Called with the number of works that were taken over from lost processes.
    fn taken_over(&self, count: u64);

    /// Called with the number of leases that were lost.
    fn lost(&self, count: u64);
}

/// One claimed work while this process runs it.
#[derive(Debug)]
pub struct Attempt {
    /// The work as it was claimed.
    pub claimed: ClaimedWork,
    /// Stops or releases the run.
    pub control: RunControl,
    /// When the run started.
    pub started: Instant,
}

/// Settings of a pool.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The kind of work that the pool claims.
    pub kind: WorkKind,
    /// What one work is called in the log; its plural ends with an s.
    pub noun: &'static str,
    /// Name of the lease by which others see that this process is alive.
    pub lease_name: String,
    /// How many works run at the same time.
    pub slots: usize,
    /// Durations of leases.
    pub timing: Timing,
    /// Identifies this process in the store; new at every start.
    pub owner: Uuid,
}

/// The workers of one process.
#[derive(Debug)]
pub struct WorkerPool {
    /// Holds the work queue.
    pub store: Store,
    /// The settings.
    pub settings: Settings,
    leases: HeldLeases,
    poll_interval: PollInterval,
    completions: mpsc::UnboundedSender<QueuedCompletion>,
}

/// A further task of the service, with its name. It runs until everything is released.
pub type BackgroundTask = (&'static str, BoxFuture<'static, ()>);

/// A task of the pool exited although nobody stopped it.
#[derive(Debug)]
pub struct UnexpectedExit {
    /// Name of the task.
    pub part: &'static str,
    /// The panic, if it panicked.
    pub source: Option<tokio::task::JoinError>,
}

/// Result of [`WorkerPool::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The release is written.
    Released,
    /// A cancel was requested in the meantime; nothing is written.
    CancelRequested,
    /// Another process may hold the work.
    LeaseLost,
}

/// Claims and runs work until `shutdown`; then releases what it holds at the next safe points, within 30 s. The `background`
/// tasks stop by `over`, which is cancelled after everything is released.
///
/// Dropping the future is equivalent to a crash: everything stops at its current await and the leases expire.
pub async fn serve<H: WorkHandler>(
    handler: Arc<H>,
    completions: CompletionQueue,
    background: Vec<BackgroundTask>,
    over: CancellationToken,
    shutdown: CancellationToken,
) -> Result<(), UnexpectedExit> {
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    tasks.spawn(named("heartbeat", heartbeat::renew(handler.clone(), over.clone())));
    tasks.spawn(named("self-stop", heartbeat::self_stop(handler.clone(), over.clone())));
    tasks.spawn(named("signals", heartbeat::listen(handler.clone(), over.clone())));
    for (name, task) in background {
        tasks.spawn(named(name, task));
    }
    let exited = tokio::select! {
        biased;
        () = claim::run(&handler, completions, &shutdown) => None,
        exited = tasks.join_next() => exited,
    };
    match exited {
        None => {}
        Some(Ok(part)) => return Err(UnexpectedExit { part, source: None }),
        Some(Err(error)) => return Err(UnexpectedExit { part: "part", source: Some(error) }),
    }
    over.cancel();
    while tasks.join_next().await.is_some() {}
    // Others see at once that this process is gone, and not only when its lease expires.
    let pool = handler.pool();
    let _ = pool.store.release_lease(&pool.settings.lease_name, pool.settings.owner).await;
    Ok(())
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

impl WorkerPool {
    /// A pool that holds nothing yet, and the queue of the completions that it will write.
    pub fn new(store: Store, settings: Settings) -> (WorkerPool, CompletionQueue) {
        // Unbounded, but never longer than twice the slots: each run waits for its own completion to be written.
        let (completions, queued) = mpsc::unbounded_channel();
        let (poll_interval, leases) =
            (PollInterval::from_owner(settings.owner), HeldLeases::new(settings.slots));
        (WorkerPool { store, settings, leases, poll_interval, completions }, CompletionQueue::new(queued))
    }

    /// Identifies this process in the store.
    pub fn owner(&self) -> Uuid {
        self.settings.owner
    }

    fn free_slots(&self) -> usize {
        self.leases.free_slots()
    }

    /// Queues a completion, which is written together with others, and waits for it. Returns what became of it, or none if the
    /// lease was lost before.
    pub async fn complete(&self, control: &RunControl, completion: Completion) -> Option<CompletionOutcome> {
        let end = PreparedCompletion::new(&completion)
            .inspect_err(|error| log_rejected(completion.lease, error))
            .ok()?;
        let (written, outcome) = oneshot::channel();
        self.completions.send((end, written)).ok()?;
        tokio::select! {
            biased;
            outcome = outcome => outcome.ok(),
            () = control.lost.cancelled() => None,
        }
    }

    /// Releases work, to be continued later. Retries while the store does not answer.
    pub async fn release(&self, control: &RunControl, yielding: &Release) -> ReleaseOutcome {
        let mut delays = store_backoff().build();
        loop {
            let release = self.store.release(yielding.clone());
            match control.lost.run_until_cancelled(release).await {
                Some(Ok(())) => return ReleaseOutcome::Released,
                Some(Err(StoreError::WrongState { .. })) => return ReleaseOutcome::CancelRequested,
                Some(Err(error)) if error.class() == Class::Transient => {
                    let work = yielding.lease.work;
                    tracing::info!(work.id = %work, error = %error, "Releasing work {work} failed; retrying");
                }
                Some(Err(_)) | None => return ReleaseOutcome::LeaseLost,
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }
}
