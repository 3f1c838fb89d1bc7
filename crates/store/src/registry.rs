//! Membership of workers in a pool that shares work by buckets. Each worker renews a lease of its own, which shows that it lives;
//! one of them holds the leader's lease and assigns the buckets.

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;
use crate::engine::Engine;

/// Buckets of a pool.
pub const BUCKETS: usize = 256;

/// Writes the membership of workers in one pool only; for the monitor.
#[derive(Debug, Clone)]
pub struct WorkerRegistry {
    engine: Engine,
    pool: &'static str,
}

/// A pool as one of its workers sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// Whether this worker is the leader.
    pub is_leader: bool,
    /// Workers whose leases have not expired by the database's clock, sorted.
    pub workers: Vec<Uuid>,
    /// The owner of each bucket, [`BUCKETS`] of them; none before the first assignment.
    pub buckets: Option<Vec<Option<Uuid>>>,
}

impl WorkerRegistry {
    pub(crate) fn new(engine: Engine, pool: &'static str) -> WorkerRegistry {
        WorkerRegistry { engine, pool }
    }

    /// Renews the worker's own lease, and the leader's if it holds that or nobody does; reads the pool.
    pub async fn refresh(
        &self,
        worker: Uuid,
        lease: Duration,
        leader_lease: Duration,
    ) -> Result<PoolView, StoreError> {
        let prefix = self.prefix();
        self.engine.take_lease(&format!("{prefix}{worker}"), worker, lease).await?;
        let is_leader = self.engine.take_lease(&self.leader(), worker, leader_lease).await?.is_some();
        let alive = self.engine.leases(&prefix).await?;
        let ids = alive.iter().filter_map(|(name, _)| name.strip_prefix(&prefix)?.parse().ok());
        let mut workers: Vec<Uuid> = ids.collect();
        workers.sort_unstable();
        let buckets = self.engine.pool(self.pool).await?;
        Ok(PoolView { is_leader, workers, buckets: buckets.as_ref().and_then(read_buckets) })
    }

    /// Assigns the buckets. Returns whether they were stored: they are not when another worker leads by now.
    pub async fn assign(&self, worker: Uuid, buckets: &[Option<Uuid>]) -> Result<bool, StoreError> {
        let owners = buckets.iter().map(|owner| owner.map_or(Value::Null, |it| it.to_string().into()));
        self.engine.put_pool(self.pool, &self.leader(), worker, Value::Array(owners.collect())).await
    }

    /// Leaves the pool, so that the others need not wait for the leases to expire.
    pub async fn leave(&self, worker: Uuid) -> Result<(), StoreError> {
        self.engine.release_lease(&format!("{}{worker}", self.prefix()), worker).await?;
        self.engine.release_lease(&self.leader(), worker).await
    }

    /// What the names of the workers' leases start with.
    fn prefix(&self) -> String {
        format!("{}/worker/", self.pool)
    }

    fn leader(&self) -> String {
        format!("{}/leader", self.pool)
    }
}

/// The owners of the buckets; none if another release stored something else.
fn read_buckets(stored: &Value) -> Option<Vec<Option<Uuid>>> {
    let owners = stored.as_array().filter(|owners| owners.len() == BUCKETS)?;
    Some(owners.iter().map(|owner| owner.as_str()?.parse().ok()).collect())
}
