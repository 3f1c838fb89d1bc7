//! Budgets on SQLite: limits on concurrent work, counted in the transactions that start and finish work.
//!
//! Writing a lane's head un-parks the lane: the next claim parks it again if its budget is still full. So an un-park
//! is never lost.

use std::collections::BTreeSet;

use api::work::WorkKind;
use rusqlite::{OptionalExtension as _, params};
use serde_json::json;
use uuid::Uuid;

use super::Sqlite;
use super::queue::LaneHead;
use super::writer::Session;
use crate::StoreError;
use crate::audit::NewAuditRecord;
use crate::notify::Topic;
use crate::work::holds_lane;

impl Sqlite {
    pub(crate) async fn set_budget(
        &self,
        key: String,
        limit: Option<u32>,
        audit: Option<NewAuditRecord>,
    ) -> Result<(), StoreError> {
        self.write(move |session| {
            session.set_budget(&key, limit)?;
            audit.iter().try_for_each(|record| session.audit(record))
        })
        .await
    }
}

/// Result of acquiring the budgets that a candidate needs.
pub(super) enum BudgetOutcome {
    /// None of them is configured.
    Nothing,
    /// All had capacity; these count it now.
    Held(Vec<String>),
    /// This one is full.
    Full(String),
}

impl Session<'_> {
    pub(super) fn take_budgets(
        &mut self,
        first: &LaneHead,
        touched: &mut BTreeSet<String>,
    ) -> Result<BudgetOutcome, StoreError> {
        let mut held = Vec::new();
        let mut full = None;
        for key in keys(first.budgets.as_deref())? {
            let capacity: Option<bool> = self
                .connection
                .prepare_cached("select used < cap from budgets where key = ?1")?
                .query_row([&key], |row| row.get(0))
                .optional()?;
            match capacity {
                None => {}
                // Recorded even when it is not taken in the end: others that wait for it may then have the capacity.
                Some(true) => {
                    touched.insert(key.clone());
                    held.push(key);
                }
                // Work on its way to its end is counted by a full budget, too.
                Some(false) if first.ending => held.push(key),
                // A budget that blocks the whole lane comes before one that blocks only this work.
                Some(false) if full.as_deref().is_none_or(|it| !holds_lane(it) && holds_lane(&key)) => {
                    full = Some(key);
                }
                Some(false) => {}
            }
        }
        if let Some(key) = full {
            return Ok(BudgetOutcome::Full(key));
        }
        if held.is_empty() {
            return Ok(BudgetOutcome::Nothing);
        }
        for key in &held {
            self.connection
                .prepare_cached("update budgets set used = used + 1 where key = ?1")?
                .execute([key])?;
        }
        Ok(BudgetOutcome::Held(held))
    }

    pub(super) fn lower_budgets(&mut self, held: Option<&str>) -> Result<(), StoreError> {
        for key in keys(held)? {
            self.connection
                .prepare_cached("update budgets set used = used - 1 where key = ?1")?
                .execute([&key])?;
            self.unpark(&key)?;
        }
        Ok(())
    }

    /// Un-parks as many lanes as the budget has capacity for: those that it blocks as a whole, then those with side
    /// queues for it.
    pub(super) fn unpark(&mut self, key: &str) -> Result<(), StoreError> {
        let capacity: Option<i64> = self
            .connection
            .prepare_cached("select cap - used from budgets where key = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        let capacity = capacity.unwrap_or(0).max(0);
        if capacity > 0 {
            self.release_budget(key, capacity)?;
        }
        Ok(())
    }

    fn release_budget(&mut self, key: &str, count: i64) -> Result<(), StoreError> {
        let changed = self
            .connection
            .prepare_cached(
                "update lanes set parked_on = null where lane in
                   (select lane from lanes where parked_on = ?1 order by head_at, head_priority, lane
                    limit ?2)",
            )?
            .execute(params![key, count])?;
        let rest = count - i64::try_from(changed).unwrap_or(count);
        let opened = if holds_lane(key) { 0 } else { self.open_closed(key, rest)? };
        if changed + opened > 0 {
            WorkKind::ALL.into_iter().for_each(|kind| self.topics.add(Topic::Work(kind)));
        }
        Ok(())
    }

    fn set_budget(&mut self, key: &str, limit: Option<u32>) -> Result<(), StoreError> {
        let Some(limit) = limit else {
            self.connection.prepare_cached("delete from budgets where key = ?1")?.execute([key])?;
            self.rewrite_held(key, false)?;
            return self.release_budget(key, i64::MAX);
        };
        let changed = self
            .connection
            .prepare_cached("update budgets set cap = ?2 where key = ?1")?
            .execute(params![key, limit])?;
        if changed == 0 {
            // Running work counts from the first moment.
            let used = self.rewrite_held(key, true)?;
            self.connection
                .prepare_cached("insert into budgets (key, cap, used) values (?1, ?2, ?3)")?
                .execute(params![key, limit, used])?;
        }
        self.unpark(key)
    }

    /// Adds running work that names the budget to its count, or removes it.
    fn rewrite_held(&mut self, key: &str, counted: bool) -> Result<usize, StoreError> {
        let running: Vec<(Uuid, Option<String>, Option<String>)> = self
            .connection
            .prepare_cached(
                "select w.id, w.budgets, w.held from lanes l indexed by lanes_turns join work w on w.id = l.running
                 where l.turn_kind in ('manifest', 'operation') and l.turn_at = -1 and l.parked_on is null",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let mut changed = 0;
        for (work, budgets, held) in running {
            if !keys(budgets.as_deref())?.iter().any(|it| it == key) {
                continue;
            }
            let mut held = keys(held.as_deref())?;
            held.retain(|it| it != key);
            if counted {
                held.push(key.to_owned());
            }
            let held = (!held.is_empty()).then(|| json!(held).to_string());
            self.connection
                .prepare_cached("update work set held = ?2 where id = ?1")?
                .execute(params![work, held])?;
            changed += 1;
        }
        Ok(changed)
    }
}

/// List of budget keys as a row stores it: sorted, each once.
pub(super) fn keys(text: Option<&str>) -> Result<Vec<String>, StoreError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let mut keys: Vec<String> = serde_json::from_str(text).map_err(|error| StoreError::Broken {
        what: "a row's budgets are not a list".to_owned(),
        source: Some(Box::new(error)),
    })?;
    keys.sort();
    keys.dedup();
    Ok(keys)
}
