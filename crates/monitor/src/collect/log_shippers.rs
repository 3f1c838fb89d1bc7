//! The daemon sets that ship the logs of a provisioned cluster.

use super::system_workloads::{DaemonSet, daemon_set_series};
use super::{Collector, Findings, Profile};
use crate::series::Metric;
use crate::visit::{FetchError, Fetcher};

const CANNOT_START: Metric = Metric {
    name: "genevalogging_otel_cannotstart",
    help: "1 for each log shipper of which no pod is available",
};

const NAMESPACE: &str = "openshift-azure-logging";
const NAMES: [&str; 2] = ["otel-exporter-master", "otel-exporter-worker"];

pub(super) const COLLECTOR: Collector = Collector {
    name: "log-shippers",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            // Most simulated clusters have neither; one list is cheaper than two reads.
            Ok(decide(&read(&visit.fetcher).await?))
        })
    },
};

async fn read(fetcher: &Fetcher) -> Result<Vec<DaemonSet>, FetchError> {
    let listed = fetcher.list(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")).await?;
    Ok(listed.map_or_else(Vec::new, |it| it.items))
}

fn decide(daemon_sets: &[DaemonSet]) -> Findings {
    let mut findings = Findings::default();
    for it in daemon_sets.iter().filter(|it| NAMES.contains(&it.metadata.name.as_str())) {
        if it.missing() > 0 {
            findings.add(daemon_set_series(it));
        }
        if it.status.desired_number_scheduled > 0 && it.status.number_available == 0 {
            findings.gauge(CANNOT_START, 1.0);
            findings.cause(
                "logging",
                format!("no pod of the log shipper {} is available", it.metadata.name),
                false,
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::lines;

    #[test]
    fn a_log_shipper_without_any_pod_cannot_start() {
        let sets: Vec<DaemonSet> = serde_json::from_value(json!([
            {"metadata": {"name": "otel-exporter-master", "namespace": NAMESPACE}, "status": {"desiredNumberScheduled": 3, "numberAvailable": 2}},
            {"metadata": {"name": "otel-exporter-worker", "namespace": NAMESPACE}, "status": {"desiredNumberScheduled": 3}},
            {"metadata": {"name": "other", "namespace": NAMESPACE}, "status": {"desiredNumberScheduled": 3}},
        ]))
        .unwrap();
        assert_eq!(
            lines(&decide(&sets)),
            [
                "daemonset_statuses{desiredNumberScheduled=3,numberAvailable=0,name=otel-exporter-worker,namespace=openshift-azure-logging} 1",
                "daemonset_statuses{desiredNumberScheduled=3,numberAvailable=2,name=otel-exporter-master,namespace=openshift-azure-logging} 1",
                "genevalogging_otel_cannotstart{} 1",
            ]
        );
    }
}
