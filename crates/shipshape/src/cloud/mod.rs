//! The cloud that clusters are created in. For now it is a simulated one, which is only in builds with the feature `sim`.

#[cfg(feature = "sim")]
pub(crate) mod simulated;

use api::install::SharedInstaller;
use cloud::Cloud;

use crate::config::CloudConfig;
#[cfg(feature = "sim")]
use crate::config::ProviderKind;
use crate::process::Process;

/// A cloud and its installer of clusters.
#[derive(Clone)]
pub(crate) struct CloudProvider {
    /// The cloud.
    pub(crate) cloud: Cloud,
    /// The installer of clusters.
    pub(crate) installer: SharedInstaller,
    /// The client of the simulated cloud, for actions that only a simulator has.
    #[cfg(feature = "sim")]
    pub(crate) simulated: cloudsim::SimClient,
}

/// The cloud that the settings name, else a simulated one in this process.
#[cfg(feature = "sim")]
pub(crate) async fn ensure(process: &mut Process) -> anyhow::Result<Option<CloudProvider>> {
    match configured(&process.config.cloud)? {
        Some(provider) => Ok(Some(provider)),
        None => {
            let directory = simulated::directory(&process.config);
            Ok(Some(simulated::provider(simulated::start(process, directory).await?)))
        }
    }
}

/// The cloud that the settings name.
#[cfg(not(feature = "sim"))]
pub(crate) async fn ensure(process: &mut Process) -> anyhow::Result<Option<CloudProvider>> {
    configured(&process.config.cloud)
}

/// The cloud that the settings name, if any.
#[cfg(feature = "sim")]
pub(crate) fn configured(config: &CloudConfig) -> anyhow::Result<Option<CloudProvider>> {
    let ProviderKind::Simulated = config.provider;
    let Some(file) = &config.file else { return Ok(None) };
    Ok(Some(simulated::provider(simulated::connect(file)?)))
}

/// The cloud that the settings name, if any.
#[cfg(not(feature = "sim"))]
pub(crate) fn configured(config: &CloudConfig) -> anyhow::Result<Option<CloudProvider>> {
    match &config.file {
        None => Ok(None),
        Some(file) => anyhow::bail!("cloud.file {file}: this build has no client of the simulated cloud"),
    }
}
