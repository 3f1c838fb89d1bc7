//! Machine: a host that runs, or shall run, a Node.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{NodeAddress, ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::resource::{custom_resource, open_enum};
use super::super::schema;
use super::condition::Condition;
use super::object_meta::TemplateMeta;

custom_resource! {
    /// A Machine is a host that runs a Node, or shall run one.
    Machine, MachineSpec, MachineStatus, "machine.openshift.io", "v1beta1", "machines"
}

/// Desired state of a Machine.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// Metadata whose labels and annotations are copied to the Node.
    pub metadata: Option<TemplateMeta>,
    /// Hooks that hold the deletion of the Machine at certain points.
    pub lifecycle_hooks: Option<LifecycleHooks>,
    /// Taints that are added to the Node. Taints of the Node with the same key and effect stay as they are; none is removed.
    #[schemars(schema_with = "schema::taints")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Configuration of the instance.
    pub provider_spec: Option<ProviderSpec>,
    /// Identity of the instance at the provider, as the Node has it in spec.providerID. Set by the machine controller.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// The API whose object is authoritative: MachineAPI or ClusterAPI. The status says when a change has been accepted.
    #[serde(rename = "authoritativeAPI")]
    #[schemars(extend("x-default" = "MachineAPI"))]
    pub authoritative_api: Option<StableApi>,
}

/// Configuration of the instance of a Machine.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProviderSpec {
    /// The provider's own configuration.
    #[schemars(schema_with = "schema::provider_value")]
    pub value: Option<Value>,
}

/// Points at which the deletion of a Machine can be held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LifecycleHooks {
    /// While there is one, the Node is not drained and the instance is not deleted.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pre_drain: Vec<LifecycleHook>,
    /// While there is one, the instance is not deleted. The Node is drained before.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pre_terminate: Vec<LifecycleHook>,
}

/// A hook that holds the deletion of a Machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifecycleHook {
    /// Unique name of the hook, in CamelCase; it may have a DNS name as prefix, such as example.com/CamelCase.
    #[schemars(length(min = 3, max = 256), extend("pattern" = HOOK_NAME_PATTERN))]
    pub name: String,
    /// Who set the hook and removes it, such as a controller or a person.
    #[schemars(length(min = 3, max = 512))]
    pub owner: String,
}

const HOOK_NAME_PATTERN: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
);

/// Observed state of a Machine.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = authority_rules()))]
pub struct MachineStatus {
    /// The Node that runs on the instance.
    #[schemars(schema_with = "schema::object_reference")]
    pub node_ref: Option<ObjectReference>,
    /// When the status last changed.
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// Reason for a failure that needs someone to act.
    pub error_reason: Option<String>,
    /// Explanation of a failure that needs someone to act.
    pub error_message: Option<String>,
    /// The provider's own status.
    #[schemars(schema_with = "schema::provider_value")]
    pub provider_status: Option<Value>,
    /// Addresses of the instance.
    #[schemars(schema_with = "schema::node_addresses")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// The last operation on the instance.
    pub last_operation: Option<LastOperation>,
    /// Provisioning, Provisioned, Running, Deleting or Failed.
    #[schemars(with = "Option<String>")]
    pub phase: Option<MachinePhase>,
    /// Observations of the Machine.
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

/// The last operation on an instance.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastOperation {
    /// Description for people.
    pub description: Option<String>,
    /// When the operation was last updated.
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// State of the operation, such as Processing, Failed or Successful.
    pub state: Option<String>,
    /// Type of the operation, such as Create, Update or Delete.
    #[serde(rename = "type")]
    pub type_: Option<String>,
}

open_enum! {
    /// Phase of a Machine.
    MachinePhase {
        /// Its instance is being created.
        Provisioning = "Provisioning",
        /// Its instance exists and has no Node yet.
        Provisioned = "Provisioned",
        /// Its instance runs a Node.
        Running = "Running",
        /// It is being deleted.
        Deleting = "Deleting",
        /// It cannot work and is not reconciled until it is deleted.
        Failed = "Failed",
    }
}

open_enum! {
    /// An API that can be authoritative for an object at rest.
    StableApi {
        /// The machine API.
        MachineApi = "MachineAPI",
        /// Cluster API.
        ClusterApi = "ClusterAPI",
    }
}

open_enum! {
    /// Which API is authoritative for an object.
    AuthoritativeApi {
        /// The machine API.
        MachineApi = "MachineAPI",
        /// Cluster API.
        ClusterApi = "ClusterAPI",
        /// Authority is passing from one to the other.
        Migrating = "Migrating",
    }
}

impl From<StableApi> for AuthoritativeApi {
    fn from(api: StableApi) -> AuthoritativeApi {
        match api {
            StableApi::MachineApi => AuthoritativeApi::MachineApi,
            StableApi::ClusterApi => AuthoritativeApi::ClusterApi,
            StableApi::Unrecognized(text) => AuthoritativeApi::Unrecognized(text),
        }
    }
}

impl JsonSchema for StableApi {
    fn schema_name() -> Cow<'static, str> {
        "StableApi".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::one_of(StableApi::KNOWN)
    }
}

impl JsonSchema for AuthoritativeApi {
    fn schema_name() -> Cow<'static, str> {
        "AuthoritativeApi".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::one_of(AuthoritativeApi::KNOWN)
    }
}

/// Authority passes between the two APIs only through Migrating.
pub(super) fn authority_transition() -> Value {
    serde_json::json!([{
        "rule": "self == 'Migrating' || self == oldSelf || oldSelf == 'Migrating'",
        "message": "authoritativeAPI must pass through Migrating when it changes between MachineAPI and ClusterAPI",
    }])
}

/// Once set, the authority stays set; the synchronized generation falls only when a migration ends.
pub(super) fn authority_rules() -> Value {
    serde_json::json!([
        {
            "rule": "!has(oldSelf.authoritativeAPI) || has(self.authoritativeAPI)",
            "message": "authoritativeAPI may not be removed once it is set",
        },
        {
            "rule": "!has(oldSelf.synchronizedGeneration) \
                || (has(self.synchronizedGeneration) && self.synchronizedGeneration >= oldSelf.synchronizedGeneration) \
                || (has(oldSelf.authoritativeAPI) && oldSelf.authoritativeAPI == 'Migrating' \
                && has(self.authoritativeAPI) && self.authoritativeAPI != 'Migrating')",
            "message": "synchronizedGeneration must not decrease unless authoritativeAPI changes from Migrating to another value",
        },
    ])
}
