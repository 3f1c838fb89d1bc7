//! Subscriptions. Setting one to Deleted makes the backend remove its clusters, in any state. That work is enqueued
//! in the transaction that sets the state, so that neither exists without the other.

use api::doc::{Subscription, SubscriptionState};
use api::work::WorkKind;
use uuid::Uuid;

use super::{AuditContext, Collection, DesiredState, VersionedDocument};
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
        let update = |read: &VersionedDocument<Subscription>| {
            let transaction = Transaction::new().update(read, wanted, DesiredState::Changed, context)?;
            Ok(match is_removed(&read.document) {
                true => transaction,
                false => enqueue_removal(transaction, wanted, read.uuid),
            })
        };
        self.collection.put_with(wanted, if_match, |uuid| create(uuid, wanted, context), update).await
    }

    /// Creates the subscription; fails when it exists.
    pub async fn create(
        &self,
        wanted: &Subscription,
        context: &AuditContext,
    ) -> Result<(Uuid, Etag), StoreError> {
        let uuid = Uuid::now_v7();
        self.store.commit(create(uuid, wanted, context)?).await?;
        Ok((uuid, Etag::FIRST))
    }
}

fn is_removed(subscription: &Subscription) -> bool {
    subscription.state == SubscriptionState::Deleted
}

fn create(uuid: Uuid, wanted: &Subscription, context: &AuditContext) -> Result<Transaction, StoreError> {
    Ok(enqueue_removal(Transaction::new().create(uuid, wanted, context)?, wanted, uuid))
}

/// Enqueues the removal of its clusters if it is set to Deleted.
fn enqueue_removal(transaction: Transaction, wanted: &Subscription, lane: Uuid) -> Transaction {
    match is_removed(wanted) {
        true => transaction.enqueue(NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation)),
        false => transaction,
    }
}
