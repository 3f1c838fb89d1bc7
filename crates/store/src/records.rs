//! Small records beside documents and work: named leases, retention periods.

use std::time::Duration;

pub use api::health::{HealthEvent, HealthSample};
use api::work::WorkKind;

/// Retention periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Finished manifests with their history.
    pub manifests: Duration,
    /// The change feed, and tombstones.
    pub feed: Duration,
    /// Finished asynchronous operations.
    pub operations: Duration,
    /// The audit log.
    pub audit: Duration,
    /// Transitions of the health of clusters.
    pub health: Duration,
}

impl Retention {
    /// Retention of finished work of a kind.
    pub(crate) fn for_kind(self, kind: WorkKind) -> Duration {
        match kind {
            WorkKind::Operation => self.operations,
            WorkKind::Manifest => self.manifests,
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            manifests: DAY * 90,
            feed: DAY * 7,
            operations: DAY * 7,
            audit: DAY * 400,
            health: DAY * 400,
        }
    }
}
