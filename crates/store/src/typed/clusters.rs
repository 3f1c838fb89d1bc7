//! Clusters. A request is written in one transaction: the cluster's new state, the operation, its work, and the audit
//! entry. So there is no outbox to drain afterwards.

use std::collections::BTreeMap;

use api::doc::{Cluster, Document as _, Operation, ResultCode, Subscription, WorkResult};
use api::secret::Secret;
use api::work::WorkKind;
use uuid::Uuid;

use super::{AuditContext, Collection, DesiredState, VersionedDocument};
use crate::store::Store;
use crate::transaction::{Transaction, Write};
use crate::work::NewWork;
use crate::{Etag, StoreError};

pub use api::doc::secrets::KUBECONFIG;

/// Secrets of a cluster by name.
pub type Secrets = BTreeMap<&'static str, Secret<Vec<u8>>>;

/// Reads and writes clusters.
#[derive(Debug, Clone)]
pub struct Clusters<'a> {
    store: &'a Store,
    collection: Collection<'a, Cluster>,
}

impl<'a> std::ops::Deref for Clusters<'a> {
    type Target = Collection<'a, Cluster>;

    fn deref(&self) -> &Collection<'a, Cluster> {
        &self.collection
    }
}

impl<'a> Clusters<'a> {
    pub(super) fn new(store: &'a Store) -> Clusters<'a> {
        Clusters { store, collection: store.collection() }
    }

    /// Creates a cluster together with its create operation; `operation.cluster` becomes its identity. Its secrets
    /// (by the names of [`api::doc::secrets`]) are sealed in the same transaction. Fails when the subscription has
    /// changed since it was read: the clusters of a subscription deleted meanwhile may have been listed already, and
    /// nothing would remove this one.
    pub async fn start_create_in(
        &self,
        subscription: &VersionedDocument<Subscription>,
        cluster: &Cluster,
        operation: &Operation,
        secrets: &Secrets,
        context: &AuditContext,
    ) -> Result<Etag, StoreError> {
        self.create_cluster(Transaction::new().expect(subscription), cluster, operation, secrets, context)
            .await
    }

    /// The same for a cluster without a known subscription.
    pub async fn start_create(
        &self,
        cluster: &Cluster,
        operation: &Operation,
        secrets: &Secrets,
        context: &AuditContext,
    ) -> Result<Etag, StoreError> {
        self.create_cluster(Transaction::new(), cluster, operation, secrets, context).await
    }

    async fn create_cluster(
        &self,
        transaction: Transaction,
        cluster: &Cluster,
        operation: &Operation,
        secrets: &Secrets,
        context: &AuditContext,
    ) -> Result<Etag, StoreError> {
        let transaction = transaction.create(operation.cluster, cluster, context)?;
        let transaction = self.seal(transaction, operation.cluster, secrets)?;
        self.store.commit(start_operation(transaction, operation, context)?).await?;
        Ok(Etag::FIRST)
    }

    /// Changes a cluster together with the operation that applies the change. Named secrets are replaced, the others
    /// stay.
    pub async fn start_update(
        &self,
        read: &VersionedDocument<Cluster>,
        wanted: &Cluster,
        operation: &Operation,
        secrets: &Secrets,
        context: &AuditContext,
    ) -> Result<Etag, StoreError> {
        let transaction = Transaction::new().update(read, wanted, DesiredState::Changed, context)?;
        let transaction = self.seal(transaction, read.uuid, secrets)?;
        let committed = self.store.commit(start_operation(transaction, operation, context)?).await?;
        Ok(committed.etag(read.uuid).unwrap_or(read.etag))
    }

    fn seal(
        &self,
        transaction: Transaction,
        cluster: Uuid,
        secrets: &Secrets,
    ) -> Result<Transaction, StoreError> {
        secrets.iter().try_fold(transaction, |transaction, (name, secret)| {
            Ok(transaction.put_secret(self.store.seal(cluster, name, secret.expose())?))
        })
    }

    /// Imports a cluster by its kubeconfig, which is sealed. Importing the same path again replaces labels, location
    /// and kubeconfig. Returns identity, version, and whether it is new.
    pub async fn import(
        &self,
        cluster: &Cluster,
        kubeconfig: &Secret<Vec<u8>>,
        context: &AuditContext,
    ) -> Result<(Uuid, Etag, bool), StoreError> {
        match self.find(&cluster.path()).await? {
            None => {
                let uuid = Uuid::now_v7();
                let sealed = self.store.seal(uuid, KUBECONFIG, kubeconfig.expose())?;
                self.store
                    .commit(Transaction::new().create(uuid, cluster, context)?.put_secret(sealed))
                    .await?;
                Ok((uuid, Etag::FIRST, true))
            }
            Some(read) if !read.document.imported => {
                Err(StoreError::Exists { kind: Cluster::KIND.to_owned(), id: cluster.path() })
            }
            Some(read) => {
                let sealed = self.store.seal(read.uuid, KUBECONFIG, kubeconfig.expose())?;
                let wanted = Cluster { created_at: read.document.created_at, ..cluster.clone() };
                let entry = context.entry("cluster.import", &cluster.path(), None, None);
                let transaction = Transaction::new()
                    .update(&read, &wanted, DesiredState::Changed, context)?
                    .put_secret(sealed)
                    .audit(entry);
                let committed = self.store.commit(transaction).await?;
                Ok((read.uuid, committed.etag(read.uuid).unwrap_or(read.etag), false))
            }
        }
    }

    /// Removes an imported cluster, with its kubeconfig and pending work; touches nothing else. Fails while work runs
    /// on it or started work is pending: its effects could not be undone any more.
    pub async fn forget(
        &self,
        read: &VersionedDocument<Cluster>,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let result = WorkResult::new(ResultCode::CLUSTER_GONE, "the cluster was forgotten");
        let transaction = Transaction::new()
            .with(Write::ExpectIdle { lane: read.uuid })
            .remove(read, context)
            .withdraw_lane(read.uuid, result);
        self.store.commit(transaction).await.map(drop)
    }

    /// A cluster's kubeconfig.
    pub async fn kubeconfig(&self, cluster: Uuid) -> Result<Option<Secret<Vec<u8>>>, StoreError> {
        self.store.secret(cluster, KUBECONFIG).await
    }
}

fn start_operation(
    transaction: Transaction,
    operation: &Operation,
    context: &AuditContext,
) -> Result<Transaction, StoreError> {
    let work = NewWork::new(operation.id, operation.cluster, WorkKind::Operation);
    Ok(transaction.create(operation.id, operation, context)?.enqueue(work))
}
