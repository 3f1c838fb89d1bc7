//! Settings of the actuator.

use serde::{Deserialize, Serialize};
pub use steps::worker::Timing;

/// Settings of the actuator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of concurrent runs.
    pub slots: usize,
    /// Lease durations. Not configurable, because all processes must agree; tests that kill processes use shorter ones.
    #[serde(skip)]
    pub timing: Timing,
}

impl Default for Config {
    /// A manifest mostly waits for its cluster; twenty use a small process well without loading the store.
    fn default() -> Config {
        Config { slots: 20, timing: Timing::default() }
    }
}
