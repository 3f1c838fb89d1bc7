//! What goes wrong with a cloud, and what may be done about it.

use std::error::Error;
use std::time::Duration;

use api::error::{Class, Classify};

/// Why a cloud did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// There is no such thing.
    #[error("{what} was not found")]
    NotFound {
        /// What.
        what: String,
    },
    /// It is as somebody else wants it: another put of the same token with another shape, a group managed by another cluster.
    #[error("{what}: {why}")]
    Conflict {
        /// What.
        what: String,
        /// In a sentence.
        why: String,
    },
    /// The request itself is wrong; the cloud's own words.
    #[error("{why}")]
    Invalid {
        /// The cloud's code.
        code: String,
        /// In a sentence.
        why: String,
    },
    /// Whoever asked may not. Rights that were just given take minutes to spread, so it may help to ask again for a while.
    #[error("{who} may not {action} on {what}")]
    Denied {
        /// The principal.
        who: String,
        /// The action.
        action: String,
        /// The resource.
        what: String,
    },
    /// The credential is not (or no longer) good.
    #[error("the credential of {who} was not accepted: {why}")]
    Credential {
        /// The principal.
        who: String,
        /// In a sentence.
        why: String,
    },
    /// A limit of the subscription is reached.
    #[error("the quota {quota} is exceeded: {used} of {limit} are used and {wanted} more are wanted")]
    Quota {
        /// Its name.
        quota: String,
        /// The limit.
        limit: u64,
        /// In use.
        used: u64,
        /// Wanted besides.
        wanted: u64,
    },
    /// The thing is needed by another: it goes after that.
    #[error("{what} is in use by {by}")]
    InUse {
        /// What.
        what: String,
        /// By what.
        by: String,
    },
    /// Somebody has locked it.
    #[error("{what} is locked against {action}")]
    Locked {
        /// What.
        what: String,
        /// Against what.
        action: String,
    },
    /// Too many requests.
    #[error("the cloud asks us to slow down")]
    Throttled {
        /// For so long.
        after: Option<Duration>,
    },
    /// The cloud failed by itself, or did not answer in time.
    #[error("the cloud did not answer {what} as it should")]
    Unavailable {
        /// What was asked.
        what: String,
        /// Why.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// An answer that this release does not understand.
    #[error("the cloud's answer to {what} is not as this release understands it")]
    Strange {
        /// What was asked.
        what: String,
        /// Why.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl Classify for CloudError {
    fn class(&self) -> Class {
        match self {
            CloudError::Throttled { .. }
            | CloudError::Unavailable { .. }
            | CloudError::InUse { .. }
            | CloudError::Denied { .. } => Class::Transient,
            CloudError::NotFound { .. }
            | CloudError::Conflict { .. }
            | CloudError::Invalid { .. }
            | CloudError::Credential { .. }
            | CloudError::Quota { .. }
            | CloudError::Locked { .. }
            | CloudError::Strange { .. } => Class::Terminal,
        }
    }
}

impl CloudError {
    /// How long the cloud asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CloudError::Throttled { after } => *after,
            _ => None,
        }
    }

    /// Whether the thing is simply not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CloudError::NotFound { .. })
    }
}

/// Why a resource came to a bad end after the cloud had accepted it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fault {
    /// The cloud's code.
    pub code: String,
    /// In a sentence.
    pub message: String,
}
