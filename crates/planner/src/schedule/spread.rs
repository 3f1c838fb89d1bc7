//! Spread of the clusters of a period over time.

use std::time::Duration;

use uuid::Uuid;

const SECOND: u128 = 1_000_000_000;

/// Position of a cluster in every spread by cluster, by MIMO's formula: the checksum of its resource id in lower case.
pub fn position_of(resource_id: &str) -> u32 {
    crc32fast::hash(resource_id.to_lowercase().as_bytes())
}

/// Position of a cluster in the spread of one schedule. It differs between schedules, so that no cluster is always first.
pub(super) fn position_in(schedule: &str, cluster: Uuid) -> u32 {
    crc32fast::hash(format!("{schedule}|{cluster}").as_bytes())
}

/// Offset of a cluster from the start of a period, in whole seconds. A spread of 60 s ranges from :00 to :59, so one second is
/// subtracted first.
pub fn offset(position: u32, across: Duration) -> Duration {
    let Some(range) = across.as_nanos().checked_sub(SECOND).filter(|range| *range > 0) else {
        return Duration::ZERO;
    };
    let share = f64::from(position) / f64::from(u32::MAX);
    // As in MIMO: in floating point, truncated to nanoseconds, then rounded half up to seconds.
    let nanos = (range as f64 * share) as u128;
    Duration::from_secs(u64::try_from((nanos + SECOND / 2) / SECOND).unwrap_or(u64::MAX))
}
