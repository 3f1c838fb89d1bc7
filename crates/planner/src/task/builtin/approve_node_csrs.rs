//! `approve-node-csrs`: approves the pending certificate signing requests of nodes, and leaves all others.

use std::collections::BTreeSet;

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, read_parameters};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 1] = ["approve"];

pub(super) fn task() -> Definition {
    let names = |description: &str| json!({"type": "array", "items": {"type": "string"}, "default": [], "description": description});
    let task = BuiltinTask {
        id: uuid!("44f75b10-b0f6-414e-aecf-b88d89178c6a"),
        version: 1,
        name: "approve-node-csrs",
        title: "Approve pending certificate requests of nodes",
        description: "Approves requests by which a known node asks for its own client or serving certificate, with its own \
            names and addresses. Everything else is left, with the reason. A first client certificate is approved only for \
            the nodes and the bootstrap identities that the parameters name.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(5),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "expectedNodes": names("Nodes that are about to join"),
                "bootstrapUsers": names("Users that may request the first certificate of a node"),
                "bootstrapGroups": names("Groups whose members may request the first certificate of a node"),
            },
        }),
    };
    from_code(task, CodedTask::ApproveNodeCsrs)
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApproveNodeCsrsParameters {
    /// Nodes that are about to join.
    pub expected_nodes: BTreeSet<String>,
    /// Users that may request the first certificate of a node.
    pub bootstrap_users: BTreeSet<String>,
    /// Groups whose members may request the first certificate of a node.
    pub bootstrap_groups: BTreeSet<String>,
}

impl ApproveNodeCsrsParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<ApproveNodeCsrsParameters, TaskProblem> {
        read_parameters(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_parameters_are_read() {
        let stored = json!({"expectedNodes": ["node-2"], "bootstrapUsers": [], "bootstrapGroups": ["system:bootstrappers"]});
        let read = ApproveNodeCsrsParameters::read(stored.as_object().unwrap()).unwrap();
        assert_eq!(read.expected_nodes, BTreeSet::from(["node-2".to_owned()]));
        assert_eq!(read.bootstrap_groups, BTreeSet::from(["system:bootstrappers".to_owned()]));
        assert_eq!(
            ApproveNodeCsrsParameters::read(&Map::new()).unwrap(),
            ApproveNodeCsrsParameters::default()
        );
    }
}
