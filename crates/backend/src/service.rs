//! The service: its dependencies, start and shutdown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use api::doc::{Cluster, Document, Operation, Subscription};
use api::install::SharedInstaller;
use api::work::WorkKind;
use cloud::Cloud;
use futures_util::FutureExt as _;
use steps::ClusterConnections;
use steps::engine::{RunOutcome, WaitingCode};
use steps::lifecycle::{ClusterRecords, Lifecycle, Service};
use steps::worker::{Attempt, BackgroundTask, Settings, UnexpectedExit, WorkHandler, WorkerPool, serve};
use store::{ClaimedWork, Completion, Release, Store, StoreError, StoredDocument};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::work::{self, Facts};
use crate::{Config, Context, Metrics};

/// Prefix of a backend's named lease; its owner follows.
pub const LEASE_PREFIX: &str = "backend/";
/// Name of the service in entries and in the audit log.
pub(crate) const SERVICE: &str = "backend";
/// Interval between two updates of the queue metrics: about as often as they are scraped.
const QUEUE_METRICS_INTERVAL: Duration = Duration::from_secs(15);

/// Dependencies of a backend.
#[derive(Debug)]
pub struct Deps {
    /// The store.
    pub store: Store,
    /// The cloud.
    pub cloud: Cloud,
    /// The installer.
    pub installer: SharedInstaller,
    /// The service's own resources in the cloud.
    pub service: Arc<Service>,
    /// Connections to clusters.
    pub connections: Arc<ClusterConnections>,
    /// The clock.
    pub clock: SharedClock,
    /// Metrics.
    pub metrics: Metrics,
    /// The settings.
    pub config: Config,
    /// Identity of this process in the store; new at every start.
    pub owner: Uuid,
    /// Release of this service.
    pub release: String,
    /// Seed of generated names.
    pub seed: u64,
}

/// Why a backend stopped without a shutdown request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A background task stopped.
    #[error("the backend's {part} stopped unexpectedly")]
    Stopped {
        /// Name of the task.
        part: &'static str,
        /// The panic, if it was one.
        #[source]
        source: Option<tokio::task::JoinError>,
    },
}

/// Runs operations until shutdown is requested; then releases its operations at their next safe points, within 30 s.
///
/// Dropping the future has the effect of a crash: everything stops at once and the leases expire.
pub async fn run(deps: Deps, shutdown: CancellationToken) -> Result<(), Error> {
    let (owner, slots) = (deps.owner, deps.config.slots);
    let settings = Settings {
        kind: WorkKind::Operation,
        noun: "operation",
        lease_name: format!("{LEASE_PREFIX}{owner}"),
        slots,
        timing: deps.config.timing,
        owner,
    };
    let (pool, ends) = WorkerPool::new(deps.store.clone(), settings);
    let backend = Arc::new(Backend { pool, deps });
    let stop = CancellationToken::new();
    let metrics = update_queue_metrics(backend.clone(), stop.clone()).boxed();
    let tasks: Vec<BackgroundTask> = vec![("queue metrics", metrics)];
    tracing::info!(backend.id = %owner, "Backend {owner} runs up to {slots} operations");
    serve(backend, ends, tasks, stop, shutdown)
        .await
        .map_err(|UnexpectedExit { part, source }| Error::Stopped { part, source })?;
    tracing::info!(backend.id = %owner, "Backend {owner} released its operations");
    Ok(())
}

/// State shared by the tasks of a backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) pool: WorkerPool,
    pub(crate) deps: Deps,
}

impl Backend {
    /// The context of the steps of an operation. For the removal of a subscription, `cluster` is the subscription.
    pub(crate) fn context(&self, cluster: Uuid) -> Context {
        let deps = &self.deps;
        let life = Lifecycle {
            cloud: deps.cloud.clone(),
            records: ClusterRecords { store: deps.store.clone(), cluster, service: SERVICE },
            connections: deps.connections.clone(),
            clock: deps.clock.clone(),
            service: deps.service.clone(),
        };
        Context::new(life, deps.installer.clone(), deps.config.operation_timing, &deps.release, deps.seed)
    }
}

impl WorkHandler for Backend {
    type Facts = Facts;

    fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    async fn read(&self, claimed: &[ClaimedWork]) -> Result<Vec<Facts>, StoreError> {
        let ids = claimed.iter().flat_map(|it| [it.lease.work, it.lease.lane]).collect();
        let documents = self.deps.store.get_many(ids).await?;
        let documents: HashMap<Uuid, StoredDocument> =
            documents.into_iter().map(|it| (it.uuid, it)).collect();
        Ok(claimed.iter().map(|it| facts(&documents, it)).collect())
    }

    async fn run(&self, attempt: &Attempt, facts: &mut Facts) -> RunOutcome {
        work::run_plan(self, attempt, facts).await
    }

    async fn complete(&self, attempt: &Attempt, facts: &Facts, completion: Completion) -> bool {
        work::complete(self, attempt, facts, completion).await
    }

    async fn released(&self, _: &Facts, _: &Release, reason: WaitingCode) {
        self.deps.metrics.released(reason);
    }

    fn taken_over(&self, count: u64) {
        self.deps.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.deps.metrics.lost.inc_by(count);
    }
}

/// The documents of claimed work.
fn facts(documents: &HashMap<Uuid, StoredDocument>, claimed: &ClaimedWork) -> Facts {
    let lane = documents.get(&claimed.lease.lane);
    if lane.is_some_and(|it| it.kind == Subscription::KIND) {
        return Facts::Subscription;
    }
    let operation = read::<Operation>(documents.get(&claimed.lease.work));
    match (operation, read::<Cluster>(lane)) {
        // Another release may be able to read the document.
        (Err(message), _) | (_, Err(message)) => Facts::Unreadable { message },
        (Ok(Some(operation)), Ok(Some(cluster))) => Facts::Cluster { operation, cluster },
        (Ok(operation), Ok(_)) => Facts::Gone { operation },
    }
}

/// Deserializes a document of this kind, if there is one. The error is a message.
fn read<T: Document>(stored: Option<&StoredDocument>) -> Result<Option<Box<T>>, String> {
    let Some(stored) = stored.filter(|it| it.kind == T::KIND) else { return Ok(None) };
    T::deserialize(&stored.body)
        .map(|it| Some(Box::new(it)))
        .map_err(|error| format!("this release cannot read the {} {}: {error}", T::KIND, stored.uuid))
}

/// Updates the queue metrics periodically.
async fn update_queue_metrics(backend: Arc<Backend>, stop: CancellationToken) {
    loop {
        if let Ok(queue) = backend.deps.store.queue(WorkKind::Operation).await {
            backend.deps.metrics.queue(&queue, backend.deps.clock.now());
        }
        if stop.run_until_cancelled(sleep(QUEUE_METRICS_INTERVAL)).await.is_none() {
            return;
        }
    }
}
