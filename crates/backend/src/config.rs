//! The backend's settings.

use serde::{Deserialize, Serialize};
use steps::worker::Timing;

use crate::OperationTiming;

/// The backend's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Highest number of concurrent operations.
    pub slots: usize,
    /// Timing of leases. Not configurable, because all processes must agree; tests that kill processes shorten it.
    #[serde(skip)]
    pub timing: Timing,
    /// Intervals and timeouts of operations; they follow from how often the configuration polls the cloud.
    #[serde(skip)]
    pub operation_timing: OperationTiming,
}

impl Default for Config {
    /// 100 slots: an operation mostly waits for the cloud.
    fn default() -> Config {
        Config { slots: 100, timing: Timing::default(), operation_timing: OperationTiming::default() }
    }
}
