//! Small tables: health, named leases, meta; and retention.

use std::collections::BTreeMap;
use std::time::Duration;

use api::health::HealthFacetValue;
use api::work::WorkKind;
use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::commit::topics;
use super::{Postgres, count, count32, get, micros, time};
use crate::StoreError;
use crate::document::behind;
use crate::engine::RetentionTarget;
use crate::records::{HealthEvent, HealthSample, Retention};
use crate::work::SweepProgress;

/// Rows of one statement: enough to be cheap, few enough not to hold locks for long.
const HEALTH_BLOCK: usize = 500;

impl Postgres {
    pub(crate) async fn put_health(&self, samples: Vec<HealthSample>) -> Result<(), StoreError> {
        // In lock order, and each cluster once.
        let newest: BTreeMap<Uuid, HealthSample> =
            samples.into_iter().map(|sample| (sample.cluster, sample)).collect();
        let newest: Vec<HealthSample> = newest.into_values().collect();
        for block in newest.chunks(HEALTH_BLOCK) {
            let clusters: Vec<Uuid> = block.iter().map(|it| it.cluster).collect();
            let reachable: Vec<bool> = block.iter().map(|it| it.reachable).collect();
            let samples: Vec<Value> = block.iter().map(|it| it.details.to_json()).collect();
            let facets: Vec<(Uuid, HealthFacetValue)> = block
                .iter()
                .flat_map(|it| it.facets().into_iter().map(|facet| (it.cluster, facet)))
                .collect();
            let of: Vec<Uuid> = facets.iter().map(|it| it.0).collect();
            let names: Vec<&str> = facets.iter().map(|it| it.1.facet.as_str()).collect();
            let values: Vec<&str> = facets.iter().map(|it| it.1.value.as_str()).collect();
            let expected: Vec<bool> = facets.iter().map(|it| it.1.expected).collect();
            self.rows(
                "write health",
                "select put_health_v9($1, $2, $3, $4, $5, $6, $7)",
                &[&clusters, &reachable, &samples, &of, &names, &values, &expected],
            )
            .await?;
        }
        Ok(())
    }

    pub(crate) async fn confirm_health(
        &self,
        observer: Uuid,
        clusters: Vec<(Uuid, bool)>,
    ) -> Result<Vec<Uuid>, StoreError> {
        // In lock order, as `put_health`.
        let sql = "with seen as (
              select h.cluster from health h join unnest($1::uuid[], $2::bool[]) as s (cluster, reachable)
                on s.cluster = h.cluster and s.reachable = h.reachable
              where h.sample -> 'observed' ->> 'observer' = $3 order by h.cluster for update of h)
            update health h set at = micros_v1() from seen s where h.cluster = s.cluster returning h.cluster";
        let (clusters, reachable): (Vec<Uuid>, Vec<bool>) = clusters.into_iter().unzip();
        let rows = self.rows("confirm health", sql, &[&clusters, &reachable, &observer.to_string()]).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    pub(crate) async fn health_events(
        &self,
        clusters: Vec<Uuid>,
        from: i64,
        limit: usize,
    ) -> Result<Vec<HealthEvent>, StoreError> {
        let sql = "select cluster, at, facet, previous, value, expected from health_events
                   where cluster = any ($1) and at >= $2 order by at desc, cluster, facet limit $3";
        let event = |row: &Row| {
            Ok(HealthEvent {
                cluster: get(row, 0)?,
                at: time(get(row, 1)?)?,
                facet: get(row, 2)?,
                previous: get(row, 3)?,
                value: get(row, 4)?,
                expected: get(row, 5)?,
            })
        };
        let rows = self.rows("read health events", sql, &[&clusters, &from, &count(limit)]).await?;
        rows.iter().map(event).collect()
    }

    pub(crate) async fn put_pool(
        &self,
        name: &str,
        lease: &str,
        owner: Uuid,
        buckets: Value,
    ) -> Result<bool, StoreError> {
        let sql = "with held as (select fence from leases where name = $2 and owner = $3 and lease_until >= micros_v1() for share)
            insert into pools as p (name, fence, buckets, changed) select $1, fence, $4, micros_v1() from held
            on conflict (name) do update set fence = excluded.fence, buckets = excluded.buckets, changed = excluded.changed
            where p.fence <= excluded.fence returning name";
        Ok(!self.rows("assign buckets", sql, &[&name, &lease, &owner, &buckets]).await?.is_empty())
    }

    pub(crate) async fn pool(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let rows = self.rows("read buckets", "select buckets from pools where name = $1", &[&name]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    pub(crate) async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        let sql = "select cluster, at, reachable, since, sample from health where cluster = any ($1)";
        let sample = |row: &Row| {
            Ok(HealthSample {
                cluster: get(row, 0)?,
                at: time(get(row, 1)?)?,
                reachable: get(row, 2)?,
                since: time(get(row, 3)?)?,
                details: get::<Value>(row, 4)?.into(),
            })
        };
        self.rows("read health", sql, &[&clusters]).await?.iter().map(sample).collect()
    }

    pub(crate) async fn take_lease(
        &self,
        name: &str,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        // The first fence is the time: a lease that was removed and comes back must not reuse an earlier fence.
        let sql =
            "insert into leases as l (name, owner, lease_until, fence) values ($1, $2, micros_v1() + $3, micros_v1())
            on conflict (name) do update set owner = excluded.owner, lease_until = excluded.lease_until,
              fence = l.fence + case when l.owner is distinct from excluded.owner then 1 else 0 end
            where l.owner is null or l.owner = excluded.owner or l.lease_until < micros_v1()
            returning fence";
        let rows = self.rows("take a lease", sql, &[&name, &owner, &micros(lease)]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    pub(crate) async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        let sql = "select name, lease_until from leases
                   where name >= $1 and name < $2 and owner is not null and lease_until >= micros_v1() order by name";
        let lease = |row: &Row| Ok((get(row, 0)?, time(get(row, 1)?)?));
        self.rows("read leases", sql, &[&prefix, &behind(prefix)]).await?.iter().map(lease).collect()
    }

    pub(crate) async fn release_lease(&self, name: &str, owner: Uuid) -> Result<(), StoreError> {
        let sql = "update leases set owner = null where name = $1 and owner = $2";
        self.rows("release a lease", sql, &[&name, &owner]).await.map(drop)
    }

    pub(crate) async fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        let rows = self.rows("read meta", "select value from meta where key = $1", &[&key]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    pub(crate) async fn trim_health(
        &self,
        after: Option<Uuid>,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        let sql = "with seen as (select cluster from health where cluster > $1 order by cluster limit $2),
            gone as (delete from health h using seen s where h.cluster = s.cluster
              and not exists (select from documents d where d.uuid = h.cluster and d.deleted_at is null) returning 1)
            select (select count(*) from gone), (select count(*) from seen),
              (select cluster from seen order by cluster desc limit 1)";
        let row = self.row("remove old health", sql, &[&after.unwrap_or(Uuid::nil()), &count(max)]).await?;
        let changed = usize::try_from(get::<i64>(&row, 0)?).unwrap_or(0);
        let next = if get::<i64>(&row, 1)? == count(max) { get(&row, 2)? } else { None };
        Ok(SweepProgress { changed, next })
    }

    pub(crate) async fn ensure_meta(&self, values: Vec<(String, String)>) -> Result<(), StoreError> {
        // In key order: of two concurrent calls the second waits at the first key, and then finds all of them set.
        let sql = "insert into meta (key, value) select m.key, m.value from unnest($1::text[], $2::text[]) as m (key, value)
            order by m.key on conflict do nothing";
        let (keys, values) = columns(&values);
        self.rows("write meta", sql, &[&keys, &values]).await.map(drop)
    }

    pub(crate) async fn replace_meta(
        &self,
        key: String,
        old: String,
        new: String,
    ) -> Result<bool, StoreError> {
        let sql = "update meta set value = $3 where key = $1 and value = $2 returning key";
        Ok(self.rows("write meta", sql, &[&key, &old, &new]).await?.len() == 1)
    }

    pub(crate) async fn trim(
        &self,
        stale: RetentionTarget,
        age: Duration,
        max: usize,
        meta: Vec<(String, String)>,
    ) -> Result<usize, StoreError> {
        let (keys, values) = columns(&meta);
        let (age, max) = (micros(age), count32(max));
        let what = "remove old rows";
        let row = match stale {
            RetentionTarget::Feed => {
                self.row(what, "select trim_feed_v1($1, $2, $3, $4)", &[&age, &max, &keys, &values]).await?
            }
            RetentionTarget::Tombstones => {
                self.row(what, "select trim_tombstones_v1($1, $2, $3, $4)", &[&age, &max, &keys, &values])
                    .await?
            }
            RetentionTarget::Audit { from, up_to } => {
                let sql = "select trim_audit_v7($1, $2, $3, $4)";
                self.row(what, sql, &[&from, &up_to, &keys, &values]).await?
            }
            RetentionTarget::Leases => {
                let sql = "with gone as (delete from leases where name in (select name from leases
                      where lease_until < micros_v1() - $1 limit $2::integer for update skip locked) returning 1)
                    select count(*)::integer from gone";
                self.row(what, sql, &[&age, &max]).await?
            }
            RetentionTarget::HealthEvents => {
                let sql = "with old as (select cluster, facet, at from health_events o where at < micros_v1() - $1
                      and (exists (select from health_events n where n.cluster = o.cluster and n.facet = o.facet and n.at > o.at)
                        or not exists (select from health h where h.cluster = o.cluster))
                      order by at limit $2::integer),
                    gone as (delete from health_events e using old o
                      where e.cluster = o.cluster and e.facet = o.facet and e.at = o.at returning 1)
                    select count(*)::integer from gone";
                self.row(what, sql, &[&age, &max]).await?
            }
        };
        Ok(usize::try_from(get::<i32>(&row, 0)?).unwrap_or(0))
    }

    pub(crate) async fn trim_history(
        &self,
        keep: Retention,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        let none: [&str; 0] = [];
        let mut changed = 0;
        for kind in WorkKind::ALL {
            let sql = "select trim_history_v1($1, $2, $3, $4, $5)";
            let (age, max) = (micros(keep.for_kind(kind)), count32(max));
            let values: [&(dyn ToSql + Sync); 5] =
                [&kind.as_str(), &age, &max, &none.as_slice(), &none.as_slice()];
            let row = self.row("remove old work", sql, &values).await?;
            changed += usize::try_from(get::<i32>(&row, 0)?).unwrap_or(0);
        }
        if changed > 0 {
            self.wake(topics(1));
        }
        Ok(SweepProgress { changed, next: None })
    }
}

/// Splits pairs into two arrays.
pub(super) fn columns(pairs: &[(String, String)]) -> (Vec<&str>, Vec<&str>) {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).unzip()
}
