//! The simulated cloud of a server on this machine, found by a file in the server's data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::error::{Class, Classify as _};
use cloud::{
    CloudError, Infrastructure as _, Properties, Resource, ResourceId, ResourceRequest, ResourceState,
};
use cloud_azure::AzureClient;
use cloudsim::SimClient;
use tokio::time::Instant;

use crate::contexts::SelectedContext;

/// Path of the file in the server's data directory.
const FILE: &str = "cloud/endpoints.json";

/// Longest wait until a resource is ready; a slowed-down simulation takes longer than seconds.
pub(super) const READY_MAX: Duration = Duration::from_secs(120);

/// Interval between two reads of a resource that is not ready.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A simulated cloud and its directory.
#[derive(Debug)]
pub struct SimulatedCloud {
    pub cloud: SimClient,
    pub(super) directory: PathBuf,
}

impl SimulatedCloud {
    /// The simulated cloud of the server of a context.
    pub fn from_context(selected: &SelectedContext) -> anyhow::Result<SimulatedCloud> {
        let Some(data_dir) = selected.file.as_deref().and_then(Path::parent) else {
            bail!(
                "--server names no data directory with a simulated cloud; pass the context of the server (--context NAME)"
            );
        };
        let path = data_dir.join(FILE);
        if !path.exists() {
            bail!(
                "{}: the server of context {} has no simulated cloud on this machine; `shipshape up` runs one unless its settings name another cloud",
                path.display(),
                selected.name
            );
        }
        let cloud = SimClient::open(&path)?;
        Ok(SimulatedCloud { cloud, directory: data_dir.join("cloud") })
    }

    /// A simulated cloud with its directory.
    pub fn new(cloud: SimClient, directory: PathBuf) -> SimulatedCloud {
        SimulatedCloud { cloud, directory }
    }

    /// Creates or updates a resource and waits until it is ready.
    pub(super) async fn ensure(
        &self,
        id: &ResourceId,
        location: &str,
        properties: Properties,
    ) -> anyhow::Result<Resource> {
        ensure_ready(self.cloud.azure(), id, location, properties).await
    }
}

/// Creates or updates a resource and waits until it is ready.
pub(super) async fn ensure_ready(
    azure: &AzureClient,
    id: &ResourceId,
    location: &str,
    properties: Properties,
) -> anyhow::Result<Resource> {
    let request = ResourceRequest {
        id: id.clone(),
        location: location.to_owned(),
        tags: std::collections::BTreeMap::new(),
        properties,
    };
    let limit = Instant::now() + READY_MAX;
    retry_transient(limit, || azure.put(request.clone())).await.with_context(|| format!("{id}"))?;
    loop {
        let found = retry_transient(limit, || azure.get(id)).await.with_context(|| format!("{id}"))?;
        match found.as_ref().map(|it| &it.state) {
            Some(ResourceState::Failed { failure }) => {
                bail!("{id}: {} ({})", failure.message, failure.code)
            }
            Some(ResourceState::Succeeded) => {
                if let Some(resource) = found {
                    return Ok(resource);
                }
            }
            // Not visible yet, or in progress.
            None | Some(ResourceState::Creating | ResourceState::Updating | ResourceState::Deleting) => {}
        }
        if Instant::now() > limit {
            bail!("{id}: not ready after {READY_MAX:?}; run `shipshape cloud show {id}` to see its state");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Retries a request until the limit while its errors are transient.
pub(super) async fn retry_transient<T, F>(limit: Instant, request: impl Fn() -> F) -> Result<T, CloudError>
where
    F: Future<Output = Result<T, CloudError>>,
{
    loop {
        match request().await {
            Err(error) if error.class() == Class::Transient && Instant::now() < limit => {
                tokio::time::sleep(error.retry_after().unwrap_or(POLL_INTERVAL)).await;
            }
            result => return result,
        }
    }
}
