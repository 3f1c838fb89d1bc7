//! The roles that run in clusters, in the simulated clusters of `up`: each container of our image runs in this process, with the rights
//! of its pod's ServiceAccount. The simulated kubelets decide when, as kubelets do for processes: replicas, roll-outs, restarts with
//! backoff and deletions of pods need nothing here. It follows that a role costs nothing while there is no pod of it.
//!
//! **To add a role**, add it to [`ROLES`] and a line to [`start`]: a function that runs it in a [`SimulatedPod`] until the pod stops. It
//! takes its client, its names and its cloud from the pod, and everything else from the flags of its command, so that the manifests of
//! a real cluster need no change. What serves or waits on a fixed port or file in a real pod is left out, or published by
//! [`SimulatedPod::publish`].

mod command_line;
mod image;
mod pod;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use cloud_azure::{AzureInstances, InstanceSettings};
use cloudsim::{Endpoints, Payload, Runtimes};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kubesim::SimulatedCluster;
use kubesim::kubelet::{Container, ContainerLog, ContainerRuntime};
use machines::payload::{Release, manifests};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::arguments::{Command, MachinesCommand};
use crate::version::Version;
use crate::{machine_controllers, machine_operator, termination_handler};
pub(crate) use pod::SimulatedPod;

/// The commands that run in a pod, for the message about any other.
const ROLES: &[&str] = &["machines controllers", "machines operator", "termination-handler"];

/// The manifests that the simulated installer creates in new clusters, with an image of this version.
pub(crate) fn payload() -> anyhow::Result<Payload> {
    let version = Version::current().version;
    let release = Release::new(&format!("image.invalid/{}:{version}", image::NAME), version)?;
    Ok(manifests(&release).into_iter().map(|it| it.object).collect())
}

type RoleFuture = BoxFuture<'static, anyhow::Result<()>>;

/// The role of a command, ready to run in a pod.
fn start(command: Command, pod: SimulatedPod) -> anyhow::Result<RoleFuture> {
    Ok(match command {
        Command::Machines(MachinesCommand::Controllers(flags)) => {
            machine_controllers::run_in_simulated_pod(flags, pod).boxed()
        }
        Command::Machines(MachinesCommand::Operator(flags)) => {
            machine_operator::run_in_simulated_pod(flags, pod).boxed()
        }
        Command::TerminationHandler(flags) => termination_handler::run_in_simulated_pod(flags, pod).boxed(),
        _ => anyhow::bail!(
            "this command does not run in a simulated pod; expected one of: shipshape {}",
            ROLES.join(", shipshape ")
        ),
    })
}

/// The simulated cloud, as roles in its clusters use it.
#[derive(Debug)]
struct RoleCloud {
    /// The provider whose connections those of all clusters share.
    instances: AzureInstances,
    /// The URL of the instance metadata service.
    metadata: String,
    /// How long things take there compared with Azure, which is 1.
    pace: f64,
}

/// Runs the roles of all simulated clusters of a cloud.
#[derive(Debug, Default)]
pub(crate) struct SimulatedRoles {
    /// Known as soon as the cloud listens, which is before any container starts.
    cloud: OnceLock<RoleCloud>,
}

impl SimulatedRoles {
    /// What makes the runtime of each cluster.
    pub(crate) fn runtimes(self: Arc<Self>) -> Runtimes {
        Arc::new(move |cluster| Arc::new(RoleRuntime { roles: self.clone(), cluster: cluster.clone() }))
    }

    /// Sets the cloud in which roles find their instances.
    pub(crate) fn connect(&self, endpoints: &Endpoints) -> anyhow::Result<()> {
        let settings = InstanceSettings {
            authority: endpoints.authority.clone(),
            resource_manager: endpoints.resource_manager.clone(),
            metadata: Some(endpoints.metadata.clone()),
            ca_pem: Some(std::fs::read_to_string(&endpoints.ca_file)?),
            pace: endpoints.pace,
            ..InstanceSettings::of_cloud("")?
        };
        let instances = AzureInstances::new(settings)?;
        let _ = self.cloud.set(RoleCloud {
            instances,
            metadata: endpoints.metadata.clone(),
            pace: endpoints.pace,
        });
        Ok(())
    }
}

/// The roles of one cluster.
struct RoleRuntime {
    roles: Arc<SimulatedRoles>,
    cluster: Arc<SimulatedCluster>,
}

impl ContainerRuntime for RoleRuntime {
    fn runs(&self, image: &str) -> bool {
        image::is_ours(image)
    }

    fn run(
        &self,
        container: Container,
        log: ContainerLog,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), String>> {
        let span = tracing::info_span!(
            "pod",
            cluster.name = self.cluster.name(),
            pod.namespace = container.namespace,
            pod.name = container.pod
        );
        let pod = SimulatedPod::new(container, self.cluster.clone(), self.roles.clone(), log, stop);
        run_in_pod(pod).map(|ended| ended.map_err(|error| format!("{error:#}"))).instrument(span).boxed()
    }
}

async fn run_in_pod(pod: SimulatedPod) -> anyhow::Result<()> {
    let command = command_line::parse(pod.container())?;
    // Its container ran before, in this process or in one that was killed, and cannot hold them any more.
    pod.release_leases().await?;
    let role = start(command, pod)?;
    role.await
}
