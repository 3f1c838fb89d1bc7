//! The vault role: certificates and secrets with versions.

use api::secret::Secret;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::CloudError;

/// Certificates and secrets with versions.
#[async_trait]
pub trait Vault: std::fmt::Debug + Send + Sync + 'static {
    /// Requests a certificate unless one of that name exists, and returns its current state, which may still be issuing.
    async fn ensure_certificate(&self, spec: &CertificateSpec) -> Result<VaultCertificate, CloudError>;
    /// Requests a further version of a certificate. `newer_than` is the version that the caller has: when a later one exists
    /// already it is returned instead, so that repeating the call does not issue a third.
    async fn renew_certificate(
        &self,
        name: &str,
        newer_than: Option<&str>,
    ) -> Result<VaultCertificate, CloudError>;
    /// The latest issued version of a certificate, with its key; `None` before the first is issued.
    async fn certificate(&self, name: &str) -> Result<Option<IssuedCertificate>, CloudError>;
    /// Deletes a certificate with all its versions.
    async fn delete_certificate(&self, name: &str) -> Result<(), CloudError>;
    /// Writes a new version of a secret.
    async fn put_secret(
        &self,
        name: &str,
        value: &str,
        expires: Option<Timestamp>,
    ) -> Result<VaultSecret, CloudError>;
    /// The latest version of a secret.
    async fn secret(&self, name: &str) -> Result<Option<VaultSecret>, CloudError>;
    /// Deletes a secret with all its versions.
    async fn delete_secret(&self, name: &str) -> Result<(), CloudError>;
}

/// A certificate to issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSpec {
    /// The name in the vault.
    pub name: String,
    /// The DNS names; the first is the subject.
    pub dns_names: Vec<String>,
}

/// A certificate in the vault, without its key.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultCertificate {
    /// The name.
    pub name: String,
    /// The DNS names.
    pub dns_names: Vec<String>,
    /// The latest issued version; `None` while the first is being issued.
    #[serde(default)]
    pub version: Option<String>,
    /// Start of its validity.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// End of its validity.
    #[serde(default)]
    pub not_after: Option<Timestamp>,
    /// Whether a first or further version is being issued.
    #[serde(default)]
    pub issuing: bool,
}

/// A certificate with its key, both in PEM.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: VaultCertificate,
    /// The chain, the certificate itself first.
    pub chain_pem: String,
    /// The private key.
    pub key_pem: Secret<String>,
}

/// A secret in the vault.
#[derive(Debug, Clone)]
pub struct VaultSecret {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// End of its validity.
    pub expires: Option<Timestamp>,
    /// The value.
    pub value: Secret<String>,
}
