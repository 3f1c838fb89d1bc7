//! Side queues on SQLite: work blocked by a budget of its own waits beside its lane, so that the lane's other work
//! continues.
//!
//! A lane's head is the first of its queue and of its open side queues. A claim from a lane checks all of its side
//! queues again and closes those whose budget is full; freeing capacity, releasing the lane or writing its head opens
//! them. So none stays closed because a change of capacity was missed.

use rusqlite::{OptionalExtension as _, params};
use uuid::Uuid;

use super::budgets::keys;
use super::queue::{LaneHead, read_first};
use super::writer::Session;
use crate::StoreError;
use crate::work::{CLASS_FRESH, CLASS_PARKED, PARK_BATCH};

impl Session<'_> {
    /// First pending row of a lane, in its queue or in an open side queue.
    pub(super) fn first_of(&self, lane: Uuid) -> Result<Option<LaneHead>, StoreError> {
        let first = self
            .connection
            .prepare_cached(
                "select id, kind, class, due_at, priority, run_before, started is null, budgets, coalesce(to_end, 0), side_queue,
                   attempt, step, checkpoint, run_after, cancel_by, cancel_reason, cancel_at
                 from work indexed by work_in_order
                 where lane = ?1 and class < 3 and state = 'Pending' order by class, due_at, priority, id limit 1",
            )?
            .query_row([lane], read_first)
            .optional()?;
        // Rows of side queues are unstarted manifests and come behind everything else.
        if first.as_ref().is_some_and(|it| it.class < CLASS_FRESH) {
            return Ok(first);
        }
        let mut statement = self.connection.prepare_cached(
            "select w.id, w.kind, w.class, w.due_at, w.priority, w.run_before, w.started is null, w.budgets, coalesce(w.to_end, 0),
               w.side_queue, w.attempt, w.step, w.checkpoint, w.run_after, w.cancel_by, w.cancel_reason, w.cancel_at
             from side_queues s join work w on w.id =
               (select a.id from work a indexed by work_set_aside where a.lane = s.lane and a.side_queue = s.key
                order by a.due_at, a.priority, a.id limit 1)
             where s.lane = ?1 and not s.closed",
        )?;
        let aside = statement.query_map([lane], read_first)?.collect::<Result<Vec<_>, _>>()?;
        let aside = aside.into_iter().min_by_key(LaneHead::place);
        Ok(match (first, aside) {
            (Some(first), Some(aside)) if first.place() < aside.place() => Some(first),
            (first, aside) => aside.or(first),
        })
    }

    /// Opens all side queues of a lane and removes empty ones; returns the budgets that they wait for.
    pub(super) fn open_side_queues(&mut self, lane: Uuid) -> Result<Vec<String>, StoreError> {
        let keys: Vec<String> = self
            .connection
            .prepare_cached("select key from side_queues where lane = ?1")?
            .query_map([lane], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Ok(keys);
        }
        self.connection
            .prepare_cached(
                "delete from side_queues where lane = ?1 and not exists
                   (select 1 from work a indexed by work_set_aside
                    where a.lane = side_queues.lane and a.side_queue = side_queues.key)",
            )?
            .execute([lane])?;
        self.connection
            .prepare_cached("update side_queues set closed = 0 where lane = ?1 and closed")?
            .execute([lane])?;
        Ok(keys)
    }

    /// Moves the first row of a lane to the side queue of that budget, which is full, with the next rows that it
    /// blocks. Returns the number of rows moved.
    pub(super) fn park(&mut self, lane: Uuid, first: &LaneHead, key: &str) -> Result<usize, StoreError> {
        let moved = match &first.side_queue {
            Some(before) if before == key => 0,
            Some(_) => self
                .connection
                .prepare_cached("update work set side_queue = ?2 where id = ?1")?
                .execute(params![first.id, key])?,
            None => self.park_next(lane, key)?,
        };
        // A side queue that is closed already has an older head.
        self.connection
            .prepare_cached(
                "insert into side_queues (lane, key, closed, head_at, head_priority) values (?1, ?2, 1, ?3, ?4)
                 on conflict (lane, key) do update
                 set closed = 1, head_at = excluded.head_at, head_priority = excluded.head_priority where not closed",
            )?
            .execute(params![lane, key, first.due_at, first.priority])?;
        Ok(moved)
    }

    /// Moves rows that a budget blocks, among the next ones of a lane, to its side queue.
    fn park_next(&mut self, lane: Uuid, key: &str) -> Result<usize, StoreError> {
        let next: Vec<(Uuid, Option<String>)> = self
            .connection
            .prepare_cached(
                "select id, budgets from work indexed by work_in_order
                 where lane = ?1 and class = ?2 and due_at <= ?3 and state = 'Pending'
                 order by due_at, priority, id limit ?4",
            )?
            .query_map(params![lane, CLASS_FRESH, self.now, PARK_BATCH], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        let mut moved = 0;
        for (work, budgets) in next {
            if keys(budgets.as_deref())?.iter().any(|it| it == key) {
                moved += self
                    .connection
                    .prepare_cached("update work set class = ?2, side_queue = ?3 where id = ?1")?
                    .execute(params![work, CLASS_PARKED, key])?;
            }
        }
        Ok(moved)
    }

    /// Moves a row that is about to start back to its lane's queue.
    pub(super) fn take_from_side_queue(&mut self, first: &LaneHead) -> Result<(), StoreError> {
        if first.side_queue.is_some() {
            self.connection
                .prepare_cached("update work set class = ?2, side_queue = null where id = ?1")?
                .execute(params![first.id, CLASS_FRESH])?;
        }
        Ok(())
    }

    /// Opens the closed side queues of a budget that have waited longest, and all others of their lanes; returns the
    /// number of lanes.
    pub(super) fn open_closed(&mut self, key: &str, count: i64) -> Result<usize, StoreError> {
        let lanes: Vec<Uuid> = self
            .connection
            .prepare_cached(
                "select lane from side_queues indexed by side_queues_closed where key = ?1 and closed
                 order by head_at, head_priority, lane limit ?2",
            )?
            .query_map(params![key, count], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for lane in &lanes {
            self.open_side_queues(*lane)?;
            // Late rows are timed out by the next claim that reaches them.
            let first = self.first_of(*lane)?;
            self.write_head(*lane, first.as_ref())?;
        }
        Ok(lanes.len())
    }
}
