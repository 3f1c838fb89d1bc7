//! The way to Azure for one Machine: the credential in the cluster's Secret, the client that it makes, and the defaults beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use api::secret::Secret;
use azure_core::http::{HttpClient, Url};
use cloud::ResourceId;
use sha2::{Digest as _, Sha256};

use super::InstanceSettings;
use super::spec::ProviderSpec;
use super::validate::is_name;
use crate::arm::Arm;
use crate::credential::Credentials;
use crate::settings::{ServiceCredential, Settings};

/// Clients that are kept. A cluster has one credential, and two while it changes.
const CLIENTS_MAX: usize = 8;

/// A client with what its Secret says besides the credential.
pub(super) struct Access {
    pub(super) arm: Arc<Arm>,
    pub(super) subscription: String,
    region: Option<String>,
    resource_group: Option<String>,
}

impl Access {
    /// Fills in what a providerSpec leaves to the Secret.
    pub(super) fn complete(&self, spec: &mut ProviderSpec) {
        let fill = |member: &mut String, value: &Option<String>| {
            if let (true, Some(value)) = (member.is_empty(), value) {
                member.clone_from(value);
            }
        };
        fill(&mut spec.location, &self.region);
        fill(&mut spec.resource_group, &self.resource_group);
        let group = Some(spec.resource_group.clone());
        fill(&mut spec.network_resource_group, &self.resource_group);
        fill(&mut spec.network_resource_group, &group);
    }
}

/// The clients by their credentials. A client keeps its tokens and its limits, so it is made once.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The latest first.
    present: Mutex<Vec<([u8; 32], Arc<Arm>)>>,
}

/// The members of the Secret. Values are trimmed, because files end in a newline.
struct Members<'a>(&'a BTreeMap<String, Secret<Vec<u8>>>);

impl Members<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let value = self.0.get(name)?;
        let text = std::str::from_utf8(value.expose()).ok()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn required(&self, name: &str) -> Result<String, String> {
        self.get(name)
            .ok_or_else(|| format!("the Secret of credentialsSecret has no text under the key {name}"))
    }
}

/// The access that a Secret gives, or the reason in a sentence.
pub(super) fn access(
    clients: &Clients,
    settings: &InstanceSettings,
    http: &Arc<dyn HttpClient>,
    secret: &BTreeMap<String, Secret<Vec<u8>>>,
) -> Result<Access, String> {
    let members = Members(secret);
    let subscription = members.required("azure_subscription_id")?;
    if !is_name(&subscription) {
        return Err(
            "the key azure_subscription_id of credentialsSecret is no id of a subscription".to_owned()
        );
    }
    let tenant = members.required("azure_tenant_id")?;
    let client_id = members.required("azure_client_id")?;
    let credential = match members.get("azure_client_secret") {
        Some(secret) => ServiceCredential::ClientSecret { client_id, secret: Secret::new(secret) },
        None => {
            let file = members.get("azure_federated_token_file").map(PathBuf::from);
            let token_file = file.unwrap_or_else(|| settings.federated_token_file.clone());
            ServiceCredential::WorkloadIdentity { client_id, token_file }
        }
    };
    let arm = clients.get(settings, http, &tenant, credential)?;
    Ok(Access {
        arm,
        subscription,
        region: members.get("azure_region"),
        resource_group: members.get("azure_resourcegroup"),
    })
}

impl Clients {
    fn get(
        &self,
        settings: &InstanceSettings,
        http: &Arc<dyn HttpClient>,
        tenant: &str,
        credential: ServiceCredential,
    ) -> Result<Arc<Arm>, String> {
        let key = digest(tenant, &credential);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = present.iter().position(|(it, _)| *it == key) {
            present[..=at].rotate_right(1);
            return Ok(present[0].1.clone());
        }
        let arm = Arc::new(
            client(settings, http, tenant, credential)
                .map_err(|error| format!("the Secret of credentialsSecret cannot be used: {error}"))?,
        );
        present.insert(0, (key, arm.clone()));
        present.truncate(CLIENTS_MAX);
        Ok(arm)
    }
}

fn client(
    settings: &InstanceSettings,
    http: &Arc<dyn HttpClient>,
    tenant: &str,
    credential: ServiceCredential,
) -> Result<Arm, crate::settings::SettingsError> {
    // Machines need no vault and no registry, so their addresses lead nowhere.
    let registry =
        ResourceId::group("none", "none").sibling("Microsoft.ContainerRegistry", "registries", "none");
    let settings = Settings {
        authority: settings.authority.clone(),
        resource_manager: settings.resource_manager.clone(),
        scope: settings.scope.clone(),
        metadata: settings.metadata.clone(),
        ..Settings::public(tenant, "https://vault.invalid", registry, credential)
    };
    settings.validate()?;
    let base = Url::parse(&settings.resource_manager).map_err(|error| crate::settings::SettingsError {
        setting: "resource_manager",
        why: error.to_string(),
    })?;
    let credentials = Arc::new(Credentials::new(&settings, http.clone())?);
    Ok(Arm::new(base, &settings.scope, credentials, http.clone()))
}

/// Distinguishes credentials without keeping them a second time.
fn digest(tenant: &str, credential: &ServiceCredential) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |text: &[u8]| {
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text);
    };
    add(tenant.as_bytes());
    add(credential.name().as_bytes());
    match credential {
        ServiceCredential::ClientSecret { secret, .. } => add(secret.expose().as_bytes()),
        ServiceCredential::WorkloadIdentity { token_file, .. } => {
            add(token_file.as_os_str().as_encoded_bytes());
        }
        ServiceCredential::ClientCertificate { pem, .. } => add(pem.expose().as_bytes()),
        ServiceCredential::ManagedIdentity { .. } => {}
    }
    hash.finalize().into()
}
