//! `scale-machineset`: sets the number of machines of a MachineSet, and waits for them.

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, machine_namespace, read_named, read_parameters};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 3] = ["check", "scale", "wait-for-machines"];
/// Longest time of one run.
pub const TIME_LIMIT: TimeSpan = TimeSpan::hours(3);
/// Largest number of machines.
const REPLICAS_MAX: u32 = 2000;

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("c1b3a4c4-2f0f-4d55-9c55-1b7d0c7a6e42"),
        version: 1,
        name: "scale-machineset",
        title: "Set the number of machines of a MachineSet",
        description: "Sets the replicas of a MachineSet and waits until as many machines are ready and the others are gone. A \
            number outside the limits of the cluster autoscaler is refused. On cancellation the earlier number is restored, \
            unless somebody has changed it meanwhile.",
        disruptive: true,
        time_limit: TIME_LIMIT,
        expected_duration: TimeSpan::minutes(10),
        parameters: json!({
            "type": "object",
            "required": ["machineSet", "replicas"],
            "additionalProperties": false,
            "properties": {
                "machineSet": {"type": "string", "minLength": 1, "description": "The name of the MachineSet"},
                "replicas": {"type": "integer", "minimum": 0, "maximum": REPLICAS_MAX, "description": "The number of machines"},
                "namespace": machine_namespace(),
            },
        }),
    };
    from_code(task, CodedTask::ScaleMachineset)
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleMachinesetParameters {
    /// The name of the MachineSet.
    pub machine_set: String,
    /// The number of machines.
    pub replicas: i32,
    /// Its namespace.
    pub namespace: String,
}

impl ScaleMachinesetParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<ScaleMachinesetParameters, TaskProblem> {
        let read: ScaleMachinesetParameters = read_parameters(parameters)?;
        read_named("machineSet", &read.machine_set)?;
        read_named("namespace", &read.namespace)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_names_are_checked() {
        let read = |set: &str| {
            let parameters = json!({"machineSet": set, "replicas": 3, "namespace": "openshift-machine-api"});
            ScaleMachinesetParameters::read(parameters.as_object().unwrap())
        };
        assert_eq!(read("workers").unwrap().replicas, 3);
        let error = read("a/b").unwrap_err().to_string();
        assert!(error.starts_with("parameters.machineSet: \"a/b\" is not the name"), "{error}");
    }
}
