//! `replace-machine`: deletes a machine that a MachineSet owns, and waits for its replacement.

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, machine_namespace, read_named, read_parameters};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 3] = ["check", "delete", "wait-for-replacement"];
/// Longest time of one run.
pub const TIME_LIMIT: TimeSpan = TimeSpan::hours(3);

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("3a8f4e0b-57f5-4c0e-8d5d-6f0f4c5f9a71"),
        version: 1,
        name: "replace-machine",
        title: "Replace a machine by a new one of its MachineSet",
        description: "Deletes a Machine, whose node is drained first, and waits until the MachineSet that owns it has all of its \
            machines ready again. A machine without a MachineSet is not deleted, because nothing would replace it. A deletion \
            that has begun cannot be undone.",
        disruptive: true,
        time_limit: TIME_LIMIT,
        expected_duration: TimeSpan::minutes(15),
        parameters: json!({
            "type": "object",
            "required": ["machine"],
            "additionalProperties": false,
            "properties": {
                "machine": {"type": "string", "minLength": 1, "description": "The name of the Machine"},
                "namespace": machine_namespace(),
            },
        }),
    };
    from_code(task, CodedTask::ReplaceMachine)
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReplaceMachineParameters {
    /// The name of the Machine.
    pub machine: String,
    /// Its namespace.
    pub namespace: String,
}

impl ReplaceMachineParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<ReplaceMachineParameters, TaskProblem> {
        let read: ReplaceMachineParameters = read_parameters(parameters)?;
        read_named("machine", &read.machine)?;
        read_named("namespace", &read.namespace)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_the_path_are_rejected() {
        let read = |machine: &str| {
            let parameters = json!({"machine": machine, "namespace": "openshift-machine-api"});
            ReplaceMachineParameters::read(parameters.as_object().unwrap())
        };
        assert_eq!(read("worker-1").unwrap().machine, "worker-1");
        let error = read("../worker-1").unwrap_err().to_string();
        assert!(error.starts_with("parameters.machine: \"../worker-1\" is not the name"), "{error}");
    }
}
