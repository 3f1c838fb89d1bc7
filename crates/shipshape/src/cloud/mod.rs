//! The cloud that clusters are created in: Azure by its settings, or a simulated one, which is only in builds with the feature `sim`.

mod azure;
mod check;
#[cfg(feature = "sim")]
pub(crate) mod simulated;
mod unavailable_installer;

use std::sync::Arc;

use anyhow::Context as _;
use api::install::SharedInstaller;
use cloud::Cloud;

use crate::config::{CloudConfig, Config, ProviderKind};
use crate::process::Process;
use crate::services;
pub(crate) use azure::AzureConfigErrors;
use check::{CloudCheck, CloudReport};
use unavailable_installer::UnavailableInstaller;

/// A cloud and its installer of clusters.
#[derive(Clone)]
pub(crate) struct CloudProvider {
    /// The cloud.
    pub(crate) cloud: Cloud,
    /// The installer of clusters.
    pub(crate) installer: SharedInstaller,
    /// The client of the simulated cloud, for actions that only a simulator has.
    #[cfg(feature = "sim")]
    pub(crate) simulated: Option<cloudsim::SimClient>,
    /// Where a simulated cloud in this process forwards requests to.
    #[cfg(feature = "sim")]
    pub(crate) resource_providers: Option<cloudsim::ResourceProviders>,
}

impl CloudProvider {
    /// Azure by its settings. No installer works there yet, so installations are rejected with the reason.
    fn azure(config: &CloudConfig) -> anyhow::Result<CloudProvider> {
        Ok(CloudProvider {
            cloud: azure::client(&config.azure)?.cloud(),
            installer: Arc::new(UnavailableInstaller),
            #[cfg(feature = "sim")]
            simulated: None,
            #[cfg(feature = "sim")]
            resource_providers: None,
        })
    }
}

/// The cloud that the settings name, else a simulated one in this process.
#[cfg(feature = "sim")]
pub(crate) async fn ensure(process: &mut Process) -> anyhow::Result<Option<CloudProvider>> {
    match configured(&process.config.cloud)? {
        Some(provider) => Ok(Some(provider)),
        None => {
            let directory = simulated::directory(&process.config);
            let (client, resource_providers) = simulated::start(process, directory).await?;
            let provider = simulated::provider(client);
            Ok(Some(CloudProvider { resource_providers: Some(resource_providers), ..provider }))
        }
    }
}

/// The cloud that the settings name.
#[cfg(not(feature = "sim"))]
pub(crate) async fn ensure(process: &mut Process) -> anyhow::Result<Option<CloudProvider>> {
    configured(&process.config.cloud)
}

/// The cloud that the settings name, if any.
pub(crate) fn configured(config: &CloudConfig) -> anyhow::Result<Option<CloudProvider>> {
    match (config.provider, &config.file) {
        (ProviderKind::Azure, None) => CloudProvider::azure(config).map(Some),
        (ProviderKind::Azure, Some(file)) => {
            anyhow::bail!(
                "cloud.file {file} names a simulated cloud, but cloud.provider is azure; remove one of them"
            )
        }
        (ProviderKind::Simulated, None) => Ok(None),
        #[cfg(feature = "sim")]
        (ProviderKind::Simulated, Some(file)) => Ok(Some(simulated::provider(simulated::connect(file)?))),
        #[cfg(not(feature = "sim"))]
        (ProviderKind::Simulated, Some(file)) => {
            anyhow::bail!("cloud.file {file}: this build has no client of the simulated cloud")
        }
    }
}

/// The client of Azure by the settings.
#[cfg(feature = "sim")]
pub(crate) fn azure_client(config: &Config) -> anyhow::Result<cloud_azure::AzureClient> {
    match config.cloud.provider {
        ProviderKind::Azure => Ok(azure::client(&config.cloud.azure)?),
        ProviderKind::Simulated => anyhow::bail!(
            "cloud.provider is simulated; --azure needs the settings of Azure, which --config names (docs/how-to/run-on-azure.md)"
        ),
    }
}

/// Checks the settings of the cloud without sending anything.
pub(crate) fn validate(config: &Config) -> Result<(), AzureConfigErrors> {
    match config.cloud.provider {
        ProviderKind::Azure => azure::validate(&config.cloud.azure),
        ProviderKind::Simulated => Ok(()),
    }
}

/// Prints the check of the cloud; missing pieces are an error.
pub(crate) async fn print_check(config: &Config) -> anyhow::Result<()> {
    let report = check(config).await?;
    cli::output::show(&report.to_text())?;
    match report.missing() {
        0 => Ok(()),
        1 => anyhow::bail!("one piece is missing in the cloud"),
        missing => anyhow::bail!("{missing} pieces are missing in the cloud"),
    }
}

/// Checks whether the configured cloud offers what the first cluster needs. Reads only.
async fn check(config: &Config) -> anyhow::Result<CloudReport> {
    let provider = configured(&config.cloud)?
        .context("no cloud is configured: set cloud.provider to azure, or cloud.file to a simulated one")?;
    let service = services::service_resources(config);
    let actions = cloud_azure::required_actions();
    let actions: Vec<&str> = actions.iter().map(String::as_str).collect();
    let check = CloudCheck {
        cloud: &provider.cloud,
        service: &service,
        locations: &config.clusters.locations,
        actions: &actions,
    };
    Ok(check.run().await)
}
