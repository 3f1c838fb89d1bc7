//! What the parts of one actuator share, and what its crew does for its living.

use std::collections::HashMap;
use std::sync::Arc;

use api::clock::SharedClock;
use api::doc::{Cluster, Document as _, Manifest};
use api::work::WorkKind;
use serde::Deserialize as _;
use steps::crew::{self, Ends, Settings, Trade};
use steps::engine::Control;
use store::{Claimed, HealthSample, Store, StoreError};
use uuid::Uuid;

use super::breaker::Breaker;
use super::stats::Durations;
use super::work::{Facts, one};
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
        let (durations, breaker) = (Durations::default(), Breaker::default());
        (Crew { hands, store, tasks, clock, metrics, durations, breaker }, ends)
    }
}

impl<T: Tasks> Trade for Crew<T> {
    type Facts = Facts;

    fn crew(&self) -> &crew::Crew {
        &self.hands
    }

    async fn read(&self, claimed: &[Claimed]) -> Result<Vec<Facts>, StoreError> {
        let mut batch = Batch::read(&self.store, claimed).await?;
        Ok(claimed.iter().map(|it| batch.facts(it)).collect())
    }

    async fn work(&self, claimed: Claimed, control: Control, facts: Facts) {
        one(self, claimed, control, facts).await;
    }

    fn taken_over(&self, count: u64) {
        self.metrics.taken_over.inc_by(count);
    }

    fn lost(&self, count: u64) {
        self.metrics.lost.inc_by(count);
    }
}

/// What a batch of claimed work is about, read together.
struct Batch {
    manifests: HashMap<Uuid, Manifest>,
    clusters: HashMap<Uuid, Cluster>,
    health: HashMap<Uuid, HealthSample>,
}

impl Batch {
    async fn read(store: &Store, claimed: &[Claimed]) -> Result<Batch, StoreError> {
        let lanes: Vec<Uuid> = claimed.iter().map(|it| it.hold.lane).collect();
        let works = claimed.iter().map(|it| it.hold.work);
        let documents = store.get_many(works.chain(lanes.iter().copied()).collect());
        let (documents, health) = tokio::try_join!(documents, store.health(lanes))?;
        let mut batch = Batch {
            manifests: HashMap::new(),
            clusters: HashMap::new(),
            health: health.into_iter().map(|it| (it.cluster, it)).collect(),
        };
        for stored in documents {
            // A document that this release does not understand is as one that is not there; its reader says so.
            if stored.kind == Manifest::KIND {
                batch.manifests.extend(Manifest::deserialize(&stored.body).ok().map(|it| (stored.uuid, it)));
            } else if stored.kind == Cluster::KIND {
                batch.clusters.extend(Cluster::deserialize(&stored.body).ok().map(|it| (stored.uuid, it)));
            }
        }
        Ok(batch)
    }

    fn facts(&mut self, claimed: &Claimed) -> Facts {
        Facts {
            manifest: self.manifests.remove(&claimed.hold.work),
            cluster: self.clusters.remove(&claimed.hold.lane),
            health: self.health.remove(&claimed.hold.lane),
        }
    }
}
