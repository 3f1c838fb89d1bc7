//! Delays between retries of requests to the store.

use std::time::Duration;

use backon::ExponentialBuilder;

/// Delays of 100 ms to 5 s, without a limit of retries: the caller stops when its lease is lost.
pub fn store_backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times()
}
