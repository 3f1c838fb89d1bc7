//! The service's own resources in the simulated cloud, for the tests and for the processes that they start.

use steps::lifecycle::Service;

/// The location of everything in these tests.
pub(crate) const LOCATION: &str = "eastus";

/// The service's own domain, subscription and group.
pub(crate) fn service() -> Service {
    Service::new("aro.example", "00000000-0000-0000-0000-000000000001", "rp", LOCATION)
}
