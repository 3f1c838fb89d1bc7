//! What the store needs done regularly, by whichever process holds the lease for it: sealing the audit log, closing
//! late work, watching over heads, and removing what is older than it is kept.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::Stale;
use crate::records::Retention;
use crate::store::Store;
use crate::wake::Topic;
use crate::{StoreError, Walk};

/// The lease of the one who keeps house.
const HOUSEKEEPER: &str = "housekeeper";
/// How long a housekeeper that vanished keeps others waiting.
const LEASE: Duration = Duration::from_secs(60);
/// Between two rounds.
const ROUND: Duration = Duration::from_secs(10);
/// Rows of work that one round looks at for late ones.
const EXPIRE_ROWS: usize = 5000;
/// Lanes that one round looks at; rounds go on where the last one ended.
const REPAIR_LANES: usize = 1000;
/// Rows of the history that one round looks at for old ones, where there is no index of them: three million are looked
/// through in less than two hours, and work is kept for days at least.
const HISTORY_ROWS: usize = 5000;
/// Rows that one transaction removes; others write in between.
const TRIM_BLOCK: usize = 500;
/// Blocks that one round removes of each kind.
const TRIM_BLOCKS: usize = 20;

/// What the housekeeper counts.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    repaired: Counter,
    expired: Counter,
    removed: Counter,
    sealed: Counter,
    failures: Counter,
    unsealed: Gauge,
    held_back: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "lane_repairs",
            "Lane heads that were wrong and were corrected; must stay 0",
            self.repaired.clone(),
        );
        registry.register(
            "work_expired",
            "Work closed because its time to begin had passed",
            self.expired.clone(),
        );
        registry.register("rows_removed", "Rows removed because of their age", self.removed.clone());
        registry.register("audit_sealed", "Audit records sealed by this process", self.sealed.clone());
        registry.register(
            "housekeeping_failures",
            "Rounds of housekeeping that failed",
            self.failures.clone(),
        );
        registry.register(
            "audit_unsealed",
            "Audit records that waited for the sealer at the last round",
            self.unsealed.clone(),
        );
        registry.register(
            "feed_held_back_seconds",
            "How long the oldest open writing transaction has held the change feed back",
            self.held_back.clone(),
        );
    }
}

/// Keeps house until it is told to stop.
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
    };
    let mut news = keeper.store.wakeups(Topic::Feed);
    let mut next_round = tokio::time::Instant::now();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep_until(next_round) => {
                next_round = tokio::time::Instant::now() + ROUND;
                if let Err(error) = keeper.round().await {
                    keeper.metrics.failures.inc();
                    tracing::warn!(error = &error as &dyn std::error::Error, "A round of the store's housekeeping failed");
                }
            }
            () = news.next() => {
                if let Err(error) = keeper.seal().await {
                    keeper.metrics.failures.inc();
                    tracing::warn!(error = &error as &dyn std::error::Error, "The audit log was not sealed");
                }
                // One round of sealing serves all that happens within a moment.
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                }
            }
        }
    }
    // What was written up to here is sealed, and the next process need not wait for our leases.
    let _ = keeper.seal().await;
    let _ = keeper.store.release_lease(HOUSEKEEPER, owner).await;
}

struct Housekeeper {
    store: Store,
    retention: Retention,
    metrics: Metrics,
    owner: Uuid,
    expire_at: Option<Uuid>,
    repair_at: Option<Uuid>,
    /// Anywhere at first: else a process that is often started anew would never come to the end.
    history_at: Option<Uuid>,
}

impl Housekeeper {
    async fn seal(&self) -> Result<(), StoreError> {
        let sealed = self.store.seal_audit(self.owner).await?;
        self.metrics.sealed.inc_by(sealed as u64);
        Ok(())
    }

    async fn round(&mut self) -> Result<(), StoreError> {
        self.seal().await?;
        let unsealed = self.store.engine.audit_unsealed(1000).await?.len();
        self.metrics.unsealed.set(i64::try_from(unsealed).unwrap_or(i64::MAX));
        self.metrics.held_back.set(self.store.engine.held_back().await?.as_secs_f64());
        if self.store.take_lease(HOUSEKEEPER, self.owner, LEASE).await?.is_none() {
            return Ok(());
        }
        let Walk { changed, next } = self.store.expire(self.expire_at, EXPIRE_ROWS).await?;
        self.expire_at = next;
        self.metrics.expired.inc_by(changed as u64);
        let Walk { changed, next } = self.store.repair(self.repair_at, REPAIR_LANES).await?;
        self.repair_at = next;
        if changed > 0 {
            self.metrics.repaired.inc_by(changed as u64);
            tracing::error!(
                "{changed} lane heads did not agree with the work and were corrected; this is a bug"
            );
        }
        self.tidy().await
    }

    async fn tidy(&mut self) -> Result<(), StoreError> {
        let keep = self.retention;
        for (stale, age) in [(Stale::Feed, keep.feed), (Stale::Tombstones, keep.feed)] {
            for _ in 0..TRIM_BLOCKS {
                let removed = self.store.engine.trim(stale, age, TRIM_BLOCK, Vec::new()).await?;
                self.metrics.removed.inc_by(removed as u64);
                if removed < TRIM_BLOCK {
                    break;
                }
            }
        }
        for _ in 0..TRIM_BLOCKS {
            let engine = &self.store.engine;
            let Walk { changed, next } =
                engine.trim_history(keep, self.history_at, HISTORY_ROWS, TRIM_BLOCK).await?;
            self.history_at = next;
            self.metrics.removed.inc_by(changed as u64);
            if changed < TRIM_BLOCK {
                break;
            }
        }
        let removed = self.store.trim_audit(keep.audit).await?;
        self.metrics.removed.inc_by(removed as u64);
        Ok(())
    }
}
