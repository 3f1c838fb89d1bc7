//! Small tables: secrets, positions, the audit log, named leases, health, meta; and retention.

use std::collections::HashSet;
use std::time::Duration;

use api::health::HealthFacetValue;
use api::work::WorkKind;
use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::Value;
use uuid::Uuid;

use super::read::{many, parse_word};
use super::writer::Session;
use super::{Sqlite, json_text, micros, time};
use crate::audit::NewAuditRecord;
use crate::document::{behind, text_value};
use crate::engine::{AuditPosition, AuditSeal, RetentionTarget};
use crate::keyring::SealedSecret;
use crate::records::{HealthEvent, HealthSample, Retention};
use crate::work::SweepProgress;
use crate::{Etag, Position, StoreError};

impl Session<'_> {
    /// Stores a secret: replaces an earlier one, or (without `replace`) only if there is none.
    pub(super) fn put_secret(&mut self, sealed: &SealedSecret, replace: bool) -> Result<(), StoreError> {
        let current: Option<String> = self
            .connection
            .prepare_cached("select value from meta where key = 'key_id'")?
            .query_row([], |row| row.get(0))
            .optional()?;
        if current.as_ref() != Some(&sealed.key_id) {
            return Err(StoreError::StaleKey {
                current: current.unwrap_or_default(),
                used: sealed.key_id.clone(),
            });
        }
        self.connection
            .prepare_cached(
                "insert into secrets (owner, name, sealed, key_id, changed) values (?1, ?2, ?3, ?4, ?5)
                 on conflict (owner, name) do update set sealed = excluded.sealed, key_id = excluded.key_id, changed = excluded.changed
                 where ?6",
            )?
            .execute(params![sealed.owner, sealed.name, sealed.bytes, sealed.key_id, self.now, replace])?;
        Ok(())
    }

    pub(super) fn drop_secret(&mut self, owner: Uuid, name: &str) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("delete from secrets where owner = ?1 and name = ?2")?
            .execute(params![owner, name])?;
        Ok(())
    }

    pub(super) fn audit(&mut self, record: &NewAuditRecord) -> Result<(), StoreError> {
        let entry = &record.entry;
        self.connection
            .prepare_cached(
                "insert into audit (id, at, actor, action, target, reason, correlation, before, after, mac)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                record.id,
                self.now,
                entry.actor,
                entry.action,
                entry.target,
                entry.reason,
                entry.correlation_id,
                entry.before,
                entry.after,
                record.mac
            ])?;
        self.topics.add(crate::notify::Topic::Feed);
        Ok(())
    }

    pub(super) fn save_position(&mut self, reader: &str, position: Position) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "insert into positions (reader, position, changed) values (?1, ?2, ?3)
                 on conflict (reader) do update set position = excluded.position, changed = excluded.changed",
            )?
            .execute(params![reader, position.to_string(), self.now])?;
        Ok(())
    }

    pub(super) fn set_meta(&mut self, values: &[(String, String)]) -> Result<(), StoreError> {
        for (key, value) in values {
            self.connection
                .prepare_cached("insert into meta (key, value) values (?1, ?2) on conflict (key) do update set value = excluded.value")?
                .execute(params![key, value])?;
        }
        Ok(())
    }

    fn trim_feed(&mut self, before: i64, max: usize) -> Result<usize, StoreError> {
        // The newest row stays, so that no sequence number is used twice.
        let last: Option<i64> = self
            .connection
            .prepare_cached(
                "select max(seq) from (select seq, at from feed order by seq limit ?1)
                 where at < ?2 and seq < (select max(seq) from feed)",
            )?
            .query_row(params![max, before], |row| row.get(0))?;
        let Some(last) = last else { return Ok(0) };
        let removed = self.connection.prepare_cached("delete from feed where seq <= ?1")?.execute([last])?;
        self.set_meta(&[("feed_floor".to_owned(), format!("0-{last}"))])?;
        Ok(removed)
    }

    /// Removes finished work past its retention, with its entries.
    fn trim_history(&mut self, old: &[(Uuid, i64)]) -> Result<usize, StoreError> {
        let mut removed = 0;
        for (id, finished) in old {
            // Read in another snapshot: it may have been revived.
            let gone = self
                .connection
                .prepare_cached("delete from history where id = ?1 and finished = ?2")?
                .execute(params![id, finished])?;
            if gone == 0 {
                continue;
            }
            removed += 1;
            let etag: Option<i64> = self
                .connection
                .prepare_cached("select etag from documents where uuid = ?1 and deleted_at is null")?
                .query_row([id], |row| row.get(0))
                .optional()?;
            if let Some(etag) = etag {
                self.delete(*id, Etag(etag))?;
            }
        }
        Ok(removed)
    }

    fn trim_tombstones(&mut self, before: i64, max: usize) -> Result<usize, StoreError> {
        // A tombstone stays while a reader of the feed may still request its path.
        Ok(self
            .connection
            .prepare_cached(
                "delete from documents where uuid in
                   (select uuid from documents where deleted_at is not null and deleted_at < ?1
                      and deleted_at < (select at from feed order by seq limit 1)
                    order by deleted_at limit ?2)",
            )?
            .execute(params![before, max])?)
    }

    fn trim_leases(&mut self, before: i64, max: usize) -> Result<usize, StoreError> {
        let sql =
            "delete from leases where name in (select name from leases where lease_until < ?1 limit ?2)";
        Ok(self.connection.prepare_cached(sql)?.execute(params![before, max])?)
    }

    fn trim_health_events(&mut self, before: i64, max: usize) -> Result<usize, StoreError> {
        let sql = "delete from health_events where (cluster, facet, at) in
             (select cluster, facet, at from health_events o where at < ?1
                and (exists (select 1 from health_events n where n.cluster = o.cluster and n.facet = o.facet and n.at > o.at)
                  or not exists (select 1 from health h where h.cluster = o.cluster))
              order by at limit ?2)";
        Ok(self.connection.prepare_cached(sql)?.execute(params![before, max])?)
    }

    /// Stores a sample, and an event for each facet whose value is not that of its last event.
    fn put_health(&mut self, sample: &HealthSample) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "insert into health (cluster, at, reachable, since, sample) values (?1, ?2, ?3, ?2, ?4)
                 on conflict (cluster) do update set at = excluded.at, sample = excluded.sample, reachable = excluded.reachable,
                   since = case when reachable = excluded.reachable then since else excluded.at end",
            )?
            .execute(params![
                sample.cluster,
                self.now,
                sample.reachable,
                json_text(&sample.details.to_json())
            ])?;
        for HealthFacetValue { facet, value, expected } in sample.facets() {
            let facet = facet.as_str();
            let last: Option<(i64, String)> = self
                .connection
                .prepare_cached(
                    "select at, value from health_events where cluster = ?1 and facet = ?2 order by at desc limit 1",
                )?
                .query_row(params![sample.cluster, facet], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if last.as_ref().is_some_and(|(_, last)| *last == value) {
                continue;
            }
            // A clock that was set back must not reorder the history.
            let at = last.as_ref().map_or(self.now, |(at, _)| self.now.max(at + 1));
            self.connection
                .prepare_cached(
                    "insert into health_events (cluster, at, facet, previous, value, expected) values (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![sample.cluster, at, facet, last.map(|it| it.1), value, expected])?;
        }
        Ok(())
    }

    fn trim_audit(&mut self, from: i64, up_to: i64) -> Result<usize, StoreError> {
        Ok(self
            .connection
            .prepare_cached("delete from audit where number > ?1 and number <= ?2 and number < (select max(number) from audit)")?
            .execute([from, up_to])?)
    }
}

impl Sqlite {
    pub(crate) async fn put_health(&self, samples: Vec<HealthSample>) -> Result<(), StoreError> {
        self.write(move |session| samples.iter().try_for_each(|sample| session.put_health(sample))).await
    }

    pub(crate) async fn confirm_health(
        &self,
        observer: Uuid,
        clusters: Vec<(Uuid, bool)>,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.write(move |session| {
            let sql = "update health set at = ?2 where cluster = ?1 and reachable = ?3
                 and json_extract(sample, '$.observed.observer') = ?4";
            let mut confirm = session.connection.prepare_cached(sql)?;
            let observer = observer.to_string();
            let mut confirmed = Vec::with_capacity(clusters.len());
            for (cluster, reachable) in clusters {
                if confirm.execute(params![cluster, session.now, reachable, observer])? == 1 {
                    confirmed.push(cluster);
                }
            }
            Ok(confirmed)
        })
        .await
    }

    pub(crate) async fn health_events(
        &self,
        clusters: Vec<Uuid>,
        from: i64,
        limit: usize,
    ) -> Result<Vec<HealthEvent>, StoreError> {
        self.read(move |connection| {
            let sql = "select cluster, at, facet, previous, value, expected from health_events
                       where cluster = ?1 and at >= ?2 order by at desc, facet limit ?3";
            let mut events = Vec::new();
            for cluster in &clusters {
                events.extend(many(connection, sql, params![cluster, from, limit], health_event)?);
            }
            events.sort_by(|a, b| {
                b.at.cmp(&a.at).then_with(|| (a.cluster, &a.facet).cmp(&(b.cluster, &b.facet)))
            });
            events.truncate(limit);
            Ok(events)
        })
        .await
    }

    pub(crate) async fn put_pool(
        &self,
        name: &str,
        lease: &str,
        owner: Uuid,
        buckets: Value,
    ) -> Result<bool, StoreError> {
        let (name, lease) = (name.to_owned(), lease.to_owned());
        self.write(move |session| {
            let sql = "insert into pools (name, fence, buckets, changed)
                 select ?1, fence, ?4, ?5 from leases where name = ?2 and owner = ?3 and lease_until >= ?5
                 on conflict (name) do update set fence = excluded.fence, buckets = excluded.buckets, changed = excluded.changed
                 where fence <= excluded.fence";
            let changed = session.connection.prepare_cached(sql)?.execute(params![
                name,
                lease,
                owner,
                json_text(&buckets),
                session.now
            ])?;
            Ok(changed == 1)
        })
        .await
    }

    pub(crate) async fn pool(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| {
            let found: Option<String> = connection
                .prepare_cached("select buckets from pools where name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()?;
            found.as_deref().map(text_value).transpose()
        })
        .await
    }

    pub(crate) async fn take_lease(
        &self,
        name: &str,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let name = name.to_owned();
        self.write(move |session| {
            Ok(session
                .connection
                .prepare_cached(
                    // The first fence is the time: a lease that was removed and comes back must not reuse an earlier
                    // fence.
                    "insert into leases (name, owner, lease_until, fence) values (?1, ?2, ?4, ?3)
                     on conflict (name) do update set
                       fence = fence + (owner is not excluded.owner), owner = excluded.owner, lease_until = excluded.lease_until
                     where owner is excluded.owner or owner is null or lease_until < ?3
                     returning fence",
                )?
                .query_row(params![name, owner, session.now, session.now + micros(lease)], |row| row.get(0))
                .optional()?)
        })
        .await
    }

    pub(crate) async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        let (prefix, now) = (prefix.to_owned(), self.now());
        self.read(move |connection| {
            let sql = "select name, lease_until from leases
                       where name >= ?1 and name < ?2 and owner is not null and lease_until >= ?3 order by name";
            many(connection, sql, params![prefix, behind(&prefix), now], |row| {
                Ok((row.get(0)?, time(row.get(1)?)?))
            })
        })
        .await
    }

    pub(crate) async fn release_lease(&self, name: &str, owner: Uuid) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |session| {
            session
                .connection
                .prepare_cached("update leases set owner = null where name = ?1 and owner = ?2")?
                .execute(params![name, owner])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn seal_audit(
        &self,
        name: &str,
        fence: i64,
        sealings: Vec<AuditSeal>,
        meta: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |session| {
            let held = session
                .connection
                .prepare_cached("select 1 from leases where name = ?1 and fence = ?2 and owner is not null")?
                .exists(params![name, fence])?;
            if !held {
                return Err(StoreError::LostNamedLease { name });
            }
            for sealing in &sealings {
                let sealed = session
                    .connection
                    .prepare_cached(
                        "update audit set number = ?2, seal = ?3, sealed_at = ?4 where seq = ?1 and number is null",
                    )?
                    .execute(params![sealing.place.seq, sealing.number, sealing.seal, sealing.sealed_at])?;
                // Otherwise the head would be moved past missing records.
                if sealed != 1 {
                    return Err(StoreError::broken(format!(
                        "audit record {} is sealed already",
                        sealing.place.seq
                    )));
                }
            }
            session.set_meta(&meta)
        })
        .await
    }

    pub(crate) async fn reject_audit(
        &self,
        places: Vec<AuditPosition>,
    ) -> Result<HashSet<AuditPosition>, StoreError> {
        self.write(move |session| {
            let sql = "update audit set refused = 1 where seq = ?1 and number is null and refused is null";
            let mut refuse = session.connection.prepare_cached(sql)?;
            let mut refused = HashSet::new();
            for place in places {
                if refuse.execute([place.seq])? == 1 {
                    refused.insert(place);
                }
            }
            Ok(refused)
        })
        .await
    }

    pub(crate) async fn trim(
        &self,
        stale: RetentionTarget,
        age: Duration,
        max: usize,
        meta: Vec<(String, String)>,
    ) -> Result<usize, StoreError> {
        self.write(move |session| {
            let before = session.now.saturating_sub(micros(age));
            let removed = match stale {
                RetentionTarget::Feed => session.trim_feed(before, max)?,
                RetentionTarget::Tombstones => session.trim_tombstones(before, max)?,
                RetentionTarget::Audit { from, up_to } => session.trim_audit(from, up_to)?,
                RetentionTarget::Leases => session.trim_leases(before, max)?,
                RetentionTarget::HealthEvents => session.trim_health_events(before, max)?,
            };
            if removed > 0 {
                session.set_meta(&meta)?;
            }
            Ok(removed)
        })
        .await
    }

    pub(crate) async fn trim_history(
        &self,
        keep: Retention,
        after: Option<Uuid>,
        rows_max: usize,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        let now = self.now();
        let rows: Vec<(Uuid, WorkKind, i64, i64)> = self
            .read(move |connection| {
                let row = |row: &Row<'_>| {
                    Ok((row.get(0)?, parse_word(&row.get::<_, String>(1)?)?, row.get(2)?, row.get(3)?))
                };
                let behind = "select id, kind, finished, iif(origin is null, 0, coalesce(run_before, 0)) from history
                     where id > ?1 order by id limit ?2";
                let mut rows = many(connection, behind, params![after.unwrap_or(Uuid::nil()), rows_max], row)?;
                if let Some(start) = after {
                    // Wrapped around to the start.
                    let before = "select id, kind, finished, iif(origin is null, 0, coalesce(run_before, 0)) from history
                         where id <= ?1 order by id limit ?2";
                    rows.extend(many(connection, before, params![start, rows_max - rows.len()], row)?);
                }
                Ok(rows)
            })
            .await?;
        // A schedule's slot that was cancelled long before its time is kept until then: it must not be created again.
        let is_old = |it: &&(Uuid, WorkKind, i64, i64)| {
            it.2 < now.saturating_sub(micros(keep.for_kind(it.1))) && it.3 < now
        };
        let old: Vec<(Uuid, i64)> = rows.iter().filter(is_old).take(max).map(|it| (it.0, it.2)).collect();
        let next = match old.last() {
            Some(last) if old.len() == max => Some(last.0),
            _ if rows.len() == rows_max => rows.last().map(|it| it.0),
            _ => None,
        };
        if old.is_empty() {
            return Ok(SweepProgress { changed: 0, next });
        }
        let changed = self.write(move |session| session.trim_history(&old)).await?;
        Ok(SweepProgress { changed, next })
    }

    pub(crate) async fn trim_health(
        &self,
        after: Option<Uuid>,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        let rows: Vec<(Uuid, bool)> = self
            .read(move |connection| {
                let sql = "select h.cluster, exists (select 1 from documents d where d.uuid = h.cluster and d.deleted_at is null)
                     from health h where h.cluster > ?1 order by h.cluster limit ?2";
                let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                many(connection, sql, params![after.unwrap_or(Uuid::nil()), max], row)
            })
            .await?;
        let next = if rows.len() == max { rows.last().map(|row| row.0) } else { None };
        let gone: Vec<Uuid> = rows.into_iter().filter(|row| !row.1).map(|row| row.0).collect();
        if gone.is_empty() {
            return Ok(SweepProgress { changed: 0, next });
        }
        let changed = self.write(move |session| {
            // Read in another snapshot: its document may exist by now.
            let sql = "delete from health where cluster = ?1
                 and not exists (select 1 from documents where uuid = ?1 and deleted_at is null)";
            let mut delete = session.connection.prepare_cached(sql)?;
            gone.iter().try_fold(0, |changed, cluster| Ok(changed + delete.execute([cluster])?))
        });
        Ok(SweepProgress { changed: changed.await?, next })
    }

    pub(crate) async fn ensure_meta(&self, values: Vec<(String, String)>) -> Result<(), StoreError> {
        self.write(move |session| {
            for (key, value) in &values {
                session
                    .connection
                    .prepare_cached("insert into meta (key, value) values (?1, ?2) on conflict do nothing")?
                    .execute(params![key, value])?;
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn replace_meta(
        &self,
        key: String,
        old: String,
        new: String,
    ) -> Result<bool, StoreError> {
        self.write(move |session| {
            let sql = "update meta set value = ?3 where key = ?1 and value = ?2";
            Ok(session.connection.prepare_cached(sql)?.execute([key, old, new])? == 1)
        })
        .await
    }

    pub(crate) async fn reseal(&self, old: SealedSecret, new: SealedSecret) -> Result<bool, StoreError> {
        self.write(move |session| {
            let changed = session
                .connection
                .prepare_cached(
                    // Only while that key is current: an outdated rotation must not undo the next one.
                    "update secrets set sealed = ?4, key_id = ?5, changed = ?6
                     where owner = ?1 and name = ?2 and sealed = ?3
                       and exists (select 1 from meta where key = 'key_id' and value = ?5)",
                )?
                .execute(params![old.owner, old.name, old.bytes, new.bytes, new.key_id, session.now])?;
            Ok(changed == 1)
        })
        .await
    }
}

fn health_event(row: &Row<'_>) -> Result<HealthEvent, StoreError> {
    Ok(HealthEvent {
        cluster: row.get(0)?,
        at: time(row.get(1)?)?,
        facet: row.get(2)?,
        previous: row.get(3)?,
        value: row.get(4)?,
        expected: row.get(5)?,
    })
}
