//! A queue without exclusion: the same rows, the same history, the same feed, one index to claim by; but no lanes.
//! Its lead over the store is the price of exclusion.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

/// Tables beside the store's own.
const TABLES: &str = "
create schema peer;
create table peer.work (like public.work including defaults) with (fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000);
alter table peer.work add primary key (id);
create index work_due on peer.work (kind, due_at, priority, id) where state = 'Pending';
create table peer.history (like public.history including all);
create table peer.feed (like public.feed including all);";

const ENQUEUE: &str = "
with fresh as (
  insert into peer.work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
  select n.id, n.lane, 'manifest', 2, t.now, t.now, 0, 'Pending', t.now, t.now
  from unnest($1::uuid[], $2::uuid[]) as n (id, lane) cross join (select micros_v1() as now) t
  returning 1)
select count(*) from fresh";

const CLAIM: &str = "
with picked as (
  select id from peer.work where kind = 'manifest' and state = 'Pending' and due_at <= statement_micros_v1()
  order by due_at, priority, id limit 50 for update skip locked),
begun as (
  update peer.work w
  set state = 'InProgress', fence = w.fence + 1, owner = $1, attempt = w.attempt + 1,
      started = coalesce(w.started, t.now), changed = t.now
  from picked p cross join (select micros_v1() as now) t
  where w.id = p.id
  returning w.id, w.lane, w.fence, w.attempt, w.step, w.checkpoint, w.run_after, w.changed),
feed_row as (
  insert into peer.feed (kind, uuid, etag, deleted, at) select 'manifest', id, 0, false, changed from begun)
select id, lane, fence, attempt, step, checkpoint, run_after from begun";

const COMPLETE: &str = "
with ended as (
  delete from peer.work w using unnest($1::uuid[], $2::bigint[], $3::jsonb[]) as c (id, fence, result)
  where w.id = c.id and w.fence = c.fence and w.owner = $4 and w.state = 'InProgress'
  returning w.*, c.result, micros_v1() as now),
kept as (
  insert into peer.history (id, lane, kind, class, run_after, run_before, priority, state, attempt, step, checkpoint,
                            fence, owner, result, created, started, finished)
  select id, lane, kind, class, run_after, run_before, priority, 'Completed', attempt, step, checkpoint,
         fence, owner, result, created, started, now from ended),
feed_row as (
  insert into peer.feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now from ended)
select count(*) from ended";

/// One worker of the peer.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    client: Arc<Client>,
    enqueue: Statement,
    claim: Statement,
    complete: Statement,
    owner: Uuid,
}

/// Creates the peer's tables with the store's backlog.
pub(crate) async fn make(client: &Client) -> anyhow::Result<()> {
    client.batch_execute(TABLES).await?;
    client.batch_execute("insert into peer.work select * from public.work").await?;
    client.batch_execute("vacuum analyze peer.work").await?;
    Ok(())
}

impl Peer {
    pub(crate) async fn new(client: Arc<Client>) -> anyhow::Result<Peer> {
        let (enqueue, claim) = (client.prepare(ENQUEUE).await?, client.prepare(CLAIM).await?);
        let complete = client.prepare(COMPLETE).await?;
        Ok(Peer { client, enqueue, claim, complete, owner: Uuid::new_v4() })
    }

    pub(crate) async fn enqueue(&self, lanes: &[Uuid]) -> anyhow::Result<()> {
        let ids: Vec<Uuid> = lanes.iter().map(|_| Uuid::now_v7()).collect();
        self.client.query_one(&self.enqueue, &[&ids, &lanes]).await?;
        Ok(())
    }

    /// Claims 50 and completes them; returns how many.
    pub(crate) async fn cycle(&self) -> anyhow::Result<usize> {
        let claimed = self.client.query(&self.claim, &[&self.owner]).await?;
        let works: Vec<Uuid> = claimed.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let fences: Vec<i64> = claimed.iter().map(|row| row.try_get(2)).collect::<Result<_, _>>()?;
        let results: Vec<Value> = works.iter().map(|_| json!({})).collect();
        let row = self.client.query_one(&self.complete, &[&works, &fences, &results, &self.owner]).await?;
        Ok(usize::try_from(row.try_get::<_, i64>(0)?)?)
    }
}
