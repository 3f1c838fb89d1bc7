//! Virtual machines of KubeVirt, by phase. What runs inside them is not a label.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Collector, Findings, Profile};
use crate::series::{Metric, Series};
use crate::visit::Listed;

const INSTANCES: Metric =
    Metric { name: "cnv_virtualmachineinstance_info", help: "Virtual machines of KubeVirt by phase" };

/// Phases that exist.
const PHASES: [&str; 8] =
    ["Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "WaitingForSync", "Unknown"];

pub(super) const COLLECTOR: Collector = Collector {
    name: "virtual-machines",
    profile: Profile::OpenShift,
    every: 5,
    run: |visit| {
        Box::pin(async move {
            // Few clusters have such a kind; that it is absent is no error.
            let listed = visit.fetcher.list("/apis/kubevirt.io/v1/virtualmachineinstances").await?;
            Ok(listed.as_ref().map_or_else(Findings::default, decide))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Instance {
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

fn decide(listed: &Listed<Instance>) -> Findings {
    let mut findings = Findings { unreadable: listed.unreadable, ..Findings::default() };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in &listed.items {
        let phase = PHASES.iter().find(|it| **it == instance.status.phase).copied().unwrap_or("Unknown");
        *counts.entry(phase).or_default() += 1;
    }
    for (phase, count) in counts {
        findings.add(Series::new(INSTANCES, count as f64).label("phase", phase.to_owned()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{lines, listed};

    #[test]
    fn virtual_machines_are_counted_by_phase() {
        let instances = listed(
            json!([{"status": {"phase": "Running"}}, {"status": {"phase": "Running"}}, {"status": {"phase": "odd"}}]),
        );
        assert_eq!(
            lines(&decide(&instances)),
            [
                "cnv_virtualmachineinstance_info{phase=Running} 2",
                "cnv_virtualmachineinstance_info{phase=Unknown} 1"
            ]
        );
    }
}
