//! MachineSet: a number of equal Machines.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::super::resource::{custom_resource, open_enum};
use super::super::schema;
use super::condition::Condition;
use super::machine_type::{AuthoritativeApi, MachineSpec, StableApi, authority_rules, authority_transition};
use super::object_meta::TemplateMeta;

custom_resource! {
    /// A MachineSet keeps a number of Machines that are made from one template.
    MachineSet, MachineSetSpec, MachineSetStatus, "machine.openshift.io", "v1beta1", "machinesets"
}

/// Desired state of a MachineSet.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetSpec {
    /// Number of Machines.
    #[schemars(range(min = 0), extend("x-default" = 1))]
    pub replicas: Option<i32>,
    /// Seconds for which the Node of a new Machine must have been ready until the Machine counts as available.
    pub min_ready_seconds: Option<i32>,
    /// Which Machines are deleted first when the number falls: Random (also if empty), Newest or Oldest.
    pub delete_policy: Option<DeletePolicy>,
    /// Selects the Machines that belong to the MachineSet. It must match the labels of the template.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// Template of new Machines. Existing ones do not change with it.
    pub template: MachineTemplate,
    /// The API whose object is authoritative: MachineAPI or ClusterAPI. The status says when a change has been accepted.
    #[serde(rename = "authoritativeAPI")]
    #[schemars(extend("x-default" = "MachineAPI"))]
    pub authoritative_api: Option<StableApi>,
}

/// Template of a Machine.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// Labels and annotations of new Machines.
    pub metadata: Option<TemplateMeta>,
    /// Desired state of new Machines.
    pub spec: Option<MachineSpec>,
}

/// Observed state of a MachineSet.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = authority_rules()))]
pub struct MachineSetStatus {
    /// Number of Machines.
    pub replicas: Option<i32>,
    /// Number of Machines that have all labels of the template.
    pub fully_labeled_replicas: Option<i32>,
    /// Number of Machines whose Node is ready.
    pub ready_replicas: Option<i32>,
    /// Number of Machines whose Node has been ready for minReadySeconds.
    pub available_replicas: Option<i32>,
    /// Generation of the desired state that the status is about.
    pub observed_generation: Option<i64>,
    /// The selector as text, for autoscalers that read the scale subresource.
    #[schemars(length(min = 1, max = 4096))]
    pub label_selector: Option<String>,
    /// Reason for a failure that needs someone to act.
    pub error_reason: Option<String>,
    /// Explanation of a failure that needs someone to act.
    pub error_message: Option<String>,
    /// Observations of the MachineSet.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The API whose object is authoritative: MachineAPI, ClusterAPI, or Migrating between the two.
    #[serde(rename = "authoritativeAPI")]
    #[schemars(extend("x-kubernetes-validations" = authority_transition()))]
    pub authoritative_api: Option<AuthoritativeApi>,
    /// The API from which this object was last synchronized.
    #[serde(rename = "synchronizedAPI")]
    pub synchronized_api: Option<StableApi>,
    /// Generation of the authoritative object with which this object is synchronized.
    #[schemars(range(min = 0))]
    pub synchronized_generation: Option<i64>,
}

open_enum! {
    /// Which Machines a MachineSet deletes first.
    DeletePolicy {
        /// Those without a Node, then any.
        Random = "Random",
        /// The newest.
        Newest = "Newest",
        /// The oldest.
        Oldest = "Oldest",
    }
}

impl JsonSchema for DeletePolicy {
    fn schema_name() -> Cow<'static, str> {
        "DeletePolicy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::one_of(DeletePolicy::KNOWN)
    }
}
