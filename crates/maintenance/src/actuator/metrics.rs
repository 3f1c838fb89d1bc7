//! Metrics of an actuator. The store's housekeeping counts the repairs of lanes.

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

/// Metrics of an actuator; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    manifests: Family<OutcomeLabels, Counter>,
    released: Family<ReasonLabels, Counter>,
    lag: Histogram,
    durations: Family<TaskLabels, Histogram, fn() -> Histogram>,
    attempts: Histogram,
    running: Gauge,
    due: Gauge,
    pending: Gauge,
    oldest_due: Gauge<f64, AtomicU64>,
    budget_used: Family<BudgetLabels, Gauge>,
    budget_limit: Family<BudgetLabels, Gauge>,
    parked: Family<BudgetLabels, Gauge>,
    pub(super) taken_over: Counter,
    pub(super) lost: Counter,
    pub(super) undo_failed: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    task: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    task: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    budget: String,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let lag = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0];
        Metrics {
            manifests: Family::default(),
            released: Family::default(),
            lag: Histogram::new(lag),
            durations: Family::new_with_constructor(duration_histogram),
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

fn duration_histogram() -> Histogram {
    Histogram::new([0.1, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0])
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("manifests", "Completed manifests by task and outcome", self.manifests.clone());
        registry.register(
            "manifests_handed_back",
            "Manifests released to be continued later, by reason",
            self.released.clone(),
        );
        registry.register(
            "start_lag_seconds",
            "Time from the due time of a manifest to its first claim",
            self.lag.clone(),
        );
        registry.register(
            "duration_seconds",
            "Duration of the last attempt of completed manifests",
            self.durations.clone(),
        );
        registry.register("attempts", "Attempts of completed manifests", self.attempts.clone());
        registry.register("running", "Manifests that this actuator is running", self.running.clone());
        registry.register(
            "queue_due",
            "Clusters whose next manifest is due and not started",
            self.due.clone(),
        );
        registry.register("queue_pending", "Pending manifests", self.pending.clone());
        registry.register("oldest_due_seconds", "Age of the oldest due manifest", self.oldest_due.clone());
        registry.register(
            "budget_used",
            "Running manifests that count in a budget",
            self.budget_used.clone(),
        );
        registry.register("budget_limit", "Limit of a budget", self.budget_limit.clone());
        registry.register("parked", "Clusters that wait for a budget", self.parked.clone());
        registry.register(
            "takeovers",
            "Manifests taken over from actuators that stopped renewing their leases",
            self.taken_over.clone(),
        );
        registry.register("lost", "Manifests whose lease this actuator lost", self.lost.clone());
        registry.register("undo_failed", "Completed manifests whose undo failed", self.undo_failed.clone());
    }

    pub(super) fn completed(&self, task: &str, ending: Ending, attempt: i32, duration: Duration) {
        let outcome = OutcomeLabels { task: task.to_owned(), outcome: ending.state().as_str() };
        self.manifests.get_or_create(&outcome).inc();
        self.attempts.observe(f64::from(attempt));
        self.durations.get_or_create(&TaskLabels { task: task.to_owned() }).observe(duration.as_secs_f64());
    }

    /// Counts completions that no lease holder wrote.
    pub(super) fn completed_unheld(&self, task: &str, state: WorkState, count: u64) {
        let outcome = OutcomeLabels { task: task.to_owned(), outcome: state.as_str() };
        self.manifests.get_or_create(&outcome).inc_by(count);
    }

    pub(super) fn released(&self, reason: WaitingCode) {
        self.released.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }

    pub(super) fn lag(&self, lag: SignedDuration) {
        self.lag.observe(lag.as_secs_f64().max(0.0));
    }

    /// Counts a running manifest until the guard is dropped.
    pub(super) fn running(&self) -> RunningGuard {
        self.running.inc();
        RunningGuard(self.running.clone())
    }

    pub(super) fn queue(&self, queue: &QueueView, now: Timestamp) {
        let count = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        self.due.set(count(queue.due));
        self.pending.set(count(queue.pending));
        let oldest = queue.oldest_due.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest_due.set(oldest);
    }

    pub(super) fn budgets(&self, budgets: &[Budget]) {
        // Removes the values of deleted budgets.
        self.budget_used.clear();
        self.budget_limit.clear();
        self.parked.clear();
        for budget in budgets {
            let key = BudgetLabels { budget: budget.key.clone() };
            self.budget_used.get_or_create(&key).set(i64::from(budget.used));
            self.budget_limit.get_or_create(&key).set(i64::from(budget.limit));
            self.parked.get_or_create(&key).set(i64::from(budget.parked));
        }
    }
}

/// Guard of the gauge of running manifests.
pub(super) struct RunningGuard(Gauge);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
