//! A simulated cloud: in this process, or of another one on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::clock::SystemClock;
use api::secret::Secret;
use cli::private_file;
use cloudsim::{Options, Service, SimClient};
use serde::{Deserialize, Serialize};

use super::CloudProvider;
use crate::config::{Config, FilePath};
use crate::process::Process;
use crate::supervisor::Stage;

/// Directory of a simulated cloud, below the data directory of `up` and below the directory of `sim`.
pub(crate) const DIRECTORY: &str = "cloud";

/// File in that directory with URL and token.
const FILE: &str = "cloud.json";

/// URL and token of a simulated cloud. It has no `Debug`, because the token is secret.
#[derive(Serialize, Deserialize)]
struct Address {
    url: String,
    token: String,
}

/// Connects to the simulated cloud of another process by its file.
pub(super) fn connect(file: &FilePath) -> anyhow::Result<SimClient> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cloud.file {file}: cannot be read"))?;
    // Without the parser's own message, which repeats the text: it holds the token.
    let address: Address = serde_json::from_str(&text)
        .map_err(|_| anyhow::anyhow!("cloud.file {file}: expected JSON with url and token"))?;
    SimClient::new(&address.url, Secret::new(address.token)).with_context(|| format!("cloud.file {file}"))
}

/// The simulated cloud as services use it.
pub(super) fn provider(simulated: SimClient) -> CloudProvider {
    CloudProvider {
        cloud: simulated.cloud(),
        installer: Arc::new(simulated.installer()),
        simulated: Some(simulated),
    }
}

/// Starts a simulated cloud in this process and writes its file to the directory, for other processes on this machine.
pub(crate) async fn start(process: &mut Process, directory: PathBuf) -> anyhow::Result<SimClient> {
    let cloud_ready = process.readiness.condition("cloud");
    cloud_ready.not_ready("opening");
    let options = Options {
        directory: Some(directory.clone()),
        listen: process.config.cloud.simulated_at,
        clock: Arc::new(SystemClock),
        seed: 0,
        pace: process.config.cloud.pace,
    };
    let service = Service::open(options).await.context("the simulated cloud")?;
    let cloud = service.client()?;
    publish(&directory.join(FILE), &service)?;
    tracing::info!("The simulated cloud is at {}", service.url());
    // Workers depend on it, so it is stopped last.
    process.tasks.spawn(Stage::Infrastructure, "cloud", move |shutdown| async move {
        Ok(service.serve(shutdown).await?)
    });
    cloud_ready.ready();
    Ok(cloud)
}

/// The directory of the simulated cloud of `up`.
pub(crate) fn directory(config: &Config) -> PathBuf {
    let data: &Path = config.data_dir.as_ref();
    data.join(DIRECTORY)
}

/// Writes URL and token of the cloud.
fn publish(path: &Path, service: &Service) -> anyhow::Result<()> {
    let address = Address { url: service.url(), token: service.token().expose().clone() };
    let text = serde_json::to_string(&address)?;
    private_file::write(path, &text)
}
