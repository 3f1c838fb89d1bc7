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
        title: "Run a Job and keep its log",
        description: "Runs one container, or a Job as it is written, once, waits for its end and keeps the last 64 KiB of \
            its log in the manifest's history. A Job that fails makes the manifest fail.",
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
                "manifest": {"type": ["object", "string"], "description": "A Job of batch/v1 instead; its name is ours"},
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
