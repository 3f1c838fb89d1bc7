//! Readiness of this process: a set of named conditions, each set by one service.
//!
//! A process is ready when every condition is and it is not stopping. Liveness is independent:
//! it restarts a hung process, while readiness takes traffic away from a busy one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio_util::sync::CancellationToken;

/// The readiness of a process; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    stopping: CancellationToken,
    conditions: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Ready,
    NotReady(String),
}

impl Readiness {
    /// A readiness without conditions; never ready once `stopping` is cancelled.
    pub(crate) fn new(stopping: CancellationToken) -> Readiness {
        Readiness { stopping, conditions: Arc::default() }
    }

    /// Adds a condition, which is not ready at first.
    pub(crate) fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, readiness: self.clone() };
        condition.not_ready("starting");
        condition
    }

    /// Why the process is not ready, one line each; empty when it is.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        if self.stopping.is_cancelled() {
            return vec!["shutting down".to_owned()];
        }
        let line = |(name, state): (&&str, &State)| match state {
            State::Ready => None,
            State::NotReady(reason) => Some(format!("{name}: {reason}")),
        };
        self.lock().iter().filter_map(line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Readiness {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Whether a condition of readiness holds";
        let mut metric = encoder.encode_descriptor("process_ready", help, None, MetricType::Gauge)?;
        for (name, state) in self.lock().iter() {
            let ready = ConstGauge::new(i64::from(*state == State::Ready));
            ready.encode(metric.encode_family(&[("condition", *name)])?)?;
        }
        Ok(())
    }
}

/// Handle of one condition, for the service that sets it.
#[derive(Debug)]
pub(crate) struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Condition {
    /// Sets the condition to ready.
    pub(crate) fn ready(&self) {
        self.readiness.lock().insert(self.name, State::Ready);
    }

    /// Sets the condition to not ready; `/readyz` shows `reason`.
    pub(crate) fn not_ready(&self, reason: impl Into<String>) {
        self.readiness.lock().insert(self.name, State::NotReady(reason.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_every_condition_is_and_it_is_not_stopping() {
        let stopping = CancellationToken::new();
        let readiness = Readiness::new(stopping.clone());
        assert!(readiness.obstacles().is_empty());

        let store = readiness.condition("store");
        let frontend = readiness.condition("frontend");
        assert_eq!(readiness.obstacles(), ["frontend: starting", "store: starting"]);
        frontend.ready();
        store.not_ready("migrating");
        assert_eq!(readiness.obstacles(), ["store: migrating"]);
        store.ready();
        assert!(readiness.obstacles().is_empty());

        stopping.cancel();
        assert_eq!(readiness.obstacles(), ["shutting down"]);
    }
}
