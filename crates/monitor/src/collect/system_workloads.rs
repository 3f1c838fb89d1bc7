//! Deployments and daemon sets of `kube-system` of a cluster without operators.

use serde::Deserialize;

use super::{Collector, Findings, Profile, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Listed, Metadata};

const DEPLOYMENTS: Metric = Metric {
    name: "deployment_statuses",
    help: "Missing replicas of each Deployment of the system that lacks some",
};
const DAEMON_SETS: Metric =
    Metric { name: "daemonset_statuses", help: "1 for each DaemonSet of the platform that lacks pods" };

pub(super) const COLLECTOR: Collector = Collector {
    name: "system-workloads",
    profile: Profile::Kubernetes,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let deployments = visit.fetcher.list("/apis/apps/v1/namespaces/kube-system/deployments").await?;
            let daemon_sets = visit.fetcher.list("/apis/apps/v1/namespaces/kube-system/daemonsets").await?;
            Ok(decide(deployments.as_ref(), daemon_sets.as_ref()))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Deployment {
    metadata: Metadata,
    spec: DeploymentSpec,
    status: DeploymentStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct DeploymentSpec {
    replicas: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    available_replicas: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DaemonSet {
    pub(super) metadata: Metadata,
    pub(super) status: DaemonSetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DaemonSetStatus {
    pub(super) desired_number_scheduled: i64,
    pub(super) number_available: i64,
}

impl DaemonSet {
    pub(super) fn missing(&self) -> i64 {
        self.status.desired_number_scheduled.saturating_sub(self.status.number_available)
    }
}

/// The series of a daemon set that lacks pods.
pub(super) fn daemon_set_series(it: &DaemonSet) -> Series {
    Series::new(DAEMON_SETS, 1.0)
        .label("desiredNumberScheduled", it.status.desired_number_scheduled.to_string())
        .label("numberAvailable", it.status.number_available.to_string())
        .label("name", it.metadata.name.clone())
        .label("namespace", it.metadata.namespace.clone())
}

fn decide(deployments: Option<&Listed<Deployment>>, daemon_sets: Option<&Listed<DaemonSet>>) -> Findings {
    let mut findings = Findings::default();
    let mut lacking = Vec::new();
    for it in deployments.iter().flat_map(|it| &it.items) {
        let missing = it.spec.replicas.unwrap_or(1).saturating_sub(it.status.available_replicas);
        if missing > 0 {
            let series = Series::new(DEPLOYMENTS, missing as f64).label("name", it.metadata.name.clone());
            findings.add(series.label("namespace", it.metadata.namespace.clone()));
            lacking.push(format!("Deployment {}", it.metadata.name));
        }
    }
    for it in daemon_sets.iter().flat_map(|it| &it.items).filter(|it| it.missing() > 0) {
        findings.add(daemon_set_series(it));
        lacking.push(format!("DaemonSet {}", it.metadata.name));
    }
    findings.unreadable =
        deployments.map_or(0, |it| it.unreadable) + daemon_sets.map_or(0, |it| it.unreadable);
    if !lacking.is_empty() {
        findings.cause("workloads", format!("kube-system lacks pods of {}", some_names(&lacking)), false);
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines, listed};

    #[test]
    fn workloads_of_the_system_that_lack_pods_are_named() {
        let deployments = listed(json!([
            {"metadata": {"name": "coredns", "namespace": "kube-system"}, "spec": {"replicas": 2}, "status": {"availableReplicas": 1}},
            {"metadata": {"name": "off", "namespace": "kube-system"}, "spec": {"replicas": 0}},
            {"metadata": {"name": "new", "namespace": "kube-system"}, "spec": {}},
        ]));
        let daemon_sets = listed(json!([
            {"metadata": {"name": "kube-proxy", "namespace": "kube-system"}, "status": {"desiredNumberScheduled": 3, "numberAvailable": 3}},
            {"metadata": {"name": "cni", "namespace": "kube-system"}, "status": {"desiredNumberScheduled": 3}},
        ]));
        let findings = decide(Some(&deployments), Some(&daemon_sets));
        assert_eq!(
            lines(&findings),
            [
                "daemonset_statuses{desiredNumberScheduled=3,numberAvailable=0,name=cni,namespace=kube-system} 1",
                "deployment_statuses{name=coredns,namespace=kube-system} 1",
                "deployment_statuses{name=new,namespace=kube-system} 1",
            ]
        );
        assert_eq!(
            causes(&findings),
            ["kube-system lacks pods of Deployment coredns, Deployment new, DaemonSet cni"]
        );
        assert_eq!(decide(None, None), Findings::default());
    }
}
