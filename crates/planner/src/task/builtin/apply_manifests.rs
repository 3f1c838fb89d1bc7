//! `apply-manifests`: applies objects, and prunes those of an earlier list.

use api::duration::TimeSpan;
use serde_json::json;
use uuid::uuid;

use super::{BuiltinTask, from_forms, step};
use crate::task::Definition;

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("5386a6d2-a5cd-4a76-adc6-fa479d43589d"),
        version: 1,
        name: "apply-manifests",
        title: "Apply manifests, with pruning",
        description: "Applies objects server-side, after all of them have passed a dry run. With prune, objects \
            with these labels that Shipshape applied and that are not in the list are deleted.",
        disruptive: true,
        time_limit: TimeSpan::minutes(30),
        expected_duration: TimeSpan::seconds(10),
        parameters: json!({
            "type": "object",
            "required": ["manifests"],
            "additionalProperties": false,
            "properties": {
                "manifests": {"type": ["array", "string"], "items": {"type": "object"},
                    "description": "The objects, as a list or as text in YAML"},
                "prune": {"type": "string", "description": "A label selector"},
                "force": {"type": "boolean", "default": false, "description": "Take over fields of other managers"},
            },
        }),
    };
    let with = json!({
        "manifests": "${{ parameters.manifests }}",
        "prune": "${{ parameters.prune }}",
        "force": "${{ parameters.force }}",
    });
    from_forms(task, vec![step("apply", "kubernetes/apply", with, Some(TimeSpan::minutes(20)))])
}
