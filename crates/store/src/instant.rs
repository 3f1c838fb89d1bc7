//! Times and durations as both engines keep them: whole microseconds.

use std::time::Duration;

use jiff::Timestamp;

use crate::StoreError;

/// Longer than any rest or lease is meant, and from now still before the last moment that a time can tell.
const FOR_EVER_MICROS: i64 = 1000 * 366 * 24 * 3600 * 1_000_000;

/// A stored time.
pub(crate) fn time(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros)
        .map_err(|_| StoreError::broken(format!("a row holds {micros}, which is no time")))
}

/// A duration in the store's unit; longer than the store can count is for ever.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).map_or(FOR_EVER_MICROS, |micros| micros.min(FOR_EVER_MICROS))
}
