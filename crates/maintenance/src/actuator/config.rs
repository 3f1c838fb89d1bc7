//! The actuator's settings.

use serde::{Deserialize, Serialize};
pub use steps::worker::Timing;

/// The actuator's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many manifests it works at once.
    pub slots: usize,
    /// How long it holds what it claims. No setting: all processes must agree; tests that kill processes are in a hurry.
    #[serde(skip)]
    pub timing: Timing,
}

impl Default for Config {
    /// A manifest mostly waits for its cluster; twenty keep a small process busy and a store idle.
    fn default() -> Config {
        Config { slots: 20, timing: Timing::default() }
    }
}
