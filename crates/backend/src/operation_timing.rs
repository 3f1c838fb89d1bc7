//! Intervals and timeouts of the steps that wait for others: the cloud, the installer, the propagation of permissions.

use std::time::Duration;

use steps::engine::Retry;

/// Intervals and timeouts of the steps of an operation. The intervals follow from one: how often the cloud is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationTiming {
    /// Interval between two polls of something that takes minutes.
    pub poll_interval: Duration,
    /// Delay before a failed step is retried within its attempt; it doubles with each retry.
    pub retry_delay: Duration,
    /// How often a step is tried within its attempt.
    pub tries: u32,
    /// Longest wait until permissions that were just granted have propagated.
    pub propagation_timeout: Duration,
    /// Interval between two checks of permissions.
    pub propagation_interval: Duration,
    /// Longest duration of an installation from its request on, across workers.
    pub install_timeout: Duration,
    /// Interval between two polls of the clusters of a deleted subscription.
    pub removal_interval: Duration,
}

impl Default for OperationTiming {
    /// For a real cloud.
    fn default() -> OperationTiming {
        OperationTiming::with_poll_interval(Duration::from_secs(10))
    }
}

impl OperationTiming {
    /// The timing for a cloud that is polled at this interval. The timeouts do not depend on it: a simulated cloud that is polled
    /// often may still be configured to take as long as a real one.
    pub fn with_poll_interval(poll_interval: Duration) -> OperationTiming {
        OperationTiming {
            poll_interval,
            retry_delay: poll_interval / 2,
            tries: 5,
            propagation_timeout: Duration::from_secs(6 * 60),
            propagation_interval: poll_interval * 3,
            install_timeout: Duration::from_secs(60 * 60),
            removal_interval: poll_interval * 3 / 2,
        }
    }

    /// The retries of a step within its attempt.
    pub fn retry(&self) -> Retry {
        Retry { attempts: self.tries, backoff: self.retry_delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_poll_interval_shortens_every_interval_and_no_timeout() {
        let (quick, real) =
            (OperationTiming::with_poll_interval(Duration::from_millis(250)), OperationTiming::default());
        assert_eq!(
            (quick.propagation_timeout, quick.install_timeout),
            (real.propagation_timeout, real.install_timeout)
        );
        assert!(quick.propagation_interval < Duration::from_secs(1));
        assert!(quick.retry_delay < real.retry_delay && quick.removal_interval < real.removal_interval);
    }
}
