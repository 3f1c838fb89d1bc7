//! The actuator's settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::{LEASE, RENEWAL, SELF_STOP};

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

/// How long an actuator holds what it claims, and what follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim holds its lane without renewal.
    pub lease: Duration,
    /// How often it is renewed.
    pub renewal: Duration,
    /// So long after the last good renewal everything is stopped.
    pub self_stop: Duration,
    /// Between two looks for lost holders, at least; at most twice as long.
    pub take_over: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { lease: LEASE, renewal: RENEWAL, self_stop: SELF_STOP, take_over: Duration::from_secs(5) }
    }
}
