//! Connections to managed clusters, made from the kubeconfigs that are sealed beside their documents.

use api::clock::SharedClock;
use api::doc::Cluster;
use kubelink::kubeconfig::{AllowedRisks, Kubeconfig};
use kubelink::{Link, Links, LinksLimits};
use store::{KUBECONFIG, Reader};
use uuid::Uuid;

use crate::engine::{StepError, StepErrorKind};
use crate::lifecycle::store_unavailable;

/// Connections to the clusters of a store, one for each cluster.
#[derive(Debug)]
pub struct ClusterConnections {
    reader: Reader,
    links: Links,
    allow: AllowedRisks,
}

impl ClusterConnections {
    /// `allow` is what the configuration permits kubeconfigs to do.
    pub fn new(
        reader: Reader,
        limits: LinksLimits,
        allow: AllowedRisks,
        clock: SharedClock,
    ) -> ClusterConnections {
        ClusterConnections { reader, links: Links::new(limits, clock), allow }
    }

    /// The connection to a cluster, opened on first use and reopened when its kubeconfig has changed.
    pub async fn link(&self, cluster: Uuid) -> Result<Link, StepError> {
        let secret = self.reader.secret(cluster, KUBECONFIG).await.map_err(store_unavailable)?;
        let secret = secret.ok_or_else(|| {
            StepError::new(StepErrorKind::Precondition, "NoKubeconfig", "the cluster has no kubeconfig yet")
        })?;
        let invalid = |reason: String| StepError::terminal("Kubeconfig", reason);
        let text = std::str::from_utf8(secret.expose())
            .map_err(|_| invalid("the cluster's kubeconfig is not text".to_owned()))?;
        let kubeconfig =
            Kubeconfig::parse(text, None, &self.allow).map_err(|error| invalid(error.to_string()))?;
        let digest = kubeconfig.digest().to_owned();
        let load = async || Ok::<_, StepError>((self.name(cluster).await?, kubeconfig));
        self.links.link(cluster, &digest, load).await
    }

    /// The name of a cluster; its uuid if its document is gone.
    async fn name(&self, cluster: Uuid) -> Result<String, StepError> {
        let found = self.reader.documents::<Cluster>().get(cluster).await.map_err(store_unavailable)?;
        Ok(found.map_or_else(|| cluster.to_string(), |read| read.document.name))
    }

    /// Closes the connection to a cluster that is gone.
    pub fn forget(&self, cluster: Uuid) {
        self.links.forget(cluster);
    }
}
