//! The last observation of a cluster.

use jiff::Timestamp;
use uuid::Uuid;

use crate::doc::HealthDetails;

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
