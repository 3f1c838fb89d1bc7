//! History entries on SQLite: numbered within their work; entries written together share a row.

use api::admin::{Entry, EntryEvent};
use api::doc::{ResultCode, WorkResult};
use api::work::WorkState;
use jiff::Timestamp;
use rusqlite::params;
use uuid::Uuid;

use super::read::{many, one, parse_word};
use super::writer::Session;
use super::{Sqlite, time};
use crate::StoreError;
use crate::document::text_value;
use crate::entries::{self, ENTRIES_MAX, EntryText, StoredEntry};

/// Largest row that takes a further entry: a reader of one entry reads the whole row.
const ROW_BYTES_MAX: usize = 16 * 1024;

impl Sqlite {
    pub(crate) async fn entries(
        &self,
        work: Uuid,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        self.read(move |connection| {
            let sql =
                "select number, at, body from entries where work = ?1 and number > ?2 order by number limit ?3";
            let rows = many(connection, sql, params![work, after, limit], |row| {
                let body = text_value(&row.get::<_, String>(2)?)?;
                entries::read_row(row.get(0)?, time(row.get(1)?)?, &body)
            })?;
            Ok(entries::page(rows, after, limit))
        })
        .await
    }

    pub(crate) async fn entries_dropped(&self, work: Uuid) -> Result<u64, StoreError> {
        self.read(move |connection| {
            let sql = "select body ->> 'dropped' from entries where work = ?1 and number = 0";
            Ok(one(connection, sql, [work], |row| Ok(row.get(0)?))?.unwrap_or(0))
        })
        .await
    }
}

impl Session<'_> {
    /// Adds an entry to existing work, live or finished.
    pub(super) fn record(&mut self, recorded: &StoredEntry) -> Result<(), StoreError> {
        let known = self
            .connection
            .prepare_cached(
                "select 1 where exists (select 1 from work where id = ?1) or exists (select 1 from history where id = ?1)",
            )?
            .exists([recorded.work])?;
        if !known {
            return Err(StoreError::NoSuchWork { work: recorded.work });
        }
        if let Some(request) = &recorded.cancellation {
            self.connection
                .prepare_cached(
                    "update work set cancel_by = ?2, cancel_reason = ?3, cancel_at = ?4 where id = ?1",
                )?
                .execute(params![recorded.work, request.actor, request.reason, self.now])?;
        }
        self.append(recorded)
    }

    /// Appends an entry; an entry of a step in a full history is only counted.
    pub(super) fn append(&mut self, recorded: &StoredEntry) -> Result<(), StoreError> {
        let last = self
            .connection
            .prepare_cached("select coalesce(max(number), 0) from entries where work = ?1")?
            .query_row([recorded.work], |row| row.get(0))?;
        self.append_behind(last, recorded.work, &[EntryText::from_stored(recorded)])
    }

    /// Appends entries of one piece of work behind the last one, which has the number `last`.
    pub(super) fn append_behind(
        &mut self,
        mut last: i64,
        work: Uuid,
        lines: &[EntryText],
    ) -> Result<(), StoreError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut insert = self
            .connection
            .prepare_cached("insert into entries (work, number, at, body) values (?1, ?2, ?3, ?4)")?;
        let mut row = Row::default();
        for line in lines {
            if line.is_step_entry && last >= ENTRIES_MAX {
                self.connection
                    .prepare_cached(
                        "insert into entries (work, number, at, body) values (?1, 0, ?2, '{\"dropped\":1}')
                         on conflict (work, number) do update
                         set at = excluded.at, body = json_object('dropped', (body ->> 'dropped') + 1)",
                    )?
                    .execute(params![work, self.now])?;
                continue;
            }
            if !row.has_capacity_for(line) {
                insert.execute(params![work, last, self.now, std::mem::take(&mut row).text()])?;
            }
            row.push(line);
            last += 1;
        }
        if !row.0.is_empty() {
            insert.execute(params![work, last, self.now, row.text()])?;
        }
        Ok(())
    }

    /// Adds the entry of an end that no holder writes.
    pub(super) fn record_end(&mut self, work: Uuid) -> Result<(), StoreError> {
        let (state, attempt, result): (String, i32, Option<String>) = self
            .connection
            .prepare_cached("select state, attempt, result from history where id = ?1")?
            .query_row([work], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let result = result.as_deref().map(text_value).transpose()?.map(WorkResult::from);
        let entry = Entry {
            from: Some(WorkState::Pending),
            to: Some(parse_word(&state)?),
            message: result.and_then(|it| it.message),
            ..Entry::new(time(self.now)?, EntryEvent::Finished, "service:store", attempt)
        };
        self.append(&StoredEntry::new(work, entry))
    }
}

/// Entries written together share a row, under the number of the last: a row for each would double the cost of
/// completing short work.
#[derive(Default)]
struct Row<'a>(Vec<&'a str>);

impl<'a> Row<'a> {
    fn has_capacity_for(&self, line: &EntryText) -> bool {
        self.0.is_empty()
            || self.0.iter().map(|it| it.len()).sum::<usize>() + line.text.len() <= ROW_BYTES_MAX
    }

    fn push(&mut self, line: &'a EntryText) {
        self.0.push(&line.text);
    }

    fn text(self) -> String {
        match self.0[..] {
            [one] => one.to_owned(),
            _ => format!("[{}]", self.0.join(",")),
        }
    }
}

/// Result of work that timed out before it started.
pub(super) fn timed_out(now: i64) -> WorkResult {
    let at = Timestamp::from_second(now.div_euclid(1_000_000)).unwrap_or_default();
    WorkResult::new(ResultCode::TIMED_OUT, format!("timed out at {at}"))
}
