//! The scheduler: sees to it that the pending manifests are those that the schedules want.
//!
//! It holds the fleet in memory ([`Fleet`]), fed by the store's change feed. What changed is decided anew, and nothing
//! else: a changed cluster against every schedule, a changed schedule or one whose next period has begun against every
//! cluster. Only differences are written. Between changes it sleeps until the next period begins.
//!
//! One process works at a time, by the lease `scheduler`. That is thrift, not safety: the ids of manifests follow from
//! schedule, period and cluster, so that two who work at once still make one manifest of each.
//!
//! What was begun is never withdrawn, because its undo would not run; and what a person cancelled is never made again.

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

/// The lease of the one who works.
pub const LEASE: &str = "scheduler";
/// The longest sleep: wake-ups may be lost, and the clock may be set.
const NAP_MAX: Duration = Duration::from_secs(5);
/// After a failure, before the next try.
const REST: Duration = Duration::from_secs(2);

/// What a scheduler is made of.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where schedules, clusters and manifests are.
    pub store: Store,
    /// By which periods begin.
    pub clock: SharedClock,
    /// What is counted.
    pub metrics: Metrics,
    /// This process, to the store; fresh at every start.
    pub owner: Uuid,
    /// How long the one who works keeps the lease. All processes must agree; tests that kill processes are in a hurry.
    pub timing: Timing,
}

/// How long a scheduler holds its lease, and what follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long one that vanished keeps the others waiting.
    pub lease: Duration,
    /// How often the lease is renewed.
    pub renewal: Duration,
    /// How often the others look whether it is free.
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

/// Why a pass did not come to its end; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Schedules until it is told to stop. Failures of the store are waited out; it never ends by itself.
pub async fn run(deps: Deps, shutdown: CancellationToken) -> Result<(), Error> {
    while !shutdown.is_cancelled() {
        match deps.store.take_lease(LEASE, deps.owner, deps.timing.lease).await {
            Ok(Some(_fence)) => {
                deps.metrics.leading(true);
                lead(&deps, &shutdown).await;
                deps.metrics.leading(false);
            }
            Ok(None) => pause(&shutdown, deps.timing.standby).await,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "The scheduler's lease cannot be had"
                );
                pause(&shutdown, deps.timing.standby).await;
            }
        }
    }
    if let Err(error) = deps.store.release_lease(LEASE, deps.owner).await {
        tracing::info!(error = &error as &dyn std::error::Error, "The scheduler's lease is left to run out");
    }
    Ok(())
}

/// Works until the lease is lost or the end is asked for.
async fn lead(deps: &Deps, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep_lease(deps) => tracing::info!("The scheduler's lease is lost; another process has it"),
        () = work(deps) => {}
    }
}

/// Renews the lease; returns when somebody else has it.
async fn keep_lease(deps: &Deps) {
    loop {
        tokio::time::sleep(deps.timing.renewal).await;
        match deps.store.take_lease(LEASE, deps.owner, deps.timing.lease).await {
            Ok(Some(_)) => {}
            Ok(None) => return,
            // Without it two may work at once for a while, which does no harm.
            Err(error) => {
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    "The scheduler's lease was not renewed"
                );
            }
        }
    }
}

/// Follows the feed and the calendar, for ever. Dropped at any await it leaves only what the next one finishes.
async fn work(deps: &Deps) {
    let mut scheduler = Scheduler::new(deps);
    loop {
        let nap = match turn(&mut scheduler).await {
            Ok(nap) => nap,
            Err(error) => {
                deps.metrics.failed();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "A pass of the scheduler failed and is tried again"
                );
                REST
            }
        };
        scheduler.feed.wait(nap).await;
    }
}

/// One turn: what has happened is learnt, what follows from it is written. How long nothing more is to be done.
async fn turn(scheduler: &mut Scheduler) -> Result<Duration, Error> {
    scheduler.follow().await?;
    scheduler.pass().await?;
    if !scheduler.fleet.is_clean() {
        return Ok(Duration::ZERO);
    }
    let until = scheduler.fleet.boundary().map(|at| at.duration_since(scheduler.deps.clock.now()));
    let until = until.map(|until| Duration::try_from(until).unwrap_or(Duration::ZERO));
    Ok(until.unwrap_or(NAP_MAX).min(NAP_MAX))
}

async fn pause(shutdown: &CancellationToken, length: Duration) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(length) => {}
    }
}

/// The fleet in memory, with what is needed to follow and to change the store.
#[derive(Debug)]
pub(crate) struct Scheduler {
    deps: Deps,
    pub(crate) fleet: Fleet,
    feed: FeedFollower,
    /// Manifests that no schedule has made, or that were begun or over before we knew them.
    foreign: HashSet<Uuid>,
    /// When the versions of clusters are next looked up, which the feed does not tell.
    versions_due: Timestamp,
    /// Schedules and clusters to be decided once more in the next pass.
    again: Vec<(String, Uuid)>,
}
