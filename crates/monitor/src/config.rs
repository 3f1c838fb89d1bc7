//! Settings of the monitor.

use std::time::Duration;

use api::duration::TimeSpan;
use serde::{Deserialize, Serialize};

/// Settings of the monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Interval between two visits of a cluster, from 10s to 1h.
    pub interval: TimeSpan,
    /// Collectors that run on one cluster at the same time, 1 to 32.
    pub collectors: usize,
    /// Durations that follow from the interval or that all processes must agree on; tests shorten them.
    #[serde(skip)]
    pub timing: Timing,
}

impl Default for Config {
    fn default() -> Config {
        Config { interval: TimeSpan::seconds(60), collectors: 5, timing: Timing::default() }
    }
}

impl Config {
    /// What is wrong with the settings, as key and sentence.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let interval = self.interval.duration();
        if !(Duration::from_secs(10)..=Duration::from_secs(3600)).contains(&interval) {
            return Some(("monitor.interval", format!("{} is not from 10s to 1h", self.interval)));
        }
        let is_valid = (1..=32).contains(&self.collectors);
        (!is_valid).then(|| ("monitor.collectors", format!("{} is not from 1 to 32", self.collectors)))
    }
}

/// Durations of the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Interval between two refreshes of the membership. It is well below the lease.
    pub refresh: Duration,
    /// How long a worker counts as living without a refresh, and the leader as leading.
    pub lease: Duration,
    /// Longest part of a visit in which collectors run; less than the interval.
    pub visit: Duration,
    /// What collectors get to end after that, before they are aborted.
    pub grace: Duration,
    /// Interval between visits of a cluster that failed [`failures`](Timing::failures) times in a row.
    pub stretched: Duration,
    /// Failed visits in a row after which the interval is stretched.
    pub failures: u32,
    /// Interval between two writes of records.
    pub flush: Duration,
    /// Timeout of a connection to a cluster.
    pub connect: Duration,
    /// Timeout of a response of a cluster.
    pub request: Duration,
    /// Interval between two reads of what a notification may have missed: the feed, running maintenance.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            refresh: Duration::from_secs(10),
            lease: Duration::from_secs(60),
            visit: Duration::from_secs(50),
            grace: Duration::from_secs(10),
            stretched: Duration::from_secs(5 * 60),
            failures: 5,
            flush: Duration::from_secs(2),
            connect: Duration::from_secs(5),
            request: Duration::from_secs(15),
            poll: Duration::from_secs(10),
        }
    }
}

impl Timing {
    /// How long the buckets of the last successful refresh are kept without another: until the others may have taken them over.
    pub(crate) fn hold(&self) -> Duration {
        self.lease.saturating_sub(self.refresh)
    }
}
