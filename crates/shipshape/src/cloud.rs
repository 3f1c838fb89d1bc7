//! The cloud that clusters are made in: a simulated one in this process, or the way to one that runs elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::clock::SystemClock;
use api::secret::Secret;
use cli::private_file;
use cloudsim::{Options, Service, SimClient};
use serde::{Deserialize, Serialize};

use crate::config::{CloudConfig, Config};
use crate::process::Process;
use crate::supervisor::Stage;

/// Where a simulated cloud keeps what it holds, below the data directory of `up`, and below the directory of `sim` there.
pub(crate) const DIRECTORY: &str = "cloud";

/// The file in that directory that says where it is.
const FILE: &str = "cloud.json";

/// Where a simulated cloud is and how to come in. It holds a token, so it has no `Debug`.
#[derive(Serialize, Deserialize)]
struct Address {
    url: String,
    token: String,
}

/// The cloud that the settings mean: another process's, or one of our own.
pub(crate) async fn ensure(process: &mut Process) -> anyhow::Result<SimClient> {
    match elsewhere(&process.config.cloud)? {
        Some(cloud) => Ok(cloud),
        None => {
            let directory = directory(&process.config);
            own(process, directory).await
        }
    }
}

/// The cloud of another process, if the settings name one.
pub(crate) fn elsewhere(config: &CloudConfig) -> anyhow::Result<Option<SimClient>> {
    let Some(file) = &config.file else { return Ok(None) };
    let text = std::fs::read_to_string(file).with_context(|| format!("cloud.file {file}: cannot be read"))?;
    // Without the parser's own words, which repeat the text: it holds the token.
    let address: Address = serde_json::from_str(&text)
        .map_err(|_| anyhow::anyhow!("cloud.file {file}: expected JSON with url and token"))?;
    let cloud = SimClient::new(&address.url, Secret::new(address.token));
    Ok(Some(cloud.with_context(|| format!("cloud.file {file}"))?))
}

/// A simulated cloud in this process, which others on this machine find by its file in that directory.
pub(crate) async fn own(process: &mut Process, directory: PathBuf) -> anyhow::Result<SimClient> {
    let answers = process.readiness.condition("cloud");
    answers.not_ready("opening");
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
    // Those who make clusters stand on it, so it is the last to go.
    process.tasks.spawn(
        Stage::Keel,
        "cloud",
        move |shutdown| async move { Ok(service.serve(shutdown).await?) },
    );
    answers.ready();
    Ok(cloud)
}

fn directory(config: &Config) -> PathBuf {
    let data: &Path = config.data_dir.as_ref();
    data.join(DIRECTORY)
}

/// Says where the cloud is, and the token that opens it.
fn publish(path: &Path, service: &Service) -> anyhow::Result<()> {
    let address = Address { url: service.url(), token: service.token().expose().clone() };
    let text = serde_json::to_string(&address)?;
    private_file::write(path, &text)
}
