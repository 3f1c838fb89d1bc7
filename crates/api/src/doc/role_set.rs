//! The identities that the platform's operators need in one minor version.

use serde::{Deserialize, Serialize};

use super::Document;

/// The roles of the platform's operators in one minor version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleSet {
    /// The minor version, as `4.17`.
    pub openshift_version: String,
    /// What each operator needs.
    pub roles: Vec<OperatorRole>,
}

/// What one operator needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorRole {
    /// The operator, as `cloud-controller-manager`.
    pub operator_name: String,
    /// Its role, in words.
    pub role_definition_name: String,
    /// Its role's resource id.
    pub role_definition_id: String,
    /// Its service accounts, as `system:serviceaccount:NAMESPACE:NAME`.
    pub service_accounts: Vec<String>,
    /// The namespace of the secret that it reads its identity from.
    pub secret_namespace: String,
    /// The name of that secret.
    pub secret_name: String,
}

impl Document for RoleSet {
    const KIND: &'static str = "role-set";

    fn path(&self) -> String {
        format!("/platformworkloadidentityrolesets/{}", self.openshift_version)
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}
