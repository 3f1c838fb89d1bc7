//! Small rows beside documents and work: health samples, named leases, how long things are kept.

use std::time::Duration;

pub use api::health::HealthSample;
use api::work::WorkKind;

/// How long things are kept.
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
}

impl Retention {
    /// How long finished work of a kind is kept.
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
        Retention { manifests: DAY * 90, feed: DAY * 7, operations: DAY * 7, audit: DAY * 400 }
    }
}
