//! Settings of the simulated cloud that a real cloud offers elsewhere or not at all: principals, quotas, restrictions, denials.
//! [`SimClient`](crate::SimClient) has a method for each.

use api::secret::Secret;
use cloud::ResourceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A change or query of settings, posted to `/sim/settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "set", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Setting {
    /// Create a principal; the response holds its secret, which is not revealed again.
    CreatePrincipal {
        /// The display name.
        name: String,
        /// Its permissions.
        rights: Rights,
    },
    /// Replace the secret of a principal; the previous one becomes invalid.
    ChangeSecret {
        /// The subject of the setting.
        client_id: String,
    },
    /// Set the claims in the tokens of a principal.
    Claims {
        /// The subject of the setting.
        client_id: String,
        /// The claims of its tokens.
        claims: Vec<String>,
        /// Its application roles in the directory.
        directory_roles: Vec<String>,
    },
    /// Remove a principal.
    DeletePrincipal {
        /// The subject of the setting.
        client_id: String,
    },
    /// Register a certificate with which a principal signs assertions.
    PrincipalCertificate {
        /// The subject of the setting.
        client_id: String,
        /// The certificate in PEM.
        certificate: String,
    },
    /// Set when the secret of a principal expires.
    SecretExpiry {
        /// The subject of the setting.
        client_id: String,
        /// The time; `None` for a secret that never expires.
        expires: Option<Timestamp>,
    },
    /// Accept assertions of another issuer for a principal.
    FederatedCredential {
        /// The subject of the setting.
        client_id: String,
        /// The issuer.
        issuer: String,
        /// The subject of the assertions.
        subject: String,
        /// The accepted audiences.
        audiences: Vec<String>,
    },
    /// Verify assertions of an issuer with these keys instead of those that it publishes in the emulated blob service. Assertions of an
    /// issuer elsewhere without keys are accepted unverified.
    IssuerKeys {
        /// The issuer.
        issuer: String,
        /// A JSON Web Key Set; `None` removes it.
        keys: Option<serde_json::Value>,
    },
    /// The lifetime of tokens that are issued from now on.
    TokenLifetime {
        /// The lifetime in seconds; `None` is an hour.
        seconds: Option<u32>,
    },
    /// Announce an event of a machine, change it, or withdraw it.
    ScheduledEvent(ScheduledEvent),
    /// Take a running spot machine back: announce its eviction, and evict it when the notice has passed.
    Interrupt {
        /// The machine.
        machine: ResourceId,
        /// The time between announcement and eviction; Azure gives at least half a minute.
        notice_seconds: u32,
    },
    /// Let the system of a running machine hang, or answer again.
    Impair {
        /// The machine.
        machine: ResourceId,
        /// The new state.
        impaired: bool,
    },
    /// The principals.
    Principals {},
    /// The installations.
    Installations {},
    /// A limit of a subscription in a location.
    Quota {
        /// The subscription.
        subscription: String,
        /// The location.
        location: String,
        /// The quota, such as `cores`, `virtualMachines`, `PremiumDiskCount`, `PublicIPAddresses` or a family.
        quota: String,
        /// The new limit.
        limit: u64,
    },
    /// Restrict a size for a subscription in a location, or lift the restriction.
    Restrict {
        /// The subscription.
        subscription: String,
        /// The location.
        location: String,
        /// The subject of the setting.
        size: String,
        /// The cloud's code; `None` lifts the restriction.
        reason: Option<String>,
    },
    /// Whether a subscription has registered a provider.
    Provider {
        /// The subscription.
        subscription: String,
        /// The subject of the setting.
        namespace: String,
        /// The new state.
        registered: bool,
    },
    /// Whether a subscription has registered a feature.
    Feature {
        /// The subscription.
        subscription: String,
        /// The subject of the setting.
        feature: String,
        /// The new state; `None` makes the feature unknown.
        registered: Option<bool>,
    },
    /// Lock a resource and its children against changes and deletion, or unlock it.
    Lock {
        /// The subject of the setting.
        id: ResourceId,
        /// The new state.
        locked: bool,
    },
    /// Deny a principal an action.
    Deny(Denial),
    /// Deny writes of a type of resource at a scope by a policy, or remove the policy.
    Policy(Policy),
    /// The number of items on a page of a list.
    PageSize {
        /// The number.
        items: usize,
    },
    /// Remove all denials at a scope.
    Allow {
        /// The scope.
        scope: ResourceId,
    },
}

/// An event that the instance metadata service announces to a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledEvent {
    /// The name of the machine.
    pub machine: String,
    /// The id of the event.
    pub id: String,
    /// `Freeze`, `Reboot`, `Redeploy`, `Preempt` or `Terminate`. With `Preempt` the machine is deallocated at `not_before`, or when it
    /// agrees.
    pub event_type: String,
    /// `Scheduled` or `Started`; `None` withdraws the event.
    pub status: Option<String>,
    /// The earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// A sentence for people.
    #[serde(default)]
    pub description: String,
    /// The expected interruption; -1 when it is unknown.
    #[serde(default)]
    pub duration_seconds: i64,
}

/// The permissions of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rights {
    /// Everything, everywhere.
    #[default]
    Everywhere,
    /// What its assigned roles allow.
    ByRoles,
}

/// The denial of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// A client id, an object id, the id of an identity, or `service` for this service itself.
    pub who: String,
    /// The action; `*` stands for any run of characters.
    pub action: String,
    /// The scope, with everything below it.
    pub scope: ResourceId,
    /// The end of the denial; `None` for an unlimited one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A policy that denies writes of a type of resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The name.
    pub name: String,
    /// The scope, with everything below it.
    pub scope: String,
    /// The type, such as `Microsoft.Network/publicIPAddresses`, or `*`; `None` removes the policy.
    pub deny: Option<String>,
}

/// A principal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalInfo {
    /// The display name.
    pub name: String,
    /// The client id.
    pub client_id: String,
    /// The object id.
    pub object_id: String,
    /// The permissions.
    pub rights: Rights,
}

/// A principal with a new secret.
#[derive(Debug, Clone)]
pub struct PrincipalWithSecret {
    /// The principal.
    pub principal: PrincipalInfo,
    /// The secret.
    pub secret: Secret<String>,
}

/// A principal with a new secret, as it is sent.
#[derive(Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `PrincipalWithSecret`")]
pub struct PrincipalSecretBody {
    pub principal: PrincipalInfo,
    pub secret: String,
}

impl From<PrincipalSecretBody> for PrincipalWithSecret {
    fn from(it: PrincipalSecretBody) -> PrincipalWithSecret {
        PrincipalWithSecret { principal: it.principal, secret: Secret::new(it.secret) }
    }
}

/// An installation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallationInfo {
    /// The cluster.
    pub cluster: Uuid,
    /// The cluster's name.
    pub name: String,
    /// The name of its simulated cluster.
    pub sim: String,
}
