//! What is stored beside a schedule, and the end of one.

use api::admin::ScheduleStatus;
use api::doc::{ResultCode, Schedule, ScheduleOutlook, WorkResult};
use api::work::WorkState;
use store::{
    AuditContext, DesiredState, PAGE_MAX, Reader, Store, StoreError, Transaction, VersionedDocument, WorkView,
};
use uuid::Uuid;

/// What becomes of the pending manifests of a schedule that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// They are withdrawn.
    Cancel,
    /// They stay.
    Keep,
}

/// How a schedule fares, as the scheduler last wrote it.
pub async fn status(reader: &Reader, schedule: &str) -> Result<Option<ScheduleStatus>, StoreError> {
    let outlook = reader.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(schedule)).await?;
    Ok(outlook.map(|outlook| outlook.document.status))
}

/// Deletes a schedule as it was read, and withdraws what it has made and is not begun, unless that is to be kept. What a
/// scheduler was about to make meanwhile, it withdraws itself.
pub async fn delete(
    store: &Store,
    read: &VersionedDocument<Schedule>,
    pending: Pending,
    by: &AuditContext,
) -> Result<(), StoreError> {
    let id = &read.document.id;
    let keep_pending = pending == Pending::Keep;
    // The scheduler writes the outlook now and then; three turns are more than it can come between.
    for last in [false, false, true] {
        let outlook = store.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(id)).await?;
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
        match store.commit(transaction).await {
            Err(StoreError::Changed { uuid, .. } | StoreError::Gone { uuid })
                if uuid != read.uuid && !last => {}
            Err(StoreError::Exists { .. }) if !last => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match pending {
        Pending::Keep => Ok(()),
        Pending::Cancel => withdraw_all(store, id, by).await,
    }
}

async fn withdraw_all(store: &Store, schedule: &str, by: &AuditContext) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = store.pending_for_origin(schedule, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id);
        let fresh: Vec<Uuid> = page.iter().filter(|work| is_fresh(work)).map(|work| work.id).collect();
        store.manifests().withdraw(&fresh, withdrawn(), by).await?;
    }
}

/// Whether nothing of it was ever begun. What was begun is never withdrawn by a schedule: its undo would not run.
fn is_fresh(work: &WorkView) -> bool {
    work.state == WorkState::Pending && work.attempt == 0 && work.started.is_none()
}

/// What is remembered of work that its schedule withdrew; such work comes back when it is wanted again.
pub fn withdrawn() -> WorkResult {
    let message = "Cancelled by Scheduler as did not match current schedule settings";
    WorkResult::new(ResultCode::SUPERSEDED, message)
}

impl super::Known {
    /// What a schedule has to know of a manifest's work, which was given parameters of that mark.
    pub fn of(work: &WorkView, parameters: u64) -> super::Known {
        let superseded = || work.result.as_ref().is_some_and(|it| it.has_code(&ResultCode::SUPERSEDED));
        match work.state {
            WorkState::Pending if is_fresh(work) => super::Known::Fresh(super::Window {
                run_after: work.run_after,
                run_before: work.run_before.unwrap_or(jiff::Timestamp::MAX),
                priority: work.priority,
                parameters,
            }),
            WorkState::Cancelled if superseded() => super::Known::Superseded,
            _ => super::Known::Taken,
        }
    }
}
