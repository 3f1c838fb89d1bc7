//! What the client must know of a cloud: addresses, authority, trust and its own credential.
//!
//! The public cloud, a sovereign one and the emulator differ by these settings only. A wrong one is an error of one sentence that
//! names the setting, its value (never a secret) and what is accepted.

use std::fs;
use std::path::{Path, PathBuf};

use api::secret::Secret;
use azure_core::http::Url;
use cloud::{ResourceId, ResourceKind};
use serde::Deserialize;

use crate::certificate::CertificateAssertion;

/// Scope of the resource manager's tokens in the public cloud.
pub const PUBLIC_SCOPE: &str = "https://management.azure.com/.default";
/// The issuer of certificates that are signed with their own key.
pub const SELF_SIGNED: &str = "Self";
/// The issuer of certificates in the emulator: any other than `Self` is its own authority.
pub const EMULATED_ISSUER: &str = "SimulatedCloud";
const PUBLIC_AUTHORITY: &str = "https://login.microsoftonline.com";
const PUBLIC_RESOURCE_MANAGER: &str = "https://management.azure.com";
/// The suffix of the hosts of blobs in the public cloud.
pub const PUBLIC_BLOB_SUFFIX: &str = "blob.core.windows.net";
/// The suffix of the hosts of registries in the public cloud.
pub const PUBLIC_REGISTRY_SUFFIX: &str = "azurecr.io";
/// Longest label of a DNS name.
const LABEL_CHARS_MAX: usize = 63;

/// Addresses, trust and credential of one Azure cloud.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The authority that issues tokens: the https URL of Entra ID.
    pub authority: String,
    /// The tenant of the service's own principal.
    pub tenant_id: String,
    /// The https URL of the resource manager.
    pub resource_manager: String,
    /// The scope of the resource manager's tokens.
    pub scope: String,
    /// The https URL of the key vault.
    pub vault: String,
    /// Whether the vault's address must belong to the domain that its challenge names; off for the emulator alone.
    pub verify_vault_address: bool,
    /// The issuer of certificates, by its name in the vault; `Self` for certificates that are signed with their own key.
    pub certificate_issuer: String,
    /// The container registry.
    pub registry: ResourceId,
    /// The host from which clusters pull images.
    pub registry_login_server: String,
    /// The https URL under which accounts are the first path segment; `None` for the host style `{account}.{suffix}`.
    pub blob: Option<String>,
    /// The suffix of accounts' hosts, used without `blob`.
    pub blob_suffix: String,
    /// The https URL of the identity service that issues certificates of managed identities; open to first-party services only.
    pub identity_service: Option<String>,
    /// Where the documents of clusters' token issuers are published; clusters with managed identities need it.
    pub issuers: Option<IssuerSettings>,
    /// The URL of the instance metadata service; `None` for its fixed address.
    pub metadata: Option<String>,
    /// Trusted authorities in PEM, besides those of the system.
    pub ca_pem: Option<String>,
    /// The service's own credential.
    pub credential: ServiceCredential,
    /// What new machines are made of.
    pub machines: MachineSettings,
}

/// The website of a storage account, for the documents of clusters' token issuers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The storage account.
    pub account: ResourceId,
    /// The https URL at which everybody reads the account's container `$web`.
    pub url: String,
}

/// The credential of this service.
#[derive(Debug, Clone)]
pub enum ServiceCredential {
    /// A secret of an application.
    ClientSecret {
        /// The application's client id.
        client_id: String,
        /// The secret.
        secret: Secret<String>,
    },
    /// A certificate of an application, with its RSA key.
    ClientCertificate {
        /// The application's client id.
        client_id: String,
        /// Certificate and private key in PEM.
        pem: Secret<String>,
    },
    /// A token of a service account that a federated credential accepts.
    WorkloadIdentity {
        /// The identity's client id.
        client_id: String,
        /// The file of the token, which the cluster renews.
        token_file: PathBuf,
    },
    /// The managed identity of the machine.
    ManagedIdentity {
        /// The client id of a user-assigned identity; `None` for the machine's own.
        client_id: Option<String>,
    },
}

/// Image and account of new machines.
#[derive(Debug, Clone)]
pub struct MachineSettings {
    /// The publisher of the image.
    pub publisher: String,
    /// The offer.
    pub offer: String,
    /// The SKU.
    pub sku: String,
    /// The version.
    pub version: String,
    /// The account that the SSH key belongs to.
    pub user: String,
    /// The public SSH key; without one the cloud decides whether it accepts the machine.
    pub ssh_public_key: Option<String>,
}

impl Default for MachineSettings {
    fn default() -> MachineSettings {
        MachineSettings {
            publisher: "azureopenshift".to_owned(),
            offer: "aro4".to_owned(),
            sku: "aro_417".to_owned(),
            version: "latest".to_owned(),
            user: "core".to_owned(),
            ssh_public_key: None,
        }
    }
}

/// A setting that cannot be used, by its name in the section `[cloud.azure]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting}: {why}")]
pub struct SettingsError {
    /// The setting.
    pub setting: &'static str,
    /// The value unless it is secret, and what is accepted.
    pub why: String,
}

fn wrong(setting: &'static str, why: impl Into<String>) -> SettingsError {
    SettingsError { setting, why: why.into() }
}

impl Settings {
    /// The settings of the public cloud.
    pub fn public(
        tenant_id: &str,
        vault: &str,
        registry: ResourceId,
        credential: ServiceCredential,
    ) -> Settings {
        Settings {
            authority: PUBLIC_AUTHORITY.to_owned(),
            tenant_id: tenant_id.to_owned(),
            resource_manager: PUBLIC_RESOURCE_MANAGER.to_owned(),
            scope: PUBLIC_SCOPE.to_owned(),
            vault: vault.to_owned(),
            verify_vault_address: true,
            certificate_issuer: SELF_SIGNED.to_owned(),
            registry_login_server: login_server(&registry, PUBLIC_REGISTRY_SUFFIX),
            registry,
            blob: None,
            blob_suffix: PUBLIC_BLOB_SUFFIX.to_owned(),
            identity_service: None,
            issuers: None,
            metadata: None,
            ca_pem: None,
            credential,
            machines: MachineSettings::default(),
        }
    }

    /// The same with other suffixes of hosts, as sovereign clouds have them.
    #[must_use]
    pub fn with_suffixes(mut self, registry: &str, blob: &str) -> Settings {
        self.registry_login_server = login_server(&self.registry, registry);
        blob.clone_into(&mut self.blob_suffix);
        self
    }

    /// The settings of an emulator from the JSON that describes its endpoints, as `shipshape cloud endpoints -o json` prints it.
    /// Reads the files that it names. The first vault by name is used.
    pub fn from_endpoints_json(text: &str) -> Result<Settings, SettingsError> {
        let endpoints: Endpoints = serde_json::from_str(text)
            .map_err(|error| wrong("endpoints", format!("is not the expected JSON: {error}")))?;
        let Some((_, vault)) = endpoints.vaults.into_iter().next() else {
            return Err(wrong("vaults", "is empty; expected a map from name to https URL"));
        };
        let registry: ResourceId =
            endpoints.registry.parse().map_err(|error| wrong("registry", format!("{error}")))?;
        let secret = read(&endpoints.client_secret_file, "clientSecretFile")?.trim().to_owned();
        let ca_pem = endpoints.ca_file.as_deref().map(|path| read(path, "caFile")).transpose()?;
        let credential =
            ServiceCredential::ClientSecret { client_id: endpoints.client_id, secret: Secret::new(secret) };
        let issuers = match (endpoints.issuer_account, endpoints.issuer_url) {
            (Some(account), Some(url)) => {
                let account = account.parse().map_err(|error| wrong("issuerAccount", format!("{error}")))?;
                Some(IssuerSettings { account, url })
            }
            _ => None,
        };
        let settings = Settings {
            authority: endpoints.authority,
            resource_manager: endpoints.resource_manager,
            blob: endpoints.blob,
            identity_service: endpoints.identity_service,
            issuers,
            metadata: endpoints.metadata,
            // The address of an emulated vault is on the loopback interface, not in the domain of its tokens.
            verify_vault_address: false,
            certificate_issuer: EMULATED_ISSUER.to_owned(),
            ca_pem,
            ..Settings::public(&endpoints.tenant_id, &vault, registry, credential)
        };
        settings.validate()?;
        Ok(settings)
    }

    /// Checks every setting; the first wrong one is the error.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every wrong setting.
    pub fn problems(&self) -> Vec<SettingsError> {
        let checks = [
            host_url("authority", &self.authority),
            https("resource_manager", &self.resource_manager),
            host_url("vault", &self.vault),
            self.validate_issuer(),
            self.blob.as_deref().map_or(Ok(()), |it| https("blob", it)),
            self.identity_service.as_deref().map_or(Ok(()), |it| https("identity_service", it)),
            self.metadata.as_deref().map_or(Ok(()), validate_metadata),
            self.issuers.as_ref().map_or(Ok(()), IssuerSettings::validate),
            self.validate_tenant(),
            self.validate_scope(),
            self.validate_registry(),
            validate_host("registry_suffix", &self.registry_login_server),
            validate_host("blob_suffix", &self.blob_suffix),
            self.credential.validate(),
            self.validate_certificate(),
            self.ca_pem.as_deref().map_or(Ok(()), |pem| crate::transport::roots(Some(pem)).map(drop)),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }

    fn validate_certificate(&self) -> Result<(), SettingsError> {
        match &self.credential {
            ServiceCredential::ClientCertificate { client_id, pem } => {
                CertificateAssertion::new(pem, client_id, &self.authority).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn validate_issuer(&self) -> Result<(), SettingsError> {
        // Certificates of an unknown issuer wait for somebody who merges them.
        if self.certificate_issuer.trim().is_empty() || self.certificate_issuer == "Unknown" {
            let why = format!(
                "'{}' issues nothing; expected {SELF_SIGNED} or the name of an issuer of the vault",
                self.certificate_issuer
            );
            return Err(wrong("certificate_issuer", why));
        }
        Ok(())
    }

    fn validate_tenant(&self) -> Result<(), SettingsError> {
        if is_dns_name(&self.tenant_id) {
            return Ok(());
        }
        let why = format!("'{}' is no tenant; expected a UUID or a domain of the directory", self.tenant_id);
        Err(wrong("tenant_id", why))
    }

    fn validate_scope(&self) -> Result<(), SettingsError> {
        if self.scope.starts_with("https://") && self.scope.ends_with("/.default") {
            return Ok(());
        }
        Err(wrong("scope", format!("'{}' is no scope; expected https://HOST/.default", self.scope)))
    }

    fn validate_registry(&self) -> Result<(), SettingsError> {
        let is_registry =
            self.registry.as_str().split('/').nth(7).is_some_and(|it| it.eq_ignore_ascii_case("registries"));
        if ResourceKind::of_id(&self.registry).is_some() || !is_registry {
            let why = format!(
                "'{}' is no container registry; expected …/providers/Microsoft.ContainerRegistry/registries/NAME",
                self.registry
            );
            return Err(wrong("registry", why));
        }
        Ok(())
    }
}

impl IssuerSettings {
    fn validate(&self) -> Result<(), SettingsError> {
        if ResourceKind::of_id(&self.account) != Some(ResourceKind::StorageAccount) {
            let why = format!(
                "'{}' is no storage account; expected …/providers/Microsoft.Storage/storageAccounts/NAME",
                self.account
            );
            return Err(wrong("issuer_account", why));
        }
        https("issuer_url", &self.url)
    }
}

impl ServiceCredential {
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        let named = |client_id: &str| match client_id.trim() {
            "" => Err(wrong("client_id", "is empty; expected the client id of an application or identity")),
            _ => Ok(()),
        };
        match self {
            ServiceCredential::ClientSecret { client_id, secret } => {
                named(client_id)?;
                if secret.expose().trim().is_empty() {
                    return Err(wrong(
                        "client_secret_file",
                        "is empty; expected the secret of the application",
                    ));
                }
                Ok(())
            }
            ServiceCredential::ClientCertificate { client_id, .. } => named(client_id),
            ServiceCredential::WorkloadIdentity { client_id, token_file } => {
                named(client_id)?;
                if !token_file.is_absolute() {
                    let why = format!("'{}' is not an absolute path", token_file.display());
                    return Err(wrong("federated_token_file", why));
                }
                Ok(())
            }
            ServiceCredential::ManagedIdentity { client_id } => client_id.as_deref().map_or(Ok(()), named),
        }
    }

    /// The setting that chooses this credential.
    pub(crate) fn setting(&self) -> &'static str {
        match self {
            ServiceCredential::ClientSecret { .. } => "client_secret_file",
            ServiceCredential::ClientCertificate { .. } => "client_certificate_file",
            ServiceCredential::WorkloadIdentity { .. } => "federated_token_file",
            ServiceCredential::ManagedIdentity { .. } => "managed_identity",
        }
    }

    /// The client id, for messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            ServiceCredential::ClientSecret { client_id, .. }
            | ServiceCredential::ClientCertificate { client_id, .. }
            | ServiceCredential::WorkloadIdentity { client_id, .. }
            | ServiceCredential::ManagedIdentity { client_id: Some(client_id) } => client_id,
            ServiceCredential::ManagedIdentity { client_id: None } => "the machine's managed identity",
        }
    }
}

/// The host of a registry, whose name in it is in lower case.
fn login_server(registry: &ResourceId, suffix: &str) -> String {
    format!("{}.{suffix}", registry.name().to_lowercase())
}

/// Whether a text is labels of letters, digits and hyphens, separated by dots.
fn is_dns_name(text: &str) -> bool {
    text.split('.').all(|label| {
        (1..=LABEL_CHARS_MAX).contains(&label.len())
            && label.chars().all(|it| it.is_ascii_alphanumeric() || it == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

fn validate_host(setting: &'static str, host: &str) -> Result<(), SettingsError> {
    let (name, port) = host.split_once(':').unwrap_or((host, "443"));
    if is_dns_name(name) && port.parse::<u16>().is_ok() {
        return Ok(());
    }
    Err(wrong(setting, format!("'{host}' is no host name; expected one without scheme and path")))
}

fn validate_metadata(value: &str) -> Result<(), SettingsError> {
    let url = Url::parse(value).map_err(|error| wrong("metadata", not_url(value, &error)))?;
    if url.scheme() != "http" {
        let why = format!("'{value}' is not an http URL; the metadata service has no TLS");
        return Err(wrong("metadata", why));
    }
    Ok(())
}

fn not_url(value: &str, error: &dyn std::fmt::Display) -> String {
    format!("'{value}' is no URL ({error})")
}

/// An https URL without a path: the library puts the tenant in place of one, and ids of the vault have no room for it.
fn host_url(setting: &'static str, value: &str) -> Result<(), SettingsError> {
    https(setting, value)?;
    if Url::parse(value).is_ok_and(|it| it.path() != "/") {
        return Err(wrong(setting, format!("'{value}' has a path; expected https://HOST")));
    }
    Ok(())
}

fn https(setting: &'static str, value: &str) -> Result<(), SettingsError> {
    let url = Url::parse(value).map_err(|error| wrong(setting, not_url(value, &error)))?;
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(wrong(setting, format!("'{value}' is not an https URL; tokens travel over TLS only")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(setting, "holds a user or password; expected a URL without them"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(
            setting,
            format!("'{value}' has a query or fragment; expected a URL without them"),
        ));
    }
    Ok(())
}

fn read(path: &Path, setting: &'static str) -> Result<String, SettingsError> {
    fs::read_to_string(path)
        .map_err(|error| wrong(setting, format!("'{}' cannot be read: {error}", path.display())))
}

/// The endpoints of an emulator.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoints {
    authority: String,
    tenant_id: String,
    resource_manager: String,
    vaults: std::collections::BTreeMap<String, String>,
    registry: String,
    #[serde(default)]
    blob: Option<String>,
    client_id: String,
    client_secret_file: PathBuf,
    #[serde(default)]
    ca_file: Option<PathBuf>,
    #[serde(default)]
    identity_service: Option<String>,
    #[serde(default)]
    issuer_account: Option<String>,
    #[serde(default)]
    issuer_url: Option<String>,
    #[serde(default)]
    metadata: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let registry =
            ResourceId::group("s", "g").sibling("Microsoft.ContainerRegistry", "registries", "images");
        let credential = ServiceCredential::ClientSecret {
            client_id: "app".to_owned(),
            secret: Secret::new("hunter2".to_owned()),
        };
        Settings::public("contoso.com", "https://keys.vault.azure.net", registry, credential)
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_value_and_what_is_accepted() {
        let check = |change: &dyn Fn(&mut Settings), expect: &str| {
            let mut settings = settings();
            change(&mut settings);
            let error = settings.validate().expect_err(expect).to_string();
            assert!(error.contains(expect) && !error.contains("hunter2"), "{error}");
        };
        assert_eq!(settings().validate(), Ok(()));
        check(
            &|it| it.authority = "login.microsoftonline.com".to_owned(),
            "setting authority: 'login.microsoftonline.com'",
        );
        check(
            &|it| it.resource_manager = "http://localhost:1".to_owned(),
            "'http://localhost:1' is not an https URL",
        );
        check(
            &|it| it.vault = "https://u:hunter2@vault".to_owned(),
            "setting vault: holds a user or password",
        );
        check(
            &|it| it.authority = "https://login.microsoftonline.com/contoso.com".to_owned(),
            "setting authority: 'https://login.microsoftonline.com/contoso.com' has a path",
        );
        check(&|it| it.tenant_id = "a b".to_owned(), "setting tenant_id: 'a b'");
        check(&|it| it.scope = "https://management.azure.com".to_owned(), "setting scope");
        check(&|it| it.registry = ResourceId::group("s", "g"), "setting registry");
        for issuer in ["", "Unknown"] {
            check(&|it| it.certificate_issuer = issuer.to_owned(), "setting certificate_issuer: '");
        }
        check(
            &|it| *it = it.clone().with_suffixes("https://x", "y"),
            "setting registry_suffix: 'images.https://x'",
        );
        check(&|it| *it = it.clone().with_suffixes("x", ""), "setting blob_suffix: '' is no host name");
        for suffix in ["", ".azurecr.us", "azurecr..us", "azurecr.us.", "-azurecr.us"] {
            check(
                &|it| *it = it.clone().with_suffixes(suffix, "x"),
                &format!("setting registry_suffix: 'images.{suffix}' is no host name"),
            );
            check(
                &|it| *it = it.clone().with_suffixes("x", suffix),
                &format!("setting blob_suffix: '{suffix}' is no host name"),
            );
        }
        check(&|it| it.metadata = Some("https://x".to_owned()), "setting metadata");
        let account = ResourceId::group("s", "g").sibling("Microsoft.Storage", "storageAccounts", "issuers");
        for (account, url, expect) in [
            (ResourceId::group("s", "g"), "https://x", "setting issuer_account: '/subscriptions/s/resource"),
            (account, "http://x", "setting issuer_url: 'http://x' is not an https URL"),
        ] {
            let issuers = IssuerSettings { account, url: url.to_owned() };
            check(&|it| it.issuers = Some(issuers.clone()), expect);
        }
        let empty = |it: &mut Settings| {
            it.credential =
                ServiceCredential::ClientSecret { client_id: "app".into(), secret: Secret::new(" ".into()) };
        };
        check(&empty, "setting client_secret_file: is empty");
        let relative = |it: &mut Settings| {
            it.credential =
                ServiceCredential::WorkloadIdentity { client_id: "a".into(), token_file: "token".into() };
        };
        check(&relative, "'token' is not an absolute path");
    }

    #[test]
    fn every_wrong_setting_is_reported() {
        let settings = Settings { authority: "login".to_owned(), scope: "arm".to_owned(), ..settings() };
        let names: Vec<&str> = settings.problems().iter().map(|it| it.setting).collect();
        assert_eq!(names, ["authority", "scope"]);
    }

    #[test]
    fn hosts_of_a_sovereign_cloud_have_its_suffixes() {
        let settings = settings().with_suffixes("azurecr.us", "blob.core.usgovcloudapi.net");
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.registry_login_server, "images.azurecr.us");
        assert_eq!(settings.blob_suffix, "blob.core.usgovcloudapi.net");
    }

    #[test]
    fn secrets_do_not_show() {
        assert!(!format!("{:?}", settings()).contains("hunter2"));
    }
}
