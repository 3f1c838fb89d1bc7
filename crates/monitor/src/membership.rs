//! Membership of this process in the pool of monitors: which buckets it owns, and the duty of the leader.
//!
//! A failed refresh costs nothing at first. The buckets of the last one are kept until the others may have taken them over, so that
//! a short absence of the database blinds nobody; for at most one refresh interval two processes may own a bucket, which is
//! harmless: metrics repeat, and of two records the last one counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::{PoolView, WorkerRegistry};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::balance::balance;
use crate::config::Timing;
use crate::metrics::Metrics;

/// Buckets that this process owns, by number.
pub(crate) type OwnedBuckets = Arc<BTreeSet<usize>>;

/// The buckets of the last successful refresh.
#[derive(Debug, Default)]
struct Ownership {
    buckets: OwnedBuckets,
    refreshed: Option<Instant>,
}

impl Ownership {
    fn refreshed(&mut self, buckets: BTreeSet<usize>, sent: Instant) {
        if *self.buckets != buckets {
            self.buckets = Arc::new(buckets);
        }
        self.refreshed = Some(sent);
    }

    /// After a failed refresh: drops the buckets when they may have been taken over.
    fn failed(&mut self, timing: &Timing, now: Instant) {
        let held = self.refreshed.is_some_and(|at| now.duration_since(at) < timing.hold());
        if !held && !self.buckets.is_empty() {
            self.buckets = OwnedBuckets::default();
        }
    }
}

/// Takes part in the pool until shutdown, then leaves it. `refreshed` gets the buckets, and with each successful refresh its time.
pub(crate) async fn take_part(
    registry: WorkerRegistry,
    worker: Uuid,
    timing: Timing,
    metrics: Metrics,
    owned: watch::Sender<(OwnedBuckets, Option<Instant>)>,
    shutdown: CancellationToken,
) {
    let mut ownership = Ownership::default();
    let mut ticks = interval(timing.refresh);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        let sent = Instant::now();
        match timeout(timing.refresh, refresh(&registry, worker, &timing)).await {
            Ok(Ok((view, buckets))) => {
                metrics.pool(view.is_leader, view.workers.len(), buckets.len());
                ownership.refreshed(buckets, sent);
                if std::mem::take(&mut is_failing) {
                    tracing::info!("The pool of monitors can be refreshed again");
                }
            }
            result => {
                metrics.refresh_failed();
                ownership.failed(&timing, Instant::now());
                if !std::mem::replace(&mut is_failing, true) {
                    let cause = match result {
                        Ok(Err(error)) => error.to_string(),
                        _ => "the database does not respond".to_owned(),
                    };
                    tracing::warn!(
                        "Refreshing the pool of monitors failed; keeping the clusters for now: {cause}"
                    );
                }
            }
        }
        owned.send_replace((ownership.buckets.clone(), ownership.refreshed));
    }
    // The others need not wait for the lease. Without a database there is nothing to leave.
    let _ = timeout(timing.refresh, registry.leave(worker)).await;
}

/// Refreshes the membership; as the leader also assigns the buckets if workers came or went.
async fn refresh(
    registry: &WorkerRegistry,
    worker: Uuid,
    timing: &Timing,
) -> Result<(PoolView, BTreeSet<usize>), store::StoreError> {
    let mut view = registry.refresh(worker, timing.lease, timing.lease).await?;
    if view.is_leader {
        let current = view.buckets.take().unwrap_or_default();
        let wanted = balance(&current, &view.workers);
        if wanted == current {
            view.buckets = Some(current);
        } else if registry.assign(worker, &wanted).await? {
            tracing::info!("Assigned the buckets of {} monitors", view.workers.len());
            view.buckets = Some(wanted);
        } else {
            // Another one leads by now.
            view.is_leader = false;
            view.buckets = Some(current);
        }
    }
    let owners = view.buckets.iter().flatten().enumerate();
    let own = owners.filter(|(_, owner)| **owner == Some(worker)).map(|(number, _)| number).collect();
    Ok((view, own))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn buckets_survive_a_short_absence_of_the_database_and_not_a_long_one() {
        let timing = Timing::default();
        let mut ownership = Ownership::default();
        let start = Instant::now();
        ownership.refreshed(BTreeSet::from([1, 2]), start);
        for (seconds, expect) in [(10, 2), (49, 2), (50, 0), (60, 0)] {
            ownership.failed(&timing, start + Duration::from_secs(seconds));
            assert_eq!(ownership.buckets.len(), expect, "after {seconds} s");
        }
        ownership.refreshed(BTreeSet::from([3]), start + Duration::from_secs(70));
        ownership.failed(&timing, start + Duration::from_secs(80));
        assert_eq!(*ownership.buckets, BTreeSet::from([3]));
    }
}
