//! A pod of a simulated cluster, as the role in it sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use api::clock::SharedClock;
use cloud_azure::AzureInstances;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kubesim::SimulatedCluster;
use kubesim::kubelet::{Container, ContainerLog};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{RoleCloud, SimulatedRoles};

/// Where the API server of a simulated cluster finds what a Service leads to.
const SERVICE_ADDRESS: &str = "sim.shipshape.dev/address";

/// The surroundings of a role in a simulated cluster.
pub(crate) struct SimulatedPod {
    container: Container,
    cluster: Arc<SimulatedCluster>,
    roles: Arc<SimulatedRoles>,
    log: ContainerLog,
    stop: CancellationToken,
}

impl SimulatedPod {
    pub(super) fn new(
        container: Container,
        cluster: Arc<SimulatedCluster>,
        roles: Arc<SimulatedRoles>,
        log: ContainerLog,
        stop: CancellationToken,
    ) -> SimulatedPod {
        SimulatedPod { container, cluster, roles, log, stop }
    }

    pub(super) fn container(&self) -> &Container {
        &self.container
    }

    /// The name of the pod.
    pub(crate) fn pod_name(&self) -> &str {
        &self.container.pod
    }

    /// The name of the node that the pod runs on.
    pub(crate) fn node(&self) -> &str {
        &self.container.node
    }

    /// A variable of the container.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.container.env.iter().rev().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// The base URL of the metadata service, as the machine of the pod's node reaches it. `/metadata/…` follows.
    pub(crate) fn metadata_service(&self) -> anyhow::Result<String> {
        Ok(format!("{}/machines/{}", self.cloud()?.metadata.trim_end_matches('/'), self.container.node))
    }

    /// The token that is cancelled when the pod is to end.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The clock of the cluster.
    pub(crate) fn clock(&self) -> SharedClock {
        self.cluster.clock()
    }

    /// A client with the rights of the pod's ServiceAccount.
    pub(crate) fn client(&self) -> Client {
        let account = match self.container.service_account.as_str() {
            "" => "default",
            account => account,
        };
        self.cluster.client_for_service_account(&self.container.namespace, account)
    }

    /// A client with the credentials of the pod's node, whose rights simulated clusters do not restrict.
    pub(crate) fn client_of_node(&self) -> Client {
        self.cluster.client()
    }

    /// How long things take in the cloud compared with Azure, which is 1.
    pub(crate) fn pace(&self) -> f64 {
        self.cloud().map_or(1.0, |cloud| cloud.pace)
    }

    /// Appends a line to the log of the container.
    pub(crate) fn log(&self, line: &str) {
        self.log.append(line);
    }

    /// The provider of the cluster's instances.
    pub(crate) fn instances(&self) -> anyhow::Result<AzureInstances> {
        Ok(self.cloud()?.instances.for_another_cluster())
    }

    fn cloud(&self) -> anyhow::Result<&RoleCloud> {
        self.roles.cloud.get().context("the simulated cloud does not listen yet")
    }

    /// Leads a Service to a listener of the role on this machine: simulated pods have no network.
    pub(crate) async fn publish(
        &self,
        namespace: &str,
        service: &str,
        address: SocketAddr,
    ) -> anyhow::Result<()> {
        let services: Api<Service> = Api::namespaced(self.cluster.client(), namespace);
        let patch = json!({ "metadata": { "annotations": { SERVICE_ADDRESS: address.to_string() } } });
        services.patch(service, &PatchParams::default(), &Patch::Merge(&patch)).await.with_context(|| {
            format!("the Service {namespace}/{service}, which leads to the role's listener")
        })?;
        Ok(())
    }

    /// Releases the leases that an earlier run of this pod holds, so that nobody waits for their ends.
    pub(super) async fn release_leases(&self) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(), &self.container.namespace);
        let own = format!("{}_", self.container.pod);
        let all = leases.list(&ListParams::default()).await.context("the leases of the pod's namespace")?;
        for lease in all {
            let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref());
            let (Some(name), true) = (&lease.metadata.name, holder.is_some_and(|it| it.starts_with(&own)))
            else {
                continue;
            };
            let release = json!({ "spec": { "holderIdentity": "" } });
            let released = leases.patch(name, &PatchParams::default(), &Patch::Merge(&release)).await;
            released.with_context(|| format!("the lease {name}"))?;
        }
        Ok(())
    }
}
