//! Times and durations as both engines store them: whole microseconds.

use std::time::Duration;

use jiff::Timestamp;

use crate::StoreError;

/// Longest duration: longer than any delay or lease, and still within the range of a timestamp from now.
const FOR_EVER_MICROS: i64 = 1000 * 366 * 24 * 3600 * 1_000_000;

/// Converts a stored time.
pub(crate) fn time(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros)
        .map_err(|_| StoreError::broken(format!("a row holds {micros}, which is not a valid time")))
}

/// Converts a duration to the store's unit, capped at the longest.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).map_or(FOR_EVER_MICROS, |micros| micros.min(FOR_EVER_MICROS))
}
