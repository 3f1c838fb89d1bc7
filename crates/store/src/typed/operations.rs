//! Asynchronous operations and their work.

use api::admin::{Entry, EntryEvent};
use api::doc::{Cluster, Operation, WorkResult};
use api::work::WorkState;
use jiff::Timestamp;
use uuid::Uuid;

use super::{AuditContext, DesiredState, Documents, VersionedDocument};
use crate::StoreError;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::work::{Completion, WorkView};

/// An operation and its work.
#[derive(Debug, Clone)]
pub struct OperationView {
    /// The request.
    pub operation: VersionedDocument<Operation>,
    /// Its work; none once retention has removed it.
    pub work: Option<WorkView>,
}

/// Reads and finishes operations. They start with [`Clusters::start_update`](super::Clusters::start_update).
#[derive(Debug, Clone)]
pub struct Operations<'a> {
    store: &'a Store,
    documents: Documents<'a, Operation>,
}

impl<'a> std::ops::Deref for Operations<'a> {
    type Target = Documents<'a, Operation>;

    fn deref(&self) -> &Documents<'a, Operation> {
        &self.documents
    }
}

/// Change of the cluster when its operation finishes.
#[derive(Debug, Clone)]
pub enum ClusterOutcome<'a> {
    /// It is updated.
    Updated(&'a VersionedDocument<Cluster>, &'a Cluster),
    /// It is deleted, with its pending work.
    Deleted(&'a VersionedDocument<Cluster>),
}

impl<'a> Operations<'a> {
    pub(super) fn new(store: &'a Store) -> Operations<'a> {
        Operations { store, documents: store.documents() }
    }

    /// An operation and its work.
    pub async fn view(&self, id: Uuid) -> Result<Option<OperationView>, StoreError> {
        let Some(operation) = self.get(id).await? else { return Ok(None) };
        Ok(Some(OperationView { operation, work: self.store.work(id).await? }))
    }

    /// Requests an operation to cancel: a running one gets a signal, a pending one becomes due, and its next holder
    /// finds the request on its work. Nothing happens to a finished one.
    pub async fn request_cancel(
        &self,
        id: Uuid,
        at: Timestamp,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let Some(work) = self.store.work(id).await?.filter(|work| !work.state.is_terminal()) else {
            return Ok(());
        };
        let mut entry = Entry::new(at, EntryEvent::CancelRequested, context.actor.clone(), work.attempt);
        entry.message = Some(context.reason.clone()).filter(|it| !it.is_empty());
        let request = match work.state {
            WorkState::InProgress => Transaction::new().request_cancel(id),
            _ => Transaction::new().expedite(id),
        };
        match self.store.commit(request.record(id, entry)).await {
            // It started, finished or was released between the read and the write; a repeated request sees that.
            Ok(_) | Err(StoreError::WrongState { .. } | StoreError::NoSuchWork { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Finishes an operation: its document, its cluster and its work change together, under the holder's fence.
    pub async fn finish(
        &self,
        read: &VersionedDocument<Operation>,
        finished: &Operation,
        cluster: ClusterOutcome<'_>,
        completion: Completion,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let result = WorkResult { message: Some("the cluster is gone".to_owned()), ..WorkResult::default() };
        let transaction =
            Transaction::new().update(read, finished, DesiredState::Unchanged, context)?.complete(completion);
        let transaction = match cluster {
            ClusterOutcome::Updated(read, wanted) => {
                transaction.update(read, wanted, DesiredState::Unchanged, context)?
            }
            ClusterOutcome::Deleted(read) => {
                transaction.remove(read, context).withdraw_lane(read.uuid, result)
            }
        };
        self.store.commit(transaction).await.map(drop)
    }
}
