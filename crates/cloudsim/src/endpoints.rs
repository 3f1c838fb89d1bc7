//! The addresses of the emulated services, as outside clients need them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::secret::Secret;
use cloud_azure::{EMULATED_ISSUER, IssuerSettings, ServiceCredential, Settings, SettingsError};
use serde::{Deserialize, Serialize};

/// Addresses, ids and files with which a client uses the emulated cloud: the content of `endpoints.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// The URL of Entra ID.
    pub authority: String,
    /// The tenant of every principal.
    pub tenant_id: String,
    /// The URL of the resource manager.
    pub resource_manager: String,
    /// The URL of each Key Vault, by the vault's name.
    pub vaults: BTreeMap<String, String>,
    /// The resource id of the container registry.
    pub registry: String,
    /// The URL of the blob service; an account follows as the first segment of the path.
    pub blob: String,
    /// The resource id of the storage account for the documents of clusters' token issuers.
    pub issuer_account: String,
    /// The URL at which everybody reads these documents.
    pub issuer_url: String,
    /// The subscription of the emulator's own resources. Others exist as soon as they are used.
    pub subscription_id: String,
    /// The client id of the principal that Shipshape runs as.
    pub client_id: String,
    /// The file with the secret of that principal.
    pub client_secret_file: PathBuf,
    /// The file with the certificate of the authority that signed the certificates of all listeners.
    pub ca_file: PathBuf,
    /// The file with the token of what only a simulator can do.
    pub token_file: PathBuf,
    /// The URL of the instance metadata service, without TLS.
    pub metadata: String,
    /// The URL of the data plane of managed identities.
    pub identity_service: String,
    /// How long things take here compared with Azure, which is 1: the factor on the waits of its clients.
    #[serde(default = "pace_of_azure")]
    pub pace: f64,
}

fn pace_of_azure() -> f64 {
    1.0
}

/// The name of the emulator's own group, registry and vault.
pub(crate) const OWN_NAME: &str = "shipshape";

impl Endpoints {
    /// The file that holds these endpoints, beside the files that they name.
    pub(crate) fn file(&self) -> PathBuf {
        self.ca_file.with_file_name("endpoints.json")
    }

    /// The settings of Azure's client for these endpoints, with the content of the files that they name.
    pub fn settings(&self, client_secret: Secret<String>, ca_pem: String) -> Result<Settings, SettingsError> {
        let wrong = |setting, why: &str| SettingsError { setting, why: why.to_owned() };
        let vault = self
            .vaults
            .get(OWN_NAME)
            .ok_or_else(|| wrong("vaults", "has no vault shipshape, which the simulated cloud creates"))?;
        let registry = self
            .registry
            .parse()
            .map_err(|_| wrong("registry", "is no resource id; expected that of a container registry"))?;
        let account = self
            .issuer_account
            .parse()
            .map_err(|_| wrong("issuerAccount", "is no resource id; expected that of a storage account"))?;
        let issuers = Some(IssuerSettings { account, url: self.issuer_url.clone() });
        let credential =
            ServiceCredential::ClientSecret { client_id: self.client_id.clone(), secret: client_secret };
        Ok(Settings {
            authority: self.authority.clone(),
            resource_manager: self.resource_manager.clone(),
            blob: Some(self.blob.clone()),
            identity_service: Some(self.identity_service.clone()),
            issuers,
            metadata: Some(self.metadata.clone()),
            // The address of an emulated vault is on the loopback interface, not in the domain of its tokens.
            verify_vault_address: false,
            certificate_issuer: EMULATED_ISSUER.to_owned(),
            ca_pem: Some(ca_pem),
            ..Settings::public(&self.tenant_id, vault, registry, credential)
        })
    }
}
