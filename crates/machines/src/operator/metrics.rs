//! Metrics of all Machines and MachineSets under the names of OpenShift's operator, read from the caches when they are scraped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::crd::machine::{Machine, MachinePhase, MachineSet};
use controller::Informer;
use kube::ResourceExt;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

const API_VERSION: &str = "machine.openshift.io/v1beta1";

/// Metrics of the operator; clones share what they read.
#[derive(Clone, Default)]
pub struct OperatorMetrics(Arc<Mutex<Source>>);

/// What is read.
#[derive(Clone, Default)]
pub(super) enum Source {
    /// Nothing: another process leads.
    #[default]
    Standby,
    /// The kinds are not served.
    NotServed,
    /// The caches.
    Caches(Arc<Informer<Machine>>, Arc<Informer<MachineSet>>),
}

impl fmt::Debug for OperatorMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorMetrics")
    }
}

impl OperatorMetrics {
    /// Registers the metrics. The registry must not have a prefix: alert rules know the names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    pub(super) fn read_from(&self, source: Source) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = source;
    }

    fn source(&self) -> Source {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Collector for OperatorMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let (machines, sets) = match self.source() {
            Source::Standby => return Ok(()),
            Source::NotServed => return collector_up(&mut encoder, false, false),
            Source::Caches(machines, sets) => (machines, sets),
        };
        collector_up(&mut encoder, machines.is_synced(), sets.is_synced())?;
        if machines.is_synced() {
            of_machines(&mut encoder, &machines.list())?;
        }
        if sets.is_synced() {
            of_machine_sets(&mut encoder, &sets.list())?;
        }
        Ok(())
    }
}

fn collector_up(encoder: &mut DescriptorEncoder, machines: bool, sets: bool) -> fmt::Result {
    let help = "Whether the metrics of a kind can be collected";
    let mut metric = encoder.encode_descriptor("mapi_mao_collector_up", help, None, MetricType::Gauge)?;
    for (kind, is_up) in [("mapi_machine_items", machines), ("mapi_machineset_items", sets)] {
        ConstGauge::new(i64::from(is_up)).encode(metric.encode_family(&[("kind", kind)])?)?;
    }
    Ok(())
}

fn count(encoder: &mut DescriptorEncoder, name: &str, help: &str, count: usize) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(metric)
}

fn of_machines(encoder: &mut DescriptorEncoder, machines: &[Arc<Machine>]) -> fmt::Result {
    count(encoder, "mapi_machine_items", "Machines", machines.len())?;
    let help = "Time of the creation of a Machine that has a phase";
    let name = "mapi_machine_created_timestamp_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for machine in machines {
        let status = machine.status.as_ref();
        let Some(phase) = status.and_then(|it| it.phase.as_ref()).map(MachinePhase::as_str) else { continue };
        let node = status.and_then(|it| it.node_ref.as_ref()?.name.clone()).unwrap_or_default();
        let labels = [
            ("name", machine.name_any()),
            ("namespace", machine.namespace().unwrap_or_default()),
            ("spec_provider_id", machine.spec.provider_id.clone().unwrap_or_default()),
            ("node", node),
            ("api_version", API_VERSION.to_owned()),
            ("phase", phase.to_owned()),
        ];
        ConstGauge::new(created(&**machine)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn of_machine_sets(encoder: &mut DescriptorEncoder, sets: &[Arc<MachineSet>]) -> fmt::Result {
    count(encoder, "mapi_machineset_items", "MachineSets", sets.len())?;
    let help = "Time of the creation of a MachineSet";
    let name = "mapi_machineset_created_timestamp_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for set in sets {
        let [name, namespace] = labels_of(set);
        let labels = [name, namespace, ("api_version", API_VERSION.to_owned())];
        ConstGauge::new(created(&**set)).encode(metric.encode_family(&labels)?)?;
    }
    type Field = fn(&MachineSet) -> Option<i32>;
    let fields: [(&str, &str, Field); 3] = [
        ("mapi_machine_set_status_replicas", "Machines of a MachineSet", |it| it.status.as_ref()?.replicas),
        ("mapi_machine_set_status_replicas_ready", "Machines of a MachineSet with a ready Node", |it| {
            it.status.as_ref()?.ready_replicas
        }),
        ("mapi_machine_set_status_replicas_available", "Machines of a MachineSet that are available", |it| {
            it.status.as_ref()?.available_replicas
        }),
    ];
    for (name, help, field) in fields {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for set in sets {
            let value = i64::from(field(set).unwrap_or_default());
            ConstGauge::new(value).encode(metric.encode_family(&labels_of(set))?)?;
        }
    }
    Ok(())
}

fn labels_of(set: &MachineSet) -> [(&'static str, String); 2] {
    [("name", set.name_any()), ("namespace", set.namespace().unwrap_or_default())]
}

/// The time of an object's creation, in seconds since 1970.
fn created(object: &impl kube::Resource) -> i64 {
    object.meta().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Vec<Arc<Machine>>, Vec<Arc<MachineSet>>);

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
            collector_up(&mut encoder, true, false)?;
            of_machines(&mut encoder, &self.0)?;
            of_machine_sets(&mut encoder, &self.1)
        }
    }

    #[test]
    fn the_metrics_have_the_names_and_labels_that_alert_rules_know() {
        let machine = json!({
            "metadata": {"name": "m", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": "azure:///m"}, "status": {"phase": "Running", "nodeRef": {"name": "node-1"}}
        });
        let fresh = json!({"metadata": {"name": "fresh", "namespace": "n"}});
        let set = json!({
            "metadata": {"name": "s", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1}
        });
        let machines = [machine, fresh].map(|it| Arc::new(serde_json::from_value(it).unwrap()));
        let sets = vec![Arc::new(serde_json::from_value(set).unwrap())];
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(machines.to_vec(), sets)));
        OperatorMetrics::default().register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "mapi_machine_items 2",
            "mapi_machineset_items 1",
            "mapi_machine_created_timestamp_seconds{name=\"m\",namespace=\"n\",spec_provider_id=\"azure:///m\",node=\"node-1\",api_version=\"machine.openshift.io/v1beta1\",phase=\"Running\"} 1767225600",
            "mapi_machineset_created_timestamp_seconds{name=\"s\",namespace=\"n\",api_version=\"machine.openshift.io/v1beta1\"} 1767225600",
            "mapi_machine_set_status_replicas{name=\"s\",namespace=\"n\"} 3",
            "mapi_machine_set_status_replicas_ready{name=\"s\",namespace=\"n\"} 2",
            "mapi_machine_set_status_replicas_available{name=\"s\",namespace=\"n\"} 1",
            "mapi_mao_collector_up{kind=\"mapi_machine_items\"} 1",
            "mapi_mao_collector_up{kind=\"mapi_machineset_items\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
        assert!(!text.contains("fresh"), "a Machine without a phase is not reported: {text}");
    }
}
