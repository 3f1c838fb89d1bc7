//! The vault: certificates and secrets with versions.

use api::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateWish {
    /// Its name in the vault.
    pub name: String,
    /// The names that it is for; the first is its subject.
    pub dns_names: Vec<String>,
}

/// A certificate in the vault, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its name.
    pub name: String,
    /// The names that it is for.
    pub dns_names: Vec<String>,
    /// Its version; none while the first is being issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// From when it is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Until when it is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Whether a (further) version is being issued.
    #[serde(default)]
    pub issuing: bool,
}

/// A certificate with its key, both in PEM.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// What is known of it.
    pub certificate: Certificate,
    /// The chain, its own first.
    pub chain_pem: String,
    /// The private key.
    pub key_pem: Secret<String>,
}

/// A secret in the vault.
#[derive(Debug, Clone)]
pub struct VaultSecret {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Until when it is good.
    pub expires: Option<Timestamp>,
    /// The value.
    pub value: Secret<String>,
}
