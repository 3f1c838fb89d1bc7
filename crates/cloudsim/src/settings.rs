//! Settings of the simulated cloud that a real cloud offers elsewhere or not at all: principals, quotas, restrictions, denials.
//! [`SimClient`](crate::SimClient) has a method for each.

use api::secret::Secret;
use cloud::ResourceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Something to arrange, posted to `/sim/settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "set", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Setting {
    /// Make a principal; answered with its secret, which is not told again.
    CreatePrincipal {
        /// What people call it.
        name: String,
        /// What it may do.
        rights: Rights,
    },
    /// Give a principal another secret; the one before is not good any longer.
    ChangeSecret {
        /// Which.
        client_id: String,
    },
    /// What the tokens of a principal tell.
    Claims {
        /// Which.
        client_id: String,
        /// The claims of its tokens.
        claims: Vec<String>,
        /// Its application roles in the directory.
        directory_roles: Vec<String>,
    },
    /// Remove a principal.
    DeletePrincipal {
        /// Which.
        client_id: String,
    },
    /// The principals.
    Principals {},
    /// The groups of a subscription.
    Groups {
        /// Which.
        subscription: String,
    },
    /// The ids of the clusters that are or were being installed.
    Installations {},
    /// The certificates of the vault, without their keys.
    Certificates {},
    /// The tokens of the registry, without their passwords.
    Tokens {},
    /// A limit of a subscription in a location.
    Quota {
        /// Whose.
        subscription: String,
        /// Where.
        location: String,
        /// As `cores`, `virtualMachines`, `PremiumDiskCount`, `PublicIPAddresses` or a family.
        quota: String,
        /// The limit from now on.
        limit: u64,
    },
    /// Whether a subscription may have a size in a location.
    Restrict {
        /// Whose.
        subscription: String,
        /// Where.
        location: String,
        /// Which.
        size: String,
        /// The cloud's word for why not; none when it may.
        reason: Option<String>,
    },
    /// Whether a subscription has registered a provider.
    Provider {
        /// Whose.
        subscription: String,
        /// Which.
        namespace: String,
        /// Whether.
        registered: bool,
    },
    /// Whether a subscription has registered a feature.
    Feature {
        /// Whose.
        subscription: String,
        /// Which.
        feature: String,
        /// Whether; none when it is to have never heard of it.
        registered: Option<bool>,
    },
    /// Lock a resource, and what is in it, against changes and removal, or unlock it.
    Lock {
        /// Which.
        id: ResourceId,
        /// Whether.
        locked: bool,
    },
    /// Forbid somebody an action; answered with the number of the denial.
    Deny(Denial),
    /// Take back all denials over a scope.
    Allow {
        /// The scope.
        scope: ResourceId,
    },
}

/// What a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rights {
    /// Everything, everywhere.
    #[default]
    Everywhere,
    /// What the roles allow that it was given.
    ByRoles,
}

/// That somebody may not do something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// A client id, an object id, the id of an identity, or `service` for this service itself.
    pub who: String,
    /// The action; `*` stands for any run of characters.
    pub action: String,
    /// Over what, with all that is in it.
    pub scope: ResourceId,
    /// Until when; for ever when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A principal, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownPrincipal {
    /// What people call it.
    pub name: String,
    /// Its client id.
    pub client_id: String,
    /// Its object id.
    pub object_id: String,
    /// What it may do.
    pub rights: Rights,
}

/// A principal that was just made or given another secret.
#[derive(Debug, Clone)]
pub struct NewPrincipal {
    /// What is known of it.
    pub principal: KnownPrincipal,
    /// Its secret.
    pub secret: Secret<String>,
}

/// A principal with its secret, on its way.
#[derive(Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `NewPrincipal`")]
pub struct WireNewPrincipal {
    pub principal: KnownPrincipal,
    pub secret: String,
}

impl From<WireNewPrincipal> for NewPrincipal {
    fn from(it: WireNewPrincipal) -> NewPrincipal {
        NewPrincipal { principal: it.principal, secret: Secret::new(it.secret) }
    }
}

/// An installation, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownInstallation {
    /// The cluster.
    pub cluster: Uuid,
    /// Its name.
    pub name: String,
    /// The name of its simulated cluster.
    pub sim: String,
}
