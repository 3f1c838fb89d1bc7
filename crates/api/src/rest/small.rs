//! The small resources beside clusters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::HiddenText;

/// A page of a list. The link is left out of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArmPage<T> {
    /// The items.
    pub value: Vec<T>,
    /// Where the next page is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

/// What may be allowed or denied to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Operation)]
pub struct OperationForm {
    /// As `Microsoft.RedHatOpenShift/openShiftClusters/read`.
    pub name: String,
    /// In words.
    pub display: OperationDisplay,
    /// Who may use it.
    pub origin: String,
}

/// An operation in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationDisplay {
    /// Whose.
    pub provider: String,
    /// On what.
    pub resource: String,
    /// What.
    pub operation: String,
    /// What for.
    pub description: String,
}

/// A version that clusters can be installed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenShiftVersion {
    /// Its resource id.
    pub id: String,
    /// The version.
    pub name: String,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest.
    pub properties: OpenShiftVersionProperties,
}

/// What there is to say of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenShiftVersionProperties {
    /// The version.
    pub version: String,
}

/// The identities that the operators of a minor version need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlatformWorkloadIdentityRoleSet)]
pub struct RoleSetForm {
    /// Its resource id.
    pub id: String,
    /// The minor version.
    pub name: String,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest.
    pub properties: RoleSetProperties,
}

/// What there is to say of a role set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlatformWorkloadIdentityRoleSetProperties)]
pub struct RoleSetProperties {
    /// The minor version, as `4.17`.
    pub open_shift_version: String,
    /// The roles.
    pub platform_workload_identity_roles: Vec<RoleForm>,
}

/// The role that an operator needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlatformWorkloadIdentityRole)]
pub struct RoleForm {
    /// The operator.
    pub operator_name: String,
    /// The role, in words.
    pub role_definition_name: String,
    /// The role's resource id.
    pub role_definition_id: String,
}

/// The user that may do everything in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OpenShiftClusterCredentials)]
pub struct Credentials {
    /// `kubeadmin`.
    pub kubeadmin_username: String,
    /// Their password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kubeadmin_password: Option<HiddenText>,
}

/// The kubeconfig that a customer is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OpenShiftClusterAdminKubeconfig)]
pub struct AdminKubeconfig {
    /// In base64; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kubeconfig: Option<HiddenText>,
}

/// How an asynchronous operation stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStatus {
    /// The path of this status.
    pub id: String,
    /// The operation's uuid.
    pub name: String,
    /// What the cluster's state was set to while it runs; `Succeeded` or `Failed` at the end.
    pub status: String,
    /// When it began.
    #[schema(format = DateTime)]
    pub start_time: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub end_time: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<crate::doc::OperationError>,
    /// How far it is, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<OperationStep>,
}

/// How far an operation is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStep {
    /// The step that it is in.
    pub step: String,
    /// How much of the plan is done, from 0 to 100.
    pub percent: u8,
    /// What is being done or waited for.
    pub message: String,
}

/// What a deployment would meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightStatus {
    /// `Succeeded` or `Failed`.
    pub status: String,
    /// Why it would fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::admin::ErrorBody>,
}
