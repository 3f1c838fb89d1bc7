//! Metrics of controllers, watches, leases and events.

use std::time::Duration;

use kube::runtime::watcher;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Metrics of the controllers of a process; clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    durations: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    queued: Family<ControllerLabels, Gauge>,
    running: Family<ControllerLabels, Gauge>,
    watch_restarts: Family<WatchLabels, Counter>,
    leading: Family<LeaseLabels, Gauge>,
    events: Family<EventLabels, Counter>,
}

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Later,
    Failed,
    Panicked,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Later => "later",
            Outcome::Failed => "failed",
            Outcome::Panicked => "panicked",
        }
    }
}

/// Why a watch was started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartReason {
    ListFailed,
    WatchFailed,
    Expired,
    Unconfirmed,
}

impl RestartReason {
    fn as_str(self) -> &'static str {
        match self {
            RestartReason::ListFailed => "list_failed",
            RestartReason::WatchFailed => "watch_failed",
            RestartReason::Expired => "expired",
            RestartReason::Unconfirmed => "unconfirmed",
        }
    }

    pub(crate) fn of(error: &watcher::Error) -> RestartReason {
        match error {
            watcher::Error::InitialListFailed(_) => RestartReason::ListFailed,
            watcher::Error::WatchError(status) if status.code == 410 => RestartReason::Expired,
            watcher::Error::WatchStartFailed(_)
            | watcher::Error::WatchError(_)
            | watcher::Error::WatchFailed(_)
            | watcher::Error::NoResourceVersion => RestartReason::WatchFailed,
        }
    }
}

/// What happened to a recorded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventOutcome {
    Written,
    Failed,
    DroppedQueueFull,
    DroppedRate,
}

impl EventOutcome {
    fn as_str(self) -> &'static str {
        match self {
            EventOutcome::Written => "written",
            EventOutcome::Failed => "failed",
            EventOutcome::DroppedQueueFull => "dropped_queue_full",
            EventOutcome::DroppedRate => "dropped_rate",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    lease: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    outcome: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            queued: Family::default(),
            running: Family::default(),
            watch_restarts: Family::default(),
            leading: Family::default(),
            events: Family::default(),
        }
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new([0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0])
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("reconciles", "Reconciles, by controller and outcome", self.reconciles.clone());
        registry.register(
            "reconcile_duration_seconds",
            "Duration of reconciles, by controller",
            self.durations.clone(),
        );
        registry.register(
            "queue_depth",
            "Objects that wait for a reconcile, by controller",
            self.queued.clone(),
        );
        registry.register("running", "Reconciles in progress, by controller", self.running.clone());
        registry.register(
            "watch_restarts",
            "Watches that were started again, by kind and reason",
            self.watch_restarts.clone(),
        );
        registry.register("leader", "Whether this process holds the lease, by lease", self.leading.clone());
        registry.register("events", "Recorded events, by outcome", self.events.clone());
    }

    pub(crate) fn reconciled(&self, controller: &'static str, outcome: Outcome, took: Duration) {
        let outcome = outcome.as_str();
        self.reconciles.get_or_create(&ReconcileLabels { controller, outcome }).inc();
        self.durations.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn queue(&self, controller: &'static str, queued: usize, running: usize) {
        let set = |family: &Family<ControllerLabels, Gauge>, value: usize| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&ControllerLabels { controller }).set(value);
        };
        set(&self.queued, queued);
        set(&self.running, running);
    }

    pub(crate) fn watch_restarted(&self, kind: &str, reason: RestartReason) {
        let labels = WatchLabels { kind: kind.to_owned(), reason: reason.as_str() };
        self.watch_restarts.get_or_create(&labels).inc();
    }

    pub(crate) fn leading(&self, lease: &str, is_leader: bool) {
        self.leading.get_or_create(&LeaseLabels { lease: lease.to_owned() }).set(i64::from(is_leader));
    }

    pub(crate) fn event(&self, outcome: EventOutcome) {
        self.events.get_or_create(&EventLabels { outcome: outcome.as_str() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn labels_are_words_of_enums() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.reconciled("drain", Outcome::Failed, Duration::from_millis(7));
        metrics.watch_restarted("Node", RestartReason::Expired);
        metrics.leading("cluster-api-provider", true);
        metrics.event(EventOutcome::DroppedRate);
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        for line in [
            "reconciles_total{controller=\"drain\",outcome=\"failed\"} 1",
            "watch_restarts_total{kind=\"Node\",reason=\"expired\"} 1",
            "leader{lease=\"cluster-api-provider\"} 1",
            "events_total{outcome=\"dropped_rate\"} 1",
        ] {
            assert!(encoded.lines().any(|it| it == line), "{line} is not in {encoded}");
        }
    }
}
