//! Who acts in a cloud, and what they may do.

use api::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::ResourceId;

/// As whom something is asked.
#[derive(Debug, Clone)]
pub enum Credential {
    /// As this service itself.
    Service,
    /// As a principal with a secret.
    Client {
        /// Its client id.
        client_id: String,
        /// Its secret.
        secret: Secret<String>,
    },
    /// As a managed identity.
    Identity(ResourceId),
}

/// A principal, as its token tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    /// Its client id.
    pub client_id: String,
    /// Its object id.
    pub object_id: String,
    /// Its tenant.
    pub tenant_id: String,
    /// The claims of its token.
    pub claims: Vec<String>,
    /// The application roles that it holds in its directory.
    #[serde(default)]
    pub directory_roles: Vec<String>,
}

/// One question about rights, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// The action, as `Microsoft.Network/virtualNetworks/join/action`.
    pub action: String,
    /// Whether it is allowed.
    pub allowed: bool,
}

/// That a principal has a role over a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignment {
    /// The assignment's own name; the same for every repetition.
    pub name: String,
    /// The object id of the principal.
    pub principal: String,
    /// The role, as `Contributor`.
    pub role: String,
    /// Over what: a resource or a group.
    pub scope: ResourceId,
}
