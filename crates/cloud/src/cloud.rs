//! The trait.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Certificate, CertificateWish, CloudError, Credential, IssuedCertificate, IssuedToken, Permission,
    Principal, Provider, Put, Resource, ResourceId, RoleAssignment, Size, Token, Usage, VaultSecret,
};

/// A cloud, for whoever needs one of any kind.
pub type SharedCloud = Arc<dyn Cloud>;

/// What we ask of a cloud. Every verb has a time limit of its own, may be said again at any moment, and returns as soon as the
/// cloud has accepted: states are looked at, never waited for.
#[async_trait]
pub trait Cloud: std::fmt::Debug + Send + Sync + 'static {
    // Resources.

    /// Makes a resource be as wanted; as it is now, which may be on its way.
    async fn put(&self, put: Put) -> Result<Resource, CloudError>;
    /// A resource as it is now; none when there is none.
    async fn get(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError>;
    /// The resources of a group, in the order of their ids. None when the group is not there.
    async fn list(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError>;
    /// Begins to remove a resource; a group goes with all that it holds. What is gone has been removed.
    async fn delete(&self, id: &ResourceId) -> Result<(), CloudError>;

    // What a subscription can have.

    /// The sizes of machines in a location, as this subscription may have them.
    async fn sizes(&self, subscription: &str, location: &str) -> Result<Vec<Size>, CloudError>;
    /// How much of its limits a subscription uses in a location.
    async fn usages(&self, subscription: &str, location: &str) -> Result<Vec<Usage>, CloudError>;
    /// The providers that matter to us, and whether a subscription has registered them.
    async fn providers(&self, subscription: &str) -> Result<Vec<Provider>, CloudError>;
    /// Whether a subscription has registered a feature, such as `Microsoft.Compute/EncryptionAtHost`; none when it never
    /// heard of it.
    async fn feature(&self, subscription: &str, feature: &str) -> Result<Option<bool>, CloudError>;

    // Who may do what.

    /// Obtains a token and tells whose it is. A credential that is no good is [`CloudError::Credential`].
    async fn principal(&self, credential: &Credential) -> Result<Principal, CloudError>;
    /// Which of these actions somebody may do on a resource.
    async fn permissions(
        &self,
        credential: &Credential,
        id: &ResourceId,
        actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError>;
    /// Gives a role; the same name and content again change nothing.
    async fn assign_role(&self, assignment: &RoleAssignment) -> Result<(), CloudError>;
    /// The roles that are given over a scope and what is in it.
    async fn role_assignments(&self, scope: &ResourceId) -> Result<Vec<RoleAssignment>, CloudError>;
    /// Takes a role back; one that is not given is taken back.
    async fn revoke_role(&self, scope: &ResourceId, name: &str) -> Result<(), CloudError>;

    // The vault.

    /// Asks for a certificate, if there is none of that name; as it is now, which may be being issued.
    async fn ensure_certificate(&self, wish: &CertificateWish) -> Result<Certificate, CloudError>;
    /// Asks for a further version of a certificate. `newer_than` is the version that the caller has: a later one that is there
    /// already is answered instead, so that saying it again does not issue a third.
    async fn renew_certificate(
        &self,
        name: &str,
        newer_than: Option<&str>,
    ) -> Result<Certificate, CloudError>;
    /// The newest issued version of a certificate, with its key; none while there is none.
    async fn certificate(&self, name: &str) -> Result<Option<IssuedCertificate>, CloudError>;
    /// Removes a certificate with all its versions.
    async fn delete_certificate(&self, name: &str) -> Result<(), CloudError>;
    /// Writes a version of a secret.
    async fn put_secret(
        &self,
        name: &str,
        value: &str,
        expires: Option<Timestamp>,
    ) -> Result<VaultSecret, CloudError>;
    /// The newest version of a secret.
    async fn secret(&self, name: &str) -> Result<Option<VaultSecret>, CloudError>;
    /// Removes a secret with all its versions.
    async fn delete_secret(&self, name: &str) -> Result<(), CloudError>;
    /// A certificate for a managed identity, as the cloud's identity service issues it: good for about 90 days, renewable from
    /// day 45.
    async fn identity_certificate(&self, identity: &ResourceId) -> Result<IssuedCertificate, CloudError>;

    // The registry.

    /// Makes a token of that name, if there is none, without a password.
    async fn ensure_token(&self, name: &str) -> Result<Token, CloudError>;
    /// A token.
    async fn token(&self, name: &str) -> Result<Option<Token>, CloudError>;
    /// Issues a password for a token, good until then; the one before it stays good until it is expired by the next.
    async fn issue_password(&self, name: &str) -> Result<IssuedToken, CloudError>;
    /// Removes a token.
    async fn delete_token(&self, name: &str) -> Result<(), CloudError>;
}
