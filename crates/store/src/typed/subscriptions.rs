//! Subscriptions. One that is set to Deleted is work for the backend: its clusters go, in whatever state they are. That work
//! is enqueued in the transaction that sets the state, so that neither can be there without the other.

use api::doc::{Document as _, Subscription, SubscriptionState};
use api::work::WorkKind;
use uuid::Uuid;

use super::{By, Collection, Wish};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::work::NewWork;
use crate::{Etag, StoreError};

/// Subscriptions, to be read and written.
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

    /// Makes the subscription be `wanted`, whether it is there or not; with `if_match` only as that version. When that sets it
    /// to Deleted, the removal of its clusters is enqueued with it, in a lane of the subscription's own identity. Its
    /// identity, its version, and whether it is new.
    pub async fn put(
        &self,
        wanted: &Subscription,
        if_match: Option<Etag>,
        by: &By,
    ) -> Result<(Uuid, Etag, bool), StoreError> {
        // Twice at most: between our look and our write somebody may have created or changed it.
        for last in [false, true] {
            let read = self.find(&wanted.path()).await?;
            let removed = |state: SubscriptionState| state == SubscriptionState::Deleted;
            let was_removed = read.as_ref().is_some_and(|it| removed(it.document.state));
            let (uuid, etag, new) =
                read.as_ref().map_or((Uuid::now_v7(), Etag::FIRST, true), |it| (it.uuid, it.etag, false));
            let transaction = match &read {
                Some(read) => {
                    if let Some(expected) = if_match.filter(|it| *it != read.etag) {
                        return Err(StoreError::Changed { uuid, expected, found: read.etag });
                    }
                    Transaction::new().update(read, wanted, Wish::Changed, by)?
                }
                None if if_match.is_some() => return Err(StoreError::Gone { uuid: Uuid::nil() }),
                None => Transaction::new().create(uuid, wanted, by)?,
            };
            let transaction = if removed(wanted.state) && !was_removed {
                transaction.enqueue(NewWork::new(Uuid::now_v7(), uuid, WorkKind::Operation))
            } else {
                transaction
            };
            match self.store.commit(transaction).await {
                Ok(committed) => return Ok((uuid, committed.etag(uuid).unwrap_or(etag), new)),
                Err(StoreError::Exists { .. } | StoreError::Gone { .. } | StoreError::Changed { .. })
                    if !last && if_match.is_none() => {}
                Err(other) => return Err(other),
            }
        }
        unreachable!("the second turn returns")
    }
}
