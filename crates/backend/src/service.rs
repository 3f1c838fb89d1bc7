//! The service: its parts, how it begins and how it ends.

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

/// What every backend's named lease begins with; its owner follows.
pub const LEASE_PREFIX: &str = "backend/";
/// Who writes, in entries and in the audit log.
pub(crate) const SERVICE: &str = "backend";
/// Between two looks at the queue for the metrics: about as often as somebody reads them.
const SURVEY_EVERY: Duration = Duration::from_secs(15);

/// What a backend is made of.
#[derive(Debug)]
pub struct Deps {
    /// Where the work is.
    pub store: Store,
    /// The cloud.
    pub cloud: Cloud,
    /// Who installs.
    pub installer: SharedInstaller,
    /// What this service has for itself in the cloud.
    pub service: Arc<Service>,
    /// Connections to clusters.
    pub connections: Arc<ClusterConnections>,
    /// The clock.
    pub clock: SharedClock,
    /// What is counted.
    pub metrics: Metrics,
    /// The settings.
    pub config: Config,
    /// This process, to the store; fresh at every start.
    pub owner: Uuid,
    /// Which release this is.
    pub release: String,
    /// Names that are drawn follow from it.
    pub seed: u64,
}

/// Why a backend ended unasked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its parts ended by itself.
    #[error("the backend's {part} ended unasked")]
    Ended {
        /// Which.
        part: &'static str,
        /// The panic, if it was one.
        #[source]
        source: Option<tokio::task::JoinError>,
    },
}

/// Works operations until it is told to stop; then hands back what it holds at the next safe point, within 30 s.
///
/// Dropping the future is as a crash: everything stops at once and the leases run out.
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
    let over = CancellationToken::new();
    let parts: Vec<BackgroundTask> = vec![("survey", survey(backend.clone(), over.clone()).boxed())];
    tracing::info!(backend.id = %owner, "Backend {owner} takes up to {slots} operations");
    serve(backend, ends, parts, over, shutdown)
        .await
        .map_err(|UnexpectedExit { part, source }| Error::Ended { part, source })?;
    tracing::info!(backend.id = %owner, "Backend {owner} has handed back what it held");
    Ok(())
}

/// What the parts of one backend share.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) pool: WorkerPool,
    pub(crate) deps: Deps,
}

impl Backend {
    /// What the steps of an operation on a cluster are given. For a subscription's removal it is the subscription.
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
        self.deps.metrics.handed_back(reason);
    }

    fn taken_over(&self, count: u64) {
        self.deps.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.deps.metrics.lost.inc_by(count);
    }
}

/// What a claimed piece of work is about.
fn facts(documents: &HashMap<Uuid, StoredDocument>, claimed: &ClaimedWork) -> Facts {
    let lane = documents.get(&claimed.lease.lane);
    if lane.is_some_and(|it| it.kind == Subscription::KIND) {
        return Facts::Subscription;
    }
    let operation = read::<Operation>(documents.get(&claimed.lease.work));
    match (operation, read::<Cluster>(lane)) {
        // What this release does not understand is there all the same, and another release may understand it.
        (Err(why), _) | (_, Err(why)) => Facts::Unreadable { why },
        (Ok(Some(operation)), Ok(Some(cluster))) => Facts::Cluster { operation, cluster },
        (Ok(operation), Ok(_)) => Facts::Gone { operation },
    }
}

/// A document of that kind; none when there is none. Why it is not understood, in a sentence.
fn read<T: Document>(stored: Option<&StoredDocument>) -> Result<Option<Box<T>>, String> {
    let Some(stored) = stored.filter(|it| it.kind == T::KIND) else { return Ok(None) };
    T::deserialize(&stored.body)
        .map(|it| Some(Box::new(it)))
        .map_err(|error| format!("this release does not understand the {} {}: {error}", T::KIND, stored.uuid))
}

/// Looks at the queue again and again, for the metrics.
async fn survey(backend: Arc<Backend>, over: CancellationToken) {
    loop {
        if let Ok(queue) = backend.deps.store.queue(WorkKind::Operation).await {
            backend.deps.metrics.queue(&queue, backend.deps.clock.now());
        }
        if over.run_until_cancelled(sleep(SURVEY_EVERY)).await.is_none() {
            return;
        }
    }
}
