//! Billing records: one for each cluster, opened once, closed once.

use api::doc::{Billing, Document as _};
use jiff::Timestamp;
use uuid::Uuid;

use super::{AuditContext, Collection, DesiredState};
use crate::StoreError;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::work::WorkLease;

/// Reads and writes billing records.
#[derive(Debug, Clone)]
pub struct BillingRecords<'a> {
    store: &'a Store,
    collection: Collection<'a, Billing>,
    lease: Option<WorkLease>,
}

impl<'a> std::ops::Deref for BillingRecords<'a> {
    type Target = Collection<'a, Billing>;

    fn deref(&self) -> &Collection<'a, Billing> {
        &self.collection
    }
}

impl<'a> BillingRecords<'a> {
    pub(super) fn new(store: &'a Store) -> BillingRecords<'a> {
        BillingRecords { store, collection: store.collection(), lease: None }
    }

    /// Makes writes conditional on the caller's lease on the cluster's work.
    #[must_use]
    pub fn with_lease(self, lease: WorkLease) -> BillingRecords<'a> {
        BillingRecords { lease: Some(lease), ..self }
    }

    fn transaction(&self) -> Transaction {
        self.lease.map_or_else(Transaction::new, |lease| Transaction::new().guard(lease))
    }

    /// Ensures that the cluster is billed; the time of an earlier call stays.
    pub async fn ensure_open(&self, record: &Billing, context: &AuditContext) -> Result<(), StoreError> {
        match self.store.commit(self.transaction().create(Uuid::now_v7(), record, context)?).await {
            Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Ensures that the cluster is no longer billed; the time of an earlier call stays.
    pub async fn ensure_closed(
        &self,
        record: &Billing,
        at: Timestamp,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let Some(read) = self.find(&record.path()).await? else { return Ok(()) };
        if read.document.deletion_time.is_some() {
            return Ok(());
        }
        let closed = Billing { deletion_time: Some(at), ..read.document.clone() };
        self.store
            .commit(self.transaction().update(&read, &closed, DesiredState::Unchanged, context)?)
            .await
            .map(drop)
    }
}
