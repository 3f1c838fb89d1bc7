//! What is told of each schedule, in a document beside it.

use api::admin::ScheduleStatus;
use api::doc::ScheduleOutlook;
use jiff::Timestamp;
use store::{DesiredState, StoreError, Transaction};
use uuid::Uuid;

use super::act::by;
use super::schedule_record::{RuleState, ScheduleRecord};
use super::{Error, Scheduler};

/// So many of the next periods are told.
const NEXT_PERIODS: usize = 5;

impl Scheduler {
    /// Writes what has changed of what is told of schedules: once for each in a pass, and only when it is other than it
    /// was.
    pub(super) async fn tell(&mut self) -> Result<(), Error> {
        let now = self.deps.clock.now();
        let news: Vec<(String, ScheduleStatus)> = self
            .fleet
            .schedules_by_id
            .iter()
            .filter(|(_, record)| {
                !record.dirty.is_empty() || record.created + record.cancelled > 0 || record.told.is_none()
            })
            .filter_map(|(id, record)| Some((id.clone(), status(record, now)?)))
            .collect();
        for (id, mut status) in news {
            let told = self.fleet.schedules_by_id.get(&id).and_then(|record| record.told.as_ref());
            if told.is_none_or(|told| differs(told, &status)) {
                status = self.write(&id, status).await?;
            }
            if let Some(record) = self.fleet.schedules_by_id.get_mut(&id) {
                (record.told, record.created, record.cancelled) = (Some(status), 0, 0);
            }
        }
        Ok(())
    }

    /// Writes what is told of a schedule, unless it is there already; what is there now.
    async fn write(&self, id: &str, status: ScheduleStatus) -> Result<ScheduleStatus, Error> {
        let store = &self.deps.store;
        let found = store.documents::<ScheduleOutlook>().find(&ScheduleOutlook::path_of(id)).await?;
        let schedule = id.to_owned();
        let (transaction, status) = match &found {
            Some(found) => {
                let status = with_counts_of(status, &found.document.status);
                if !differs(&found.document.status, &status) && !found.document.keep_pending {
                    return Ok(status);
                }
                let wanted = ScheduleOutlook { schedule, status: status.clone(), keep_pending: false };
                (Transaction::new().update(found, &wanted, DesiredState::Unchanged, &by())?, status)
            }
            None => {
                let wanted = ScheduleOutlook { schedule, status: status.clone(), keep_pending: false };
                (Transaction::new().create(Uuid::now_v7(), &wanted, &by())?, status)
            }
        };
        match store.commit(transaction).await {
            // Refused: another scheduler wrote it, or the schedule has ended; the next change brings the next try.
            Ok(_) | Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {
                Ok(status)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What is to be told; nothing of one that is gone.
fn status(record: &ScheduleRecord, now: Timestamp) -> Option<ScheduleStatus> {
    let changed = record.created + record.cancelled > 0;
    let last = record.told.as_ref().filter(|_| !changed);
    let (created, cancelled) =
        last.map_or((record.created, record.cancelled), |told| (told.created, told.cancelled));
    let (errors, next_periods) = match &record.rule_state {
        RuleState::Valid(rule) if rule.enabled => {
            (Vec::new(), rule.calendars.after(now).take(NEXT_PERIODS).collect())
        }
        RuleState::Valid(_) => (Vec::new(), Vec::new()),
        RuleState::Invalid(why) => (vec![why.clone()], Vec::new()),
        RuleState::Deleted => return None,
    };
    let matched = record.matched.len() as u64;
    Some(ScheduleStatus { last_planned_at: Some(now), matched, created, cancelled, errors, next_periods })
}

/// Whether anything but the time of the look is other.
fn differs(told: &ScheduleStatus, status: &ScheduleStatus) -> bool {
    ScheduleStatus { last_planned_at: None, ..told.clone() }
        != ScheduleStatus { last_planned_at: None, ..status.clone() }
}

/// The counts of the last pass that changed something stay until another does.
fn with_counts_of(status: ScheduleStatus, told: &ScheduleStatus) -> ScheduleStatus {
    match status.created + status.cancelled {
        0 => ScheduleStatus { created: told.created, cancelled: told.cancelled, ..status },
        _ => status,
    }
}
