//! Small rows beside documents and work: health samples, named leases, how long things are kept.

use std::time::Duration;

use api::doc::HealthDetails;
use api::work::WorkKind;
use jiff::Timestamp;
use uuid::Uuid;

/// How a cluster was when it was last looked at. Kept apart from its document: a sample every minute must not raise
/// the etag or wake the feed's readers.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSample {
    /// The cluster.
    pub cluster: Uuid,
    /// When it was looked at; the store's clock when it is written.
    pub at: Timestamp,
    /// Whether its API server answered.
    pub reachable: bool,
    /// Since when that is so; kept by the store.
    pub since: Timestamp,
    /// What was observed.
    pub details: HealthDetails,
}

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
    pub(crate) fn of(self, kind: WorkKind) -> Duration {
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
