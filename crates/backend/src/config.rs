//! The backend's settings.

use serde::{Deserialize, Serialize};
use steps::worker::Timing;

use crate::OperationTiming;

/// The backend's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many operations it works at once.
    pub slots: usize,
    /// How long it holds what it claims. No setting: all processes must agree; tests that kill processes are in a hurry.
    #[serde(skip)]
    pub timing: Timing,
    /// Intervals and timeouts of operations; they follow from how often the configuration polls the cloud.
    #[serde(skip)]
    pub operation_timing: OperationTiming,
}

impl Default for Config {
    /// An operation mostly waits for the cloud; a hundred keep a small process busy.
    fn default() -> Config {
        Config { slots: 100, timing: Timing::default(), operation_timing: OperationTiming::default() }
    }
}
