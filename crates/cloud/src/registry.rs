//! The registry role: tokens with which clusters pull images.

use api::secret::Secret;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::CloudError;

/// Tokens of the image registry.
#[async_trait]
pub trait Registry: std::fmt::Debug + Send + Sync + 'static {
    /// Reads the registry, and fails unless its host is the one that clusters are given. Returns the host.
    async fn verify_host(&self) -> Result<String, CloudError>;
    /// Creates a token without a password, unless one of that name exists.
    async fn ensure_token(&self, name: &str) -> Result<PullToken, CloudError>;
    /// A token; `None` when it does not exist.
    async fn token(&self, name: &str) -> Result<Option<PullToken>, CloudError>;
    /// Issues a password for a token, which has at most two. The one that was issued at `in_use` is never replaced: it stays valid
    /// however often the call is repeated after a lost response.
    async fn issue_password(
        &self,
        name: &str,
        in_use: Option<Timestamp>,
    ) -> Result<IssuedPullToken, CloudError>;
    /// Deletes a token.
    async fn delete_token(&self, name: &str) -> Result<(), CloudError>;
}

/// A token, without its password.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullToken {
    /// The name.
    pub name: String,
    /// The registry's host.
    pub registry: String,
    /// When the current password was issued.
    #[serde(default)]
    pub issued: Option<Timestamp>,
    /// When the current password expires.
    #[serde(default)]
    pub expires: Option<Timestamp>,
}

/// A token with a newly issued password. The registry does not reveal it again.
#[derive(Debug, Clone)]
pub struct IssuedPullToken {
    /// The token.
    pub token: PullToken,
    /// The password.
    pub password: Secret<String>,
}
