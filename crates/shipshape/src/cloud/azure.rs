//! Azure as the cloud of the clusters: its settings become those of the client.

use anyhow::{Context as _, anyhow, bail};
use api::secret::Secret;
use cloud::ResourceId;
use cloud_azure::{AzureClient, ServiceCredential, Settings};

use crate::config::{AzureConfig, FilePath};

/// The client that the settings describe. Nothing is sent yet.
pub(super) fn client(config: &AzureConfig) -> anyhow::Result<AzureClient> {
    AzureClient::new(settings(config)?)
        .map_err(|error| anyhow!("cloud.azure.{}: {}", error.setting, error.why))
}

fn settings(config: &AzureConfig) -> anyhow::Result<Settings> {
    let tenant = required("cloud.azure.tenant_id", config.tenant_id.map(|it| it.to_string()))?;
    let vault = required("cloud.azure.vault", config.vault.clone())?;
    let registry = required("cloud.azure.registry", config.registry.clone())?;
    let registry: ResourceId = registry.parse().with_context(|| {
        format!("cloud.azure.registry = {registry:?}: expected the resource id of a container registry")
    })?;
    let mut settings = Settings::public(&tenant, &vault, registry, credential(config)?)
        .with_suffixes(&config.registry_suffix, &config.blob_suffix);
    settings.authority.clone_from(&config.authority);
    settings.resource_manager.clone_from(&config.resource_manager);
    settings.scope.clone_from(&config.scope);
    settings.verify_vault_address = config.verify_vault_address;
    settings.certificate_issuer.clone_from(&config.certificate_issuer);
    settings.blob.clone_from(&config.blob);
    settings.identity_service.clone_from(&config.identity_service);
    settings.metadata.clone_from(&config.metadata);
    settings.ca_pem = config.ca_file.as_ref().map(|file| read("cloud.azure.ca_file", file)).transpose()?;
    Ok(settings)
}

/// The credential, of which exactly one must be set.
fn credential(config: &AzureConfig) -> anyhow::Result<ServiceCredential> {
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
            let token_file = std::path::absolute(file).with_context(|| {
                format!("cloud.azure.federated_token_file {file}: cannot be made an absolute path")
            })?;
            Ok(ServiceCredential::WorkloadIdentity { client_id: client_id()?, token_file })
        }
        (None, None, None, true) => {
            Ok(ServiceCredential::ManagedIdentity { client_id: config.client_id.clone() })
        }
        _ => bail!(
            "cloud.provider is azure, which needs exactly one of cloud.azure.client_secret_file, \
             cloud.azure.client_certificate_file, cloud.azure.federated_token_file and cloud.azure.managed_identity"
        ),
    }
}

fn required<T>(key: &str, value: Option<T>) -> anyhow::Result<T> {
    value.with_context(|| format!("cloud.provider is azure, but {key} is not set"))
}

/// The text of a file, whose content is not repeated in an error.
fn read(key: &str, file: &FilePath) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{key} {file}: cannot be read"))
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
        ] {
            let error = format!("{:#}", settings(&change).unwrap_err());
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
        assert_eq!(error, "cloud.azure.client_secret_file /nonexistent/secret: cannot be read");
    }
}
