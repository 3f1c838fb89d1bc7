//! Resources other than clusters.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::HiddenText;

/// A page of a list. The last page has no link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArmPage<T> {
    /// The items.
    pub value: Vec<T>,
    /// URL of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

/// An operation of the provider, for access control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Operation)]
pub struct OperationForm {
    /// Name, such as `Microsoft.RedHatOpenShift/openShiftClusters/read`.
    pub name: String,
    /// Texts for people.
    pub display: OperationDisplay,
    /// Origin: who may use it.
    pub origin: String,
}

/// Texts of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationDisplay {
    /// The provider.
    pub provider: String,
    /// The resource.
    pub resource: String,
    /// The operation.
    pub operation: String,
    /// The description.
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
    /// The properties.
    pub properties: OpenShiftVersionProperties,
}

/// Properties of a version.
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
    /// The properties.
    pub properties: RoleSetProperties,
}

/// Properties of a role set.
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
    /// Name of the role.
    pub role_definition_name: String,
    /// The role's resource id.
    pub role_definition_id: String,
}

/// Credentials of the cluster administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OpenShiftClusterCredentials)]
pub struct Credentials {
    /// `kubeadmin`.
    pub kubeadmin_username: String,
    /// The password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kubeadmin_password: Option<HiddenText>,
}

/// Kubeconfig of the customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OpenShiftClusterAdminKubeconfig)]
pub struct AdminKubeconfig {
    /// The kubeconfig in base64; absent until it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kubeconfig: Option<HiddenText>,
}

/// Status of an asynchronous operation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStatus {
    /// The path of this status.
    pub id: String,
    /// The operation's uuid.
    pub name: String,
    /// The cluster's provisioning state while it runs; `Succeeded` or `Failed` at the end.
    pub status: String,
    /// When it started.
    #[schema(format = DateTime)]
    pub start_time: String,
    /// When it finished.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub end_time: Option<String>,
    /// The error with which it failed.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub error: Option<crate::doc::OperationError>,
    /// Progress, while it runs.
    #[serde(default)]
    pub properties: Option<OperationStep>,
}

/// Progress of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStep {
    /// The current step.
    pub step: String,
    /// Completed share of the plan, from 0 to 100.
    pub percent: u8,
    /// What the step does or waits for.
    pub message: String,
}

/// Result of a preflight validation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightStatus {
    /// `Succeeded` or `Failed`.
    pub status: String,
    /// The error with which a deployment would fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::admin::ErrorBody>,
}
