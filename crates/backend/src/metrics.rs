//! What a backend counts.

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

/// What a backend counts; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    operations: Family<Outcome, Counter>,
    durations: Family<Verb, Histogram, fn() -> Histogram>,
    attempts: Histogram,
    handed_back: Family<Reason, Counter>,
    running: Gauge,
    due: Gauge,
    pending: Gauge,
    oldest_due: Gauge<f64, AtomicU64>,
    pub(crate) taken_over: Counter,
    pub(crate) lost: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            operations: Family::default(),
            durations: Family::new_with_constructor(lengths),
            attempts: Histogram::new([1.0, 2.0, 3.0, 4.0, 5.0, 10.0]),
            handed_back: Family::default(),
            running: Gauge::default(),
            due: Gauge::default(),
            pending: Gauge::default(),
            oldest_due: Gauge::default(),
            taken_over: Counter::default(),
            lost: Counter::default(),
        }
    }
}

fn lengths() -> Histogram {
    Histogram::new([1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0])
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "operations",
            "Operations that ended, by verb and outcome",
            self.operations.clone(),
        );
        registry.register(
            "duration_seconds",
            "From the request to the end of operations, by verb",
            self.durations.clone(),
        );
        registry.register("attempts", "Attempts of ended operations", self.attempts.clone());
        registry.register(
            "operations_handed_back",
            "Operations given back to be continued later, by reason",
            self.handed_back.clone(),
        );
        registry.register("running", "Operations that this backend works", self.running.clone());
        registry.register("queue_due", "Clusters whose operation is due and not begun", self.due.clone());
        registry.register("queue_pending", "Operations that wait", self.pending.clone());
        registry.register(
            "oldest_due_seconds",
            "How long the operation that has waited longest has been due",
            self.oldest_due.clone(),
        );
        registry.register("takeovers", "Operations taken over from lost backends", self.taken_over.clone());
        registry.register("lost", "Operations whose lease this backend lost", self.lost.clone());
    }

    pub(crate) fn ended(&self, verb: &'static str, outcome: &'static str, attempt: i32, took: Duration) {
        self.operations.get_or_create(&Outcome { verb, outcome }).inc();
        self.attempts.observe(f64::from(attempt));
        self.durations.get_or_create(&Verb { verb }).observe(took.as_secs_f64());
    }

    pub(crate) fn handed_back(&self, why: WaitingCode) {
        self.handed_back.get_or_create(&Reason { reason: why.as_str() }).inc();
    }

    /// Counts one more as running until the answer is dropped.
    pub(crate) fn running(&self) -> Running {
        self.running.inc();
        Running(self.running.clone())
    }

    pub(crate) fn queue(&self, queue: &QueueView, now: Timestamp) {
        let count = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        self.due.set(count(queue.due));
        self.pending.set(count(queue.pending));
        let oldest = queue.oldest_due.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest_due.set(oldest);
    }
}

/// One operation that is being worked.
pub(crate) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}
