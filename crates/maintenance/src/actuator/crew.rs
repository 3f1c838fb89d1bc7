//! What the parts of one actuator share, and what its crew does for its living.

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

/// Who writes, in entries and in the audit log.
pub(super) const SERVICE: &str = "actuator";
/// The same as an entry's actor.
pub(super) const ACTOR: &str = "service:actuator";

/// What the parts of one actuator share.
#[derive(Debug)]
pub(super) struct Crew<T> {
    pub(super) pool: WorkerPool,
    pub(super) store: Store,
    pub(super) tasks: Arc<T>,
    pub(super) clock: SharedClock,
    pub(super) metrics: Metrics,
    pub(super) durations: Durations,
    pub(super) breaker: Breaker,
    pub(super) away: UnreachableClusters,
}

impl<T> Crew<T> {
    pub(super) fn new(deps: Deps<T>) -> (Crew<T>, CompletionQueue) {
        let Deps { store, tasks, clock, metrics, config, owner } = deps;
        let settings = Settings {
            kind: WorkKind::Manifest,
            noun: "manifest",
            lease_name: format!("{LEASE_PREFIX}{owner}"),
            slots: config.slots,
            timing: config.timing,
            owner,
        };
        let (pool, ends) = WorkerPool::new(store.clone(), settings);
        let (durations, breaker, away) =
            (Durations::default(), Breaker::default(), UnreachableClusters::default());
        (Crew { pool, store, tasks, clock, metrics, durations, breaker, away }, ends)
    }
}

impl<T: Tasks> WorkHandler for Crew<T> {
    type Facts = ManifestFacts;

    fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    async fn read(&self, claimed: &[ClaimedWork]) -> Result<Vec<ManifestFacts>, StoreError> {
        let holds: Vec<WorkLease> = claimed.iter().map(|it| it.lease).collect();
        let briefs = self.store.manifests().summaries(&holds).await?;
        Ok(briefs.into_iter().map(ManifestFacts::new).collect())
    }

    async fn run(&self, attempt: &Attempt, facts: &mut ManifestFacts) -> RunOutcome {
        work::run_plan(self, attempt, facts).await
    }

    async fn complete(&self, attempt: &Attempt, facts: &ManifestFacts, completion: Completion) -> bool {
        work::complete(self, attempt, facts, completion).await
    }

    async fn released(&self, facts: &ManifestFacts, yielding: &Release, reason: WaitingCode) {
        self.metrics.handed_back(reason);
        if reason == WaitingCode::Unreachable {
            Box::pin(reachability::unreachable(self, &facts.brief, yielding)).await;
        }
    }

    fn taken_over(&self, count: u64) {
        self.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.metrics.lost.inc_by(count);
    }
}
