//! Reads and writes of a managed cluster's document and secrets, under the fence of the work.

use api::doc::{Cluster, Provisioned, ResultCode};
use api::error::{Class, Classify as _};
use api::secret::Secret;
use store::{AuditContext, DesiredState, Store, StoreError, Transaction, VersionedDocument, WorkLease};
use uuid::Uuid;

use crate::engine::StepError;

/// How often a write is repeated because another writer changed the document: others only change labels and the like.
const WRITES_MAX: usize = 5;

/// The document and the secrets of one managed cluster.
#[derive(Debug, Clone)]
pub struct ClusterRecords {
    /// Holds the document and the secrets.
    pub store: Store,
    /// The cluster.
    pub cluster: Uuid,
    /// The service that writes, for the audit log.
    pub service: &'static str,
}

impl ClusterRecords {
    /// The cluster's document, and what is provisioned for it. It is an error if the document is gone or the cluster was
    /// imported.
    pub async fn read(&self) -> Result<(VersionedDocument<Cluster>, Box<Provisioned>), StepError> {
        let read = self.store.clusters().get(self.cluster).await.map_err(store_failed)?;
        let read = read.ok_or_else(|| {
            StepError::terminal(ResultCode::CLUSTER_GONE, "the cluster's document does not exist")
        })?;
        let provisioned = read.document.provisioned.clone();
        let provisioned = provisioned.ok_or_else(|| {
            StepError::terminal("Imported", "the cluster was imported; Shipshape did not create it")
        })?;
        Ok((read, provisioned))
    }

    /// Changes what is recorded of the cluster and seals `secrets` in the same write. A worker that lost its lease changes
    /// nothing. `change` must depend on the document alone: it is repeated when another writer changed the document.
    pub async fn update(
        &self,
        hold: WorkLease,
        secrets: &[(&str, &Secret<Vec<u8>>)],
        change: impl Fn(&mut Provisioned),
    ) -> Result<Box<Provisioned>, StepError> {
        for _ in 0..WRITES_MAX {
            let (read, mut provisioned) = self.read().await?;
            change(&mut provisioned);
            if secrets.is_empty() && read.document.provisioned.as_ref() == Some(&provisioned) {
                return Ok(provisioned);
            }
            let wanted = Cluster { provisioned: Some(provisioned.clone()), ..read.document.clone() };
            let mut write = Transaction::new()
                .guard(hold)
                .update(&read, &wanted, DesiredState::Unchanged, &self.author())
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
        Err(StepError::transient("Store", "other writers keep changing the cluster's document"))
    }

    /// The author of writes, for the audit log.
    pub fn author(&self) -> AuditContext {
        AuditContext::service(self.service)
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
}

/// Converts a failure of the store into an error of the step. The engine's next write reports a lost lease.
pub fn store_failed(error: StoreError) -> StepError {
    match error.class() {
        Class::Transient => store_unavailable(error),
        Class::Terminal if matches!(error, StoreError::LostLease { .. }) => {
            StepError::transient("LostLease", "another worker holds the work").with_source(error)
        }
        Class::Terminal => StepError::terminal("Store", "the store rejected the request").with_source(error),
    }
}

/// A failure of the store that is retried, whatever its class.
pub fn store_unavailable(error: StoreError) -> StepError {
    StepError::transient("Store", "the store did not answer").with_source(error)
}
