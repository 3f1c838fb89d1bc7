//! Subscriptions. Setting one to Deleted makes the backend remove its clusters, in any state. That work is enqueued
//! in the transaction that sets the state, so that neither exists without the other.

use api::doc::{Document as _, Subscription, SubscriptionState};
use api::work::WorkKind;
use uuid::Uuid;

use super::{AuditContext, Collection, DesiredState};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::work::NewWork;
use crate::{Etag, StoreError};

/// Reads and writes subscriptions.
#[derive(Debug, Clone)]
pub struct Subscriptions<'a> {
    store: &'a Store,
    collection: Collection<'a, Subscription>,
}

impl<'a> std::ops::Deref for Subscriptions<'a> {
    type Target = Collection<'a, Subscription>;

    fn deref(&self) -> &Collection<'a, Subscription> {
        &self.collection
    }
}

impl<'a> Subscriptions<'a> {
    pub(super) fn new(store: &'a Store) -> Subscriptions<'a> {
        Subscriptions { store, collection: store.collection() }
    }

    /// Creates or updates the subscription; with `if_match` only at that version. Setting it to Deleted also enqueues
    /// the removal of its clusters, in a lane of the subscription's own identity. Returns identity, version, and
    /// whether it is new.
    pub async fn put(
        &self,
        wanted: &Subscription,
        if_match: Option<Etag>,
        context: &AuditContext,
    ) -> Result<(Uuid, Etag, bool), StoreError> {
        // Two attempts: it may be created or changed between the read and the write.
        for last in [false, true] {
            let outcome = match self.find(&wanted.path()).await? {
                Some(read) => {
                    if let Some(expected) = if_match.filter(|it| *it != read.etag) {
                        return Err(StoreError::Changed { uuid: read.uuid, expected, found: read.etag });
                    }
                    let was_removed = is_removed(&read.document);
                    let transaction =
                        Transaction::new().update(&read, wanted, DesiredState::Changed, context)?;
                    let transaction =
                        if was_removed { transaction } else { remove(transaction, wanted, read.uuid) };
                    let committed = self.store.commit(transaction).await;
                    committed.map(|it| (read.uuid, it.etag(read.uuid).unwrap_or(read.etag), false))
                }
                None if if_match.is_some() => return Err(StoreError::Gone { uuid: Uuid::nil() }),
                None => self.create(wanted, context).await.map(|(uuid, etag)| (uuid, etag, true)),
            };
            match outcome {
                Err(StoreError::Exists { .. } | StoreError::Gone { .. } | StoreError::Changed { .. })
                    if !last && if_match.is_none() => {}
                outcome => return outcome,
            }
        }
        unreachable!("the second attempt returns")
    }

    /// The same for a new one; fails when it exists.
    pub async fn create(
        &self,
        wanted: &Subscription,
        context: &AuditContext,
    ) -> Result<(Uuid, Etag), StoreError> {
        let uuid = Uuid::now_v7();
        let transaction = Transaction::new().create(uuid, wanted, context)?;
        self.store.commit(remove(transaction, wanted, uuid)).await?;
        Ok((uuid, Etag::FIRST))
    }
}

fn is_removed(subscription: &Subscription) -> bool {
    subscription.state == SubscriptionState::Deleted
}

/// Enqueues the removal of its clusters if it is set to Deleted.
fn remove(transaction: Transaction, wanted: &Subscription, lane: Uuid) -> Transaction {
    match is_removed(wanted) {
        true => transaction.enqueue(NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation)),
        false => transaction,
    }
}
