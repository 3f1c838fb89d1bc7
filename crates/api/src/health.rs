//! The last observation of a cluster.

use jiff::Timestamp;
use uuid::Uuid;

use crate::doc::HealthDetails;

/// The last observation of a cluster. It is stored apart from the document: a sample every minute must not raise
/// the etag or notify the readers of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSample {
    /// The cluster.
    pub cluster: Uuid,
    /// Time of the observation; the store's clock when it is written.
    pub at: Timestamp,
    /// Whether the API server responded.
    pub reachable: bool,
    /// Since when `reachable` has this value; maintained by the store.
    pub since: Timestamp,
    /// Details of the observation.
    pub details: HealthDetails,
}
