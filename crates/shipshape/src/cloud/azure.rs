//! Azure as the cloud of the clusters: its settings become those of the client.

use std::fmt;

use api::secret::Secret;
use cloud::ResourceId;
use cloud_azure::{AzureClient, IssuerSettings, ServiceCredential, Settings, SettingsError};
use uuid::Uuid;

use crate::config::{AzureConfig, FilePath};

/// Everything that is wrong with the settings of Azure, one sentence each; never empty.
#[derive(Debug)]
pub(crate) struct AzureConfigErrors(Vec<String>);

impl AzureConfigErrors {
    /// One sentence per mistake.
    pub(crate) fn sentences(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for AzureConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for AzureConfigErrors {}

/// The client that the settings describe. Nothing is sent yet.
pub(super) fn client(config: &AzureConfig) -> Result<AzureClient, AzureConfigErrors> {
    AzureClient::new(settings(config)?).map_err(|error| AzureConfigErrors(vec![sentence(&error)]))
}

/// Checks the settings without sending anything. The files that they name are read.
pub(crate) fn validate(config: &AzureConfig) -> Result<(), AzureConfigErrors> {
    client(config).map(drop)
}

fn sentence(error: &SettingsError) -> String {
    format!("cloud.azure.{}: {}", error.setting, error.why)
}

fn settings(config: &AzureConfig) -> Result<Settings, AzureConfigErrors> {
    let mut problems = Vec::new();
    // What is missing is replaced by something valid, so that one mistake does not hide the next.
    let mut or_valid = |value: Result<String, String>, valid: &str| {
        value.unwrap_or_else(|problem| {
            problems.push(problem);
            valid.to_owned()
        })
    };
    let tenant = config.tenant_id.map(|it| it.to_string());
    let tenant = or_valid(required("cloud.azure.tenant_id", tenant), &Uuid::nil().to_string());
    let vault = or_valid(required("cloud.azure.vault", config.vault.clone()), "https://vault.invalid");
    let registry = registry(config).unwrap_or_else(|problem| {
        problems.push(problem);
        ResourceId::group("s", "g").sibling("Microsoft.ContainerRegistry", "registries", "r")
    });
    let credential = credential(config).unwrap_or_else(|problem| {
        problems.push(problem);
        ServiceCredential::ManagedIdentity { client_id: None }
    });
    let issuers = issuers(config).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let ca_pem = config.ca_file.as_ref().map(|file| read("cloud.azure.ca_file", file));
    let ca_pem = ca_pem.transpose().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let mut settings = Settings::public(&tenant, &vault, registry, credential)
        .with_suffixes(&config.registry_suffix, &config.blob_suffix);
    settings.authority.clone_from(&config.authority);
    settings.resource_manager.clone_from(&config.resource_manager);
    settings.scope.clone_from(&config.scope);
    settings.verify_vault_address = config.verify_vault_address;
    settings.certificate_issuer.clone_from(&config.certificate_issuer);
    settings.blob.clone_from(&config.blob);
    settings.identity_service.clone_from(&config.identity_service);
    settings.metadata.clone_from(&config.metadata);
    settings.issuers = issuers;
    settings.ca_pem = ca_pem;
    problems.extend(settings.problems().iter().map(sentence));
    if problems.is_empty() { Ok(settings) } else { Err(AzureConfigErrors(problems)) }
}

fn registry(config: &AzureConfig) -> Result<ResourceId, String> {
    let registry = required("cloud.azure.registry", config.registry.clone())?;
    registry.parse().map_err(|error| {
        format!(
            "cloud.azure.registry = {registry:?}: expected the resource id of a container registry ({error})"
        )
    })
}

/// The website of token issuers, which has an account and an address.
fn issuers(config: &AzureConfig) -> Result<Option<IssuerSettings>, String> {
    let (account, url) = match (&config.issuer_account, &config.issuer_url) {
        (None, None) => return Ok(None),
        (Some(account), Some(url)) => (account, url),
        (Some(_), None) => {
            return Err("cloud.azure.issuer_account is set, but cloud.azure.issuer_url is not set".to_owned());
        }
        (None, Some(_)) => {
            return Err("cloud.azure.issuer_url is set, but cloud.azure.issuer_account is not set".to_owned());
        }
    };
    let account = account.parse().map_err(|error| {
        format!(
            "cloud.azure.issuer_account = {account:?}: expected the resource id of a storage account ({error})"
        )
    })?;
    Ok(Some(IssuerSettings { account, url: url.clone() }))
}

/// The credential, of which exactly one must be set.
fn credential(config: &AzureConfig) -> Result<ServiceCredential, String> {
    let client_id = || required("cloud.azure.client_id", config.client_id.clone());
    let AzureConfig { client_secret_file, client_certificate_file, federated_token_file, .. } = config;
    match (client_secret_file, client_certificate_file, federated_token_file, config.managed_identity) {
        (Some(file), None, None, false) => {
            let secret = read("cloud.azure.client_secret_file", file)?;
            let secret = Secret::new(secret.trim_end().to_owned());
            Ok(ServiceCredential::ClientSecret { client_id: client_id()?, secret })
        }
        (None, Some(file), None, false) => {
            let pem = Secret::new(read("cloud.azure.client_certificate_file", file)?);
            Ok(ServiceCredential::ClientCertificate { client_id: client_id()?, pem })
        }
        (None, None, Some(file), false) => {
            let token_file = std::path::absolute(file).map_err(|error| {
                format!("cloud.azure.federated_token_file {file}: cannot be made an absolute path: {error}")
            })?;
            Ok(ServiceCredential::WorkloadIdentity { client_id: client_id()?, token_file })
        }
        (None, None, None, true) => {
            Ok(ServiceCredential::ManagedIdentity { client_id: config.client_id.clone() })
        }
        _ => Err("cloud.provider is azure, which needs exactly one of cloud.azure.client_secret_file, \
                  cloud.azure.client_certificate_file, cloud.azure.federated_token_file and \
                  cloud.azure.managed_identity"
            .to_owned()),
    }
}

fn required<T>(key: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("cloud.provider is azure, but {key} is not set"))
}

/// The text of a file, whose content is not repeated in an error.
fn read(key: &str, file: &FilePath) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{key} {file}: cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/images";

    fn complete() -> AzureConfig {
        AzureConfig {
            tenant_id: Some(uuid::Uuid::nil()),
            client_id: Some("app".to_owned()),
            managed_identity: true,
            vault: Some("https://keys.vault.azure.net".to_owned()),
            registry: Some(REGISTRY.to_owned()),
            ..AzureConfig::default()
        }
    }

    #[test]
    fn a_missing_setting_is_named() {
        assert!(settings(&complete()).is_ok());
        for (change, named) in [
            (AzureConfig { tenant_id: None, ..complete() }, "cloud.azure.tenant_id is not set"),
            (AzureConfig { vault: None, ..complete() }, "cloud.azure.vault is not set"),
            (AzureConfig { registry: None, ..complete() }, "cloud.azure.registry is not set"),
            (
                AzureConfig { registry: Some("images".to_owned()), ..complete() },
                "cloud.azure.registry = \"images\"",
            ),
            (AzureConfig { managed_identity: false, ..complete() }, "exactly one of"),
            (
                AzureConfig { issuer_account: Some(REGISTRY.to_owned()), ..complete() },
                "cloud.azure.issuer_account is set, but cloud.azure.issuer_url is not set",
            ),
            (
                AzureConfig { issuer_url: Some("https://x".to_owned()), ..complete() },
                "cloud.azure.issuer_url is set, but cloud.azure.issuer_account is not set",
            ),
            (
                AzureConfig {
                    issuer_account: Some(REGISTRY.to_owned()),
                    issuer_url: Some("https://x".to_owned()),
                    ..complete()
                },
                "is no storage account",
            ),
        ] {
            let error = settings(&change).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_as_in_the_configuration() {
        let changed = |change: &dyn Fn(&mut AzureConfig)| {
            let mut config = complete();
            change(&mut config);
            config
        };
        for (config, expect) in [
            (changed(&|it| it.authority = "login".to_owned()), "cloud.azure.authority: 'login' is no URL"),
            (
                changed(&|it| it.blob_suffix = "https://blob".to_owned()),
                "cloud.azure.blob_suffix: 'https://blob' is no host name; expected one without scheme and path",
            ),
            (
                changed(&|it| it.registry_suffix = "azurecr us".to_owned()),
                "cloud.azure.registry_suffix: 'images.azurecr us' is no host name",
            ),
            (changed(&|it| it.scope = "arm".to_owned()), "cloud.azure.scope: 'arm' is no scope"),
        ] {
            let error = client(&config).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
    }

    #[test]
    fn every_wrong_setting_is_named_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            Some(serde_json::from_value(serde_json::json!(path)).unwrap())
        };
        let config = AzureConfig {
            tenant_id: None,
            registry: Some("images".to_owned()),
            scope: "arm".to_owned(),
            blob_suffix: "https://blob".to_owned(),
            managed_identity: false,
            client_certificate_file: file("certificate", "hunter2"),
            ca_file: file("ca", "no certificate"),
            ..complete()
        };
        let errors = validate(&config).unwrap_err();
        let named = [
            "cloud.provider is azure, but cloud.azure.tenant_id",
            "cloud.azure.registry",
            "cloud.azure.scope",
            "cloud.azure.blob_suffix",
            "cloud.azure.client_certificate_file: holds no certificate",
            "cloud.azure.ca_file: holds no certificate",
        ];
        assert_eq!(errors.sentences().len(), named.len(), "{errors}");
        for (sentence, named) in errors.sentences().iter().zip(named) {
            assert!(sentence.starts_with(named), "{sentence}");
        }
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }

    #[test]
    fn suffixes_of_a_sovereign_cloud_are_settings() {
        let config = AzureConfig {
            registry_suffix: "azurecr.us".to_owned(),
            blob_suffix: "blob.core.usgovcloudapi.net".to_owned(),
            ..complete()
        };
        let settings = settings(&config).unwrap();
        assert_eq!(settings.registry_login_server, "images.azurecr.us");
        assert_eq!(settings.blob_suffix, "blob.core.usgovcloudapi.net");
    }

    #[test]
    fn an_unreadable_secret_file_is_named_by_its_setting() {
        let file = serde_json::from_value(serde_json::json!("/nonexistent/secret")).unwrap();
        let config = AzureConfig { managed_identity: false, client_secret_file: Some(file), ..complete() };
        let error = settings(&config).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "cloud.azure.client_secret_file /nonexistent/secret: cannot be read: No such file"
            ),
            "{error}"
        );
    }
}
