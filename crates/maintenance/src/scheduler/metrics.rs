//! What the scheduler counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What the scheduler counts.
#[derive(Debug, Clone)]
pub struct Metrics {
    created: Counter,
    withdrawn: Counter,
    failures: Counter,
    leading: Gauge,
    clusters: Gauge,
    schedules: Gauge,
    next_period: Gauge<f64, AtomicU64>,
    pass: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            created: Counter::default(),
            withdrawn: Counter::default(),
            failures: Counter::default(),
            leading: Gauge::default(),
            clusters: Gauge::default(),
            schedules: Gauge::default(),
            next_period: Gauge::default(),
            pass: Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]),
        }
    }
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "manifests_created",
            "Manifests that schedules made or brought back",
            self.created.clone(),
        );
        registry.register("manifests_withdrawn", "Manifests that schedules withdrew", self.withdrawn.clone());
        registry.register("pass_failures", "Passes that failed and were tried again", self.failures.clone());
        registry.register(
            "leading",
            "1 in the process that schedules, 0 in those that stand by",
            self.leading.clone(),
        );
        registry.register("clusters", "Clusters that the scheduler holds in memory", self.clusters.clone());
        registry.register(
            "schedules",
            "Schedules that the scheduler holds in memory",
            self.schedules.clone(),
        );
        registry.register(
            "next_period_timestamp_seconds",
            "When the next period of any schedule begins",
            self.next_period.clone(),
        );
        registry.register_with_unit(
            "pass_duration",
            "How long passes took that had something to decide",
            Unit::Seconds,
            self.pass.clone(),
        );
    }

    pub(super) fn leading(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn wrote(&self, created: usize, withdrawn: usize) {
        self.created.inc_by(created as u64);
        self.withdrawn.inc_by(withdrawn as u64);
    }

    pub(super) fn passed(&self, fleet: &super::Fleet, taken: Duration) {
        self.pass.observe(taken.as_secs_f64());
        self.clusters.set(i64::try_from(fleet.clusters()).unwrap_or(i64::MAX));
        self.schedules.set(i64::try_from(fleet.schedules()).unwrap_or(i64::MAX));
        self.next_period.set(fleet.boundary().map_or(0.0, |at| at.as_second() as f64));
    }
}
