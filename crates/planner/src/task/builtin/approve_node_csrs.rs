//! `approve-node-csrs`: approves the pending certificate signing requests of nodes, and leaves all others.

use api::duration::TimeSpan;
use serde_json::json;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code};
use crate::task::Definition;

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
