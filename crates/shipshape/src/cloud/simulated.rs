//! A simulated cloud: in this process, or of another one on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::clock::SystemClock;
use cloudsim::{Options, ResourceProviders, Service, SimClient};

use super::CloudProvider;
use crate::config::{Config, FilePath};
use crate::process::Process;
#[cfg(feature = "agent")]
use crate::roles::SimulatedRoles;
use crate::supervisor::Stage;

/// Directory of a simulated cloud, below the data directory of `up` and below the directory of `sim`.
pub(crate) const DIRECTORY: &str = "cloud";

/// Connects to the simulated cloud of another process by the file of its endpoints.
pub(super) fn connect(file: &FilePath) -> anyhow::Result<SimClient> {
    SimClient::open(file.as_ref()).with_context(|| format!("cloud.file {file}"))
}

/// The simulated cloud as services use it.
pub(super) fn provider(simulated: SimClient) -> CloudProvider {
    CloudProvider {
        cloud: simulated.cloud(),
        installer: Arc::new(simulated.installer()),
        simulated: Some(simulated),
        resource_providers: None,
    }
}

/// Starts a simulated cloud in this process. The directory gets a file of its endpoints, for other processes on this machine.
pub(crate) async fn start(
    process: &mut Process,
    directory: PathBuf,
) -> anyhow::Result<(SimClient, ResourceProviders)> {
    let cloud_ready = process.readiness.condition("cloud");
    cloud_ready.not_ready("opening");
    let options = Options {
        directory: Some(directory),
        listen: process.config.cloud.simulated_at,
        clock: Arc::new(SystemClock),
        seed: 0,
        pace: process.config.cloud.pace,
        ..Options::default()
    };
    #[cfg(feature = "agent")]
    let roles = Arc::new(SimulatedRoles::default());
    #[cfg(feature = "agent")]
    let options = Options {
        runtimes: Some(roles.clone().runtimes()),
        payload: Some(crate::roles::payload()?),
        ..options
    };
    let service = Service::open(options).await.context("the simulated cloud")?;
    // Before it serves: clusters of an earlier run start with it, and roles in them.
    #[cfg(feature = "agent")]
    roles.connect(&service.endpoints()).context("the simulated cloud, for the roles in its clusters")?;
    let (cloud, providers) = (service.client()?, service.providers());
    tracing::info!("The simulated cloud is at {}", service.endpoints().resource_manager);
    // Workers depend on it, so it is stopped last.
    process.tasks.spawn(Stage::Infrastructure, "cloud", move |shutdown| async move {
        Ok(service.serve(shutdown).await?)
    });
    cloud_ready.ready();
    Ok((cloud, providers))
}

/// The directory of the simulated cloud of `up`.
pub(crate) fn directory(config: &Config) -> PathBuf {
    let data: &Path = config.data_dir.as_ref();
    data.join(DIRECTORY)
}
