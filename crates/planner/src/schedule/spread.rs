//! How the clusters of a period are spread over time.

use std::time::Duration;

use uuid::Uuid;

const SECOND: u128 = 1_000_000_000;

/// Where a cluster stands in every spread, by MIMO's formula: the checksum of its resource id in lower case.
pub fn position_of(resource_id: &str) -> u32 {
    crc32fast::hash(resource_id.to_lowercase().as_bytes())
}

/// Where a cluster stands in the spread of one schedule: elsewhere in each, so that none is always the first.
pub(super) fn position_in(schedule: &str, cluster: Uuid) -> u32 {
    crc32fast::hash(format!("{schedule}|{cluster}").as_bytes())
}

/// How long after the beginning of its period a cluster's manifest may begin, in whole seconds. A spread of 60 s reaches
/// from :00 to :59, so one second is taken off first.
pub fn offset(position: u32, across: Duration) -> Duration {
    let Some(range) = across.as_nanos().checked_sub(SECOND).filter(|range| *range > 0) else {
        return Duration::ZERO;
    };
    let share = f64::from(position) / f64::from(u32::MAX);
    // As MIMO computes it: in floating point, cut to nanoseconds, then rounded to seconds, halves up.
    let nanos = (range as f64 * share) as u128;
    Duration::from_secs(u64::try_from((nanos + SECOND / 2) / SECOND).unwrap_or(u64::MAX))
}
