//! Steps in the life of a managed cluster that several services run: the backend to create, update and delete, the actuator to
//! renew.
//!
//! Every function makes one thing true and can be repeated at any time. It receives a [`Lifecycle`]: the cloud, the cluster's
//! records, connections to clusters, the clock. Documents and secrets are only written under the fence of the work
//! ([`Lifecycle::record`]), so that a worker that lost its lease changes nothing.

pub mod certificates;
pub mod fault;
mod records;
pub mod registry;
pub mod resources;
mod service;

use std::sync::Arc;

use api::clock::SharedClock;
use api::doc::{Cluster, Provisioned, Record, Spec};
use cloud::{Cloud, Credential, ResourceId};
use kubelink::Link;
use store::{VersionedDocument, WorkLease};
use uuid::Uuid;

use crate::ClusterConnections;
use crate::credentials::ManagedCluster;
use crate::engine::StepError;

pub use records::{ClusterRecords, store_failed, store_unavailable};
pub use service::Service;

/// The context of steps on a managed cluster.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    /// The cloud.
    pub cloud: Cloud,
    /// The document and the secrets of the cluster.
    pub records: ClusterRecords,
    /// Connections to clusters.
    pub connections: Arc<ClusterConnections>,
    /// The clock.
    pub clock: SharedClock,
    /// The service's own resources in the cloud.
    pub service: Arc<Service>,
}

/// A managed cluster as it was read.
#[derive(Debug, Clone)]
pub struct ClusterSnapshot {
    /// The document.
    pub read: VersionedDocument<Cluster>,
    /// What is provisioned for the cluster.
    pub provisioned: Box<Provisioned>,
    /// Its whole domain name.
    pub domain: String,
}

impl ClusterSnapshot {
    /// The customer's specification.
    pub fn spec(&self) -> &Spec {
        &self.provisioned.spec
    }

    /// What was created and observed.
    pub fn record(&self) -> &Record {
        &self.provisioned.record
    }

    /// The document.
    pub fn document(&self) -> &Cluster {
        &self.read.document
    }

    /// The prefix of the names of all its resources.
    pub fn infra_id(&self) -> Result<&str, StepError> {
        let drawn = self.record().infra_id.as_deref();
        drawn.ok_or_else(|| StepError::terminal("NotRecorded", "the cluster's infra id is not recorded"))
    }

    /// Its managed resource group.
    pub fn group(&self) -> Result<ResourceId, StepError> {
        resource_id(&self.spec().resource_group_id)
    }

    /// Whether its domain is in the service's own zone; otherwise the customer manages the domain and its certificates.
    pub fn is_domain_managed(&self) -> bool {
        self.provisioned.is_domain_managed()
    }
}

/// Parses an id that was validated when it was stored.
pub fn resource_id(text: &str) -> Result<ResourceId, StepError> {
    text.parse().map_err(|error| StepError::terminal("Invalid", format!("{error}")))
}

impl Lifecycle {
    /// The cluster as it is stored now.
    pub async fn snapshot(&self) -> Result<ClusterSnapshot, StepError> {
        let (read, provisioned) = self.records.read().await?;
        let domain = provisioned
            .managed_domain
            .clone()
            .unwrap_or_else(|| self.service.domain_of(&provisioned.spec.domain, &read.document.location));
        Ok(ClusterSnapshot { read, provisioned, domain })
    }

    /// Records what was created and observed, under the fence of the work. Returns the new record.
    pub async fn record(&self, hold: WorkLease, change: impl Fn(&mut Record)) -> Result<Record, StepError> {
        let change = |provisioned: &mut Provisioned| change(&mut provisioned.record);
        self.records.update(hold, &[], change).await.map(|it| it.record)
    }

    /// As whom the cluster works in the cloud.
    pub async fn credential(&self, spec: &Spec) -> Result<Credential, StepError> {
        match &spec.identity {
            api::doc::Identity::ServicePrincipal { client_id } => {
                let secret = self.records.secret_text(api::doc::secrets::CLIENT_SECRET).await?;
                let missing =
                    || StepError::terminal("Secret", "the cluster's service principal has no secret");
                let secret = secret.ok_or_else(missing)?;
                Ok(Credential::Client { client_id: client_id.clone(), secret })
            }
            api::doc::Identity::Workload { resource_id: id, .. } => {
                Ok(Credential::Identity(resource_id(id)?))
            }
        }
    }

    /// The cluster for the functions of [`crate::credentials`].
    pub async fn managed(&self) -> Result<ManagedCluster, StepError> {
        let (_, provisioned) = self.records.read().await?;
        let (vault, identities) = (self.cloud.vault.clone(), self.cloud.identities.clone());
        Ok(ManagedCluster { records: self.records.clone(), provisioned, vault, identities })
    }

    /// Identifies the cluster.
    pub fn cluster(&self) -> Uuid {
        self.records.cluster
    }

    /// Name of the secret in the vault with the certificate of the cluster's identity.
    pub fn identity_secret(&self) -> String {
        format!("{}-identity", self.cluster())
    }

    /// The connection to the cluster.
    pub async fn link(&self) -> Result<Link, StepError> {
        self.connections.link(self.cluster()).await
    }
}
