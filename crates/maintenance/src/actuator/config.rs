//! The actuator's settings.

use serde::{Deserialize, Serialize};

/// The actuator's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many manifests it works at once.
    pub slots: usize,
}

impl Default for Config {
    /// A manifest mostly waits for its cluster; twenty keep a small process busy and a store idle.
    fn default() -> Config {
        Config { slots: 20 }
    }
}
