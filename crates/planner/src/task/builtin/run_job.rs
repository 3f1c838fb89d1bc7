//! `run-job`: runs a Job of any image to its end and stores its log in the history.

use api::duration::TimeSpan;
use serde_json::json;
use uuid::uuid;

use super::{BuiltinTask, from_forms, step};
use crate::task::Definition;

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("79b092f2-4972-49cd-9d98-3b73e52f70b8"),
        version: 1,
        name: "run-job",
        title: "Run a Job and store its log",
        description: "Runs one container, or a complete Job, once, waits for its end and stores the last 64 KiB of its log \
            in the history of the manifest. If the Job fails, the manifest fails.",
        disruptive: false,
        time_limit: TimeSpan::hours(3),
        expected_duration: TimeSpan::minutes(5),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "namespace": {"type": "string", "minLength": 1},
                "image": {"type": "string", "minLength": 1},
                "command": {"type": "array", "items": {"type": "string"}},
                "args": {"type": "array", "items": {"type": "string"}},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "serviceAccount": {"type": "string", "minLength": 1},
                "manifest": {"type": ["object", "string"], "description": "A complete Job of batch/v1 instead; its name is replaced"},
            },
        }),
    };
    let with = json!({
        "namespace": "${{ parameters.namespace }}",
        "image": "${{ parameters.image }}",
        "command": "${{ parameters.command }}",
        "args": "${{ parameters.args }}",
        "env": "${{ parameters.env }}",
        "serviceAccount": "${{ parameters.serviceAccount }}",
        "manifest": "${{ parameters.manifest }}",
    });
    from_forms(task, vec![step("run", "kubernetes/job", with, Some(TimeSpan::hours(2)))])
}
