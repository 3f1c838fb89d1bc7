//! The registry of images: tokens by which clusters pull.

use api::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
