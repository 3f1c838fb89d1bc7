//! The client: what every role shares, and the cloud that the roles make.

use std::fmt;
use std::sync::Arc;

use azure_core::http::{HttpClient, Url};
use cloud::{Blobs, Cloud, IssuerStorage};

use crate::arm::Arm;
use crate::credential::Credentials;
use crate::operations::Operations;
use crate::role_names::RoleNames;
use crate::settings::{Settings, SettingsError};
use crate::transport::Transport;
use crate::vault::VaultClients;

/// The client of one Azure cloud. Cheap to clone; connections, tokens and limits are shared.
#[derive(Clone)]
pub struct AzureClient {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) arm: Arm,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) operations: Operations,
    pub(crate) vault: VaultClients,
    pub(crate) roles: RoleNames,
    pub(crate) http: Arc<dyn HttpClient>,
}

impl fmt::Debug for AzureClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource_manager = &self.inner.settings.resource_manager;
        f.debug_struct("AzureClient").field("resource_manager", resource_manager).finish_non_exhaustive()
    }
}

impl AzureClient {
    /// A client with these settings. Nothing is sent yet.
    pub fn new(settings: Settings) -> Result<AzureClient, SettingsError> {
        settings.validate()?;
        let http = Transport::new(settings.ca_pem.as_deref(), settings.metadata.as_deref())?;
        AzureClient::with_http(settings, Arc::new(http))
    }

    /// The same over another transport.
    pub(crate) fn with_http(
        settings: Settings,
        http: Arc<dyn HttpClient>,
    ) -> Result<AzureClient, SettingsError> {
        settings.validate()?;
        let base = Url::parse(&settings.resource_manager)
            .map_err(|error| SettingsError { setting: "resource_manager", why: error.to_string() })?;
        let credentials = Arc::new(Credentials::new(&settings, http.clone())?);
        let arm = Arm::new(base, &settings.scope, credentials.clone(), http.clone());
        let vault = VaultClients::new(&settings, &credentials, http.clone())?;
        let inner = Inner {
            settings,
            arm,
            credentials,
            operations: Operations::default(),
            vault,
            roles: RoleNames::default(),
            http,
        };
        Ok(AzureClient { inner: Arc::new(inner) })
    }

    /// The roles of this cloud.
    pub fn cloud(&self) -> Cloud {
        let blobs: Arc<dyn Blobs> = Arc::new(self.clone());
        let issuers = self.inner.settings.issuers.as_ref();
        let issuers = issuers.map(|it| IssuerStorage::new(blobs.clone(), it.account.clone(), &it.url));
        Cloud { blobs: Some(blobs), issuers, ..Cloud::from_provider(self.clone()) }
    }
}
