//! The way to a cluster: by the kubeconfig that is sealed beside its document.

use api::clock::SharedClock;
use api::doc::Cluster;
use kubelink::kubeconfig::{Allow, Kubeconfig};
use kubelink::{Link, Links, LinksLimits};
use store::{KUBECONFIG, Reader};
use uuid::Uuid;

use super::store_failed;
use crate::engine::{StepError, StepErrorKind};

/// The ways to clusters, one link for each.
#[derive(Debug)]
pub struct Ways {
    reader: Reader,
    links: Links,
    allow: Allow,
}

impl Ways {
    /// The ways to the clusters of a store. `allow` is what the configuration lets kubeconfigs do.
    pub fn new(reader: Reader, limits: LinksLimits, allow: Allow, clock: SharedClock) -> Ways {
        Ways { reader, links: Links::new(limits, clock), allow }
    }

    /// The way to a cluster.
    pub async fn link(&self, cluster: Uuid) -> Result<Link, StepError> {
        let secret = self.reader.secret(cluster, KUBECONFIG).await.map_err(store_failed)?;
        let secret = secret.ok_or_else(|| {
            StepError::new(StepErrorKind::Precondition, "NoKubeconfig", "the cluster has no kubeconfig yet")
        })?;
        let wrong = |why: String| StepError::terminal("Kubeconfig", why);
        let text = std::str::from_utf8(secret.expose())
            .map_err(|_| wrong("the cluster's kubeconfig is not text".to_owned()))?;
        let kubeconfig =
            Kubeconfig::parse(text, None, &self.allow).map_err(|error| wrong(error.to_string()))?;
        let digest = kubeconfig.digest().to_owned();
        let load = async || Ok::<_, StepError>((self.name(cluster).await?, kubeconfig));
        self.links.link(cluster, &digest, load).await
    }

    /// What people call a cluster; its uuid where its document is gone.
    async fn name(&self, cluster: Uuid) -> Result<String, StepError> {
        let found = self.reader.documents::<Cluster>().get(cluster).await.map_err(store_failed)?;
        Ok(found.map_or_else(|| cluster.to_string(), |read| read.document.name))
    }

    /// Closes the link to a cluster that is gone.
    pub fn forget(&self, cluster: Uuid) {
        self.links.forget(cluster);
    }
}
