//! `restart-workload`: restarts a Deployment, DaemonSet or StatefulSet and waits for the rollout.

use api::duration::TimeSpan;
use serde_json::json;
use uuid::uuid;

use super::{BuiltinTask, from_forms, step};
use crate::task::Definition;

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("bf9337f7-1662-47dc-bb2f-a4adcd62ca6d"),
        version: 1,
        name: "restart-workload",
        title: "Restart a workload and wait",
        description: "Restarts the pods of a Deployment, DaemonSet or StatefulSet once, by the workload's own strategy, \
            and waits until the new ones are available.",
        disruptive: true,
        time_limit: TimeSpan::hours(1),
        expected_duration: TimeSpan::minutes(2),
        parameters: json!({
            "type": "object",
            "required": ["kind", "namespace", "name"],
            "additionalProperties": false,
            "properties": {
                "kind": {"enum": ["Deployment", "DaemonSet", "StatefulSet"]},
                "namespace": {"type": "string", "minLength": 1},
                "name": {"type": "string", "minLength": 1},
            },
        }),
    };
    let with = json!({
        "kind": "${{ parameters.kind }}",
        "namespace": "${{ parameters.namespace }}",
        "name": "${{ parameters.name }}",
    });
    from_forms(task, vec![step("restart", "kubernetes/restart", with, Some(TimeSpan::minutes(50)))])
}
