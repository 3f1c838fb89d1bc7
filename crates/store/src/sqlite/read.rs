//! Reads: documents, lists, work, lanes, the feed, the audit log.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::audit::{AuditEntry, AuditRecord};
use api::doc::WorkResult;
use api::work::{Cancellation, WorkKind, WorkState};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use uuid::Uuid;

use super::budgets::keys;
use super::{Sqlite, time};
use crate::document::behind;
use crate::document::{RawBody, text_value};
use crate::engine::{AuditPosition, AuditQuery, AuditRow};
use crate::feed::{Change, FeedError, FeedPage, Position, Subject};
use crate::keyring::SealedSecret;
use crate::records::HealthSample;
use crate::work::{Budget, LaneView, QUEUE_COUNT_MAX, QueueView, Signals, WorkView};
use crate::{DocumentQuery, Etag, StoreError, StoredDocument};

/// Position of the sealer. Records are numbered in the order of `seq`, so all unsealed ones come behind it: an index
/// of unsealed records would cost every change of a document a page.
const LAST_SEALED: &str =
    "coalesce((select seq from audit where number is not null order by number desc limit 1), 0)";

const DOCUMENT: &str = "uuid, id, kind, parent, etag, generation, body, created, changed";
const HEALTH: &str = "select cluster, at, reachable, since, sample from health where cluster = ?1";
const LIVE: &str =
    "id, lane, kind, state, attempt, run_after, due_at, run_before, priority, step, checkpoint, fence,
  created, started, null as finished, null as result, origin, budgets, coalesce(to_end, 0),
  cancel_by, cancel_reason, cancel_at";
const ENDED: &str = "id, lane, kind, state, attempt, run_after, finished as due_at, run_before, priority, step, checkpoint, fence,
  created, started, finished, result, origin, budgets, 0, null, null, null";
/// A lane with work only in side queues shows the first of that, and the budget that it waits for.
const LANE: &str = "lane, coalesce(head_kind, (select 'manifest' from side_queues s where s.lane = lanes.lane and s.closed limit 1)),
  coalesce(head_at, (select min(s.head_at) from side_queues s where s.lane = lanes.lane and s.closed)),
  case when head_kind is null then (select s.key from side_queues s where s.lane = lanes.lane and s.closed
    order by s.head_at, s.head_priority, s.key limit 1) else parked_on end,
  owner, lease_until, fence, running, preempt, cancel";
const AUDIT: &str =
    "seq, id, at, actor, action, target, reason, correlation, before, after, number, seal, mac, sealed_at,
  coalesce(refused, 0)";

impl Sqlite {
    pub(crate) async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        self.look_up(move |connection| {
            let sql = format!("select {DOCUMENT} from documents where uuid = ?1 and deleted_at is null");
            one(connection, &sql, [uuid], document)
        })
        .await
    }

    pub(crate) async fn get_many(
        &self,
        uuids: Vec<Uuid>,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        self.read(move |connection| {
            let sql = format!("select {DOCUMENT} from documents where uuid = ?1 and deleted_at is null");
            each(connection, &sql, &uuids, document)
        })
        .await
    }

    /// Both from one snapshot.
    pub(crate) async fn get_with_health(
        &self,
        uuids: Vec<Uuid>,
        clusters: Vec<Uuid>,
    ) -> Result<(Vec<StoredDocument<RawBody>>, Vec<HealthSample>), StoreError> {
        self.read(move |connection| {
            let sql = format!("select {DOCUMENT} from documents where uuid = ?1 and deleted_at is null");
            let documents = each(connection, &sql, &uuids, document)?;
            Ok((documents, each(connection, HEALTH, &clusters, health)?))
        })
        .await
    }

    pub(crate) async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        self.read(move |connection| {
            let sql = "select uuid, id from documents where uuid = ?1 and deleted_at is not null";
            let found: Result<Vec<Option<(Uuid, String)>>, _> = uuids
                .iter()
                .map(|uuid| one(connection, sql, [*uuid], |row| Ok((row.get(0)?, row.get(1)?))))
                .collect();
            Ok(found?.into_iter().flatten().collect())
        })
        .await
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        let id = id.to_owned();
        self.look_up(move |connection| {
            let sql = format!("select {DOCUMENT} from documents where id = ?1 and deleted_at is null");
            one(connection, &sql, [id], document)
        })
        .await
    }

    pub(crate) async fn version(&self, id: &str) -> Result<Option<(Uuid, Etag)>, StoreError> {
        let id = id.to_owned();
        self.look_up(move |connection| {
            let sql = "select uuid, etag from documents where id = ?1 and deleted_at is null";
            one(connection, sql, [id], |row| Ok((row.get(0)?, Etag(row.get(1)?))))
        })
        .await
    }

    pub(crate) async fn list(
        &self,
        listing: DocumentQuery,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        self.read(move |connection| {
            // Without a scope a prefix is looked up by the path's own index; the plus keeps the index of the kind out
            // of it.
            let kind = if listing.parent.is_none() && listing.prefix.is_some() { "+kind" } else { "kind" };
            let mut sql =
                format!("select {DOCUMENT} from documents where deleted_at is null and {kind} = ?1");
            let mut values: Vec<SqlValue> = vec![listing.kind.into()];
            let bind = |values: &mut Vec<SqlValue>, value: String| {
                values.push(value.into());
                format!("?{}", values.len())
            };
            if listing.parent.is_some() || listing.prefix.is_some() {
                if let Some(parent) = listing.parent {
                    sql += &format!(" and parent = {}", bind(&mut values, parent));
                }
                if let Some(prefix) = listing.prefix {
                    sql += &format!(" and id >= {}", bind(&mut values, prefix.clone()));
                    sql += &format!(" and id < {}", bind(&mut values, behind(&prefix)));
                }
                if let Some((_, id)) = listing.after {
                    sql += &format!(" and id > {}", bind(&mut values, id));
                }
                sql += " order by id";
            } else {
                if let Some((parent, id)) = listing.after {
                    let (parent, id) = (bind(&mut values, parent), bind(&mut values, id));
                    sql += &format!(" and (parent, id) > ({parent}, {id})");
                }
                sql += " order by parent, id";
            }
            values.push(i64::try_from(listing.limit).unwrap_or(i64::MAX).into());
            sql += &format!(" limit ?{}", values.len());
            many(connection, &sql, params_from_iter(values), document)
        })
        .await
    }

    pub(crate) async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<SealedSecret>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| {
            let sql = "select owner, name, key_id, sealed from secrets where owner = ?1 and name = ?2";
            one(connection, sql, params![owner, name], sealed)
        })
        .await
    }

    pub(crate) async fn secrets(
        &self,
        not_of: Option<String>,
        after: Option<(Uuid, String)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        self.read(move |connection| {
            let (owner, name) = after.unwrap_or((Uuid::nil(), String::new()));
            let sql = "select owner, name, key_id, sealed from secrets
                       where (owner, name) > (?1, ?2) and (?3 is null or key_id <> ?3) order by owner, name limit ?4";
            many(connection, sql, params![owner, name, not_of, limit], sealed)
        })
        .await
    }

    pub(crate) async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        self.read(move |connection| {
            let live = format!("select {LIVE} from work where id = ?1");
            let ended = format!("select {ENDED} from history where id = ?1");
            // One snapshot for both tables: work that moves from one to the other is seen exactly once.
            connection.execute_batch("savepoint snapshot")?;
            let found = ids
                .iter()
                .map(|id| match one(connection, &live, [*id], work)? {
                    Some(found) => Ok(Some(found)),
                    None => one(connection, &ended, [*id], work),
                })
                .collect::<Result<Vec<_>, StoreError>>();
            connection.execute_batch("release snapshot")?;
            Ok(found?.into_iter().flatten().collect())
        })
        .await
    }

    pub(crate) async fn pending(&self, lane: Uuid, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        self.read(move |connection| {
            // Work in a side queue keeps its place among unstarted work.
            let sql = format!(
                "select {LIVE} from work where id in
                   (select id from (select id from work indexed by work_in_order
                      where lane = ?1 and class < 3 and state = 'Pending' order by class, due_at, priority, id limit ?2)
                    union all
                    select id from (select id from work indexed by work_in_order
                      where lane = ?1 and class = 3 and state = 'Pending' order by due_at, priority, id limit ?2))
                 order by min(class, 2), due_at, priority, id limit ?2"
            );
            many(connection, &sql, params![lane, limit], work)
        })
        .await
    }

    pub(crate) async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        self.read(move |connection| {
            one(connection, &format!("select {LANE} from lanes where lane = ?1"), [lane], lane_view)
        })
        .await
    }

    pub(crate) async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        self.read(move |connection| {
            let sql = format!("select {LANE} from lanes where lane = ?1");
            let found: Result<Vec<_>, StoreError> =
                lanes.iter().map(|lane| one(connection, &sql, [*lane], lane_view)).collect();
            Ok(found?.into_iter().flatten().collect())
        })
        .await
    }

    pub(crate) async fn queue(&self, kind: WorkKind) -> Result<QueueView, StoreError> {
        let now = self.now();
        self.read(move |connection| {
            let sql = "with due as (
                  select lane, head_at from (
                    select lane, head_at from lanes indexed by lanes_turns
                    where turn_kind = ?1 and turn_at between 0 and ?2 and parked_on is null order by turn_at limit ?3)
                  union all
                  select lane, head_at from (
                    select lane, head_at from lanes indexed by lanes_parked
                    where parked_on is not null and head_kind = ?1 and head_at <= ?2 limit ?3)
                  union all
                  select lane, head_at from (
                    select lane, head_at from side_queues where closed and ?1 = 'manifest' limit ?3))
                select
                  (select count(distinct lane) from due),
                  (select count(*) from (select kind, state from work order by id limit ?3) where kind = ?1 and state = 'Pending'),
                  (select count(*) from lanes indexed by lanes_turns where turn_kind = ?1 and turn_at = -1 and parked_on is null),
                  (select min(head_at) from due where head_at > 0)";
            let mut statement = connection.prepare_cached(sql)?;
            let (due, pending, running, oldest) = statement
                .query_row(params![kind.as_str(), now, QUEUE_COUNT_MAX], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, Option<i64>>(3)?))
                })?;
            Ok(QueueView { due, pending, running, oldest_due: oldest.map(time).transpose()? })
        })
        .await
    }

    pub(crate) async fn pending_for_origin(
        &self,
        origin: &str,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        let origin = origin.to_owned();
        self.read(move |connection| {
            let sql = format!(
                "select {LIVE} from work indexed by work_by_origin
                 where origin = ?1 and id > ?2 and state = 'Pending' order by id limit ?3"
            );
            many(connection, &sql, params![origin, after.unwrap_or(Uuid::nil()), limit], work)
        })
        .await
    }

    pub(crate) async fn live(
        &self,
        kind: WorkKind,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        self.read(move |connection| {
            let sql = format!("select {LIVE} from work where id > ?1 and kind = ?2 order by id limit ?3");
            many(connection, &sql, params![after.unwrap_or(Uuid::nil()), kind.as_str(), limit], work)
        })
        .await
    }

    pub(crate) async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        self.read(move |connection| {
            let sql = format!(
                "select {LIVE} from work where id in
                   (select running from lanes indexed by lanes_turns
                    where turn_kind = ?1 and turn_at = -1 and parked_on is null order by lane limit ?2)"
            );
            many(connection, &sql, params![kind.as_str(), limit], work)
        })
        .await
    }

    pub(crate) async fn finished(
        &self,
        kind: WorkKind,
        from: i64,
        to: i64,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        self.read(move |connection| {
            let ended = ENDED.replace("checkpoint", "null as checkpoint");
            let sql = format!(
                "select {ended} from history
                 where kind = ?1 and finished >= ?2 and coalesce(started, finished) < ?3
                 order by finished desc, id limit ?4"
            );
            many(connection, &sql, params![kind.as_str(), from, to, limit], work)
        })
        .await
    }

    pub(crate) async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        let now = self.now();
        self.read(move |connection| {
            let due: Option<i64> = connection
                .prepare_cached(
                    "select turn_at from lanes indexed by lanes_turns
                     where turn_kind = ?1 and turn_at >= 0 and parked_on is null order by turn_at limit 1",
                )?
                .query_row([kind.as_str()], |row| row.get(0))
                .optional()?;
            Ok(due.map(|due| Duration::from_micros(u64::try_from(due.saturating_sub(now)).unwrap_or(0))))
        })
        .await
    }

    pub(crate) async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        self.read(|connection| {
            let sql = "select key, cap, used, (select count(*) from lanes where parked_on = key)
                         + (select count(*) from side_queues s where s.key = budgets.key and s.closed)
                       from budgets order by key";
            many(connection, sql, [], |row| {
                Ok(Budget { key: row.get(0)?, limit: row.get(1)?, used: row.get(2)?, parked: row.get(3)? })
            })
        })
        .await
    }

    pub(crate) async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        self.read(move |connection| each(connection, HEALTH, &clusters, health)).await
    }

    pub(crate) async fn feed_end(&self) -> Result<Position, StoreError> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        self.read(move |connection| {
            let seq = connection.query_row("select coalesce(max(seq), 0) from feed", [], |row| row.get(0))?;
            Ok(Position { generation, tx: 0, seq })
        })
        .await
    }

    pub(crate) async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        let page = self
            .read(move |connection| {
                let floor: String = connection
                    .prepare_cached("select value from meta where key = 'feed_floor'")?
                    .query_row([], |row| row.get(0))?;
                let floor: i64 = floor.split('-').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
                if position.generation != generation || position.seq < floor {
                    return Ok(None);
                }
                let sql =
                    "select seq, kind, uuid, etag, deleted from feed where seq > ?1 order by seq limit ?2";
                let changes = many(connection, sql, params![position.seq, limit], |row| {
                    let etag: i64 = row.get(3)?;
                    let subject = match etag {
                        0 => Subject::Work,
                        etag => Subject::Document { etag: Etag(etag), deleted: row.get(4)? },
                    };
                    let position = Position { generation, tx: 0, seq: row.get(0)? };
                    Ok(Change { position, kind: row.get(1)?, uuid: row.get(2)?, subject })
                })?;
                // The newest row always stays, so a position behind it comes from a newer copy of this file.
                let newest = "select coalesce(max(seq), 0) from feed";
                if changes.is_empty()
                    && position.seq > connection.prepare_cached(newest)?.query_row([], |row| row.get(0))?
                {
                    return Ok(None);
                }
                let next = changes.last().map_or(position, |it| it.position);
                Ok(Some(FeedPage { changes, next }))
            })
            .await?;
        page.ok_or(FeedError::Gone { position })
    }

    pub(crate) async fn saved_position(&self, reader: &str) -> Result<Option<Position>, StoreError> {
        let reader = reader.to_owned();
        let text: Option<String> = self
            .read(move |connection| {
                one(connection, "select position from positions where reader = ?1", [reader], |row| {
                    Ok(row.get(0)?)
                })
            })
            .await?;
        text.map(|text| text.parse()).transpose()
    }

    pub(crate) async fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        let key = key.to_owned();
        self.read(move |connection| {
            one(connection, "select value from meta where key = ?1", [key], |row| Ok(row.get(0)?))
        })
        .await
    }

    pub(crate) async fn audit_list(&self, listing: AuditQuery) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |connection| {
            let sql = format!(
                "select {AUDIT} from audit
                 where (?1 is null or seq < ?1) and (?2 is null or actor = ?2)
                   and (?3 is null or substr(target, 1, length(?3)) = ?3) and (?4 is null or substr(action, 1, length(?4)) = ?4)
                 order by seq desc limit ?5"
            );
            let before = listing.before.map(|it| it.seq);
            many(connection, &sql, params![before, listing.actor, listing.target, listing.action, listing.limit], audit)
        })
        .await
    }

    pub(crate) async fn audit_unsealed(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |connection| {
            many(
                connection,
                &format!(
                    "select {AUDIT} from audit where number is null and refused is null and seq > {LAST_SEALED} order by seq limit ?1"
                ),
                [limit],
                audit,
            )
        })
        .await
    }

    pub(crate) async fn audit_unnumbered(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |connection| {
            let sql = format!("select {AUDIT} from audit where number is null order by seq limit ?1");
            many(connection, &sql, [limit], audit)
        })
        .await
    }

    pub(crate) async fn audit_waits(&self, unmarked: bool) -> Result<bool, StoreError> {
        self.read(move |connection| {
            let sql = format!(
                "select 1 from audit where number is null and refused is null and (mac is null or not ?1) and seq > {LAST_SEALED}"
            );
            Ok(connection.prepare_cached(&sql)?.exists([unmarked])?)
        })
        .await
    }

    pub(crate) async fn audit_known(&self, ids: Vec<Uuid>) -> Result<HashSet<Uuid>, StoreError> {
        self.read(move |connection| {
            let sql = "select id from audit where id = ?1 and number is not null";
            let found = each(connection, sql, &ids, |row| Ok(row.get(0)?))?;
            Ok(found.into_iter().collect())
        })
        .await
    }

    #[expect(clippy::unused_async, reason = "the other engine queries its server")]
    pub(crate) async fn now_micros(&self) -> Result<i64, StoreError> {
        Ok(self.now())
    }

    pub(crate) async fn audit_sealed(&self, number: i64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |connection| {
            let sql = format!(
                "select {AUDIT} from audit where number is not null and number >= ?1 order by number limit ?2"
            );
            many(connection, &sql, params![number, limit], audit)
        })
        .await
    }

    pub(crate) async fn violations(
        &self,
        queries: Vec<String>,
        limit: usize,
    ) -> Result<Vec<Vec<String>>, StoreError> {
        self.read(move |connection| {
            connection.execute_batch("savepoint snapshot")?;
            let found = queries
                .iter()
                .map(|sql| {
                    many(connection, &format!("select * from ({sql}) limit {limit}"), [], |row| {
                        Ok(row.get(0)?)
                    })
                })
                .collect();
            connection.execute_batch("release snapshot")?;
            found
        })
        .await
    }

    pub(crate) async fn soundness(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let lines: Vec<String> =
                many(connection, "pragma integrity_check(20)", [], |row| Ok(row.get(0)?))?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
        .await
    }
}

pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(read).transpose()
}

/// One row for each key that has one.
fn each<T>(
    connection: &Connection,
    sql: &str,
    keys: &[Uuid],
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let mut rows = statement.query([key])?;
        if let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
    }
    Ok(found)
}

pub(super) fn many<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn document(row: &Row<'_>) -> Result<StoredDocument<RawBody>, StoreError> {
    Ok(StoredDocument {
        uuid: row.get(0)?,
        id: row.get(1)?,
        kind: row.get(2)?,
        parent: row.get(3)?,
        etag: Etag(row.get(4)?),
        generation: row.get(5)?,
        body: RawBody::Text(
            row.get_ref(6)?.as_str().map_err(|_| StoreError::broken("a document's body is not text"))?.into(),
        ),
        created: time(row.get(7)?)?,
        changed: time(row.get(8)?)?,
    })
}

fn sealed(row: &Row<'_>) -> Result<SealedSecret, StoreError> {
    Ok(SealedSecret { owner: row.get(0)?, name: row.get(1)?, key_id: row.get(2)?, bytes: row.get(3)? })
}

pub(super) fn parse_word<T: std::str::FromStr<Err = api::work::UnknownValue>>(
    text: &str,
) -> Result<T, StoreError> {
    text.parse().map_err(|error: api::work::UnknownValue| StoreError::broken(error.to_string()))
}

fn work(row: &Row<'_>) -> Result<WorkView, StoreError> {
    let json = |text: Option<String>| text.as_deref().map(text_value).transpose();
    let at = |micros: Option<i64>| micros.map(time).transpose();
    Ok(WorkView {
        id: row.get(0)?,
        lane: row.get(1)?,
        kind: parse_word::<WorkKind>(&row.get::<_, String>(2)?)?,
        state: parse_word::<WorkState>(&row.get::<_, String>(3)?)?,
        attempt: row.get(4)?,
        run_after: time(row.get(5)?)?,
        due_at: time(row.get(6)?)?,
        run_before: at(row.get(7)?)?,
        priority: row.get(8)?,
        step: row.get(9)?,
        checkpoint: json(row.get(10)?)?,
        fence: row.get(11)?,
        created: time(row.get(12)?)?,
        started: at(row.get(13)?)?,
        finished: at(row.get(14)?)?,
        result: json(row.get(15)?)?.map(WorkResult::from),
        origin: row.get(16)?,
        budgets: keys(row.get::<_, Option<String>>(17)?.as_deref())?,
        ending: row.get(18)?,
        cancellation: read_cancellation(row, 19)?.map(cancellation).transpose()?,
    })
}

/// Requester, reason and time of a request to cancel, as they are stored.
pub(super) type StoredCancellation = (String, Option<String>, i64);

/// Reads the columns `cancel_by`, `cancel_reason` and `cancel_at`, the first of which is at `at`.
pub(super) fn read_cancellation(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<StoredCancellation>> {
    let requested_by: Option<String> = row.get(at)?;
    requested_by.map(|it| Ok((it, row.get(at + 1)?, row.get(at + 2)?))).transpose()
}

pub(super) fn cancellation(stored: StoredCancellation) -> Result<Cancellation, StoreError> {
    let (requested_by, reason, at) = stored;
    Ok(Cancellation { requested_by, reason, requested_at: time(at)? })
}

fn lane_view(row: &Row<'_>) -> Result<LaneView, StoreError> {
    Ok(LaneView {
        lane: row.get(0)?,
        head_kind: row.get::<_, Option<String>>(1)?.as_deref().map(parse_word).transpose()?,
        head_at: row.get::<_, Option<i64>>(2)?.map(time).transpose()?,
        parked_on: row.get(3)?,
        owner: row.get(4)?,
        lease_until: row.get::<_, Option<i64>>(5)?.map(time).transpose()?,
        fence: row.get(6)?,
        running: row.get(7)?,
        signals: Signals { preempt: row.get(8)?, cancel: row.get(9)? },
    })
}

fn health(row: &Row<'_>) -> Result<HealthSample, StoreError> {
    Ok(HealthSample {
        cluster: row.get(0)?,
        at: time(row.get(1)?)?,
        reachable: row.get(2)?,
        since: time(row.get(3)?)?,
        details: text_value(&row.get::<_, String>(4)?)?.into(),
    })
}

fn audit(row: &Row<'_>) -> Result<AuditRow, StoreError> {
    let entry = AuditEntry {
        actor: row.get(3)?,
        action: row.get(4)?,
        target: row.get(5)?,
        reason: row.get(6)?,
        correlation_id: row.get(7)?,
        before: row.get(8)?,
        after: row.get(9)?,
    };
    let record = AuditRecord {
        id: row.get(1)?,
        time: time(row.get(2)?)?,
        entry,
        number: row.get(10)?,
        seal: row.get(11)?,
    };
    Ok(AuditRow {
        place: AuditPosition { tx: 0, seq: row.get(0)? },
        record,
        mac: row.get(12)?,
        sealed_at: row.get(13)?,
        refused: row.get(14)?,
    })
}
