//! The service's own operator in a provisioned cluster: whether its deployments are ready, and what it reports in the status of
//! its `Cluster` object.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Condition, FetchError, Metadata};

const HEARTBEAT: Metric =
    Metric { name: "arooperator_heartbeat", help: "1 if a deployment of the operator is ready, else 0" };
const CONDITIONS: Metric = Metric {
    name: "arooperator_conditions",
    help: "1 for each condition of the operator that is not as it should be",
};
const SUBNETS: Metric =
    Metric { name: "nsg_reconciliations", help: "1 if the operator has just reconciled a subnet" };

const NAMESPACE: &str = "openshift-azure-operator";

/// An annotation younger than this is of a reconciliation since the last visit.
const RECENT_SECONDS: i64 = 70;

pub(super) const COLLECTOR: Collector = Collector {
    name: "operator",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let fetcher = &visit.fetcher;
            let path = "/apis/aro.openshift.io/v1alpha1/clusters/cluster";
            let Some(cluster) = fetcher.object::<Cluster>(path).await? else {
                return Ok(Findings::default());
            };
            let deployment = async |name: &str| {
                let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}");
                Ok::<_, FetchError>(fetcher.object::<Deployment>(&path).await?.unwrap_or_default())
            };
            let deployments = [
                ("aro-operator-master", deployment("aro-operator-master").await?),
                ("aro-operator-worker", deployment("aro-operator-worker").await?),
            ];
            Ok(decide(&cluster, &deployments, visit.now))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Cluster {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    operator_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Deployment {
    spec: Replicas,
    status: Replicas,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Replicas {
    replicas: Option<i64>,
    available_replicas: Option<i64>,
    updated_replicas: Option<i64>,
}

impl Deployment {
    fn is_ready(&self) -> bool {
        let wanted = self.spec.replicas.unwrap_or(1);
        let all = |count: Option<i64>| count.unwrap_or(0) >= wanted;
        wanted > 0 && all(self.status.available_replicas) && all(self.status.updated_replicas)
    }
}

fn is_expected(condition: &Condition) -> bool {
    let kind = condition.kind.as_str();
    let expected = match kind {
        "InternetReachableFromMaster"
        | "InternetReachableFromWorker"
        | "ServicePrincipalValid"
        | "DefaultIngressCertificate"
        | "DefaultClusterDNS"
        | "MachineValid" => "True",
        _ if kind.ends_with("ControllerAvailable") => "True",
        _ if kind.ends_with("ControllerProgressing") || kind.ends_with("ControllerDegraded") => "False",
        // Nothing is known about it, so it is shown.
        _ => return false,
    };
    condition.status == expected
}

fn decide(cluster: &Cluster, deployments: &[(&'static str, Deployment)], now: Timestamp) -> Findings {
    let mut findings = Findings::default();
    for (name, deployment) in deployments {
        findings.add(Series::new(HEARTBEAT, f64::from(u8::from(deployment.is_ready()))).label("name", *name));
    }
    let abnormal: Vec<&Condition> = cluster.status.conditions.iter().filter(|it| !is_expected(it)).collect();
    for condition in &abnormal {
        findings.add(
            Series::new(CONDITIONS, 1.0)
                .label("status", condition.status_label())
                .label("type", condition.kind.clone()),
        );
    }
    // Other annotations without this one are no error.
    let reconciled = cluster.metadata.annotations.get("aro.openshift.io/lastSubnetReconcileTimestamp");
    let reconciled = reconciled.and_then(|it| rfc2822::parse(it).ok()).map(|it| it.timestamp());
    let is_recent = |at: Timestamp| (0..RECENT_SECONDS).contains(&now.duration_since(at).as_secs());
    if reconciled.is_some_and(is_recent) {
        findings.gauge(SUBNETS, 1.0);
    }
    let named: Vec<String> = abnormal.iter().map(|it| format!("{}={}", it.kind, it.status)).collect();
    if !named.is_empty() {
        findings.cause("operator", format!("the operator reports {}", some_names(&named)), false);
    }
    let down: Vec<String> =
        deployments.iter().filter(|(_, it)| !it.is_ready()).map(|(name, _)| (*name).to_owned()).collect();
    if !down.is_empty() {
        findings.cause("operator", format!("not ready: {}", some_names(&down)), false);
    }
    findings.facts.push(Fact::OperatorConditions(named));
    if !cluster.status.operator_version.is_empty() {
        findings
            .facts
            .push(Fact::OperatorVersion(cluster.status.operator_version.chars().take(64).collect()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines};

    #[test]
    fn what_the_operator_reports_is_shown_unless_it_is_as_expected() {
        let now: Timestamp = "2026-11-19T04:00:00Z".parse().unwrap();
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"annotations": {"aro.openshift.io/lastSubnetReconcileTimestamp": "Thu, 19 Nov 2026 03:59:10 GMT", "other": "x"}},
            "status": {"operatorVersion": "v1", "conditions": [
                {"type": "DefaultClusterDNS", "status": "True"}, {"type": "ServicePrincipalValid", "status": "False"},
                {"type": "DnsmasqControllerDegraded", "status": "False"}, {"type": "DnsmasqControllerProgressing", "status": "True"}]},
        }))
        .unwrap();
        let deployment = |available: i64| {
            let value = json!({"spec": {"replicas": 1}, "status": {"availableReplicas": available, "updatedReplicas": 1}});
            serde_json::from_value(value).unwrap()
        };
        let deployments = [("aro-operator-master", deployment(1)), ("aro-operator-worker", deployment(0))];
        let findings = decide(&cluster, &deployments, now);
        assert_eq!(
            lines(&findings),
            [
                "arooperator_conditions{status=False,type=ServicePrincipalValid} 1",
                "arooperator_conditions{status=True,type=DnsmasqControllerProgressing} 1",
                "arooperator_heartbeat{name=aro-operator-master} 1",
                "arooperator_heartbeat{name=aro-operator-worker} 0",
                "nsg_reconciliations{} 1",
            ]
        );
        assert_eq!(
            causes(&findings),
            [
                "the operator reports ServicePrincipalValid=False, DnsmasqControllerProgressing=True",
                "not ready: aro-operator-worker"
            ]
        );
        let bare: Cluster =
            serde_json::from_value(json!({"metadata": {"annotations": {"other": "x"}}})).unwrap();
        assert!(lines(&decide(&bare, &[], now)).is_empty());
    }
}
