//! The scheduler: reconciles the pending manifests with the schedules.
//!
//! It caches the fleet in memory ([`Fleet`]) and follows the store's change feed. Each pass decides only what changed: a
//! changed cluster against every schedule; a changed schedule, or one whose next period has started, against every
//! cluster. Only differences are written. Between changes it sleeps until the next period starts.
//!
//! One process schedules at a time, by the lease `scheduler`. This saves work and is not needed for safety: manifest ids are
//! derived from schedule, period and cluster, so two concurrent schedulers still create one manifest of each.
//!
//! A started manifest is never withdrawn, because its undo would not run. A manifest that a person cancelled is never
//! created again.

mod act;
mod feed;
mod fleet;
mod metrics;
mod outlook;
mod schedule_record;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use api::clock::SharedClock;
use jiff::Timestamp;
use store::{FeedFollower, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use fleet::{Fleet, ManifestChanges};
pub use metrics::Metrics;

/// Name of the lease of the active scheduler.
pub const LEASE: &str = "scheduler";
/// Longest sleep, since notifications may be lost and the clock may be set.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Delay after a failed pass.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Dependencies of a scheduler.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Store of schedules, clusters and manifests.
    pub store: Store,
    /// Clock for the periods.
    pub clock: SharedClock,
    /// Metrics.
    pub metrics: Metrics,
    /// Owner of the lease; new at every start of the process.
    pub owner: Uuid,
    /// Lease durations. All processes must agree; tests that kill processes use shorter ones.
    pub timing: Timing,
}

/// Durations of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Duration of the lease, which is the delay of a takeover after a crash.
    pub lease: Duration,
    /// Interval of renewals.
    pub renewal: Duration,
    /// Interval at which standby processes try to take the lease.
    pub standby: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            lease: Duration::from_secs(60),
            renewal: Duration::from_secs(15),
            standby: Duration::from_secs(5),
        }
    }
}

/// Failure of a pass; the scheduler retries it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Schedules until `shutdown`. Retries after failures of the store; never ends by itself.
pub async fn run(deps: Deps, shutdown: CancellationToken) -> Result<(), Error> {
    while !shutdown.is_cancelled() {
        match deps.store.take_lease(LEASE, deps.owner, deps.timing.lease).await {
            Ok(Some(_fence)) => {
                deps.metrics.leading(true);
                lead(&deps, &shutdown).await;
                deps.metrics.leading(false);
            }
            Ok(None) => sleep_unless(&shutdown, deps.timing.standby).await,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Cannot take the scheduler lease");
                sleep_unless(&shutdown, deps.timing.standby).await;
            }
        }
    }
    if let Err(error) = deps.store.release_lease(LEASE, deps.owner).await {
        tracing::info!(
            error = &error as &dyn std::error::Error,
            "Cannot release the scheduler lease; it expires"
        );
    }
    Ok(())
}

/// Schedules until the lease is lost or `shutdown`.
async fn lead(deps: &Deps, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep_lease(deps) => tracing::info!("Another process took the scheduler lease"),
        () = run_passes(deps) => {}
    }
}

/// Renews the lease; returns when another process holds it.
async fn keep_lease(deps: &Deps) {
    loop {
        tokio::time::sleep(deps.timing.renewal).await;
        match deps.store.take_lease(LEASE, deps.owner, deps.timing.lease).await {
            Ok(Some(_)) => {}
            Ok(None) => return,
            // Two schedulers may then run concurrently for a while, which is safe.
            Err(error) => {
                tracing::info!(error = &error as &dyn std::error::Error, "Cannot renew the scheduler lease");
            }
        }
    }
}

/// Follows the feed and the calendars without end. May be dropped at any await: the next scheduler completes a partial pass.
async fn run_passes(deps: &Deps) {
    let mut scheduler = Scheduler::new(deps);
    loop {
        let sleep = match reconcile(&mut scheduler).await {
            Ok(sleep) => sleep,
            Err(error) => {
                deps.metrics.pass_failed();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "A pass of the scheduler failed; retrying"
                );
                RETRY_DELAY
            }
        };
        scheduler.feed.wait(sleep).await;
    }
}

/// Reads the changes and runs a pass. Returns the time until the next pass.
async fn reconcile(scheduler: &mut Scheduler) -> Result<Duration, Error> {
    scheduler.follow_feed().await?;
    scheduler.pass().await?;
    if !scheduler.fleet.is_clean() {
        return Ok(Duration::ZERO);
    }
    let delay = scheduler.fleet.next_period().map(|at| at.duration_since(scheduler.deps.clock.now()));
    let delay = delay.map(|delay| Duration::try_from(delay).unwrap_or(Duration::ZERO));
    Ok(delay.unwrap_or(SLEEP_MAX).min(SLEEP_MAX))
}

async fn sleep_unless(shutdown: &CancellationToken, duration: Duration) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(duration) => {}
    }
}

/// Cached fleet, with its position in the change feed.
#[derive(Debug)]
pub(crate) struct Scheduler {
    deps: Deps,
    pub(crate) fleet: Fleet,
    feed: FeedFollower,
    /// Manifests whose changes are irrelevant: without a schedule, or started or completed before they were cached.
    ignored: HashSet<Uuid>,
    /// Time of the next read of cluster versions, which the feed does not report.
    versions_due: Timestamp,
    /// Schedules and clusters to decide again in the next pass.
    retry: Vec<(String, Uuid)>,
}
