//! Schedules: their status, and their deletion together with their manifests.

use api::admin::ScheduleStatus;
use api::doc::{Schedule, ScheduleOutlook, WorkResult};
use uuid::Uuid;

use super::{AuditContext, DesiredState, VersionedDocument};
use crate::store::{Reader, Store};
use crate::transaction::Transaction;
use crate::{PAGE_MAX, StoreError};

/// Treatment of the pending manifests of a deleted schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingManifests {
    /// Withdraw them.
    Cancel,
    /// Leave them pending.
    Keep,
}

impl Reader {
    /// The status of a schedule, as the scheduler last wrote it.
    pub async fn schedule_status(&self, schedule: &str) -> Result<Option<ScheduleStatus>, StoreError> {
        let outlook = self.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(schedule)).await?;
        Ok(outlook.map(|outlook| outlook.document.status))
    }
}

impl Store {
    /// Deletes a schedule as it was read, and withdraws its manifests that have not started, unless `pending` keeps them. The
    /// scheduler itself withdraws those that it creates in the meantime.
    pub async fn delete_schedule(
        &self,
        read: &VersionedDocument<Schedule>,
        pending: PendingManifests,
        by: &AuditContext,
    ) -> Result<(), StoreError> {
        let id = &read.document.id;
        let keep_pending = pending == PendingManifests::Keep;
        // The scheduler writes the outlook seldom: it cannot get in between three times.
        for last in [false, false, true] {
            let outlook = self.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(id)).await?;
            let transaction = Transaction::new().remove(read, by);
            let transaction = match &outlook {
                Some(found) => {
                    let wanted = ScheduleOutlook { keep_pending, ..found.document.clone() };
                    transaction.update(found, &wanted, DesiredState::Changed, by)?
                }
                None if keep_pending => {
                    let status = ScheduleStatus::default();
                    let wanted = ScheduleOutlook { schedule: id.clone(), status, keep_pending };
                    transaction.create(Uuid::now_v7(), &wanted, by)?
                }
                None => transaction,
            };
            match self.commit(transaction).await {
                Err(StoreError::Changed { uuid, .. } | StoreError::Gone { uuid })
                    if uuid != read.uuid && !last => {}
                Err(StoreError::Exists { .. }) if !last => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        match pending {
            PendingManifests::Keep => Ok(()),
            PendingManifests::Cancel => self.withdraw_fresh(id, by).await,
        }
    }

    async fn withdraw_fresh(&self, schedule: &str, by: &AuditContext) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.pending_for_origin(schedule, after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            // Work that has started is never withdrawn by a schedule: its undo would not run.
            let fresh: Vec<Uuid> = page.iter().filter(|work| work.is_fresh()).map(|work| work.id).collect();
            self.manifests().withdraw(&fresh, WorkResult::superseded(), by).await?;
        }
    }
}
