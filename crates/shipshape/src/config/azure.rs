//! Settings of Azure as the cloud of the clusters, of `cloud.provider = "azure"`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::values::FilePath;

/// Addresses, identity and resources of the service in Azure. Addresses default to the public cloud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AzureConfig {
    /// The address of Entra ID.
    pub(crate) authority: String,
    /// The address of the resource manager.
    pub(crate) resource_manager: String,
    /// The scope of tokens for the resource manager.
    pub(crate) scope: String,
    /// The tenant of the service.
    pub(crate) tenant_id: Option<Uuid>,
    /// The client id of the service's application or managed identity.
    pub(crate) client_id: Option<String>,
    /// The file with the application's secret.
    pub(crate) client_secret_file: Option<FilePath>,
    /// The PEM file with the application's certificate and RSA key.
    pub(crate) client_certificate_file: Option<FilePath>,
    /// The file with the token of a Kubernetes service account that is federated with the application.
    pub(crate) federated_token_file: Option<FilePath>,
    /// Whether the service authenticates as the managed identity of its machine.
    pub(crate) managed_identity: bool,
    /// The address of the vault of clusters' certificates, such as `https://NAME.vault.azure.net`.
    pub(crate) vault: Option<String>,
    /// Whether the vault's address must belong to the domain that its challenge names. Only an emulator needs `false`.
    pub(crate) verify_vault_address: bool,
    /// The issuer of certificates, by its name in the vault; `Self` for certificates that are signed with their own key.
    pub(crate) certificate_issuer: String,
    /// The resource id of the container registry that clusters pull from.
    pub(crate) registry: Option<String>,
    /// The suffix of the registry's host, which is `NAME.SUFFIX`.
    pub(crate) registry_suffix: String,
    /// The suffix of the hosts of blobs, which are `ACCOUNT.SUFFIX`.
    pub(crate) blob_suffix: String,
    /// The address of blobs with accounts as first path segment, of an emulator. Unset: `https://ACCOUNT.SUFFIX`.
    pub(crate) blob: Option<String>,
    /// The address of the instance metadata service. Unset: its fixed address.
    pub(crate) metadata: Option<String>,
    /// The address of the service that issues certificates of managed identities. It is open to services of Microsoft only.
    pub(crate) identity_service: Option<String>,
    /// The resource id of the storage account whose website has the documents of clusters' token issuers. Unset: no clusters with
    /// managed identities.
    pub(crate) issuer_account: Option<String>,
    /// The address of that website, such as `https://NAME.z6.web.core.windows.net`.
    pub(crate) issuer_url: Option<String>,
    /// A PEM file of certificate authorities that are trusted besides those of the system.
    pub(crate) ca_file: Option<FilePath>,
}

impl Default for AzureConfig {
    fn default() -> AzureConfig {
        AzureConfig {
            authority: "https://login.microsoftonline.com".to_owned(),
            resource_manager: "https://management.azure.com".to_owned(),
            scope: "https://management.azure.com/.default".to_owned(),
            tenant_id: None,
            client_id: None,
            client_secret_file: None,
            client_certificate_file: None,
            federated_token_file: None,
            managed_identity: false,
            vault: None,
            verify_vault_address: true,
            certificate_issuer: cloud_azure::SELF_SIGNED.to_owned(),
            registry: None,
            registry_suffix: cloud_azure::PUBLIC_REGISTRY_SUFFIX.to_owned(),
            blob_suffix: cloud_azure::PUBLIC_BLOB_SUFFIX.to_owned(),
            blob: None,
            metadata: None,
            identity_service: None,
            issuer_account: None,
            issuer_url: None,
            ca_file: None,
        }
    }
}
