//! Metrics of a backend.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use steps::engine::WaitingCode;
use store::QueueView;

/// Metrics of a backend; clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    operations: Family<OutcomeLabels, Counter>,
    durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    attempts: Histogram,
    released: Family<ReasonLabels, Counter>,
    running: Gauge,
    due: Gauge,
    pending: Gauge,
    oldest_due: Gauge<f64, AtomicU64>,
    pub(crate) taken_over: Counter,
    pub(crate) lost: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            operations: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            attempts: Histogram::new([1.0, 2.0, 3.0, 4.0, 5.0, 10.0]),
            released: Family::default(),
            running: Gauge::default(),
            due: Gauge::default(),
            pending: Gauge::default(),
            oldest_due: Gauge::default(),
            taken_over: Counter::default(),
            lost: Counter::default(),
        }
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new([1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0])
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("operations", "Finished operations, by verb and outcome", self.operations.clone());
        registry.register(
            "duration_seconds",
            "Time from request to completion of operations, by verb",
            self.durations.clone(),
        );
        registry.register("attempts", "Attempts of finished operations", self.attempts.clone());
        registry.register(
            "operations_handed_back",
            "Operations released to be continued later, by reason",
            self.released.clone(),
        );
        registry.register("running", "Operations that this backend runs", self.running.clone());
        registry.register("queue_due", "Clusters whose operation is due and not started", self.due.clone());
        registry.register("queue_pending", "Operations that wait", self.pending.clone());
        registry.register(
            "oldest_due_seconds",
            "Time since the oldest waiting operation became due",
            self.oldest_due.clone(),
        );
        registry.register("takeovers", "Operations taken over from lost backends", self.taken_over.clone());
        registry.register("lost", "Operations whose lease this backend lost", self.lost.clone());
    }

    pub(crate) fn finished(&self, verb: &'static str, outcome: &'static str, attempt: i32, took: Duration) {
        self.operations.get_or_create(&OutcomeLabels { verb, outcome }).inc();
        self.attempts.observe(f64::from(attempt));
        self.durations.get_or_create(&VerbLabels { verb }).observe(took.as_secs_f64());
    }

    pub(crate) fn released(&self, reason: WaitingCode) {
        self.released.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }

    /// Counts an operation as running until the guard is dropped.
    pub(crate) fn running(&self) -> RunningGuard {
        self.running.inc();
        RunningGuard(self.running.clone())
    }

    pub(crate) fn queue(&self, queue: &QueueView, now: Timestamp) {
        let count = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        self.due.set(count(queue.due));
        self.pending.set(count(queue.pending));
        let oldest = queue.oldest_due.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest_due.set(oldest);
    }
}

/// Counts an operation as running while it exists.
pub(crate) struct RunningGuard(Gauge);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
