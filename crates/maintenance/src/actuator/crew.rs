//! What the parts of one actuator share.

use std::sync::Arc;

use api::clock::SharedClock;
use store::Store;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::breaker::Breaker;
use super::ends::End;
use super::held::Holds;
use super::pace::Pace;
use super::stats::Durations;
use super::{Config, Deps, LEASE_PREFIX, Metrics};

/// Who writes, in entries and in the audit log.
pub(super) const SERVICE: &str = "actuator";
/// The same as an entry's actor.
pub(super) const ACTOR: &str = "service:actuator";

/// What the parts of one actuator share.
#[derive(Debug)]
pub(super) struct Crew<T> {
    pub(super) store: Store,
    pub(super) tasks: Arc<T>,
    pub(super) clock: SharedClock,
    pub(super) metrics: Metrics,
    pub(super) config: Config,
    pub(super) owner: Uuid,
    pub(super) holds: Holds,
    pub(super) pace: Pace,
    pub(super) ends: mpsc::UnboundedSender<End>,
    pub(super) durations: Durations,
    pub(super) breaker: Breaker,
}

impl<T> Crew<T> {
    pub(super) fn new(deps: Deps<T>) -> (Crew<T>, mpsc::UnboundedReceiver<End>) {
        // Unbounded, but never longer than there are slots: each run waits for its own end to be written.
        let (ends, written) = mpsc::unbounded_channel();
        let Deps { store, tasks, clock, metrics, config, owner } = deps;
        let crew = Crew {
            store,
            tasks,
            clock,
            metrics,
            config,
            owner,
            holds: Holds::default(),
            pace: Pace::of(owner),
            ends,
            durations: Durations::default(),
            breaker: Breaker::default(),
        };
        (crew, written)
    }

    pub(super) fn lease_name(&self) -> String {
        format!("{LEASE_PREFIX}{}", self.owner)
    }

    /// How many more manifests may be started.
    pub(super) fn free(&self) -> usize {
        self.config.slots.saturating_sub(self.holds.count())
    }
}
