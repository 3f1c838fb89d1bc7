//! The service's own resources in the simulated cloud, for the tests and for the processes that they start.

use std::time::Duration;

use backend::OperationTiming;
use steps::lifecycle::Service;

/// The location of everything in these tests.
pub(crate) const LOCATION: &str = "eastus";

/// The service's own domain, subscription and group.
pub(crate) fn service() -> Service {
    Service::new("aro.example", "00000000-0000-0000-0000-000000000001", "rp", LOCATION)
}

/// The timing of operations in these tests: the simulated cloud does everything at once.
pub(crate) fn quick_timing() -> OperationTiming {
    OperationTiming {
        poll_interval: Duration::from_millis(50),
        retry_delay: Duration::from_millis(50),
        tries: 5,
        propagation_timeout: Duration::from_secs(3),
        propagation_interval: Duration::from_millis(100),
        install_timeout: Duration::from_secs(120),
        removal_interval: Duration::from_millis(200),
    }
}
