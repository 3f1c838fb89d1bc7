//! What the parts of one actuator share, and what its crew does for its living.

use std::sync::Arc;

use api::clock::SharedClock;
use api::work::WorkKind;
use steps::crew::{self, Ends, Settings, Trade};
use steps::engine::Control;
use store::{ClaimedWork, Store, StoreError, WorkLease, WorkSummary};

use super::breaker::Breaker;
use super::scout::Away;
use super::stats::Durations;
use super::work::one;
use super::{Deps, LEASE_PREFIX, Metrics, Tasks};

/// Who writes, in entries and in the audit log.
pub(super) const SERVICE: &str = "actuator";
/// The same as an entry's actor.
pub(super) const ACTOR: &str = "service:actuator";

/// What the parts of one actuator share.
#[derive(Debug)]
pub(super) struct Crew<T> {
    pub(super) hands: crew::Crew,
    pub(super) store: Store,
    pub(super) tasks: Arc<T>,
    pub(super) clock: SharedClock,
    pub(super) metrics: Metrics,
    pub(super) durations: Durations,
    pub(super) breaker: Breaker,
    pub(super) away: Away,
}

impl<T> Crew<T> {
    pub(super) fn new(deps: Deps<T>) -> (Crew<T>, Ends) {
        let Deps { store, tasks, clock, metrics, config, owner } = deps;
        let settings = Settings {
            kind: WorkKind::Manifest,
            noun: "manifest",
            lease_name: format!("{LEASE_PREFIX}{owner}"),
            slots: config.slots,
            timing: config.timing,
            owner,
        };
        let (hands, ends) = crew::Crew::new(store.clone(), settings);
        let (durations, breaker, away) = (Durations::default(), Breaker::default(), Away::default());
        (Crew { hands, store, tasks, clock, metrics, durations, breaker, away }, ends)
    }
}

impl<T: Tasks> Trade for Crew<T> {
    type Facts = WorkSummary;

    fn crew(&self) -> &crew::Crew {
        &self.hands
    }

    async fn read(&self, claimed: &[ClaimedWork]) -> Result<Vec<WorkSummary>, StoreError> {
        let holds: Vec<WorkLease> = claimed.iter().map(|it| it.lease).collect();
        self.store.manifests().summaries(&holds).await
    }

    fn work(
        &self,
        claimed: ClaimedWork,
        control: Control,
        facts: WorkSummary,
    ) -> impl Future<Output = ()> + Send {
        one(self, claimed, control, facts)
    }

    fn taken_over(&self, count: u64) {
        self.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.metrics.lost.inc_by(count);
    }
}
