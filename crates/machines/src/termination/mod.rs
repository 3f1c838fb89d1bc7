//! Watches for the notice that a cloud is about to reclaim the instance of this Node, and sets the Node's condition
//! `Terminating`. A MachineHealthCheck deletes the Machine then; this never does.
//!
//! The condition is set once and kept. Nothing but it is written, and the API server is asked for nothing while there is no notice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::clock::SharedClock;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

mod aws;
mod azure;
pub(crate) mod decide;
mod gcp;
mod metadata;
#[cfg(test)]
mod tests;

use decide::Notice;
pub use metadata::{MetadataAddress, MetadataError};

/// Field manager of the condition.
const MANAGER: &str = "shipshape-termination-handler";
/// Time until a request of the API server that failed is made again.
const RETRY: Duration = Duration::from_secs(1);

/// A cloud that announces the end of an instance in its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
}

impl CloudProvider {
    /// All of them.
    pub const ALL: [CloudProvider; 3] = [CloudProvider::Aws, CloudProvider::Azure, CloudProvider::Gcp];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            CloudProvider::Aws => "aws",
            CloudProvider::Azure => "azure",
            CloudProvider::Gcp => "gcp",
        }
    }
}

impl fmt::Display for CloudProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CloudProvider {
    type Err = String;

    fn from_str(text: &str) -> Result<CloudProvider, String> {
        let found = CloudProvider::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| {
            format!("{text:?} is no cloud with termination notices; accepted: aws, azure, gcp")
        })
    }
}

/// What the handler needs to know.
#[derive(Debug, Clone)]
pub struct TerminationSettings {
    /// The Node on whose instance this process runs.
    pub node: String,
    /// The cloud; `None` to learn it from the Node's providerID.
    pub provider: Option<CloudProvider>,
    /// Where the instance metadata are.
    pub address: MetadataAddress,
    /// Time between two looks at the metadata.
    pub poll_interval: Duration,
}

/// Why the handler ended.
#[derive(Debug, thiserror::Error)]
pub enum TerminationError {
    /// The metadata could not be read, also not after retries. The kubelet starts the process again.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// There is no such Node.
    #[error("Node {0} does not exist; NODE_NAME or --node-name must name the Node on which the handler runs")]
    NoNode(String),
    /// The Node is not in a cloud that announces terminations.
    #[error(
        "Node {node}: spec.providerID {provider_id:?} must begin with aws://, azure:// or gce://; elsewhere, give --cloud-provider"
    )]
    UnknownProvider {
        /// The Node.
        node: String,
        /// What it has instead.
        provider_id: String,
    },
}

/// What the handler knows so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationState {
    /// The metadata can be read, and there is no notice.
    Watching,
    /// There is a notice, and the Node has its condition.
    Reported,
}

/// Watches until `shutdown`, or until the metadata cannot be read. `observe` is called after every look that succeeded.
///
/// It goes on after it has set the condition: a process that ended would be started again at once, only to find the notice still there.
pub async fn run(
    client: Client,
    settings: TerminationSettings,
    clock: SharedClock,
    mut observe: impl FnMut(TerminationState) + Send,
    shutdown: CancellationToken,
) -> Result<(), TerminationError> {
    let handler = Handler { nodes: Api::all(client), settings, clock };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = handler.watch(&mut observe) => ended,
    }
}

struct Handler {
    nodes: Api<Node>,
    settings: TerminationSettings,
    clock: SharedClock,
}

impl Handler {
    async fn watch(
        self,
        observe: &mut (impl FnMut(TerminationState) + Send),
    ) -> Result<(), TerminationError> {
        let provider = match self.settings.provider {
            Some(provider) => provider,
            None => self.provider_of_node().await?,
        };
        let mut notices = Notices::new(provider, self.settings.address.clone());
        let mut ticks = interval(self.settings.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            observe(match notices.look().await? {
                Notice::None => TerminationState::Watching,
                Notice::Termination => {
                    self.report().await?;
                    TerminationState::Reported
                }
            });
        }
    }

    /// The cloud that the Node names.
    async fn provider_of_node(&self) -> Result<CloudProvider, TerminationError> {
        let node = self.node().await?;
        let provider_id = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        decide::provider_of(&provider_id)
            .ok_or(TerminationError::UnknownProvider { node: self.settings.node.clone(), provider_id })
    }

    /// The Node, however long the API server is away.
    async fn node(&self) -> Result<Node, TerminationError> {
        let name = &self.settings.node;
        loop {
            match self.nodes.get_opt(name).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => return Err(TerminationError::NoNode(name.clone())),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Node {name} could not be read; retrying in {} s",
                    RETRY.as_secs()
                ),
            }
            sleep(RETRY).await;
        }
    }

    /// Sets the condition, however long the API server is away. A Node that has it is not written.
    async fn report(&self) -> Result<(), TerminationError> {
        let name = &self.settings.node;
        loop {
            let node = self.node().await?;
            let Some(condition) = decide::condition(&node, self.clock.now()) else { return Ok(()) };
            // With uid and version the patch reaches neither another Node of the name nor a condition that somebody else has set since.
            let patch = Patch::Strategic(serde_json::json!({
                "metadata": {"uid": node.uid(), "resourceVersion": node.resource_version()},
                "status": {"conditions": [condition]},
            }));
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            match self.nodes.patch_status(name, &params, &patch).await {
                Ok(_) => {
                    tracing::info!(
                        "The cloud is about to take back the instance of Node {name}; it is Terminating"
                    );
                    return Ok(());
                }
                // The kubelet writes its Node too.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "The condition of Node {name} could not be set; retrying in {} s",
                        RETRY.as_secs()
                    );
                    sleep(RETRY).await;
                }
            }
        }
    }
}

/// The notices of one cloud.
enum Notices {
    Aws(aws::SpotNotices),
    Azure(azure::ScheduledEvents),
    Gcp(gcp::Preemption),
}

impl Notices {
    fn new(provider: CloudProvider, address: MetadataAddress) -> Notices {
        match provider {
            CloudProvider::Aws => Notices::Aws(aws::SpotNotices::new(address)),
            CloudProvider::Azure => Notices::Azure(azure::ScheduledEvents::new(address)),
            CloudProvider::Gcp => Notices::Gcp(gcp::Preemption::new(address)),
        }
    }

    async fn look(&mut self) -> Result<Notice, MetadataError> {
        match self {
            Notices::Aws(notices) => notices.look().await,
            Notices::Azure(notices) => notices.look().await,
            Notices::Gcp(notices) => notices.look().await,
        }
    }
}
