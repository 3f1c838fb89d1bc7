//! MachineHealthCheck: which Machines are unhealthy, and how many may be remediated.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::super::resource::custom_resource;
use super::super::schema;
use super::condition::Condition;

custom_resource! {
    /// A MachineHealthCheck remediates Machines that are not healthy, as long as not too many are.
    MachineHealthCheck, MachineHealthCheckSpec, MachineHealthCheckStatus,
    "machine.openshift.io", "v1beta1", "machinehealthchecks"
}

/// Which Machines are checked, when they are unhealthy, and how they are remediated.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineHealthCheckSpec {
    /// Selects the Machines. An empty selector selects every Machine of the namespace.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// Conditions of a Node that make its Machine unhealthy; any one of them suffices.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_conditions: Vec<UnhealthyCondition>,
    /// Largest number of unhealthy Machines, or share of all of them in percent, with which Machines are remediated.
    #[schemars(schema_with = "max_unhealthy")]
    pub max_unhealthy: Option<IntOrString>,
    /// How long a Machine may be without a Node, such as 10m. 0 means without limit.
    #[schemars(extend("x-default" = "10m", "pattern" = NODE_STARTUP_TIMEOUT_PATTERN))]
    pub node_startup_timeout: Option<String>,
    /// Template of an object that asks another controller to remediate a Machine, in place of its deletion.
    #[schemars(schema_with = "schema::object_reference")]
    pub remediation_template: Option<ObjectReference>,
}

/// As upstream has it: the alternatives are not grouped, so that any text passes that begins with 0 or ends with a duration.
const NODE_STARTUP_TIMEOUT_PATTERN: &str = r"^0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";

/// A condition of a Node that makes its Machine unhealthy.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnhealthyCondition {
    /// Type of the condition.
    #[schemars(length(min = 1))]
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition: True, False or Unknown.
    #[schemars(length(min = 1))]
    pub status: String,
    /// How long the condition must have had this status, such as 300s.
    #[schemars(extend("pattern" = schema::DURATION_PATTERN))]
    pub timeout: Option<String>,
}

/// Observed state of a MachineHealthCheck.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineHealthCheckStatus {
    /// Number of Machines that are checked.
    #[schemars(schema_with = "count")]
    pub expected_machines: Option<i64>,
    /// Number of Machines that are healthy.
    #[schemars(schema_with = "count")]
    pub current_healthy: Option<i64>,
    /// How many more Machines may become unhealthy until none is remediated.
    #[schemars(range(min = 0))]
    pub remediations_allowed: Option<i32>,
    /// Observations of the MachineHealthCheck.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 0})
}

fn max_unhealthy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-default": "100%",
        "pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$",
        "x-kubernetes-int-or-string": true,
    })
}
