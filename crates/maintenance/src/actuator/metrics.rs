//! What an actuator counts. The repairs of lanes are counted where they are made, by the store's housekeeping.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use api::work::{Ending, WorkState};
use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use steps::engine::WaitingCode;
use store::{Budget, QueueView};

/// What an actuator counts; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    manifests: Family<Outcome, Counter>,
    handed_back: Family<Reason, Counter>,
    lag: Histogram,
    durations: Family<Task, Histogram, fn() -> Histogram>,
    attempts: Histogram,
    running: Gauge,
    due: Gauge,
    pending: Gauge,
    oldest_due: Gauge<f64, AtomicU64>,
    budget_used: Family<Key, Gauge>,
    budget_limit: Family<Key, Gauge>,
    parked: Family<Key, Gauge>,
    pub(super) taken_over: Counter,
    pub(super) lost: Counter,
    pub(super) undo_failed: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    task: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Task {
    task: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Key {
    budget: String,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let lag = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0];
        Metrics {
            manifests: Family::default(),
            handed_back: Family::default(),
            lag: Histogram::new(lag),
            durations: Family::new_with_constructor(lengths),
            attempts: Histogram::new([1.0, 2.0, 3.0, 4.0, 5.0]),
            running: Gauge::default(),
            due: Gauge::default(),
            pending: Gauge::default(),
            oldest_due: Gauge::default(),
            budget_used: Family::default(),
            budget_limit: Family::default(),
            parked: Family::default(),
            taken_over: Counter::default(),
            lost: Counter::default(),
            undo_failed: Counter::default(),
        }
    }
}

fn lengths() -> Histogram {
    Histogram::new([0.1, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0])
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("manifests", "Manifests that ended, by task and outcome", self.manifests.clone());
        registry.register(
            "manifests_handed_back",
            "Manifests given back to be continued later, by reason",
            self.handed_back.clone(),
        );
        registry.register(
            "start_lag_seconds",
            "From when a manifest was due to its first claim",
            self.lag.clone(),
        );
        registry.register(
            "duration_seconds",
            "How long the last attempt of ended manifests took",
            self.durations.clone(),
        );
        registry.register("attempts", "Attempts of ended manifests", self.attempts.clone());
        registry.register("running", "Manifests that this actuator works", self.running.clone());
        registry.register("queue_due", "Clusters whose next manifest is due and not begun", self.due.clone());
        registry.register("queue_pending", "Manifests that wait", self.pending.clone());
        registry.register(
            "oldest_due_seconds",
            "How long the manifest that has waited longest has been due",
            self.oldest_due.clone(),
        );
        registry.register("budget_used", "Manifests that count in a budget now", self.budget_used.clone());
        registry.register("budget_limit", "Manifests that may count in a budget", self.budget_limit.clone());
        registry.register("parked", "Clusters that wait for room in a budget", self.parked.clone());
        registry.register("takeovers", "Manifests taken over from lost actuators", self.taken_over.clone());
        registry.register("lost", "Manifests whose lease this actuator lost", self.lost.clone());
        registry.register(
            "undo_failed",
            "Manifests that ended with something that could not be taken back",
            self.undo_failed.clone(),
        );
    }

    pub(super) fn ended(&self, task: &str, ending: Ending, attempt: i32, took: Duration) {
        let outcome = Outcome { task: task.to_owned(), outcome: ending.state().as_str() };
        self.manifests.get_or_create(&outcome).inc();
        self.attempts.observe(f64::from(attempt));
        self.durations.get_or_create(&Task { task: task.to_owned() }).observe(took.as_secs_f64());
    }

    /// So many ended without a holder.
    pub(super) fn ended_unheld(&self, task: &str, state: WorkState, count: u64) {
        let outcome = Outcome { task: task.to_owned(), outcome: state.as_str() };
        self.manifests.get_or_create(&outcome).inc_by(count);
    }

    pub(super) fn handed_back(&self, why: WaitingCode) {
        self.handed_back.get_or_create(&Reason { reason: why.as_str() }).inc();
    }

    pub(super) fn lag(&self, lag: SignedDuration) {
        self.lag.observe(lag.as_secs_f64().max(0.0));
    }

    /// Counts one more as running until the answer is dropped.
    pub(super) fn running(&self) -> Running {
        self.running.inc();
        Running(self.running.clone())
    }

    pub(super) fn queue(&self, queue: &QueueView, now: Timestamp) {
        let count = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        self.due.set(count(queue.due));
        self.pending.set(count(queue.pending));
        let oldest = queue.oldest_due.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest_due.set(oldest);
    }

    pub(super) fn budgets(&self, budgets: &[Budget]) {
        // A budget that was removed is not shown with its last values.
        self.budget_used.clear();
        self.budget_limit.clear();
        self.parked.clear();
        for budget in budgets {
            let key = Key { budget: budget.key.clone() };
            self.budget_used.get_or_create(&key).set(i64::from(budget.used));
            self.budget_limit.get_or_create(&key).set(i64::from(budget.limit));
            self.parked.get_or_create(&key).set(i64::from(budget.parked));
        }
    }
}

/// One manifest that is being worked.
pub(super) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}
