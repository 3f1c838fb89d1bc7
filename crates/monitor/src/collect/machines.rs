//! Machines of the machine API: their phases.

use serde::Deserialize;

use super::nodes::role;
use super::{Collector, Findings, Profile, as_label, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Labels, Listed, Metadata};

const PHASE: Metric = Metric { name: "machine_phase", help: "Phase of each machine" };
const COUNT: Metric = Metric { name: "machine_count", help: "Machines" };

/// Phases that exist; anything else is `Unknown`, so that a cluster cannot invent labels.
const PHASES: [&str; 6] = ["Provisioning", "Provisioned", "Running", "Deleting", "Failed", "Unknown"];

pub(super) const COLLECTOR: Collector = Collector {
    name: "machines",
    profile: Profile::Any,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let path = "/apis/machine.openshift.io/v1beta1/machines";
            let listed = visit.fetcher.list(path).await?;
            Ok(listed.as_ref().map_or_else(Findings::default, decide))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Machine {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    metadata: Template,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Template {
    labels: Labels,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

fn machine_role(machine: &Machine) -> &'static str {
    match machine.metadata.labels.get("machine.openshift.io/cluster-api-machine-role").map(String::as_str) {
        Some("master") => "master",
        Some("infra") => "infra",
        Some("worker") => "worker",
        _ => role(&machine.spec.metadata.labels),
    }
}

fn decide(listed: &Listed<Machine>) -> Findings {
    let mut findings = Findings { unreadable: listed.unreadable, ..Findings::default() };
    let mut failed = Vec::new();
    for machine in &listed.items {
        let Metadata { name, labels, .. } = &machine.metadata;
        let phase = machine.status.phase.as_deref().unwrap_or("Provisioning");
        let phase = PHASES.iter().find(|it| **it == phase).copied().unwrap_or("Unknown");
        if phase == "Failed" {
            failed.push(name.clone());
        }
        findings.add(
            Series::new(PHASE, 1.0)
                .label("machineName", name.clone())
                .label("phase", phase)
                .label(
                    "spotInstance",
                    as_label(labels.contains_key("machine.openshift.io/interruptible-instance")),
                )
                .label("role", machine_role(machine))
                .label(
                    "machineset",
                    labels.get("machine.openshift.io/cluster-api-machineset").cloned().unwrap_or_default(),
                ),
        );
    }
    findings.gauge(COUNT, listed.items.len() as f64);
    if !failed.is_empty() {
        findings.cause("machines", format!("machines failed: {}", some_names(&failed)), false);
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines, listed};

    #[test]
    fn every_machine_has_a_phase_that_exists() {
        let machines = listed(json!([
            {"metadata": {"name": "m-0", "labels": {"machine.openshift.io/cluster-api-machine-role": "master"}}, "status": {"phase": "Running"}},
            {"metadata": {"name": "w-0", "labels": {"machine.openshift.io/cluster-api-machineset": "w", "machine.openshift.io/interruptible-instance": ""}},
             "spec": {"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}}, "status": {"phase": "Failed"}},
            {"metadata": {"name": "odd"}, "status": {"phase": "<script>"}},
            {"metadata": {"name": "new"}},
        ]));
        let findings = decide(&machines);
        assert_eq!(
            lines(&findings),
            [
                "machine_count{} 4",
                "machine_phase{machineName=m-0,phase=Running,spotInstance=false,role=master,machineset=} 1",
                "machine_phase{machineName=new,phase=Provisioning,spotInstance=false,role=unknown,machineset=} 1",
                "machine_phase{machineName=odd,phase=Unknown,spotInstance=false,role=unknown,machineset=} 1",
                "machine_phase{machineName=w-0,phase=Failed,spotInstance=true,role=worker,machineset=w} 1",
            ]
        );
        assert_eq!(causes(&findings), ["machines failed: w-0"]);
    }
}
