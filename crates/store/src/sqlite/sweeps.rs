//! Slow sweeps on SQLite: late work that nothing touches, and lane heads that do not match the work.

use rusqlite::{OptionalExtension as _, Row, params};
use uuid::Uuid;

use super::Sqlite;
use super::queue::LaneHead;
use super::writer::Session;
use crate::StoreError;
use crate::work::{CLASS_FRESH, SweepProgress};

impl Sqlite {
    pub(crate) async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        let now = self.now();
        let (rows, late) = self
            .read(move |connection| {
                let mut statement = connection.prepare_cached(
                    "select id, lane, state = 'Pending' and class >= ?1 and started is null and run_before <= ?2
                     from work where id > ?3 order by id limit ?4",
                )?;
                let rows = statement
                    .query_map(params![CLASS_FRESH, now, after.unwrap_or(Uuid::nil()), max], |row| {
                        Ok((row.get::<_, Uuid>(0)?, row.get::<_, Uuid>(1)?, row.get::<_, Option<bool>>(2)? == Some(true)))
                    })?
                    .collect::<Result<Vec<_>, _>>()?;
                let late: Vec<Uuid> = rows.iter().filter(|row| row.2).map(|row| row.0).collect();
                Ok((rows, late))
            })
            .await?;
        let next = if rows.len() == max { rows.last().map(|row| row.0) } else { None };
        if late.is_empty() {
            return Ok(SweepProgress { changed: 0, next });
        }
        let changed = self.write(move |session| session.expire(&late)).await?;
        Ok(SweepProgress { changed, next })
    }

    pub(crate) async fn repair(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        self.write(move |session| session.repair(after.unwrap_or(Uuid::nil()), max)).await
    }
}

/// Columns of a lane's head.
type Head = (String, i64, i64, i64);

fn read_head(row: &Row<'_>) -> rusqlite::Result<Option<Head>> {
    Ok(match row.get::<_, Option<String>>(1)? {
        Some(kind) => Some((kind, row.get(2)?, row.get(3)?, row.get(4)?)),
        None => None,
    })
}

impl Session<'_> {
    fn expire(&mut self, late: &[Uuid]) -> Result<usize, StoreError> {
        let mut changed = 0;
        for work in late {
            // Read in another snapshot: it may have started meanwhile.
            let still = self
                .connection
                .prepare_cached(
                    "select lane, kind, budgets from work where id = ?1 and state = 'Pending' and class >= ?2 and started is null
                       and run_before <= ?3",
                )?
                .query_row(params![work, CLASS_FRESH, self.now], |row| {
                    Ok((row.get::<_, Uuid>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
                })
                .optional()?;
            if let Some((lane, kind, budgets)) = still {
                self.time_out(*work, &kind, budgets.as_deref())?;
                // Late rows behind it are timed out with it.
                changed += 1 + self.settle_if_free(lane)?;
            }
        }
        Ok(changed)
    }

    fn repair(&mut self, after: Uuid, max: usize) -> Result<SweepProgress, StoreError> {
        let mut changed = 0;
        // Not an error: capacity that nobody took, because the work that it was freed for left the queue.
        let roomy: Vec<String> = self
            .connection
            .prepare_cached("select key from budgets where used < cap")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for key in roomy {
            self.unpark(&key)?;
        }
        // Work without a lane: creates the row here, its head below. From lane to lane, not from row to row: the
        // backlog of a lane is never scanned.
        let mut at = after;
        for _ in 0..max {
            let next: Option<Uuid> = self
                .connection
                .prepare_cached(
                    "select lane from work indexed by work_in_order where state = 'Pending' and lane > ?1 order by lane limit 1",
                )?
                .query_row([at], |row| row.get(0))
                .optional()?;
            let Some(lane) = next else { break };
            self.connection
                .prepare_cached("insert into lanes (lane) values (?1) on conflict do nothing")?
                .execute([lane])?;
            at = lane;
        }
        let lanes: Vec<Uuid> = self
            .connection
            .prepare_cached("select lane from lanes where lane > ?1 order by lane limit ?2")?
            .query_map(params![after, max], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for lane in &lanes {
            let (free, shown) = self
                .connection
                .prepare_cached(
                    "select owner is null, head_kind, head_class, head_at, head_priority from lanes where lane = ?1",
                )?
                .query_row([lane], |row| Ok((row.get::<_, bool>(0)?, read_head(row)?)))?;
            let first = self.first_of(*lane)?;
            let wrong = free
                && shown.as_ref().map(|it| (it.0.as_str(), it.1, it.2, it.3))
                    != first.as_ref().map(LaneHead::head);
            if wrong {
                self.settle(*lane)?;
                changed += 1;
            }
        }
        let next = if lanes.len() == max { lanes.last().copied() } else { None };
        Ok(SweepProgress { changed, next })
    }
}
