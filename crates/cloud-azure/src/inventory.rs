//! What exists in a subscription, the vault and the registry, for people who look around and for tests that search for leftovers.

use azure_core::error::Error;
use cloud::{CloudError, PullToken, Resource, ResourceId, ResourceKind, VaultCertificate};
use futures_util::TryStreamExt as _;

use crate::client::AzureClient;
use crate::json::text;
use crate::resources::version;

impl AzureClient {
    /// The resource groups of a subscription, by name.
    pub async fn groups(&self, subscription: &str) -> Result<Vec<Resource>, CloudError> {
        let path = format!("/subscriptions/{subscription}/resourceGroups");
        let listed = self.inner.arm.list(&path, version(ResourceKind::ResourceGroup), &[], None).await?;
        let group = |name: &str| ResourceId::group(subscription, name);
        let mut groups = listed
            .iter()
            .map(|it| self.resource(&group(text(it, "/name")), ResourceKind::ResourceGroup, it))
            .collect::<Result<Vec<Resource>, CloudError>>()?;
        groups.sort_by_key(|it| it.id.key());
        Ok(groups)
    }

    /// The certificates of the vault, by name. Each is read apart, because a list does not tell their DNS names.
    pub async fn certificates(&self) -> Result<Vec<VaultCertificate>, CloudError> {
        let failed = |error: Error| self.vault_error("GET", "certificates", error);
        let mut pages =
            self.inner.vault.certificates.list_certificate_properties(None).map_err(failed)?.into_stream();
        let mut names = Vec::new();
        while let Some(item) = pages.try_next().await.map_err(failed)? {
            names.extend(item.id.as_deref().and_then(|id| id.rsplit('/').next()).map(str::to_owned));
        }
        names.sort();
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            found.extend(self.vault_certificate(&name).await?);
        }
        Ok(found)
    }

    /// The tokens of the registry, by name.
    pub async fn tokens(&self) -> Result<Vec<PullToken>, CloudError> {
        let mut tokens = self.listed_tokens().await?;
        tokens.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(tokens)
    }
}
