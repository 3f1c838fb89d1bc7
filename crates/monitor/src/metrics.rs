//! Metrics of the monitor itself.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::series::SeriesTable;

/// Metrics of the monitor; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    heartbeat: Gauge,
    cache: Family<CacheLabel, Gauge>,
    leading: Gauge,
    members: Gauge,
    buckets: Gauge,
    refresh_failures: Counter,
    clusters: Gauge,
    active: Gauge,
    timed_out: Counter,
    forced: Counter,
    panics: Family<CollectorLabel, Counter>,
    errors: Family<CollectorLabel, Counter>,
    unstarted: Family<CollectorLabel, Counter>,
    dropped: Family<CollectorLabel, Counter>,
    skipped: Family<ReasonLabel, Gauge>,
    cycle: Histogram,
    written: Counter,
    confirmed: Counter,
    write_failures: Counter,
    unwritten: Gauge,
    last_write: Gauge<f64, AtomicU64>,
    pub(crate) series: SeriesTable,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabel {
    cache: CacheKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum CacheKind {
    Clusters,
    Subscriptions,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CollectorLabel {
    collector: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            heartbeat: Gauge::default(),
            cache: Family::default(),
            leading: Gauge::default(),
            members: Gauge::default(),
            buckets: Gauge::default(),
            refresh_failures: Counter::default(),
            clusters: Gauge::default(),
            active: Gauge::default(),
            timed_out: Counter::default(),
            forced: Counter::default(),
            panics: Family::default(),
            errors: Family::default(),
            unstarted: Family::default(),
            dropped: Family::default(),
            skipped: Family::default(),
            cycle: Histogram::new([0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0]),
            written: Counter::default(),
            confirmed: Counter::default(),
            write_failures: Counter::default(),
            unwritten: Gauge::default(),
            last_write: Gauge::default(),
            series: SeriesTable::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics of the monitor itself.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("heartbeat", "1 while this monitor is ready", self.heartbeat.clone());
        registry.register("cache_size", "Documents in the caches", self.cache.clone());
        registry.register("leading", "1 in the process that assigns the buckets", self.leading.clone());
        registry.register("pool_members", "Living monitors at the last refresh", self.members.clone());
        registry.register("buckets", "Buckets of this process, of 256", self.buckets.clone());
        registry.register(
            "pool_refresh_failures",
            "Refreshes of the membership that failed",
            self.refresh_failures.clone(),
        );
        registry.register("clusters", "Clusters that this process visits", self.clusters.clone());
        registry.register("workers_active_count", "Visits in progress", self.active.clone());
        registry.register("main_timedout", "Visits that exceeded their time", self.timed_out.clone());
        registry.register(
            "main_forcedcleanup",
            "Visits whose collectors did not end in time and were aborted",
            self.forced.clone(),
        );
        registry.register("cluster_failedworker", "Collectors that panicked", self.panics.clone());
        registry.register("cluster_collector_errors", "Collectors that failed", self.errors.clone());
        registry.register(
            "cluster_collector_skipped",
            "Collectors that were not run because the time of the visit was over",
            self.unstarted.clone(),
        );
        registry.register(
            "cluster_collector_dropped",
            "Series and objects beyond the limits of a collector, and objects that could not be read",
            self.dropped.clone(),
        );
        registry.register(
            "cluster_skipped",
            "Clusters that are not visited, by reason",
            self.skipped.clone(),
        );
        registry.register_with_unit(
            "cluster_duration",
            "Duration of visits of reachable clusters",
            Unit::Seconds,
            self.cycle.clone(),
        );
        registry.register(
            "records_written",
            "Health records written because they changed",
            self.written.clone(),
        );
        registry.register(
            "records_confirmed",
            "Health records whose time alone was written",
            self.confirmed.clone(),
        );
        registry.register(
            "write_failures",
            "Writes of health records that failed",
            self.write_failures.clone(),
        );
        registry.register(
            "records_waiting",
            "Health records that wait to be written",
            self.unwritten.clone(),
        );
        registry.register(
            "last_write_timestamp_seconds",
            "Time of the last successful write of health records",
            self.last_write.clone(),
        );
    }

    /// Registers the series of the clusters, whose names are those of their metrics.
    pub fn register_clusters(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.series.clone()));
    }

    pub(crate) fn ready(&self, ready: bool) {
        self.heartbeat.set(ready.into());
    }

    pub(crate) fn cached(&self, clusters: usize, subscriptions: usize) {
        for (cache, size) in [(CacheKind::Clusters, clusters), (CacheKind::Subscriptions, subscriptions)] {
            self.cache.get_or_create(&CacheLabel { cache }).set(count(size));
        }
    }

    pub(crate) fn pool(&self, is_leader: bool, members: usize, buckets: usize) {
        self.leading.set(is_leader.into());
        self.members.set(count(members));
        self.buckets.set(count(buckets));
    }

    pub(crate) fn refresh_failed(&self) {
        self.refresh_failures.inc();
    }

    pub(crate) fn visiting(&self, clusters: usize, skipped: &[(&'static str, usize)]) {
        self.clusters.set(count(clusters));
        for (reason, clusters) in skipped {
            self.skipped.get_or_create(&ReasonLabel { reason }).set(count(*clusters));
        }
    }

    /// Counts a visit until the guard is dropped.
    pub(crate) fn visit(&self) -> ActiveVisit {
        self.active.inc();
        ActiveVisit(self.active.clone())
    }

    pub(crate) fn timed_out(&self) {
        self.timed_out.inc();
    }

    pub(crate) fn forced(&self) {
        self.forced.inc();
    }

    pub(crate) fn panicked(&self, collector: &'static str) {
        self.panics.get_or_create(&CollectorLabel { collector }).inc();
    }

    pub(crate) fn failed(&self, collector: &'static str) {
        self.errors.get_or_create(&CollectorLabel { collector }).inc();
    }

    pub(crate) fn unstarted(&self, collector: &'static str) {
        self.unstarted.get_or_create(&CollectorLabel { collector }).inc();
    }

    pub(crate) fn dropped(&self, collector: &'static str, number: usize) {
        if number > 0 {
            self.dropped.get_or_create(&CollectorLabel { collector }).inc_by(number as u64);
        }
    }

    pub(crate) fn visited(&self, duration: Duration) {
        self.cycle.observe(duration.as_secs_f64());
    }

    pub(crate) fn wrote(&self, written: usize, confirmed: usize, at: jiff::Timestamp) {
        self.written.inc_by(written as u64);
        self.confirmed.inc_by(confirmed as u64);
        self.last_write.set(at.as_millisecond() as f64 / 1000.0);
    }

    pub(crate) fn write_failed(&self) {
        self.write_failures.inc();
    }

    pub(crate) fn unwritten(&self, records: usize) {
        self.unwritten.set(count(records));
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A visit in progress.
#[derive(Debug)]
pub(crate) struct ActiveVisit(Gauge);

impl Drop for ActiveVisit {
    fn drop(&mut self) {
        self.0.dec();
    }
}
