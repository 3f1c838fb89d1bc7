//! Nodes: conditions that are not as expected, kubelet versions, counts by role.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::doc::NodeCount;
use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile, Visit, as_label, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Condition, FetchError, Labels, Listed, Metadata};

const CONDITIONS: Metric =
    Metric { name: "node_conditions", help: "1 for each condition of a node that is not as it should be" };
const KUBELET_VERSION: Metric =
    Metric { name: "node_kubelet_version", help: "Version of each node's kubelet" };
const COUNT: Metric = Metric { name: "node_count", help: "Nodes by role" };

pub(super) const COLLECTOR: Collector = Collector {
    name: "nodes",
    profile: Profile::Any,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let nodes = visit.nodes().await?;
            Ok(decide(&nodes, visit.maintenance.is_some()))
        })
    },
};

/// All nodes of a cluster.
pub(crate) type Nodes = Listed<Node>;

/// A node, as far as collectors read it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: Metadata,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeInfo {
    pub(crate) kubelet_version: String,
}

impl Node {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True")
    }

    /// The role in metrics; a node of several roles has the first of these.
    pub(crate) fn role(&self) -> &'static str {
        role(&self.metadata.labels)
    }
}

/// The role that labels of a node, or of a machine, state.
pub(crate) fn role(labels: &Labels) -> &'static str {
    let has = |role: &str| labels.contains_key(&format!("node-role.kubernetes.io/{role}"));
    if has("master") || has("control-plane") {
        "master"
    } else if has("infra") {
        "infra"
    } else if has("worker") {
        "worker"
    } else {
        "unknown"
    }
}

impl Visit {
    /// The nodes, read once per visit.
    pub(crate) async fn nodes(&self) -> Result<Arc<Nodes>, FetchError> {
        let read = async || {
            let listed = self.fetcher.list::<Node>("/api/v1/nodes").await?;
            Ok(Arc::new(listed.unwrap_or(Listed { items: Vec::new(), unreadable: 0 })))
        };
        self.nodes.get_or_try_init(read).await.cloned()
    }
}

/// The status that a condition should have; none of a condition that is not looked at.
fn expected_status(condition: &str) -> Option<&'static str> {
    match condition {
        "DiskPressure" | "MemoryPressure" | "PIDPressure" => Some("False"),
        "Ready" => Some("True"),
        _ => None,
    }
}

fn decide(nodes: &Nodes, under_maintenance: bool) -> Findings {
    let mut findings = Findings { unreadable: nodes.unreadable, ..Findings::default() };
    let mut counts: BTreeMap<String, NodeCount> = BTreeMap::new();
    let mut not_ready = Vec::new();
    let mut pressed = Vec::new();
    for node in &nodes.items {
        let count = counts.entry(node.role().to_owned()).or_default();
        count.total += 1;
        if node.is_ready() {
            count.ready += 1;
        } else {
            not_ready.push(node.metadata.name.clone());
        }
    }
    // Maintenance takes one node at a time.
    let is_expected = under_maintenance && not_ready.len() == 1;
    for node in &nodes.items {
        let Metadata { name, labels, .. } = &node.metadata;
        let mut seen_ready = false;
        for condition in &node.status.conditions {
            let Some(expected) = expected_status(&condition.kind) else { continue };
            seen_ready |= condition.kind == "Ready";
            if condition.status != expected {
                let about_readiness = condition.kind == "Ready";
                if !about_readiness {
                    pressed.push(format!("{name} has {}", condition.kind));
                }
                findings.add(abnormal(node, &condition.kind, condition, about_readiness && is_expected));
            }
        }
        if !seen_ready {
            findings.add(abnormal(node, "Ready", &Condition::default(), is_expected));
        }
        let version = node.status.node_info.kubelet_version.clone();
        findings.add(
            Series::new(KUBELET_VERSION, 1.0)
                .label("nodeName", name.clone())
                .label("role", role(labels))
                .label("kubeletVersion", version),
        );
    }
    for known in ["master", "worker", "infra", "unknown"] {
        let total = counts.get(known).map_or(0, |it| it.total);
        findings.add(Series::new(COUNT, f64::from(total)).label("role", known));
    }
    if !not_ready.is_empty() {
        let text = format!(
            "{} of {} nodes not ready: {}",
            not_ready.len(),
            nodes.items.len(),
            some_names(&not_ready)
        );
        findings.cause("nodes", text, is_expected);
    }
    if !pressed.is_empty() {
        findings.cause("nodes", some_names(&pressed), false);
    }
    findings.facts.push(Fact::Nodes(counts));
    findings
}

fn abnormal(node: &Node, kind: &str, condition: &Condition, expected: bool) -> Series {
    let Metadata { name, labels, annotations, .. } = &node.metadata;
    let machine_set = labels.get("machine.openshift.io/machineset").cloned().unwrap_or_default();
    let is_spot = labels.contains_key("machine.openshift.io/interruptible-instance")
        || annotations.contains_key("machine.openshift.io/interruptible-instance");
    Series::new(CONDITIONS, 1.0)
        .label("nodeName", name.clone())
        .label("status", condition.status_label())
        .label("type", kind.to_owned())
        .label("spotInstance", as_label(is_spot))
        .label("role", node.role())
        .label("machineset", machine_set)
        .label("expected", as_label(expected))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{lines, listed};

    fn nodes() -> Nodes {
        listed(json!([
            {"metadata": {"name": "m", "labels": {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/worker": ""}},
             "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
                "nodeInfo": {"kubeletVersion": "v1.37.1"}}},
            {"metadata": {"name": "w", "labels": {"node-role.kubernetes.io/worker": "", "machine.openshift.io/interruptible-instance": ""}},
             "status": {"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "MemoryPressure", "status": "True"}, {"type": "Odd", "status": "x"}]}},
        ]))
    }

    #[test]
    fn conditions_that_are_not_as_expected_are_series_and_causes() {
        let findings = decide(&nodes(), false);
        assert_eq!(
            lines(&findings),
            [
                "node_conditions{nodeName=w,status=True,type=MemoryPressure,spotInstance=true,role=worker,machineset=,expected=false} 1",
                "node_conditions{nodeName=w,status=Unknown,type=Ready,spotInstance=true,role=worker,machineset=,expected=false} 1",
                "node_count{role=infra} 0",
                "node_count{role=master} 1",
                "node_count{role=unknown} 0",
                "node_count{role=worker} 1",
                "node_kubelet_version{nodeName=m,role=master,kubeletVersion=v1.37.1} 1",
                "node_kubelet_version{nodeName=w,role=worker,kubeletVersion=} 1",
            ]
        );
        let texts: Vec<&str> = findings.causes.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(texts, ["1 of 2 nodes not ready: w", "w has MemoryPressure"]);
        let counts = BTreeMap::from([
            ("master".to_owned(), NodeCount { ready: 1, total: 1 }),
            ("worker".to_owned(), NodeCount { ready: 0, total: 1 }),
        ]);
        assert_eq!(findings.facts, [Fact::Nodes(counts)]);
    }

    #[test]
    fn during_maintenance_one_node_that_is_not_ready_is_expected_and_two_are_not() {
        let one = decide(&nodes(), true);
        assert_eq!(one.causes.iter().map(|it| it.expected).collect::<Vec<_>>(), [true, false]);
        let mut two = nodes();
        two.items.push(Node::default());
        assert!(decide(&two, true).causes.iter().all(|it| !it.expected));
    }
}
