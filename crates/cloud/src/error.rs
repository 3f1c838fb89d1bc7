//! Errors of a cloud, with their class.

use std::error::Error;
use std::time::Duration;

use api::error::{Class, Classify};

/// The cloud did not carry out a call.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The resource, principal, certificate or token does not exist.
    #[error("{what} was not found")]
    NotFound {
        /// The subject.
        what: String,
    },
    /// The call contradicts an earlier one: a put with the same token and other properties, a group that another cluster manages.
    #[error("{what}: {why}")]
    Conflict {
        /// The subject.
        what: String,
        /// The reason, in a sentence.
        why: String,
    },
    /// The request is invalid; the message is the cloud's.
    #[error("{why}")]
    Invalid {
        /// The cloud's code.
        code: String,
        /// The reason, in a sentence.
        why: String,
    },
    /// The principal lacks the permission. Granted permissions take minutes to propagate, so a later attempt may succeed.
    #[error("{who} may not {action} on {what}")]
    Denied {
        /// The principal.
        who: String,
        /// The action.
        action: String,
        /// The resource.
        what: String,
    },
    /// A policy of the subscription forbids the request.
    #[error("{what} is forbidden by the policy {policy}: {why}")]
    Policy {
        /// The subject.
        what: String,
        /// The policy's name.
        policy: String,
        /// The cloud's message.
        why: String,
    },
    /// The subject was changed by somebody else since it was read, so the conditional write was not carried out.
    #[error("{what} was changed meanwhile; read it again")]
    PreconditionFailed {
        /// The subject.
        what: String,
    },
    /// Another operation occupies the subject, or something that it refers to is not ready or not visible yet.
    #[error("{what} cannot be changed at the moment ({code}): {why}")]
    Busy {
        /// The subject.
        what: String,
        /// The cloud's code.
        code: String,
        /// The cloud's message.
        why: String,
        /// How long the cloud asks to wait.
        after: Option<Duration>,
    },
    /// A setting of this service is missing or wrong.
    #[error("setting {setting}: {why}")]
    Configuration {
        /// The setting.
        setting: String,
        /// The reason, in a sentence, with what is accepted.
        why: String,
    },
    /// The credential is invalid or has expired.
    #[error("the credential of {who} was not accepted: {why}")]
    Credential {
        /// The principal.
        who: String,
        /// The reason, in a sentence.
        why: String,
    },
    /// A quota of the subscription is exceeded.
    #[error("the quota {quota} is exceeded: {used} of {limit} are used and {wanted} more are requested")]
    Quota {
        /// The quota's name.
        quota: String,
        /// The limit.
        limit: u64,
        /// In use.
        used: u64,
        /// Requested in addition.
        wanted: u64,
    },
    /// Another resource uses this one, so it cannot be deleted yet.
    #[error("{what} is in use by {by}")]
    InUse {
        /// The subject.
        what: String,
        /// The user.
        by: String,
    },
    /// A lock protects the resource.
    #[error("{what} is locked against {action}")]
    Locked {
        /// The subject.
        what: String,
        /// The action that the lock prevents.
        action: String,
    },
    /// Too many requests.
    #[error("the cloud throttles requests")]
    Throttled {
        /// How long the cloud asks to wait.
        after: Option<Duration>,
    },
    /// The cloud failed internally or did not respond in time.
    #[error("the cloud did not respond to {what}")]
    Unavailable {
        /// The call.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The response does not have the expected form.
    #[error("the cloud's response to {what} has an unexpected form")]
    UnexpectedResponse {
        /// The call.
        what: String,
        /// The cause.
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
            | CloudError::Busy { .. }
            | CloudError::PreconditionFailed { .. }
            | CloudError::Denied { .. } => Class::Transient,
            CloudError::NotFound { .. }
            | CloudError::Conflict { .. }
            | CloudError::Invalid { .. }
            | CloudError::Credential { .. }
            | CloudError::Configuration { .. }
            | CloudError::Policy { .. }
            | CloudError::Quota { .. }
            | CloudError::Locked { .. }
            | CloudError::UnexpectedResponse { .. } => Class::Terminal,
        }
    }
}

impl CloudError {
    /// How long the cloud asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CloudError::Throttled { after } | CloudError::Busy { after, .. } => *after,
            _ => None,
        }
    }

    /// Whether the subject does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CloudError::NotFound { .. })
    }
}

/// The failure of a resource after the cloud had accepted the request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResourceFailure {
    /// The cloud's code.
    pub code: String,
    /// The reason, in a sentence.
    pub message: String,
}
