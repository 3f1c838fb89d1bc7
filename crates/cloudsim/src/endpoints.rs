//! The addresses of the emulated services, as outside clients need them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Addresses, ids and files with which a client uses the emulated cloud: the content of `endpoints.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The subscription of the emulator's own resources. Others exist as soon as they are used.
    pub subscription_id: String,
    /// The client id of the principal that Shipshape runs as.
    pub client_id: String,
    /// The file with the secret of that principal.
    pub client_secret_file: PathBuf,
    /// The file with the certificate of the authority that signed the certificates of all listeners.
    pub ca_file: PathBuf,
    /// The URL of the instance metadata service, without TLS.
    pub metadata: String,
    /// The URL of the data plane of managed identities.
    pub identity_service: String,
}
