//! Periodic duties of the store, done by the process that holds the lease for them: sealing the audit log, timing out
//! late work, checking lane heads, and applying retention.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::RetentionTarget;
use crate::notify::Topic;
use crate::records::Retention;
use crate::store::Store;
use crate::{StoreError, SweepProgress};

/// Lease of the housekeeper.
const HOUSEKEEPER: &str = "housekeeper";
/// Time until another process takes over from a housekeeper that vanished.
const LEASE: Duration = Duration::from_secs(60);
/// Interval between rounds.
const ROUND: Duration = Duration::from_secs(10);
/// Rows of work checked for lateness in one round.
const EXPIRE_ROWS: usize = 5000;
/// Lanes checked in one round; the next round continues where it ended.
const REPAIR_LANES: usize = 1000;
/// Rows of history checked for age in one round where there is no index: three million take less than two hours, and
/// work is kept for days at least.
const HISTORY_ROWS: usize = 5000;
/// Health samples checked in one round; the next round continues where it ended.
const HEALTH_ROWS: usize = 1000;
/// A named lease that expired this long ago belongs to a process that will not come back.
const LEASES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Rows removed in one transaction, so that other writes get in between.
const TRIM_BLOCK: usize = 500;
/// Blocks removed in one round, for each kind.
const TRIM_BLOCKS: usize = 20;

/// Metrics of the housekeeper.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    repaired: Counter,
    expired: Counter,
    removed: Counter,
    sealed: Counter,
    failures: Counter,
    unsealed: Gauge,
    feed_delay: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("lane_repairs", "Wrong lane heads corrected; must stay 0", self.repaired.clone());
        registry.register("work_expired", "Work timed out before it started", self.expired.clone());
        registry.register("rows_removed", "Rows removed because of their age", self.removed.clone());
        registry.register("audit_sealed", "Audit records sealed by this process", self.sealed.clone());
        registry.register(
            "housekeeping_failures",
            "Duties of housekeeping that failed",
            self.failures.clone(),
        );
        registry.register(
            "audit_unsealed",
            "Audit records that waited for the sealer at the last round",
            self.unsealed.clone(),
        );
        registry.register(
            "feed_held_back_seconds",
            "Time for which the oldest open writing transaction has delayed the change feed",
            self.feed_delay.clone(),
        );
    }
}

/// Does the duties until shutdown.
pub async fn run(store: Store, retention: Retention, metrics: Metrics, shutdown: CancellationToken) {
    let owner = Uuid::new_v4();
    let mut keeper = Housekeeper {
        store,
        retention,
        metrics,
        owner,
        expire_at: None,
        repair_at: None,
        history_at: Some(Uuid::new_v4()),
        health_at: None,
    };
    let mut feed_notifications = keeper.store.notifications(Topic::Feed);
    let mut next_round = tokio::time::Instant::now();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep_until(next_round) => {
                next_round = tokio::time::Instant::now() + ROUND;
                keeper.round().await;
            }
            () = feed_notifications.next() => {
                keeper.seal().await;
                // One sealing serves all entries of a short interval.
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                }
            }
        }
    }
    // Seals what was written up to shutdown, and releases the leases for the next process.
    keeper.seal().await;
    let _ = keeper.store.release_lease(HOUSEKEEPER, owner).await;
}

struct Housekeeper {
    store: Store,
    retention: Retention,
    metrics: Metrics,
    owner: Uuid,
    expire_at: Option<Uuid>,
    repair_at: Option<Uuid>,
    /// Starts at a random place: otherwise a process that is often restarted would never reach the end.
    history_at: Option<Uuid>,
    health_at: Option<Uuid>,
}

impl Housekeeper {
    /// Runs every duty once. A duty that fails is logged and counted, and does not stop the others: a log that was
    /// tampered with must not let the tables grow.
    async fn round(&mut self) {
        self.seal().await;
        let measured = self.measure().await;
        self.done("the store's condition was not measured", measured);
        let lease = self.store.take_lease(HOUSEKEEPER, self.owner, LEASE).await;
        // Without the lease another process does the duties, or the store does not respond.
        if self.done("the housekeeper's lease was not taken", lease).flatten().is_none() {
            return;
        }
        let expired = self.expire().await;
        self.done("late work was not timed out", expired);
        let repaired = self.repair().await;
        self.done("lane heads were not checked", repaired);
        self.apply_retention().await;
    }

    /// Records the outcome of a duty.
    fn done<T>(&self, or_else: &str, outcome: Result<T, StoreError>) -> Option<T> {
        outcome
            .inspect_err(|error| {
                self.metrics.failures.inc();
                tracing::warn!(error = error as &dyn std::error::Error, "Housekeeping: {or_else}");
            })
            .ok()
    }

    async fn seal(&self) {
        let sealed = self.store.seal_audit(self.owner).await;
        let sealed = self.done("the audit log was not sealed", sealed);
        self.metrics.sealed.inc_by(sealed.unwrap_or(0) as u64);
    }

    async fn measure(&self) -> Result<(), StoreError> {
        let unsealed = self.store.engine.audit_unsealed(1000).await?.len();
        self.metrics.unsealed.set(i64::try_from(unsealed).unwrap_or(i64::MAX));
        self.metrics.feed_delay.set(self.store.engine.feed_delay().await?.as_secs_f64());
        Ok(())
    }

    async fn expire(&mut self) -> Result<(), StoreError> {
        let SweepProgress { changed, next } = self.store.expire(self.expire_at, EXPIRE_ROWS).await?;
        self.expire_at = next;
        self.metrics.expired.inc_by(changed as u64);
        Ok(())
    }

    async fn repair(&mut self) -> Result<(), StoreError> {
        let SweepProgress { changed, next } = self.store.repair(self.repair_at, REPAIR_LANES).await?;
        self.repair_at = next;
        if changed > 0 {
            self.metrics.repaired.inc_by(changed as u64);
            tracing::error!("Corrected {changed} lane heads that did not match the work; this is a bug");
        }
        Ok(())
    }

    async fn apply_retention(&mut self) {
        let keep = self.retention;
        let stale = [
            (RetentionTarget::Feed, keep.feed, "the feed was not trimmed"),
            (RetentionTarget::Tombstones, keep.feed, "tombstones were not removed"),
            (RetentionTarget::Leases, LEASES_KEPT, "old leases were not removed"),
            (RetentionTarget::HealthEvents, keep.health, "old health events were not removed"),
        ];
        for (stale, age, or_else) in stale {
            let trimmed = self.trim(stale, age).await;
            self.done(or_else, trimmed);
        }
        let trimmed = self.trim_history().await;
        self.done("finished work was not removed", trimmed);
        let trimmed = self.trim_health().await;
        self.done("health samples of deleted clusters were not removed", trimmed);
        let trimmed = self.store.trim_audit(keep.audit).await;
        let removed = self.done("the audit log was not trimmed", trimmed);
        self.metrics.removed.inc_by(removed.unwrap_or(0) as u64);
    }

    async fn trim(&self, stale: RetentionTarget, age: Duration) -> Result<(), StoreError> {
        for _ in 0..TRIM_BLOCKS {
            let removed = self.store.engine.trim(stale, age, TRIM_BLOCK, Vec::new()).await?;
            self.metrics.removed.inc_by(removed as u64);
            if removed < TRIM_BLOCK {
                break;
            }
        }
        Ok(())
    }

    async fn trim_history(&mut self) -> Result<(), StoreError> {
        for _ in 0..TRIM_BLOCKS {
            let engine = &self.store.engine;
            let SweepProgress { changed, next } =
                engine.trim_history(self.retention, self.history_at, HISTORY_ROWS, TRIM_BLOCK).await?;
            self.history_at = next;
            self.metrics.removed.inc_by(changed as u64);
            if changed < TRIM_BLOCK {
                break;
            }
        }
        Ok(())
    }

    async fn trim_health(&mut self) -> Result<(), StoreError> {
        let SweepProgress { changed, next } =
            self.store.engine.trim_health(self.health_at, HEALTH_ROWS).await?;
        self.health_at = next;
        self.metrics.removed.inc_by(changed as u64);
        Ok(())
    }
}
