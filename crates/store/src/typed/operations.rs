//! Asynchronous operations, and how their work fares.

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
    /// What was asked.
    pub operation: VersionedDocument<Operation>,
    /// How it fares; none once retention has removed it.
    pub work: Option<WorkView>,
}

/// Operations, to be read and ended. They begin with [`Clusters::begin`](super::Clusters::begin).
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

/// What becomes of the cluster when its operation ends.
#[derive(Debug, Clone)]
pub enum ClusterOutcome<'a> {
    /// It is as the operation left it.
    Updated(&'a VersionedDocument<Cluster>, &'a Cluster),
    /// It is gone, and with it what was still to be done on it.
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

    /// Asks for an operation's end before it is done: one that runs is told, one that waits is made due, and whoever claims it
    /// next finds the wish in its log. Nothing happens to one that has ended.
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
        let ask = match work.state {
            WorkState::InProgress => Transaction::new().request_cancel(id),
            _ => Transaction::new().expedite(id),
        };
        match self.store.commit(ask.record(id, entry)).await {
            // It began, ended or was given back between our look and our write; who asks again finds it so.
            Ok(_) | Err(StoreError::WrongState { .. } | StoreError::NoSuchWork { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Ends an operation: its document, its cluster and its work change together, under the holder's fence.
    pub async fn finish(
        &self,
        read: &VersionedDocument<Operation>,
        ended: &Operation,
        cluster: ClusterOutcome<'_>,
        completion: Completion,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let result = WorkResult { message: Some("the cluster is gone".to_owned()), ..WorkResult::default() };
        let transaction =
            Transaction::new().update(read, ended, DesiredState::Unchanged, context)?.complete(completion);
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
