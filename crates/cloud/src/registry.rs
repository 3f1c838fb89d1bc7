//! The registry role: tokens with which clusters pull images.

use api::secret::Secret;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::CloudError;

/// Tokens of the image registry.
#[async_trait]
pub trait Registry: std::fmt::Debug + Send + Sync + 'static {
    /// Creates a token without a password, unless one of that name exists.
    async fn ensure_token(&self, name: &str) -> Result<Token, CloudError>;
    /// A token; `None` when it does not exist.
    async fn token(&self, name: &str) -> Result<Option<Token>, CloudError>;
    /// Issues a password for a token. The previous password stays valid until the next one is issued.
    async fn issue_password(&self, name: &str) -> Result<IssuedToken, CloudError>;
    /// Deletes a token.
    async fn delete_token(&self, name: &str) -> Result<(), CloudError>;
}

/// A token, without its password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its name.
    pub name: String,
    /// The registry's host.
    pub registry: String,
    /// When its present password was issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// Until when its present password is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A token with the password that was just issued; the registry does not tell it again.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// What is known of it.
    pub token: Token,
    /// The password.
    pub password: Secret<String>,
}
