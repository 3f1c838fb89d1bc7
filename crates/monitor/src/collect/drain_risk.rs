//! What would block or endanger drains of nodes: budgets that allow no disruption, workloads of a single replica.

use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile};
use crate::collect::pods::is_platform_namespace;
use crate::series::{Metric, Series};
use crate::visit::{Listed, Metadata};

const BLOCKING: Metric = Metric {
    name: "drain_risk_blocking_budgets",
    help: "PodDisruptionBudgets that allow no disruption of the pods that they select",
};
const SINGLE: Metric = Metric {
    name: "drain_risk_single_replicas",
    help: "Deployments and StatefulSets that lose all their pods when one node is drained",
};

/// Most risks that the record names.
const NAMED_MAX: usize = 20;

/// Every ten minutes: these lists are long, and a drain finds out for itself.
pub(super) const COLLECTOR: Collector = Collector {
    name: "drain-risk",
    profile: Profile::Any,
    every: 10,
    run: |visit| {
        Box::pin(async move {
            let fetcher = &visit.fetcher;
            let budgets = fetcher.list("/apis/policy/v1/poddisruptionbudgets").await?;
            let deployments = fetcher.list("/apis/apps/v1/deployments").await?;
            let stateful_sets = fetcher.list("/apis/apps/v1/statefulsets").await?;
            Ok(decide(budgets.as_ref(), deployments.as_ref(), stateful_sets.as_ref()))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Budget {
    metadata: Metadata,
    status: BudgetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetStatus {
    disruptions_allowed: i64,
    expected_pods: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Workload {
    metadata: Metadata,
    spec: WorkloadSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WorkloadSpec {
    replicas: Option<i64>,
}

fn decide(
    budgets: Option<&Listed<Budget>>,
    deployments: Option<&Listed<Workload>>,
    stateful_sets: Option<&Listed<Workload>>,
) -> Findings {
    let mut findings = Findings::default();
    let mut risks = Vec::new();
    let blocking = budgets.iter().flat_map(|it| &it.items);
    // A budget without pods blocks nothing.
    let blocking = blocking.filter(|it| it.status.disruptions_allowed <= 0 && it.status.expected_pods > 0);
    let blocking: Vec<&Metadata> = blocking.map(|it| &it.metadata).collect();
    risks.extend(
        blocking.iter().map(|it| format!("budget {}/{} allows no disruption", it.namespace, it.name)),
    );
    let mut single = 0_usize;
    for (kind, listed) in [("Deployment", deployments), ("StatefulSet", stateful_sets)] {
        let workloads = listed.iter().flat_map(|it| &it.items);
        for Workload { metadata, spec } in workloads {
            if spec.replicas.unwrap_or(1) == 1 && !is_platform_namespace(&metadata.namespace) {
                single += 1;
                risks.push(format!("{kind} {}/{} has a single replica", metadata.namespace, metadata.name));
            }
        }
        findings.unreadable += listed.map_or(0, |it| it.unreadable);
    }
    findings.unreadable += budgets.map_or(0, |it| it.unreadable);
    findings.add(Series::new(BLOCKING, blocking.len() as f64));
    findings.add(Series::new(SINGLE, single as f64));
    risks.truncate(NAMED_MAX);
    risks.iter_mut().for_each(|it| *it = it.chars().take(200).collect());
    findings.facts.push(Fact::DrainRisks(risks));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{lines, listed};

    #[test]
    fn budgets_that_block_and_single_replicas_are_risks_and_no_causes() {
        let budgets = listed(json!([
            {"metadata": {"namespace": "shop", "name": "web"}, "status": {"disruptionsAllowed": 0, "expectedPods": 2}},
            {"metadata": {"namespace": "shop", "name": "idle"}, "status": {"disruptionsAllowed": 0, "expectedPods": 0}},
            {"metadata": {"namespace": "shop", "name": "ok"}, "status": {"disruptionsAllowed": 1, "expectedPods": 3}},
        ]));
        let deployments = listed(json!([
            {"metadata": {"namespace": "shop", "name": "one"}, "spec": {}},
            {"metadata": {"namespace": "shop", "name": "two"}, "spec": {"replicas": 2}},
            {"metadata": {"namespace": "openshift-dns", "name": "own"}, "spec": {"replicas": 1}},
        ]));
        let sets =
            listed(json!([{"metadata": {"namespace": "shop", "name": "db"}, "spec": {"replicas": 1}}]));
        let findings = decide(Some(&budgets), Some(&deployments), Some(&sets));
        assert_eq!(lines(&findings), ["drain_risk_blocking_budgets{} 1", "drain_risk_single_replicas{} 2"]);
        let expect = [
            "budget shop/web allows no disruption",
            "Deployment shop/one has a single replica",
            "StatefulSet shop/db has a single replica",
        ];
        assert_eq!(findings.facts, [Fact::DrainRisks(expect.map(str::to_owned).to_vec())]);
        assert!(findings.causes.is_empty());
    }
}
