//! The queue on SQLite. There is one writer, so no lock is ever waited for; the algorithm is that of PostgreSQL: a
//! claim reads free lanes whose head is due, never the backlog.
//!
//! Writing a lane's head un-parks the lane: the next claim parks it again if its budget is still full. So an un-park
//! is never lost.

use std::collections::BTreeSet;
use std::time::Duration;

use api::work::WorkKind;
use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::{Value, json};
use uuid::Uuid;

use super::budgets::BudgetOutcome;
use super::commit::is_conflict;
use super::read::{StoredCancellation, cancellation, read_cancellation};
use super::writer::Session;
use super::{Sqlite, json_text, micros, time};
use crate::document::text_value;
use crate::notify::Topic;
use crate::work::{
    CLASS_FRESH, ClaimedWork, EXPIRE_BATCH, NewWork, PARK_BATCH, RenewedLease, Signals, WorkLease,
    first_class, holds_lane,
};
use crate::{RequiredState, StoreError};

impl Sqlite {
    pub(crate) async fn claim(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        // Without asking a reader first: a claim that finds nothing changes nothing, and such a commit syncs nothing.
        self.write(move |session| session.claim(kind, max, owner, micros(lease))).await
    }

    pub(crate) async fn renew(
        &self,
        owner: Uuid,
        lanes: Vec<Uuid>,
        lease: Duration,
    ) -> Result<Vec<RenewedLease>, StoreError> {
        self.write(move |session| {
            let mut renewed = Vec::with_capacity(lanes.len());
            for lane in lanes {
                let found = session
                    .connection
                    .prepare_cached(
                        "update lanes set lease_until = ?3 where lane = ?1 and owner = ?2 returning fence, preempt, cancel",
                    )?
                    .query_row(params![lane, owner, session.now + micros(lease)], |row| {
                        Ok(RenewedLease { lane, fence: row.get(0)?, signals: Signals { preempt: row.get(1)?, cancel: row.get(2)? } })
                    })
                    .optional()?;
                renewed.extend(found);
            }
            Ok(renewed)
        })
        .await
    }

    pub(crate) async fn take_over(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        let now = self.now();
        let lost = self
            .read(move |connection| {
                let mut statement = connection.prepare_cached(
                    "select 1 from lanes indexed by lanes_turns
                     where turn_kind = ?2 and turn_at = -1 and parked_on is null and lease_until < ?1 limit 1",
                )?;
                Ok(statement.exists(params![now, kind.as_str()])?)
            })
            .await?;
        if !lost {
            return Ok(Vec::new());
        }
        self.write(move |session| session.take_over(kind, max, owner, micros(lease))).await
    }
}

/// The first pending row of a lane.
pub(super) struct LaneHead {
    pub(super) id: Uuid,
    kind: String,
    /// Class in the lane's order: a row in a side queue counts as unstarted work here.
    pub(super) class: i64,
    pub(super) due_at: i64,
    pub(super) priority: i64,
    run_before: Option<i64>,
    fresh: bool,
    pub(super) budgets: Option<String>,
    /// Whether it is on its way to its end.
    pub(super) ending: bool,
    /// Budget of its side queue.
    pub(super) side_queue: Option<String>,
    state: State,
}

/// State of the work that its new holder receives.
struct State {
    attempt: i32,
    step: Option<String>,
    checkpoint: Option<String>,
    run_after: i64,
    cancellation: Option<StoredCancellation>,
}

impl LaneHead {
    /// Sort key within a lane.
    pub(super) fn place(&self) -> (i64, i64, i64, Uuid) {
        (self.class, self.due_at, self.priority, self.id)
    }

    /// Columns of a lane's head.
    pub(super) fn head(&self) -> (&str, i64, i64, i64) {
        (&self.kind, self.class, self.due_at, self.priority)
    }

    /// Whether it may no longer start: its `run_before` has passed, and it never started.
    fn is_late(&self, now: i64) -> bool {
        self.class == CLASS_FRESH && self.fresh && self.run_before.is_some_and(|at| at <= now)
    }
}

impl Session<'_> {
    pub(super) fn enqueue(&mut self, work: &NewWork) -> Result<(), StoreError> {
        self.insert(work)?;
        // Finished work is not enqueued again under the same id.
        if self.connection.prepare_cached("select 1 from history where id = ?1")?.exists([work.id])? {
            return Err(StoreError::Exists { kind: "work".to_owned(), id: work.id.to_string() });
        }
        Ok(())
    }

    /// Makes work pending again that its origin had withdrawn; work that ended otherwise stays finished.
    pub(super) fn revive(&mut self, work: &NewWork) -> Result<(), StoreError> {
        self.insert(work)?;
        let removed = self
            .connection
            .prepare_cached(
                "delete from history where id = ?1 and state = 'Cancelled' and result ->> 'code' = 'Superseded'",
            )?
            .execute([work.id])?;
        if removed == 1 { Ok(()) } else { Err(self.missing_work_error(work.id, RequiredState::Superseded)?) }
    }

    fn insert(&mut self, work: &NewWork) -> Result<(), StoreError> {
        let due = work.run_after.map_or(self.now, Timestamp::as_microsecond);
        let class = first_class(work.kind);
        let budgets = (!work.budgets.is_empty()).then(|| json!(work.budgets).to_string());
        let inserted = self
            .connection
            .prepare_cached(
                "insert into work (id, lane, kind, class, run_after, due_at, run_before, priority, state, budgets, created, changed, origin)
                 values (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, 'Pending', ?8, ?9, ?9, ?10)",
            )?
            .execute(params![
                work.id,
                work.lane,
                work.kind.as_str(),
                class,
                due,
                work.run_before.map(Timestamp::as_microsecond),
                work.priority,
                budgets,
                self.now,
                work.origin
            ]);
        if let Err(error) = inserted {
            return Err(match is_conflict(&error) {
                true => StoreError::Exists { kind: "work".to_owned(), id: work.id.to_string() },
                false => error.into(),
            });
        }
        self.connection
            .prepare_cached(
                "insert into lanes (lane, head_kind, head_class, head_at, head_priority) values (?1, ?2, ?3, ?4, ?5)
                 on conflict (lane) do update set
                   (head_kind, head_class, head_at, head_priority) =
                     (select excluded.head_kind, excluded.head_class, excluded.head_at, excluded.head_priority
                      where lanes.head_kind is null
                         or (excluded.head_class, excluded.head_at, excluded.head_priority)
                            < (lanes.head_class, lanes.head_at, lanes.head_priority)
                      union all
                      select lanes.head_kind, lanes.head_class, lanes.head_at, lanes.head_priority limit 1),
                   parked_on = null,
                   preempt = preempt or (excluded.head_class = 0 and coalesce(running_kind, '') = 'manifest')",
            )?
            .execute(params![work.lane, work.kind.as_str(), class, due, work.priority])?;
        self.topics.add(Topic::Work(work.kind));
        // The holder of a manifest may have to yield.
        self.topics.add(Topic::Work(WorkKind::Manifest));
        Ok(())
    }

    pub(super) fn claim(
        &mut self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: i64,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        let lanes: Vec<(Uuid, i64)> = self
            .connection
            .prepare_cached(
                "select lane, fence from lanes indexed by lanes_turns
                 where turn_kind = ?1 and turn_at between 0 and ?2 and parked_on is null
                 order by turn_at, head_priority, lane limit ?3",
            )?
            .query_map(params![kind.as_str(), self.now, max], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let budgeted = self.connection.prepare_cached("select 1 from budgets limit 1")?.exists([])?;
        let mut claimed = Vec::with_capacity(lanes.len());
        let mut touched = BTreeSet::new();
        for (lane, fence) in lanes {
            if budgeted {
                // Side queues are checked again; capacity that other work takes instead is passed on.
                touched.extend(self.open_side_queues(lane)?);
            }
            let Some((first, held)) = self.first_startable(lane, kind, budgeted, &mut touched)? else {
                continue;
            };
            if budgeted {
                self.open_side_queues(lane)?;
            }
            self.take_from_side_queue(&first)?;
            let fence = fence + 1;
            self.connection
                .prepare_cached(
                    "update lanes set owner = ?2, lease_until = ?3, fence = ?6, running = ?4, running_kind = ?5,
                       preempt = 0, cancel = 0, head_kind = null, head_class = null, head_at = null, head_priority = null
                     where lane = ?1",
                )?
                .execute(params![lane, owner, self.now + lease, first.id, kind.as_str(), fence])?;
            let lease = WorkLease { work: first.id, lane, owner, fence };
            let started = self.start(lease, kind, held, first.state, Signals::default())?;
            claimed.push(ClaimedWork { first: first.fresh, ..started });
        }
        for key in &touched {
            self.unpark(key)?;
        }
        Ok(claimed)
    }

    /// First row of a lane that can start now, and the budgets that count it; rows blocked by a budget of their own
    /// move to side queues on the way. Without one, the lane keeps its head, or is parked.
    fn first_startable(
        &mut self,
        lane: Uuid,
        kind: WorkKind,
        budgeted: bool,
        touched: &mut BTreeSet<String>,
    ) -> Result<Option<(LaneHead, Option<String>)>, StoreError> {
        let (now, mut moved) = (self.now, 0);
        let startable = |it: &LaneHead| it.kind == kind.as_str() && it.due_at <= now && !it.is_late(now);
        loop {
            let first = match self.first_pending(lane)? {
                // Enough for one claim; the next claim of the lane continues.
                Some(first) if startable(&first) && moved < PARK_BATCH => first,
                other => {
                    self.write_head(lane, other.as_ref())?;
                    return Ok(None);
                }
            };
            let held = if budgeted { self.take_budgets(&first, touched)? } else { BudgetOutcome::Nothing };
            match held {
                BudgetOutcome::Full(key) if first.class == CLASS_FRESH && !holds_lane(&key) => {
                    moved += self.park(lane, &first, &key)?;
                }
                BudgetOutcome::Full(key) => {
                    self.connection
                        .prepare_cached(
                            "update lanes set head_kind = ?2, head_class = ?3, head_at = ?4, head_priority = ?5, parked_on = ?6
                             where lane = ?1",
                        )?
                        .execute(params![lane, first.kind, first.class, first.due_at, first.priority, key])?;
                    return Ok(None);
                }
                BudgetOutcome::Nothing => return Ok(Some((first, None))),
                BudgetOutcome::Held(keys) => return Ok(Some((first, Some(json!(keys).to_string())))),
            }
        }
    }

    /// Assigns work to a holder. Its state was read before: a statement with `returning` costs SQLite twice as much.
    fn start(
        &mut self,
        lease: WorkLease,
        kind: WorkKind,
        held: Option<String>,
        state: State,
        signals: Signals,
    ) -> Result<ClaimedWork, StoreError> {
        let attempt = state.attempt + 1;
        self.connection
            .prepare_cached(
                "update work set state = 'InProgress', fence = ?2, owner = ?3, attempt = ?6, held = ?4,
                   started = coalesce(started, ?5), changed = ?5
                 where id = ?1",
            )?
            .execute(params![lease.work, lease.fence, lease.owner, held, self.now, attempt])?;
        self.feed(kind.as_str(), lease.work, 0, false)?;
        Ok(ClaimedWork {
            lease,
            kind,
            attempt,
            step: state.step,
            checkpoint: state.checkpoint.as_deref().map(text_value).transpose()?,
            run_after: time(state.run_after)?,
            taken_over: false,
            claimed_at: time(self.now)?,
            first: false,
            signals,
            cancellation: state.cancellation.map(cancellation).transpose()?,
        })
    }

    /// First pending row of a lane, after timing out late ones.
    fn first_pending(&mut self, lane: Uuid) -> Result<Option<LaneHead>, StoreError> {
        Ok(self.close_late(lane)?.0)
    }

    /// The same, with the number of rows timed out.
    fn close_late(&mut self, lane: Uuid) -> Result<(Option<LaneHead>, usize), StoreError> {
        for closed in 0..=EXPIRE_BATCH {
            let first = self.first_of(lane)?;
            match first {
                // Enough for one claim: the head stays late, and the next claim of the lane continues.
                Some(late) if late.is_late(self.now) && closed < EXPIRE_BATCH => {
                    self.time_out(late.id, &late.kind, late.budgets.as_deref())?;
                }
                first => return Ok((first, closed)),
            }
        }
        Ok((None, EXPIRE_BATCH))
    }

    /// Writes the head of a free lane; returns the number of late rows timed out. The head of an owned lane is
    /// written when it is released.
    pub(super) fn settle(&mut self, lane: Uuid) -> Result<usize, StoreError> {
        self.open_side_queues(lane)?;
        let (first, closed) = self.close_late(lane)?;
        self.write_head(lane, first.as_ref())?;
        Ok(closed)
    }

    pub(super) fn write_head(&mut self, lane: Uuid, first: Option<&LaneHead>) -> Result<(), StoreError> {
        let sql =
            "update lanes set head_kind = ?2, head_class = ?3, head_at = ?4, head_priority = ?5, parked_on = null
             where lane = ?1";
        self.update_head(sql, lane, first)
    }

    /// Frees an owned lane and writes its head in one change: each index of the lanes is touched once.
    pub(super) fn free_lane(&mut self, lane: Uuid) -> Result<(), StoreError> {
        self.open_side_queues(lane)?;
        let first = self.first_pending(lane)?;
        let sql =
            "update lanes set owner = null, lease_until = null, running = null, running_kind = null, preempt = 0, cancel = 0,
               head_kind = ?2, head_class = ?3, head_at = ?4, head_priority = ?5, parked_on = null
             where lane = ?1";
        self.update_head(sql, lane, first.as_ref())
    }

    /// Updates a lane, with its head as parameters 2 to 5, and notifies the workers of the head's kind.
    fn update_head(&mut self, sql: &str, lane: Uuid, first: Option<&LaneHead>) -> Result<(), StoreError> {
        self.connection.prepare_cached(sql)?.execute(params![
            lane,
            first.map(|it| &it.kind),
            first.map(|it| it.class),
            first.map(|it| it.due_at),
            first.map(|it| it.priority)
        ])?;
        if let Some(kind) = first.and_then(|it| it.kind.parse().ok()) {
            self.topics.add(Topic::Work(kind));
        }
        Ok(())
    }

    /// Checks the lease; returns the signals to its holder.
    pub(super) fn guard(&mut self, lease: WorkLease) -> Result<Signals, StoreError> {
        Ok(self.guarded(lease)?.0)
    }

    /// The same, with the kind of the work.
    fn guarded(&mut self, lease: WorkLease) -> Result<(Signals, String), StoreError> {
        self.connection
            .prepare_cached(
                "select l.preempt, l.cancel, w.kind from work w join lanes l on l.lane = w.lane
                 where w.id = ?1 and w.fence = ?2 and w.owner = ?3 and w.state = 'InProgress'",
            )?
            .query_row(params![lease.work, lease.fence, lease.owner], |row| {
                Ok((Signals { preempt: row.get(0)?, cancel: row.get(1)? }, row.get(2)?))
            })
            .optional()?
            .ok_or(StoreError::LostLease { work: lease.work })
    }

    pub(super) fn checkpoint(
        &mut self,
        lease: WorkLease,
        step: &str,
        data: &Value,
    ) -> Result<Signals, StoreError> {
        let (signals, kind) = self.guarded(lease)?;
        // A manifest that has taken effect keeps its class; an operation's class is the best already.
        self.connection
            .prepare_cached(
                "update work set step = ?2, checkpoint = ?3, class = min(class, 1), changed = ?4 where id = ?1",
            )?
            .execute(params![lease.work, step, json_text(data), self.now])?;
        self.feed(&kind, lease.work, 0, false)?;
        Ok(signals)
    }

    fn take_over(
        &mut self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: i64,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        let lost: Vec<(Uuid, Uuid)> = self
            .connection
            .prepare_cached(
                "select lane, running from lanes indexed by lanes_turns
                 where turn_kind = ?2 and turn_at = -1 and parked_on is null and lease_until < ?1 limit ?3",
            )?
            .query_map(params![self.now, kind.as_str(), max], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut taken = Vec::with_capacity(lost.len());
        for (lane, work) in lost {
            let (fence, signals) = self
                .connection
                .prepare_cached(
                    "update lanes set owner = ?2, lease_until = ?3, fence = fence + 1 where lane = ?1
                     returning fence, preempt, cancel",
                )?
                .query_row(params![lane, owner, self.now + lease], |row| {
                    Ok((row.get(0)?, Signals { preempt: row.get(1)?, cancel: row.get(2)? }))
                })?;
            let (held, state) = self
                .connection
                .prepare_cached(
                    "select held, attempt, step, checkpoint, run_after, cancel_by, cancel_reason, cancel_at
                     from work where id = ?1",
                )?
                .query_row([work], |row| Ok((row.get(0)?, read_state(row, 1)?)))?;
            let moved = self.start(WorkLease { work, lane, owner, fence }, kind, held, state, signals)?;
            taken.push(ClaimedWork { taken_over: true, ..moved });
        }
        Ok(taken)
    }
}

pub(super) fn read_first(row: &Row<'_>) -> rusqlite::Result<LaneHead> {
    Ok(LaneHead {
        id: row.get(0)?,
        kind: row.get(1)?,
        class: row.get::<_, i64>(2)?.min(CLASS_FRESH),
        due_at: row.get(3)?,
        priority: row.get(4)?,
        run_before: row.get(5)?,
        fresh: row.get(6)?,
        budgets: row.get(7)?,
        ending: row.get(8)?,
        side_queue: row.get(9)?,
        state: read_state(row, 10)?,
    })
}

/// Reads from the column `at` on: attempt, step, checkpoint, run_after, and the request to cancel.
fn read_state(row: &Row<'_>, at: usize) -> rusqlite::Result<State> {
    Ok(State {
        attempt: row.get(at)?,
        step: row.get(at + 1)?,
        checkpoint: row.get(at + 2)?,
        run_after: row.get(at + 3)?,
        cancellation: read_cancellation(row, at + 4)?,
    })
}
