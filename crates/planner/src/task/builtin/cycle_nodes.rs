//! `cycle-nodes`: cordons, drains and uncordons one node, or each node of a pool in turn.

use std::time::Duration;

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use steps::kinds::{DrainSettings, check_name, check_selector};
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, read_parameters};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 2] = ["find-nodes", "cycle"];
/// Longest time of one run.
pub const TIME_LIMIT: TimeSpan = TimeSpan::hours(12);

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("5af7d78f-0f81-4e40-8ee3-8c0c0e65b837"),
        version: 1,
        name: "cycle-nodes",
        title: "Cordon, drain and uncordon nodes, one after another",
        description: "Cordons a node, evicts its pods within their disruption budgets, and uncordons it; then the \
            next one. A node that somebody else has cordoned is drained and stays cordoned. On cancellation, it uncordons the \
            nodes that it cordoned.",
        disruptive: true,
        time_limit: TIME_LIMIT,
        expected_duration: TimeSpan::minutes(30),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "node": {"type": "string", "minLength": 1, "description": "The name of one node"},
                "selector": {"type": "string", "minLength": 1, "description": "A label selector, for a pool"},
                "nodeTimeout": {"type": "string", "default": "30m", "description": "Time limit of one node"},
                "gracePeriod": {"type": "string", "description": "Replaces the grace period of each pod"},
                "deleteEmptyDir": {"type": "boolean", "default": false},
                "force": {"type": "boolean", "default": false, "description": "Evict pods without a controller"},
                "skipWaitForDelete": {"type": "boolean", "default": false},
            },
        }),
    };
    from_code(task, CodedTask::CycleNodes)
}

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct CycleNodesParameters {
    /// The nodes to cycle.
    pub nodes: NodeSelection,
    /// How each node is drained.
    pub drain: DrainSettings,
    /// Longest time for one node.
    pub node_timeout: Duration,
}

/// The parameters as they are stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredParameters {
    node: Option<String>,
    selector: Option<String>,
    node_timeout: Option<TimeSpan>,
    grace_period: Option<TimeSpan>,
    #[serde(default)]
    delete_empty_dir: bool,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    skip_wait_for_delete: bool,
}

/// The nodes that a run is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSelection {
    /// One node by its name.
    Name(String),
    /// All nodes that a label selector matches.
    Labels(String),
}

impl CycleNodesParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<CycleNodesParameters, TaskProblem> {
        let stored: StoredParameters = read_parameters(parameters)?;
        let nodes = match (stored.node.as_deref(), stored.selector) {
            (Some(node), None) => {
                NodeSelection::Name(check_name(node).map_err(|why| TaskProblem::at("parameters.node", why))?)
            }
            (None, Some(selector)) => {
                check_selector(&selector).map_err(|why| TaskProblem::at("parameters.selector", why))?;
                NodeSelection::Labels(selector)
            }
            (Some(_), Some(_)) => {
                return Err(TaskProblem::at("parameters.selector", "node and selector exclude each other"));
            }
            (None, None) => return Err(TaskProblem::at("parameters.node", "node or selector is required")),
        };
        let drain = DrainSettings {
            grace: stored.grace_period.map(TimeSpan::duration),
            delete_empty_dir: stored.delete_empty_dir,
            force: stored.force,
            skip_wait_for_delete: stored.skip_wait_for_delete,
        };
        let node_timeout = stored.node_timeout.map_or(Duration::from_secs(1800), TimeSpan::duration);
        if node_timeout.is_zero() {
            return Err(TaskProblem::at(
                "parameters.nodeTimeout",
                "the timeout of a node must be more than 0s",
            ));
        }
        Ok(CycleNodesParameters { nodes, drain, node_timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_of_node_and_selector_is_required() {
        let check = |parameters: Value, expect: &str| {
            let error = CycleNodesParameters::read(parameters.as_object().unwrap()).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{parameters}: {error}");
        };
        check(json!({}), "parameters.node: node or selector is required");
        check(
            json!({"node": "a", "selector": "b"}),
            "parameters.selector: node and selector exclude each other",
        );
        check(json!({"selector": "b in"}), "parameters.selector: \"b in\" is not a label selector");
        check(json!({"node": "../a"}), "parameters.node: \"../a\" is not the name");
        check(
            json!({"node": "a", "nodeTimeout": "soon"}),
            "parameters.nodeTimeout: \"soon\" is not a duration",
        );
        check(json!({"node": "a", "gracePeriod": "5"}), "parameters.gracePeriod: \"5\" is not a duration");
        assert!(
            CycleNodesParameters::read(
                json!({"selector": "pool=a", "nodeTimeout": "5m"}).as_object().unwrap()
            )
            .is_ok()
        );
    }
}
