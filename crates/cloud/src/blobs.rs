//! The blobs role: documents in the containers of storage accounts.

use async_trait::async_trait;

use crate::{CloudError, ResourceId};

/// Blobs of storage accounts, as far as an installer and the issuer of a cluster need them. The containers are properties of their
/// account.
#[async_trait]
pub trait Blobs: std::fmt::Debug + Send + Sync + 'static {
    /// Writes a blob, replacing an earlier one of that name.
    async fn put_blob(&self, blob: &BlobAddress, content_type: &str, body: Vec<u8>)
    -> Result<(), CloudError>;
    /// The content of a blob; `None` when it, its container or its account does not exist.
    async fn blob(&self, blob: &BlobAddress) -> Result<Option<Vec<u8>>, CloudError>;
    /// Deletes a blob. Deleting a missing one succeeds.
    async fn delete_blob(&self, blob: &BlobAddress) -> Result<(), CloudError>;
    /// Creates a container unless it exists.
    async fn ensure_container(&self, account: &ResourceId, container: &str) -> Result<(), CloudError>;
    /// Deletes a container with its blobs. Deleting a missing one succeeds.
    async fn delete_container(&self, account: &ResourceId, container: &str) -> Result<(), CloudError>;
}

/// The place of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobAddress {
    /// The storage account.
    pub account: ResourceId,
    /// The container.
    pub container: String,
    /// The name, in which `/` separates folders.
    pub name: String,
}
