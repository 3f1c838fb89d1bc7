//! Machine config pools of OpenShift: conditions that are not as expected, and nodes that are in no pool.

use api::doc::PoolHealth;
use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile, as_label, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Condition, Listed, Metadata};

const CONDITIONS: Metric = Metric {
    name: "machineconfigpool_conditions",
    help: "1 for each condition of a machine config pool that is not as it should be",
};
const COUNT: Metric = Metric { name: "machineconfigpool_count", help: "Machine config pools" };
const UNMANAGED: Metric = Metric {
    name: "machineconfigpool_unmanagednodescount",
    help: "Nodes that are in no machine config pool",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "machine-config-pools",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
            let Some(listed) = visit.fetcher.list(path).await? else { return Ok(Findings::default()) };
            let nodes = visit.nodes().await?.items.len();
            Ok(decide(&listed, nodes, visit.maintenance.is_some()))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Pool {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    machine_count: Option<i64>,
}

fn is_expected(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        "Degraded" | "NodeDegraded" | "RenderDegraded" | "Updating" => condition.status == "False",
        "Updated" => condition.status == "True",
        _ => true,
    }
}

fn decide(listed: &Listed<Pool>, nodes: usize, under_maintenance: bool) -> Findings {
    let mut findings = Findings { unreadable: listed.unreadable, ..Findings::default() };
    let mut health = PoolHealth::default();
    for pool in &listed.items {
        let name = &pool.metadata.name;
        let (mut updating, mut degraded) = (false, false);
        for condition in pool.status.conditions.iter().filter(|it| !is_expected(it)) {
            let of_update = matches!(condition.kind.as_str(), "Updating" | "Updated");
            updating |= condition.kind == "Updating";
            degraded |= !of_update;
            findings.add(
                Series::new(CONDITIONS, 1.0)
                    .label("name", name.clone())
                    .label("status", condition.status_label())
                    .label("type", condition.kind.clone())
                    .label("expected", as_label(under_maintenance && of_update)),
            );
        }
        if updating {
            health.updating.push(name.clone());
        }
        if degraded {
            health.degraded.push(name.clone());
        }
    }
    findings.gauge(COUNT, listed.items.len() as f64);
    // Without counts nothing is known; simulated pools have none.
    let counts: Vec<i64> = listed.items.iter().filter_map(|it| it.status.machine_count).collect();
    let unmanaged = i64::try_from(nodes).unwrap_or(i64::MAX).saturating_sub(counts.iter().sum());
    if !counts.is_empty() && unmanaged != 0 {
        findings.gauge(UNMANAGED, unmanaged as f64);
    }
    if !health.degraded.is_empty() {
        findings.cause(
            "pools",
            format!("machine config pools degraded: {}", some_names(&health.degraded)),
            false,
        );
    }
    findings.facts.push(Fact::Pools(health));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines, listed};

    #[test]
    fn an_update_is_expected_during_maintenance_and_a_degraded_pool_never() {
        let pools = listed(json!([
            {"metadata": {"name": "master"}, "status": {"machineCount": 3, "conditions": [
                {"type": "Degraded", "status": "False"}, {"type": "Updated", "status": "True"}, {"type": "Updating", "status": "False"}]}},
            {"metadata": {"name": "worker"}, "status": {"machineCount": 2, "conditions": [
                {"type": "NodeDegraded", "status": "True"}, {"type": "Updated", "status": "False"}, {"type": "Updating", "status": "True"}]}},
        ]));
        let findings = decide(&pools, 6, true);
        assert_eq!(
            lines(&findings),
            [
                "machineconfigpool_conditions{name=worker,status=False,type=Updated,expected=true} 1",
                "machineconfigpool_conditions{name=worker,status=True,type=NodeDegraded,expected=false} 1",
                "machineconfigpool_conditions{name=worker,status=True,type=Updating,expected=true} 1",
                "machineconfigpool_count{} 2",
                "machineconfigpool_unmanagednodescount{} 1",
            ]
        );
        assert_eq!(causes(&findings), ["machine config pools degraded: worker"]);
        let worker = vec!["worker".to_owned()];
        assert_eq!(findings.facts, [Fact::Pools(PoolHealth { updating: worker.clone(), degraded: worker })]);
        assert!(!lines(&decide(&pools, 5, false)).iter().any(|it| it.contains("unmanaged")));
    }
}
