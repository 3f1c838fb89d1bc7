//! Metrics of the scheduler.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Metrics of the scheduler; clones share them.
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
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "manifests_created",
            "Manifests created or restored by schedules",
            self.created.clone(),
        );
        registry.register("manifests_withdrawn", "Manifests withdrawn by schedules", self.withdrawn.clone());
        registry.register("pass_failures", "Failed passes", self.failures.clone());
        registry.register("leading", "1 in the active process, 0 in standby processes", self.leading.clone());
        registry.register("clusters", "Clusters in the cache of the scheduler", self.clusters.clone());
        registry.register("schedules", "Schedules in the cache of the scheduler", self.schedules.clone());
        registry.register(
            "next_period_timestamp_seconds",
            "Start of the next period of any schedule",
            self.next_period.clone(),
        );
        registry.register_with_unit(
            "pass_duration",
            "Duration of passes with changes",
            Unit::Seconds,
            self.pass.clone(),
        );
    }

    pub(super) fn leading(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    pub(super) fn pass_failed(&self) {
        self.failures.inc();
    }

    pub(super) fn changed(&self, created: usize, withdrawn: usize) {
        self.created.inc_by(created as u64);
        self.withdrawn.inc_by(withdrawn as u64);
    }

    pub(super) fn pass_completed(&self, fleet: &super::Fleet, duration: Duration) {
        self.pass.observe(duration.as_secs_f64());
        self.clusters.set(i64::try_from(fleet.cluster_count()).unwrap_or(i64::MAX));
        self.schedules.set(i64::try_from(fleet.schedule_count()).unwrap_or(i64::MAX));
        self.next_period.set(fleet.next_period().map_or(0.0, |at| at.as_second() as f64));
    }
}
