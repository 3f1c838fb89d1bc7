//! State of an actuator, and its implementation of the work handler.

use std::sync::Arc;

use api::clock::SharedClock;
use api::work::WorkKind;
use steps::engine::{RunOutcome, WaitingCode};
use steps::worker::{Attempt, CompletionQueue, Settings, WorkHandler, WorkerPool};
use store::{ClaimedWork, Completion, Release, Store, StoreError, WorkLease};

use super::breaker::Breaker;
use super::durations::Durations;
use super::reachability::UnreachableClusters;
use super::work::{self, ManifestFacts};
use super::{Deps, LEASE_PREFIX, Metrics, Tasks, reachability};

/// Name of the service in entries and the audit log.
pub(super) const SERVICE: &str = "actuator";
/// Actor of entries.
pub(super) const ACTOR: &str = "service:actuator";

/// State that the background tasks and runs of an actuator share.
#[derive(Debug)]
pub(super) struct Actuator<T> {
    pub(super) pool: WorkerPool,
    pub(super) store: Store,
    pub(super) tasks: Arc<T>,
    pub(super) clock: SharedClock,
    pub(super) metrics: Metrics,
    pub(super) durations: Durations,
    pub(super) breaker: Breaker,
    pub(super) unreachable_clusters: UnreachableClusters,
}

impl<T> Actuator<T> {
    pub(super) fn new(deps: Deps<T>) -> (Actuator<T>, CompletionQueue) {
        let Deps { store, tasks, clock, metrics, config, owner } = deps;
        let settings = Settings {
            kind: WorkKind::Manifest,
            noun: "manifest",
            lease_name: format!("{LEASE_PREFIX}{owner}"),
            slots: config.slots,
            timing: config.timing,
            owner,
        };
        let (pool, completions) = WorkerPool::new(store.clone(), settings);
        let (durations, breaker, unreachable_clusters) =
            (Durations::default(), Breaker::default(), UnreachableClusters::default());
        (
            Actuator { pool, store, tasks, clock, metrics, durations, breaker, unreachable_clusters },
            completions,
        )
    }
}

impl<T: Tasks> WorkHandler for Actuator<T> {
    type Facts = ManifestFacts;

    fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    async fn read(&self, claimed: &[ClaimedWork]) -> Result<Vec<ManifestFacts>, StoreError> {
        let leases: Vec<WorkLease> = claimed.iter().map(|it| it.lease).collect();
        let summaries = self.store.manifests().summaries(&leases).await?;
        Ok(summaries.into_iter().map(ManifestFacts::new).collect())
    }

    async fn run(&self, attempt: &Attempt, facts: &mut ManifestFacts) -> RunOutcome {
        work::run_plan(self, attempt, facts).await
    }

    async fn complete(&self, attempt: &Attempt, facts: &ManifestFacts, completion: Completion) -> bool {
        work::complete(self, attempt, facts, completion).await
    }

    async fn released(&self, facts: &ManifestFacts, release: &Release, reason: WaitingCode) {
        self.metrics.released(reason);
        if reason == WaitingCode::Unreachable {
            Box::pin(reachability::record_unreachable(self, &facts.summary, release)).await;
        }
    }

    fn taken_over(&self, count: u64) {
        self.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.metrics.lost.inc_by(count);
    }
}
