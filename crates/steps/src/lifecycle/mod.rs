//! What the life of a cluster of ours consists of, as far as more than one service does it: the backend when it creates,
//! updates and deletes, the actuator when a task renews.
//!
//! Every body makes one thing true and may be run again at any moment. It is given a [`Lifecycle`]: the cloud, the store, the
//! way to the cluster, the clock. Documents and secrets are only written under the fence of the work
//! ([`Lifecycle::record`]), so that a worker that lost its lease changes nothing.

pub mod certificates;
pub mod fault;
pub mod registry;
pub mod resources;
mod service;
mod ways;

use std::sync::Arc;

use api::clock::SharedClock;
use api::doc::{Cluster, Provisioned, Record, ResultCode, Spec};
use api::error::{Class, Classify as _};
use api::secret::Secret;
use cloud::{Cloud, Credential, ResourceId};
use kubelink::Link;
use store::{AuditContext, DesiredState, Store, StoreError, Transaction, VersionedDocument, WorkLease};
use uuid::Uuid;

use crate::credentials;
use crate::engine::StepError;

pub use service::Service;
pub use ways::Ways;

/// So often a write is said again when the document was changed in between: only labels and the like are changed by others.
const WRITES_MAX: usize = 5;

/// What a body that works on a cluster of ours is given.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    /// The cloud.
    pub cloud: Cloud,
    /// Where documents and secrets are.
    pub store: Store,
    /// The way to clusters.
    pub ways: Arc<Ways>,
    /// The clock.
    pub clock: SharedClock,
    /// What this service has for itself in the cloud.
    pub service: Arc<Service>,
    /// The cluster.
    pub cluster: Uuid,
    /// The service that works, for the audit log.
    pub name: &'static str,
}

/// A cluster of ours as it was read, taken apart.
#[derive(Debug, Clone)]
pub struct Ours {
    /// The document as it was read.
    pub read: VersionedDocument<Cluster>,
    /// What is in it.
    pub provisioned: Box<Provisioned>,
    /// Its whole domain name.
    pub domain: String,
}

impl Ours {
    /// What its customer asked for.
    pub fn spec(&self) -> &Spec {
        &self.provisioned.spec
    }

    /// What we made and saw.
    pub fn made(&self) -> &Record {
        &self.provisioned.record
    }

    /// The cluster's document.
    pub fn document(&self) -> &Cluster {
        &self.read.document
    }

    /// The prefix of the names of all that belongs to it.
    pub fn infra_id(&self) -> Result<&str, StepError> {
        let drawn = self.made().infra_id.as_deref();
        drawn.ok_or_else(|| StepError::terminal("NotRecorded", "the cluster's infra id is not recorded"))
    }

    /// The group that we manage for it.
    pub fn group(&self) -> Result<ResourceId, StepError> {
        resource_id(&self.spec().resource_group_id)
    }

    /// Whether its names are in the service's own zone; otherwise its customer keeps them, with their certificates.
    pub fn is_domain_managed(&self) -> bool {
        self.provisioned.is_domain_managed()
    }
}

/// An id that was checked when it was taken in.
pub fn resource_id(text: &str) -> Result<ResourceId, StepError> {
    text.parse().map_err(|error| StepError::terminal("Invalid", format!("{error}")))
}

impl Lifecycle {
    /// The cluster as it is stored now. One that is gone, or that was imported, is none of ours.
    pub async fn ours(&self) -> Result<Ours, StepError> {
        let read = self.store.clusters().get(self.cluster).await.map_err(store_failed)?;
        let gone = || StepError::terminal(ResultCode::CLUSTER_GONE, "the cluster's document is gone");
        let read = read.ok_or_else(gone)?;
        let ours = read.document.provisioned.clone();
        let provisioned =
            ours.ok_or_else(|| StepError::terminal("Imported", "the cluster was imported; it is not ours"))?;
        let domain = provisioned
            .managed_domain
            .clone()
            .unwrap_or_else(|| self.service.domain_of(&provisioned.spec.domain, &read.document.location));
        Ok(Ours { read, provisioned, domain })
    }

    /// Writes what we made and saw, under the fence of the work. `change` is a function of the document alone: it is asked
    /// again when somebody else has changed the document in between. The record as it is now.
    pub async fn record(&self, hold: WorkLease, change: impl Fn(&mut Record)) -> Result<Record, StepError> {
        self.record_with(hold, &[], |provisioned| change(&mut provisioned.record)).await.map(|it| it.record)
    }

    /// As [`record`](Lifecycle::record), of all that a cluster of ours has, with secrets that are sealed in the same write.
    pub async fn record_with(
        &self,
        hold: WorkLease,
        secrets: &[(&str, &Secret<Vec<u8>>)],
        change: impl Fn(&mut Provisioned),
    ) -> Result<Box<Provisioned>, StepError> {
        for _ in 0..WRITES_MAX {
            let ours = self.ours().await?;
            let mut wanted = ours.read.document.clone();
            let mut provisioned = ours.provisioned;
            change(&mut provisioned);
            wanted.provisioned = Some(provisioned.clone());
            let mut write = Transaction::new()
                .guard(hold)
                .update(&ours.read, &wanted, DesiredState::Unchanged, &self.by())
                .map_err(store_failed)?;
            for (name, secret) in secrets {
                let sealed = self.store.seal(self.cluster, name, secret.expose()).map_err(store_failed)?;
                write = write.put_secret(sealed);
            }
            match self.store.commit(write).await {
                Ok(_) => return Ok(provisioned),
                Err(StoreError::Changed { .. }) => {}
                Err(error) => return Err(store_failed(error)),
            }
        }
        Err(StepError::transient("Store", "the cluster's document is changed by others again and again"))
    }

    /// Who writes, in the audit log.
    pub fn by(&self) -> AuditContext {
        AuditContext::service(self.name)
    }

    /// A secret of the cluster.
    pub async fn secret(&self, name: &str) -> Result<Option<Secret<Vec<u8>>>, StepError> {
        self.store.secret(self.cluster, name).await.map_err(store_failed)
    }

    /// A secret of the cluster that is text.
    pub async fn secret_text(&self, name: &str) -> Result<Option<Secret<String>>, StepError> {
        let Some(secret) = self.secret(name).await? else { return Ok(None) };
        let text = String::from_utf8(secret.expose().clone());
        let broken =
            |_| StepError::terminal("Secret", format!("the secret {name} of the cluster is not text"));
        text.map(|it| Some(Secret::new(it))).map_err(broken)
    }

    /// As whom the cluster works in the cloud.
    pub async fn credential(&self, spec: &Spec) -> Result<Credential, StepError> {
        match &spec.identity {
            api::doc::Identity::ServicePrincipal { client_id } => {
                let secret = self.secret_text(api::doc::secrets::CLIENT_SECRET).await?;
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

    /// What the certificates and tokens of the cluster are looked after with.
    pub async fn credentials(&self) -> Result<credentials::Ours, StepError> {
        Ok(credentials::Ours {
            uuid: self.cluster,
            provisioned: self.ours().await?.provisioned,
            vault: self.cloud.vault.clone(),
            identities: self.cloud.identities.clone(),
            store: self.store.clone(),
            service: self.name,
        })
    }

    /// The name of the secret in the vault that holds the certificate of the cluster's identity.
    pub fn identity_secret(&self) -> String {
        format!("{}-identity", self.cluster)
    }

    /// The way to the cluster.
    pub async fn link(&self) -> Result<Link, StepError> {
        self.ways.link(self.cluster).await
    }
}

/// What a failure of the store means for a step. A lost lease is met again by the engine's next write.
pub fn store_failed(error: StoreError) -> StepError {
    match error.class() {
        Class::Transient => StepError::transient("Store", "the store gave no answer").because(error),
        Class::Terminal if matches!(error, StoreError::LostLease { .. }) => {
            StepError::transient("LostLease", "the work is somebody else's").because(error)
        }
        Class::Terminal => StepError::terminal("Store", "the store refused a write").because(error),
    }
}
