//! The metrics of OpenShift's controllers, under their names.

use std::sync::atomic::AtomicU64;

use api::crd::machine::Machine;
use controller::ObjectKey;
use kube::ResourceExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Metrics of the controllers; clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    // Gauges that only rise, because the names of upstream's counters have no suffix `_total`, which a counter would get here.
    create_failed: Family<FailureLabels, Gauge<u64, AtomicU64>>,
    update_failed: Family<FailureLabels, Gauge<u64, AtomicU64>>,
    delete_failed: Family<FailureLabels, Gauge<u64, AtomicU64>>,
    phase_transition: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    nodes_covered: Family<ObjectLabels, Gauge>,
    remediation_success: Family<ObjectLabels, Counter>,
    short_circuit: Family<ObjectLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    name: String,
    namespace: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    name: String,
    namespace: String,
}

/// A call of a provider that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstanceCall {
    Create,
    Update,
    Delete,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            create_failed: Family::default(),
            update_failed: Family::default(),
            delete_failed: Family::default(),
            phase_transition: Family::new_with_constructor(phase_histogram),
            nodes_covered: Family::default(),
            remediation_success: Family::default(),
            short_circuit: Family::default(),
        }
    }
}

fn phase_histogram() -> Histogram {
    Histogram::new([5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0])
}

impl Metrics {
    /// Registers the metrics. The registry must not have a prefix: alert rules know the names.
    pub fn register(&self, registry: &mut Registry) {
        let failures = [
            ("mapi_instance_create_failed", "Instances that could not be created", &self.create_failed),
            ("mapi_instance_update_failed", "Instances that could not be refreshed", &self.update_failed),
            ("mapi_instance_delete_failed", "Instances that could not be deleted", &self.delete_failed),
        ];
        for (name, help, family) in failures {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "mapi_machine_phase_transition_seconds",
            "Time from the creation of a Machine to a phase",
            self.phase_transition.clone(),
        );
        registry.register(
            "mapi_machinehealthcheck_nodes_covered",
            "Machines that a MachineHealthCheck checks",
            self.nodes_covered.clone(),
        );
        registry.register(
            "mapi_machinehealthcheck_remediation_success",
            "Machines that a MachineHealthCheck deleted",
            self.remediation_success.clone(),
        );
        registry.register(
            "mapi_machinehealthcheck_short_circuit",
            "Whether a MachineHealthCheck may not remediate because too many Machines are unhealthy",
            self.short_circuit.clone(),
        );
    }

    pub(crate) fn call_failed(&self, call: InstanceCall, machine: &Machine, reason: &str) {
        let family = match call {
            InstanceCall::Create => &self.create_failed,
            InstanceCall::Update => &self.update_failed,
            InstanceCall::Delete => &self.delete_failed,
        };
        let labels = FailureLabels {
            name: machine.name_any(),
            namespace: machine.namespace().unwrap_or_default(),
            reason: reason.to_owned(),
        };
        family.get_or_create(&labels).inc();
    }

    pub(crate) fn phase_reached(&self, phase: &str, after: std::time::Duration) {
        let labels = PhaseLabels { phase: phase.to_owned() };
        self.phase_transition.get_or_create(&labels).observe(after.as_secs_f64());
    }

    pub(crate) fn checked(&self, check: &ObjectKey, targets: usize, short_circuit: bool) {
        let labels = labels(check);
        self.nodes_covered.get_or_create(&labels).set(i64::try_from(targets).unwrap_or(i64::MAX));
        self.short_circuit.get_or_create(&labels).set(i64::from(short_circuit));
    }

    pub(crate) fn check_gone(&self, check: &ObjectKey) {
        let labels = labels(check);
        self.nodes_covered.remove(&labels);
        self.short_circuit.get_or_create(&labels).set(0);
    }

    pub(crate) fn remediated(&self, check: &ObjectKey) {
        self.remediation_success.get_or_create(&labels(check)).inc();
    }
}

fn labels(key: &ObjectKey) -> ObjectLabels {
    ObjectLabels { name: key.name.to_string(), namespace: key.namespace().to_owned() }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_metrics_have_the_names_that_alert_rules_know() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let key = ObjectKey::namespaced("n", "c");
        metrics.call_failed(InstanceCall::Create, &Machine::default(), "CreateError");
        metrics.phase_reached("Running", std::time::Duration::from_secs(7));
        metrics.checked(&key, 3, true);
        metrics.remediated(&key);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for expect in [
            "mapi_instance_create_failed{name=\"\",namespace=\"\",reason=\"CreateError\"} 1",
            "mapi_machine_phase_transition_seconds_bucket{le=\"10.0\",phase=\"Running\"} 1",
            "mapi_machinehealthcheck_nodes_covered{name=\"c\",namespace=\"n\"} 3",
            "mapi_machinehealthcheck_remediation_success_total{name=\"c\",namespace=\"n\"} 1",
            "mapi_machinehealthcheck_short_circuit{name=\"c\",namespace=\"n\"} 1",
        ] {
            assert!(text.contains(expect), "{expect}: {text}");
        }
    }
}
