//! `cluster-health`: checks the health of a cluster; changes nothing.

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, read_parameters};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 6] =
    ["api-answers", "nodes-ready", "critical-pods", "cluster-operators", "certificates", "verdict"];

/// Days for which certificates must stay valid, unless the parameter `certificateDays` says otherwise.
const CERTIFICATE_DAYS: i64 = 14;

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("e44ed769-5f4d-4bbc-a5ef-250f426550ee"),
        version: 1,
        name: "cluster-health",
        title: "Check cluster health",
        description: "Checks the API server, the nodes, the pods of the system's priority classes, the ClusterOperators \
            where the cluster has them, and the certificates of the API server and of the connection to it. Fails with a \
            list of all problems; changes nothing.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(5),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "certificateDays": {"type": "integer", "minimum": 0, "maximum": 3650, "default": CERTIFICATE_DAYS,
                    "description": "Days for which certificates must stay valid"},
            },
        }),
    };
    from_code(task, CodedTask::ClusterHealth)
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterHealthParameters {
    /// Days for which certificates must stay valid.
    pub certificate_days: i64,
}

impl Default for ClusterHealthParameters {
    fn default() -> ClusterHealthParameters {
        ClusterHealthParameters { certificate_days: CERTIFICATE_DAYS }
    }
}

impl ClusterHealthParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<ClusterHealthParameters, TaskProblem> {
        read_parameters(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_parameters_are_read() {
        let days = |stored: Value| {
            ClusterHealthParameters::read(stored.as_object().unwrap()).unwrap().certificate_days
        };
        assert_eq!(days(json!({"certificateDays": 30})), 30);
        assert_eq!(days(json!({})), CERTIFICATE_DAYS);
    }
}
