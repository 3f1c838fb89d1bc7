//! What can be arranged in the simulated cloud besides what is asked of any cloud: principals and what subscriptions may have,
//! and what is to go wrong. [`Simulated`](crate::Simulated) has a method for each.

use std::fmt;

use api::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ResourceId;

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

/// What is to go wrong, and when: posted to `/sim/faults`. A rule lasts until it is spent, cleared, or the service ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// What goes wrong.
    pub trouble: Trouble,
    /// Only calls of this verb, as [`Call::verb`](crate::wire::Call::verb) spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Only calls about something whose id or name contains this, whatever the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Only so many calls; all when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Only this share of the calls, from 0 to 1, by the service's seed; all when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl FaultRule {
    /// Each call meets it.
    pub fn of(trouble: Trouble) -> FaultRule {
        FaultRule { trouble, verb: None, about: None, times: None, share: None }
    }

    /// Only calls of this verb.
    #[must_use]
    pub fn on(mut self, verb: &str) -> FaultRule {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Only calls about something whose id or name contains this.
    #[must_use]
    pub fn about(mut self, text: &str) -> FaultRule {
        self.about = Some(text.to_owned());
        self
    }

    /// Only so many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> FaultRule {
        self.times = Some(times);
        self
    }

    /// Only this share of the calls.
    #[must_use]
    pub fn share(mut self, share: f64) -> FaultRule {
        self.share = Some(share);
        self
    }
}

/// Whether something goes wrong before what was asked is done, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
    /// Nothing was done.
    Before,
    /// It was done, and the caller does not know.
    After,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Trouble {
    /// The call is refused with 429.
    Throttled {
        /// What `Retry-After` says.
        after_seconds: u64,
    },
    /// The call fails with 500.
    Unavailable {
        /// Before or after its effect.
        when: Moment,
    },
    /// The connection is reset.
    Reset {
        /// Before or after its effect.
        when: Moment,
    },
    /// The call is not answered for so long; its effect comes first or last.
    Hangs {
        /// So many milliseconds.
        millis: u64,
        /// Before or after its effect.
        when: Moment,
    },
    /// A put is refused for want of quota.
    Quota {
        /// The quota's name.
        quota: String,
    },
    /// Whoever asks may not.
    Denied {},
    /// A put is accepted and comes to a bad end, as when a template deploys in part.
    FailsLater {
        /// The cloud's code.
        code: String,
        /// In a sentence.
        message: String,
    },
    /// What a put makes is not seen by get and list for a while.
    Unseen {
        /// So many milliseconds.
        millis: u64,
    },
    /// A role takes effect late.
    SpreadsLate {
        /// So many milliseconds.
        millis: u64,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when: &Moment| match when {
            Moment::Before => "before its effect",
            Moment::After => "after its effect",
        };
        match self {
            Trouble::Throttled { after_seconds } => write!(f, "throttled for {after_seconds} s"),
            Trouble::Unavailable { when: at } => write!(f, "unavailable {}", when(at)),
            Trouble::Reset { when: at } => write!(f, "reset {}", when(at)),
            Trouble::Hangs { millis, when: at } => write!(f, "hangs for {millis} ms {}", when(at)),
            Trouble::Quota { quota } => write!(f, "the quota {quota} is exceeded"),
            Trouble::Denied {} => f.write_str("denied"),
            Trouble::FailsLater { code, .. } => write!(f, "ends with {code}"),
            Trouble::Unseen { millis } => write!(f, "is not seen for {millis} ms"),
            Trouble::SpreadsLate { millis } => write!(f, "spreads {millis} ms late"),
        }
    }
}
