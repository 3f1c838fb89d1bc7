//! The identities role: principals, their permissions and roles, and certificates of managed identities.

use api::secret::Secret;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::infrastructure::not_offered;
use crate::{CloudError, IssuedCertificate, ResourceId};

/// Principals, permissions, role assignments and certificates of managed identities.
#[async_trait]
pub trait Identities: std::fmt::Debug + Send + Sync + 'static {
    /// Obtains a token with the credential and returns its principal. An invalid credential is [`CloudError::Credential`].
    async fn principal(&self, credential: &Credential) -> Result<Principal, CloudError>;
    /// Checks which of the actions the credential's principal may perform on a resource.
    async fn permissions(
        &self,
        credential: &Credential,
        id: &ResourceId,
        actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError>;
    /// Checks which of the actions this service may perform everywhere in a subscription, and thus in groups that do not exist yet.
    async fn subscription_permissions(
        &self,
        subscription: &str,
        _actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError> {
        Err(not_offered("the permissions in a subscription", subscription))
    }
    /// Assigns a role; repeating the same assignment changes nothing.
    async fn assign_role(&self, assignment: &RoleAssignment) -> Result<(), CloudError>;
    /// The role assignments at a scope and below it.
    async fn role_assignments(&self, scope: &ResourceId) -> Result<Vec<RoleAssignment>, CloudError>;
    /// Removes a role assignment. Removing a missing one succeeds.
    async fn revoke_role(&self, scope: &ResourceId, name: &str) -> Result<(), CloudError>;
    /// A certificate of a managed identity, issued by the cloud's identity service: valid for about 90 days, renewable from day 45.
    async fn identity_certificate(&self, identity: &ResourceId) -> Result<IssuedCertificate, CloudError>;
    /// Creates or updates a role definition.
    async fn put_role_definition(&self, definition: &RoleDefinition) -> Result<(), CloudError> {
        Err(not_offered("role definitions", &definition.name))
    }
    /// The role definitions that can be assigned at a scope.
    async fn role_definitions(&self, scope: &ResourceId) -> Result<Vec<RoleDefinition>, CloudError> {
        Err(not_offered("role definitions", scope.as_str()))
    }
    /// Removes a role definition. Removing a missing one succeeds.
    async fn delete_role_definition(&self, scope: &ResourceId, id: &str) -> Result<(), CloudError> {
        Err(not_offered("role definitions", &format!("{id} at {scope}")))
    }
}

/// The identity that a call is made with.
#[derive(Debug, Clone)]
pub enum Credential {
    /// This service itself.
    Service,
    /// A service principal with a secret.
    Client {
        /// The client id.
        client_id: String,
        /// The secret.
        secret: Secret<String>,
    },
    /// A managed identity.
    Identity(ResourceId),
}

/// A principal, by the claims of its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    /// The client id.
    pub client_id: String,
    /// The object id.
    pub object_id: String,
    /// The tenant id.
    pub tenant_id: String,
    /// The claims of its token.
    pub claims: Vec<String>,
    /// The application roles that it holds in its directory.
    #[serde(default)]
    pub directory_roles: Vec<String>,
}

/// The result of a permission check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// The action, such as `Microsoft.Network/virtualNetworks/join/action`.
    pub action: String,
    /// Whether it is allowed.
    pub allowed: bool,
}

/// The assignment of a role to a principal at a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignment {
    /// The assignment's name; the same for every repetition.
    pub name: String,
    /// The object id of the principal.
    pub principal: String,
    /// The role, such as `Contributor`.
    pub role: String,
    /// The scope: a resource or a group.
    pub scope: ResourceId,
}

/// A role: a named set of actions that can be assigned at a scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleDefinition {
    /// The last segment of its id, a UUID.
    pub id: String,
    /// The name, such as `Contributor`.
    pub name: String,
    /// The allowed actions; `*` matches any run of characters.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Actions that are taken out of the allowed ones.
    #[serde(default)]
    pub not_actions: Vec<String>,
    /// The allowed actions on data, such as the content of blobs.
    #[serde(default)]
    pub data_actions: Vec<String>,
    /// Actions that are taken out of the allowed ones on data.
    #[serde(default)]
    pub not_data_actions: Vec<String>,
    /// The scopes at which the role can be assigned.
    #[serde(default)]
    pub assignable_scopes: Vec<String>,
    /// Whether the cloud defines it, so that it cannot be changed.
    #[serde(default)]
    pub built_in: bool,
}
