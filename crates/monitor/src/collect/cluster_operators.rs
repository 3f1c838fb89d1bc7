//! ClusterOperators of OpenShift: conditions and versions that are not as expected.

use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile, as_label, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Condition, Listed, Metadata, Versioned};

const CONDITIONS: Metric = Metric {
    name: "clusteroperator_conditions",
    help: "1 for each condition of a ClusterOperator that is not as it should be",
};
const COUNT: Metric = Metric { name: "clusteroperator_count", help: "ClusterOperators" };
const VERSIONS: Metric = Metric {
    name: "clusteroperator_versions",
    help: "1 for each ClusterOperator that has not reached the desired version",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "cluster-operators",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let path = "/apis/config.openshift.io/v1/clusteroperators";
            let Some(listed) = visit.fetcher.list(path).await? else { return Ok(Findings::default()) };
            let desired = visit.cluster_version.as_ref().map_or("", |it| it.desired());
            Ok(decide(&listed, desired, visit.maintenance.is_some()))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClusterOperator {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
    versions: Vec<Versioned>,
}

/// Conditions that are as they are on a cluster like ours. They are looked at first: the reference evaluates them only for types
/// that it does not expect anything of, and so reports what it means to ignore.
fn is_ignored(operator: &str, condition: &Condition) -> bool {
    let Condition { kind, status, reason } = condition;
    match (operator, kind.as_str(), status.as_str()) {
        (_, "EvaluationConditionsDetected" | "Upgradeable", "Unknown") => true,
        ("insights", ..) => true,
        ("etcd", kind, _) if kind.starts_with("RecentBackup") => true,
        ("cluster-api", ..) => kind.contains("Installer") || reason.contains("Installer"),
        (
            "cloud-controller-manager",
            "TrustedCABundleControllerControllerDegraded" | "CloudConfigControllerDegraded",
            "False",
        )
        | (
            "cloud-controller-manager",
            "TrustedCABundleControllerControllerAvailable"
            | "CloudConfigControllerAvailable"
            | "TrustedCABundleControllerControllerUpgradeable"
            | "CloudConfigControllerUpgradeable"
            | "CloudControllerOwner",
            "True",
        )
        | ("baremetal", "Disabled", "True")
        | ("network", "ManagementStateDegraded", "False") => true,
        _ => false,
    }
}

fn is_expected(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        "Available" | "Upgradeable" => condition.status == "True",
        "Degraded" | "Progressing" | "EvaluationConditionsDetected" => condition.status == "False",
        // Nothing is known about it, so it is shown.
        _ => false,
    }
}

fn decide(listed: &Listed<ClusterOperator>, desired: &str, under_maintenance: bool) -> Findings {
    let mut findings = Findings { unreadable: listed.unreadable, ..Findings::default() };
    let mut unhealthy = Vec::new();
    for operator in &listed.items {
        let name = &operator.metadata.name;
        let abnormal =
            operator.status.conditions.iter().filter(|it| !is_ignored(name, it) && !is_expected(it));
        let mut is_unhealthy = false;
        for condition in abnormal {
            is_unhealthy |= matches!(condition.kind.as_str(), "Available" | "Degraded");
            findings.add(
                Series::new(CONDITIONS, 1.0)
                    .label("name", name.clone())
                    .label("status", condition.status_label())
                    .label("type", condition.kind.clone())
                    .label("expected", as_label(under_maintenance && condition.kind == "Progressing")),
            );
        }
        if is_unhealthy {
            unhealthy.push(name.clone());
        }
        let reached = operator.status.versions.iter().find(|it| it.name == "operator");
        if let Some(reached) = reached.filter(|it| !desired.is_empty() && it.version != desired) {
            findings.add(
                Series::new(VERSIONS, 1.0)
                    .label("name", name.clone())
                    .label("version", reached.version.clone()),
            );
        }
    }
    findings.gauge(COUNT, listed.items.len() as f64);
    if !unhealthy.is_empty() {
        findings.cause(
            "operators",
            format!("operators degraded or not available: {}", some_names(&unhealthy)),
            false,
        );
    }
    findings.facts.push(Fact::DegradedOperators(unhealthy));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines, listed};

    #[test]
    fn ignored_conditions_are_not_shown_even_if_their_type_is_expected_to_differ() {
        let operators = listed(json!([
            {"metadata": {"name": "dns"}, "status": {"conditions": [{"type": "Available", "status": "False"},
                {"type": "Degraded", "status": "True"}, {"type": "Upgradeable", "status": "Unknown"}],
                "versions": [{"name": "operator", "version": "4.16.1"}, {"name": "coredns", "version": "1"}]}},
            {"metadata": {"name": "insights"}, "status": {"conditions": [{"type": "Degraded", "status": "True"}]}},
            {"metadata": {"name": "etcd"}, "status": {"conditions": [{"type": "RecentBackup", "status": "Unknown"},
                {"type": "Progressing", "status": "True"}], "versions": [{"name": "operator", "version": "4.17.3"}]}},
            {"metadata": {"name": "baremetal"}, "status": {"conditions": [{"type": "Disabled", "status": "True"}]}},
        ]));
        let findings = decide(&operators, "4.17.3", true);
        assert_eq!(
            lines(&findings),
            [
                "clusteroperator_conditions{name=dns,status=False,type=Available,expected=false} 1",
                "clusteroperator_conditions{name=dns,status=True,type=Degraded,expected=false} 1",
                "clusteroperator_conditions{name=etcd,status=True,type=Progressing,expected=true} 1",
                "clusteroperator_count{} 4",
                "clusteroperator_versions{name=dns,version=4.16.1} 1",
            ]
        );
        assert_eq!(causes(&findings), ["operators degraded or not available: dns"]);
        assert_eq!(findings.facts, [Fact::DegradedOperators(vec!["dns".to_owned()])]);
    }
}
