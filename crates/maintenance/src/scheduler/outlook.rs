//! Status of schedules, in one document beside each schedule.

use api::admin::ScheduleStatus;
use api::doc::ScheduleOutlook;
use jiff::Timestamp;
use store::{DesiredState, StoreError, Transaction};
use uuid::Uuid;

use super::act::audit_context;
use super::schedule_record::{RuleState, ScheduleRecord};
use super::{Error, Scheduler};

/// Number of next periods in a status.
const NEXT_PERIODS: usize = 5;

impl Scheduler {
    /// Writes the statuses that changed, once per schedule and pass.
    pub(super) async fn publish_status(&mut self) -> Result<(), Error> {
        let now = self.deps.clock.now();
        let updates: Vec<(String, ScheduleStatus)> = self
            .fleet
            .schedules_by_id
            .iter()
            .filter(|(_, record)| {
                !record.dirty.is_empty()
                    || record.created + record.cancelled > 0
                    || record.published.is_none()
            })
            .filter_map(|(id, record)| Some((id.clone(), status(record, now)?)))
            .collect();
        for (id, mut status) in updates {
            let published = self.fleet.schedules_by_id.get(&id).and_then(|record| record.published.as_ref());
            if published.is_none_or(|published| differs(published, &status)) {
                status = self.write(&id, status).await?;
            }
            if let Some(record) = self.fleet.schedules_by_id.get_mut(&id) {
                (record.published, record.created, record.cancelled) = (Some(status), 0, 0);
            }
        }
        Ok(())
    }

    /// Writes the status of a schedule unless the stored one is equal; returns the stored status.
    async fn write(&self, id: &str, status: ScheduleStatus) -> Result<ScheduleStatus, Error> {
        let store = &self.deps.store;
        let found = store.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(id)).await?;
        let schedule = id.to_owned();
        let (transaction, status) = match &found {
            Some(found) => {
                let status = with_last_counts(status, &found.document.status);
                if !differs(&found.document.status, &status) && !found.document.keep_pending {
                    return Ok(status);
                }
                let wanted = ScheduleOutlook { schedule, status: status.clone(), keep_pending: false };
                (
                    Transaction::new().update(found, &wanted, DesiredState::Unchanged, &audit_context())?,
                    status,
                )
            }
            None => {
                let wanted = ScheduleOutlook { schedule, status: status.clone(), keep_pending: false };
                (Transaction::new().create(Uuid::now_v7(), &wanted, &audit_context())?, status)
            }
        };
        match store.commit(transaction).await {
            // Another scheduler wrote it, or the schedule was deleted; the next change retries.
            Ok(_) | Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {
                Ok(status)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Status of a schedule; none if it is deleted.
fn status(record: &ScheduleRecord, now: Timestamp) -> Option<ScheduleStatus> {
    let changed = record.created + record.cancelled > 0;
    let last = record.published.as_ref().filter(|_| !changed);
    let (created, cancelled) =
        last.map_or((record.created, record.cancelled), |published| (published.created, published.cancelled));
    let (errors, next_periods) = match &record.rule_state {
        RuleState::Valid(rule) if rule.enabled => {
            (Vec::new(), rule.calendars.after(now).take(NEXT_PERIODS).collect())
        }
        RuleState::Valid(_) => (Vec::new(), Vec::new()),
        RuleState::Invalid(error) => (vec![error.clone()], Vec::new()),
        RuleState::Deleted => return None,
    };
    let matched = record.matched.len() as u64;
    Some(ScheduleStatus { last_planned_at: Some(now), matched, created, cancelled, errors, next_periods })
}

/// Whether two statuses differ in anything but their time.
fn differs(published: &ScheduleStatus, status: &ScheduleStatus) -> bool {
    ScheduleStatus { last_planned_at: None, ..published.clone() }
        != ScheduleStatus { last_planned_at: None, ..status.clone() }
}

/// Takes over the counts of the last pass that changed something.
fn with_last_counts(status: ScheduleStatus, published: &ScheduleStatus) -> ScheduleStatus {
    match status.created + status.cancelled {
        0 => ScheduleStatus { created: published.created, cancelled: published.cancelled, ..status },
        _ => status,
    }
}
