//! How work leaves the queue: completed or released by its holder; withdrawn, cancelled or discarded by others.

use std::time::Duration;

use api::error::{Class, Classify as _};
use api::work::{WorkKind, WorkState};
use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::Value;
use uuid::Uuid;

use super::budgets::keys;
use super::entries::timed_out;
use super::writer::Session;
use super::{Sqlite, json_text, micros};
use crate::completion::PreparedCompletion;
use crate::notify::Topic;
use crate::work::{
    CLASS_FRESH, CLASS_STARTED, CompleteAndClaimResult, CompletionOutcome, Release, WorkLease,
};
use crate::{RequiredState, StoreError};

impl Sqlite {
    pub(crate) async fn complete(
        &self,
        completions: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        let completions = completions.to_vec();
        self.write(move |session| session.complete_all(&completions)).await
    }

    pub(crate) async fn complete_and_claim(
        &self,
        completions: &[PreparedCompletion],
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> CompleteAndClaimResult {
        let batch = completions.to_vec();
        let write = move |session: &mut Session<'_>| {
            let outcomes = session.complete_all(&batch)?;
            Ok((outcomes, session.claim(kind, max, owner, micros(lease))?))
        };
        match self.write(write).await {
            Ok((outcomes, claimed)) => {
                CompleteAndClaimResult { completed: Ok(outcomes), claimed: Ok(claimed) }
            }
            Err(error) if error.class() == Class::Transient => {
                let what = format!("nothing was claimed: {error}");
                CompleteAndClaimResult {
                    completed: Err(error),
                    claimed: Err(StoreError::Unavailable { what, source: None }),
                }
            }
            // One of the two cannot succeed; the other must not fail because of it.
            Err(_) => {
                let completed = self.complete(completions).await;
                CompleteAndClaimResult { completed, claimed: self.claim(kind, max, owner, lease).await }
            }
        }
    }
}

/// Columns of a row of `work` that ending it needs.
struct WorkRow {
    lane: Uuid,
    kind: String,
    state: WorkState,
    class: i64,
    held: Option<String>,
    budgets: Option<String>,
}

impl WorkRow {
    /// Budgets whose capacity it waits for, perhaps in a lane that was un-parked for it.
    fn awaited_budgets(&self) -> Option<&str> {
        if self.state == WorkState::Pending { self.budgets.as_deref() } else { None }
    }
}

impl Session<'_> {
    /// Completes work; each piece succeeds or fails alone. Written in id order: many rows on few pages.
    fn complete_all(
        &mut self,
        completions: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        let mut order: Vec<usize> = (0..completions.len()).collect();
        order.sort_by_key(|index| completions[*index].lease().work);
        let mut outcomes = vec![CompletionOutcome::Lost; completions.len()];
        for index in order {
            if self.complete(&completions[index])? {
                outcomes[index] = CompletionOutcome::Done;
            }
        }
        Ok(outcomes)
    }

    /// Completes work; false, without any change, when the lease is stale.
    pub(super) fn complete(&mut self, end: &PreparedCompletion) -> Result<bool, StoreError> {
        let work = end.lease().work;
        // Without entries the number of the last entry is not needed.
        let found = match end.entries() {
            [] => self.held_by(end.lease())?.map(|live| (live, 0)),
            _ => self.held_with_last_entry(end.lease())?,
        };
        let Some((live, last)) = found else { return Ok(false) };
        self.end(work, &live.kind, end.state(), end.result(), live.awaited_budgets())?;
        self.lower_budgets(live.held.as_deref())?;
        self.free_lane(live.lane)?;
        self.append_behind(last, work, end.entries())?;
        Ok(true)
    }

    pub(super) fn release(&mut self, release: &Release) -> Result<(), StoreError> {
        let lease = release.lease;
        let live = self.held_by(lease)?.ok_or(StoreError::LostLease { work: lease.work })?;
        if release.unless_cancelled && self.guard(lease)?.cancel {
            return Err(StoreError::WrongState {
                work: lease.work,
                state: live.state,
                required: RequiredState::NotCancelled,
            });
        }
        // Work without effect may still time out before it starts.
        self.connection
            .prepare_cached(
                "update work set state = 'Pending', due_at = ?2, attempt = attempt - ?3, owner = null, held = null, changed = ?4,
                   started = case when class = 2 and ?7 = 2 and ?3 = 1 then null else started end,
                   step = coalesce(?5, step), checkpoint = coalesce(?6, checkpoint), class = min(class, ?7),
                   to_end = max(coalesce(to_end, 0), ?8)
                 where id = ?1",
            )?
            .execute(params![
                lease.work,
                self.now.saturating_add(micros(release.delay)),
                i64::from(!release.attempt_spent),
                self.now,
                release.checkpoint.as_ref().map(|(step, _)| step),
                release.checkpoint.as_ref().map(|(_, data)| json_text(data)),
                if release.started { CLASS_STARTED } else { CLASS_FRESH },
                release.started && !release.unless_cancelled
            ])?;
        self.feed(&live.kind, lease.work, 0, false)?;
        self.lower_budgets(live.held.as_deref())?;
        self.free_lane(live.lane)
    }

    pub(super) fn withdraw(&mut self, work: Uuid, result: &Value) -> Result<(), StoreError> {
        let live = self.pending_or_error(work)?;
        if live.class == CLASS_STARTED {
            return Err(StoreError::WrongState { work, state: live.state, required: RequiredState::Fresh });
        }
        self.end(work, &live.kind, WorkState::Cancelled, &json_text(result), live.awaited_budgets())?;
        self.settle_if_free(live.lane).map(drop)
    }

    pub(super) fn withdraw_lane(&mut self, lane: Uuid, result: &Value) -> Result<(), StoreError> {
        let pending: Vec<(Uuid, String, Option<String>)> = self
            .connection
            .prepare_cached("select id, kind, budgets from work where lane = ?1 and state = 'Pending'")?
            .query_map([lane], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let result = json_text(result);
        for (work, kind, budgets) in pending {
            self.end(work, &kind, WorkState::Cancelled, &result, budgets.as_deref())?;
            self.record_end(work)?;
        }
        self.connection
            .prepare_cached("update lanes set cancel = 1 where lane = ?1 and owner is not null")?
            .execute([lane])?;
        WorkKind::ALL.into_iter().for_each(|kind| self.topics.add(Topic::Work(kind)));
        self.settle_if_free(lane).map(drop)
    }

    pub(super) fn expedite(&mut self, work: Uuid) -> Result<(), StoreError> {
        let live = self.pending_or_error(work)?;
        // Late work is not released first: the next access to its lane times it out, and no entry comes behind that
        // end.
        let moved = self
            .connection
            .prepare_cached(
                "update work set run_after = 0, due_at = 0, changed = ?2
                 where id = ?1 and (class >= ?3 and started is null and run_before <= ?2) is not true",
            )?
            .execute(params![work, self.now, CLASS_FRESH])?;
        if moved == 0 {
            let (state, required) = (WorkState::TimedOut, RequiredState::Pending);
            return Err(StoreError::WrongState { work, state, required });
        }
        self.feed(&live.kind, work, 0, false)?;
        self.settle_if_free(live.lane).map(drop)
    }

    pub(super) fn request_cancel(&mut self, work: Uuid) -> Result<(), StoreError> {
        let live = self.live(work)?;
        match live {
            Some(live) if live.state == WorkState::InProgress => {
                self.connection
                    .prepare_cached("update lanes set cancel = 1 where lane = ?1")?
                    .execute([live.lane])?;
                self.feed(&live.kind, work, 0, false)?;
                WorkKind::ALL.into_iter().for_each(|kind| self.topics.add(Topic::Work(kind)));
                Ok(())
            }
            // It is released; the next holder finds the cancel request on the work row.
            Some(live) if live.class == CLASS_STARTED => {
                self.connection
                    .prepare_cached("update work set due_at = 0, to_end = 1, changed = ?2 where id = ?1")?
                    .execute(params![work, self.now])?;
                self.feed(&live.kind, work, 0, false)?;
                self.settle_if_free(live.lane).map(drop)
            }
            Some(live) => {
                Err(StoreError::WrongState { work, state: live.state, required: RequiredState::InProgress })
            }
            None => Err(self.missing_work_error(work, RequiredState::InProgress)?),
        }
    }

    /// Removes work that neither runs nor has taken effect: its effects would never be undone.
    pub(super) fn discard(&mut self, work: Uuid) -> Result<(), StoreError> {
        if let Some(live) = self.live(work)? {
            if live.state == WorkState::InProgress || live.class == CLASS_STARTED {
                return Err(StoreError::WrongState {
                    work,
                    state: live.state,
                    required: RequiredState::Finished,
                });
            }
            self.remove(work, live.awaited_budgets())?;
            self.settle_if_free(live.lane)?;
        }
        self.connection.prepare_cached("delete from history where id = ?1")?.execute([work])?;
        self.connection.prepare_cached("delete from entries where work = ?1")?.execute([work])?;
        Ok(())
    }

    /// Ensures that nothing runs in a lane, and that no started work is pending in it.
    pub(super) fn expect_idle(&self, lane: Uuid) -> Result<(), StoreError> {
        let unfinished: Option<(Uuid, WorkState)> = self
            .connection
            .prepare_cached(
                "select running, 'InProgress' from lanes where lane = ?1 and running is not null
                 union all select id, state from work indexed by work_in_order where lane = ?1 and class = ?2 limit 1",
            )?
            .query_row(params![lane, CLASS_STARTED], |row| Ok((row.get(0)?, read_work_state(row, 1)?)))
            .optional()?;
        match unfinished {
            Some((work, state)) => {
                Err(StoreError::WrongState { work, state, required: RequiredState::Finished })
            }
            None => Ok(()),
        }
    }

    fn pending_or_error(&self, work: Uuid) -> Result<WorkRow, StoreError> {
        match self.live(work)? {
            Some(live) if live.state == WorkState::Pending => Ok(live),
            Some(live) => {
                Err(StoreError::WrongState { work, state: live.state, required: RequiredState::Pending })
            }
            None => Err(self.missing_work_error(work, RequiredState::Pending)?),
        }
    }

    pub(super) fn missing_work_error(
        &self,
        work: Uuid,
        required: RequiredState,
    ) -> Result<StoreError, StoreError> {
        let finished: Option<WorkState> = self
            .connection
            .prepare_cached("select state from history where id = ?1")?
            .query_row([work], |row| read_work_state(row, 0))
            .optional()?;
        Ok(match finished {
            Some(state) => StoreError::WrongState { work, state, required },
            None => StoreError::NoSuchWork { work },
        })
    }

    /// The work, if the lease is valid, and the number of its last entry.
    fn held_with_last_entry(&self, lease: WorkLease) -> Result<Option<(WorkRow, i64)>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "select lane, kind, state, held, class, budgets,
                   coalesce((select max(number) from entries where work = ?1), 0) from work
                 where id = ?1 and fence = ?2 and owner = ?3 and state = 'InProgress'",
            )?
            .query_row(params![lease.work, lease.fence, lease.owner], |row| {
                Ok((read_live(row)?, row.get(6)?))
            })
            .optional()?)
    }

    /// The work, if the lease is valid.
    fn held_by(&self, lease: WorkLease) -> Result<Option<WorkRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "select lane, kind, state, held, class, budgets from work
                 where id = ?1 and fence = ?2 and owner = ?3 and state = 'InProgress'",
            )?
            .query_row(params![lease.work, lease.fence, lease.owner], read_live)
            .optional()?)
    }

    fn live(&self, work: Uuid) -> Result<Option<WorkRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached("select lane, kind, state, held, class, budgets from work where id = ?1")?
            .query_row([work], read_live)
            .optional()?)
    }

    pub(super) fn settle_if_free(&mut self, lane: Uuid) -> Result<usize, StoreError> {
        let owned = self
            .connection
            .prepare_cached("select 1 from lanes where lane = ?1 and owner is not null")?
            .exists([lane])?;
        if owned { Ok(0) } else { self.settle(lane) }
    }

    pub(super) fn time_out(
        &mut self,
        work: Uuid,
        kind: &str,
        awaited_budgets: Option<&str>,
    ) -> Result<(), StoreError> {
        self.end(work, kind, WorkState::TimedOut, &json_text(&timed_out(self.now).into()), awaited_budgets)?;
        self.record_end(work)
    }

    /// Moves work to the history; `awaited_budgets` are the budgets of work that was pending.
    fn end(
        &mut self,
        work: Uuid,
        kind: &str,
        state: WorkState,
        result: &str,
        awaited_budgets: Option<&str>,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "insert into history (id, lane, kind, class, run_after, run_before, priority, state, attempt, step, checkpoint,
                   fence, owner, result, created, started, finished, origin, budgets)
                 select id, lane, kind, class, run_after, run_before, priority, ?2, attempt, step, checkpoint,
                   fence, owner, ?3, created, started, ?4, origin, budgets from work where id = ?1",
            )?
            .execute(params![work, state.as_str(), result, self.now])?;
        self.remove(work, awaited_budgets)?;
        self.feed(kind, work, 0, false)
    }

    /// Removes work from the queue.
    fn remove(&mut self, work: Uuid, awaited_budgets: Option<&str>) -> Result<(), StoreError> {
        self.connection.prepare_cached("delete from work where id = ?1")?.execute([work])?;
        // Its lane may have been un-parked for capacity that it no longer takes: others that wait may have it.
        for key in keys(awaited_budgets)? {
            self.unpark(&key)?;
        }
        Ok(())
    }
}

fn read_live(row: &Row<'_>) -> rusqlite::Result<WorkRow> {
    Ok(WorkRow {
        lane: row.get(0)?,
        kind: row.get(1)?,
        state: read_work_state(row, 2)?,
        held: row.get(3)?,
        class: row.get(4)?,
        budgets: row.get(5)?,
    })
}

fn read_work_state(row: &Row<'_>, column: usize) -> rusqlite::Result<WorkState> {
    row.get_ref(column)?.as_str()?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::clock::SystemClock;
    use api::work::Ending;
    use serde_json::json;

    use super::*;
    use crate::work::{Completion, NewWork};
    use crate::{Keyring, LEASE, Location, Options};

    #[tokio::test]
    async fn a_claim_that_fails_does_not_fail_the_completions() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
        let sqlite = Sqlite::open(&options).await.unwrap();
        let (me, kind) = (Uuid::new_v4(), WorkKind::Manifest);
        let enqueue = async |work: NewWork| {
            sqlite.write(move |session| session.enqueue(&work)).await.unwrap();
        };
        enqueue(NewWork::new(Uuid::now_v7(), Uuid::new_v4(), kind)).await;
        let lease = sqlite.claim(kind, 1, me, LEASE).await.unwrap()[0].lease;
        let broken = NewWork::new(Uuid::now_v7(), Uuid::new_v4(), kind);
        enqueue(broken.clone()).await;
        sqlite
            .write(move |session| {
                let sql = "update work set checkpoint = 'no JSON' where id = ?1";
                session.connection.execute(sql, [broken.id])?;
                Ok(())
            })
            .await
            .unwrap();
        let end = PreparedCompletion::from_valid(&Completion::new(lease, Ending::Completed, json!({})));
        let result = sqlite.complete_and_claim(&[end], kind, 9, me, LEASE).await;
        assert_eq!(result.completed.unwrap(), [CompletionOutcome::Done]);
        assert!(matches!(result.claimed, Err(StoreError::Broken { .. })), "{:?}", result.claimed);
    }
}
