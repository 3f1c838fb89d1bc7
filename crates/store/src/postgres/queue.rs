//! The queue. The algorithms are the functions in `migrations/postgres/*_queue.sql`; this module calls them.

use std::collections::HashSet;
use std::time::Duration;

use api::admin::Entry;
use api::doc::WorkResult;
use api::work::{Cancellation, UnknownValue, WorkKind, WorkState};
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::commit::topics;
use super::{Postgres, count, count32, get, micros, time};
use crate::StoreError;
use crate::audit::NewAuditRecord;
use crate::completion::PreparedCompletion;
use crate::entries;
use crate::notify::Topics;
use crate::work::{
    Budget, ClaimedWork, CompletionOutcome, LaneView, QUEUE_COUNT_MAX, QueueView, RenewedLease, Signals,
    SweepProgress, WorkLease, WorkView,
};

const LIVE: &str =
    "id, lane, kind, state, attempt, run_after, due_at, run_before, priority, step, checkpoint, fence,
  created, started, null::bigint as finished, null::jsonb as result, origin, budgets,
  to_end is true, cancel_by, cancel_reason, cancel_at";
const ENDED: &str = "id, lane, kind, state, attempt, run_after, finished as due_at, run_before, priority, step, checkpoint, fence,
  created, started, finished, result, origin, budgets, false, null::text, null::text, null::bigint";
/// A lane with work only in side queues shows the first of that, and the budget that it waits for.
const LANE: &str = "lane, coalesce(head_kind, (select 'manifest' from side_queues s where s.lane = lanes.lane and s.closed limit 1)),
  coalesce(head_at, (select min(s.head_at) from side_queues s where s.lane = lanes.lane and s.closed)),
  case when head_kind is null then (select s.key from side_queues s where s.lane = lanes.lane and s.closed
    order by s.head_at, s.head_priority, s.key limit 1) else parked_on end,
  owner, lease_until, fence, running, preempt, cancel";

impl Postgres {
    pub(crate) async fn claim(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        let sql = "select work_, lane_, fence_, attempt_, step_, checkpoint_, run_after_, woken_, at_, first_,
                     false as preempt_, false as cancel_, false as taken_over_, cancel_by_, cancel_reason_, cancel_at_
                   from claim_v8($1, $2, $3, $4)";
        self.take("claim", sql, kind, max, owner, lease).await
    }

    pub(crate) async fn take_over(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        let sql = "select work_, lane_, fence_, attempt_, step_, checkpoint_, run_after_, woken_, at_, false as first_,
                     preempt_, cancel_, true as taken_over_, cancel_by_, cancel_reason_, cancel_at_
                   from take_over_v8($1, $2, $3, $4)";
        self.take("take over", sql, kind, max, owner, lease).await
    }

    async fn take(
        &self,
        what: &'static str,
        sql: &str,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let rows = self.rows(what, sql, &[&kind.as_str(), &count32(max), &owner, &micros(lease)]).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        let mut notified = Topics::default();
        for row in &rows {
            notified.merge(topics(get(row, 7)?));
            // A row without work only carries topics.
            if let Some(work) = get::<Option<Uuid>>(row, 0)? {
                claimed.push(ClaimedWork {
                    lease: WorkLease { work, lane: get(row, 1)?, owner, fence: get(row, 2)? },
                    kind,
                    attempt: get(row, 3)?,
                    step: get(row, 4)?,
                    checkpoint: get(row, 5)?,
                    run_after: time(get(row, 6)?)?,
                    claimed_at: time(get(row, 8)?)?,
                    first: get(row, 9)?,
                    signals: Signals { preempt: get(row, 10)?, cancel: get(row, 11)? },
                    taken_over: get(row, 12)?,
                    cancellation: cancellation(row, 13)?,
                });
            }
        }
        self.wake(notified);
        Ok(claimed)
    }

    pub(crate) async fn complete(
        &self,
        ends: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let works: Vec<Uuid> = ends.iter().map(|it| it.lease().work).collect();
        let lanes: Vec<Uuid> = ends.iter().map(|it| it.lease().lane).collect();
        let owners: Vec<Uuid> = ends.iter().map(|it| it.lease().owner).collect();
        let fences: Vec<i64> = ends.iter().map(|it| it.lease().fence).collect();
        let states: Vec<&str> = ends.iter().map(|it| it.state().as_str()).collect();
        let results: Vec<&str> = ends.iter().map(PreparedCompletion::result).collect();
        let lines = || ends.iter().flat_map(|it| it.entries().iter().map(|line| (it.lease().work, line)));
        let recorded: Vec<Uuid> = lines().map(|(work, _)| work).collect();
        let bodies: Vec<&str> = lines().map(|(_, line)| line.text.as_str()).collect();
        let of_steps: Vec<bool> = lines().map(|(_, line)| line.is_step_entry).collect();
        let row = if recorded.is_empty() {
            let sql = "select done_, woken_ from complete_v1($1, $2, $3, $4, $5, $6::text[]::jsonb[], false)";
            self.row("complete", sql, &[&works, &lanes, &owners, &fences, &states, &results]).await?
        } else {
            let sql = "select done_, woken_ from complete_v2($1, $2, $3, $4, $5, $6::text[]::jsonb[], $7,
                         $8::text[]::jsonb[], $9)";
            let values: [&(dyn ToSql + Sync); 9] =
                [&works, &lanes, &owners, &fences, &states, &results, &recorded, &bodies, &of_steps];
            self.row("complete", sql, &values).await?
        };
        let mut done: HashSet<Uuid> =
            get::<Option<Vec<Uuid>>>(&row, 0)?.unwrap_or_default().into_iter().collect();
        self.wake(topics(get(&row, 1)?));
        // The same work passed twice completes once.
        Ok(works
            .iter()
            .map(|work| if done.remove(work) { CompletionOutcome::Done } else { CompletionOutcome::Lost })
            .collect())
    }

    pub(crate) async fn renew(
        &self,
        owner: Uuid,
        lanes: Vec<Uuid>,
        lease: Duration,
    ) -> Result<Vec<RenewedLease>, StoreError> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "with mine as (
              select lane from lanes where owner = $1 and lane = any ($2::uuid[]) order by lane for update)
            update lanes l set lease_until = micros_v1() + $3 from mine m where l.lane = m.lane
            returning l.lane, l.fence, l.preempt, l.cancel";
        let rows = self.rows("renew", sql, &[&owner, &lanes, &micros(lease)]).await?;
        let renewed = |row: &Row| {
            let signals = Signals { preempt: get(row, 2)?, cancel: get(row, 3)? };
            Ok(RenewedLease { lane: get(row, 0)?, fence: get(row, 1)?, signals })
        };
        rows.iter().map(renewed).collect()
    }

    pub(crate) async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        let sql = "select seen_, last_, changed_, woken_ from expire_v1($1, $2)";
        let row = self.row("expire", sql, &[&after, &count32(max)]).await?;
        self.wake(topics(get(&row, 3)?));
        let next = if get::<i32>(&row, 0)? == count32(max) { get(&row, 1)? } else { None };
        Ok(SweepProgress { changed: usize::try_from(get::<i32>(&row, 2)?).unwrap_or(0), next })
    }

    pub(crate) async fn repair(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        let sql = "select last_, changed_, woken_ from repair_v1($1, $2)";
        let row = self.row("repair", sql, &[&after, &count32(max)]).await?;
        self.wake(topics(get(&row, 2)?));
        Ok(SweepProgress { changed: usize::try_from(get::<i32>(&row, 1)?).unwrap_or(0), next: get(&row, 0)? })
    }

    pub(crate) async fn set_budget(
        &self,
        key: String,
        limit: Option<u32>,
        audit: Option<NewAuditRecord>,
    ) -> Result<(), StoreError> {
        self.set_limit(&key, limit, audit).await
    }

    pub(crate) async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        let sql = format!(
            "select {LIVE} from work where id = any ($1::uuid[]) union all select {ENDED} from history where id = any ($1::uuid[])"
        );
        self.rows("read work", &sql, &[&ids]).await?.iter().map(work).collect()
    }

    pub(crate) async fn pending(&self, lane: Uuid, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        // Work in a side queue keeps its place among unstarted work.
        let sql = format!(
            "select {LIVE} from (
               (select * from work where lane = $1 and state = 'Pending' and class < 3
                order by class, due_at, priority, id limit $2)
               union all
               (select * from work where lane = $1 and state = 'Pending' and class = 3
                order by class, due_at, priority, id limit $2)) w
             order by least(class, 2), due_at, priority, id limit $2"
        );
        self.rows("read a lane's work", &sql, &[&lane, &count(limit)]).await?.iter().map(work).collect()
    }

    pub(crate) async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        let sql = format!("select {LANE} from lanes where lane = $1");
        self.rows("read a lane", &sql, &[&lane]).await?.first().map(lane_view).transpose()
    }

    pub(crate) async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        let sql = format!("select {LANE} from lanes where lane = any ($1::uuid[])");
        self.rows("read lanes", &sql, &[&lanes]).await?.iter().map(lane_view).collect()
    }

    pub(crate) async fn pending_for_origin(
        &self,
        origin: &str,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        let sql = format!(
            "select {LIVE} from work where origin = $1 and id > $2 and state = 'Pending' order by origin, id limit $3"
        );
        let after = after.unwrap_or(Uuid::nil());
        let rows = self.rows("read an origin's work", &sql, &[&origin, &after, &count(limit)]).await?;
        rows.iter().map(work).collect()
    }

    pub(crate) async fn live(
        &self,
        kind: WorkKind,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        let sql = format!("select {LIVE} from work where kind = $1 and id > $2 order by id limit $3");
        let after = after.unwrap_or(Uuid::nil());
        let rows = self.rows("read live work", &sql, &[&kind.as_str(), &after, &count(limit)]).await?;
        rows.iter().map(work).collect()
    }

    pub(crate) async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        let sql = format!(
            "select {LIVE} from work where id in
               (select running from lanes where owner is not null and running_kind = $1 order by lane limit $2)"
        );
        let rows = self.rows("read running work", &sql, &[&kind.as_str(), &count(limit)]).await?;
        rows.iter().map(work).collect()
    }

    pub(crate) async fn finished(
        &self,
        kind: WorkKind,
        from: i64,
        to: i64,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        let ended = ENDED.replace("checkpoint", "null::jsonb as checkpoint");
        let sql = format!(
            "select {ended} from history
             where kind = $1 and finished >= $2 and coalesce(started, finished) < $3
             order by finished desc, id limit $4"
        );
        let rows =
            self.rows("read finished work", &sql, &[&kind.as_str(), &from, &to, &count(limit)]).await?;
        rows.iter().map(work).collect()
    }

    pub(crate) async fn queue(&self, kind: WorkKind) -> Result<QueueView, StoreError> {
        let sql = "with due as (
              (select lane, head_at from lanes
               where head_kind = $1 and head_at <= statement_micros_v1() and owner is null and parked_on is null
               order by head_at limit $2)
              union all
              (select lane, head_at from lanes
               where parked_on is not null and head_kind = $1 and head_at <= statement_micros_v1() limit $2)
              union all
              (select lane, head_at from side_queues where closed and $1 = 'manifest' limit $2))
            select
              (select count(distinct lane) from due),
              (select count(*) from (select kind, state from work order by id limit $2) w where kind = $1 and state = 'Pending'),
              (select count(*) from lanes where owner is not null and running_kind = $1),
              (select min(head_at) from due where head_at > 0)";
        let row = self.row("read the queue", sql, &[&kind.as_str(), &count(QUEUE_COUNT_MAX)]).await?;
        let number = |index| get::<i64>(&row, index).map(|it| u64::try_from(it).unwrap_or(0));
        Ok(QueueView {
            due: number(0)?,
            pending: number(1)?,
            running: number(2)?,
            oldest_due: at(get(&row, 3)?)?,
        })
    }

    pub(crate) async fn entries(
        &self,
        work: Uuid,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        let sql =
            "select number, at, body from entries where work = $1 and number > $2 order by number limit $3";
        let rows = self.rows("read entries", sql, &[&work, &after, &count(limit)]).await?;
        let read = |row: &Row| entries::read_row(get(row, 0)?, time(get(row, 1)?)?, &get(row, 2)?);
        Ok(entries::page(rows.iter().map(read).collect::<Result<_, StoreError>>()?, after, limit))
    }

    pub(crate) async fn entries_dropped(&self, work: Uuid) -> Result<u64, StoreError> {
        let sql = "select (body ->> 'dropped')::bigint from entries where work = $1 and number = 0";
        let rows = self.rows("count entries", sql, &[&work]).await?;
        let dropped = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
        Ok(dropped.and_then(|it| u64::try_from(it).ok()).unwrap_or(0))
    }

    pub(crate) async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        let sql = "select head_at - micros_v1() from lanes where head_kind = $1 and owner is null and parked_on is null
                   order by head_at limit 1";
        let rows = self.rows("read due work", sql, &[&kind.as_str()]).await?;
        let wait = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
        Ok(wait.map(|wait| Duration::from_micros(u64::try_from(wait).unwrap_or(0))))
    }

    pub(crate) async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        let sql = "select key, cap, used, (select count(*) from lanes where parked_on = key)
                     + (select count(*) from side_queues s where s.key = budgets.key and s.closed)
                   from budgets order by key";
        let budget = |row: &Row| {
            Ok(Budget {
                key: get(row, 0)?,
                limit: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0),
                used: u32::try_from(get::<i32>(row, 2)?).unwrap_or(0),
                parked: u32::try_from(get::<i64>(row, 3)?).unwrap_or(u32::MAX),
            })
        };
        self.rows("read budgets", sql, &[]).await?.iter().map(budget).collect()
    }
}

fn parse_word<T: std::str::FromStr<Err = UnknownValue>>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error: UnknownValue| StoreError::broken(error.to_string()))
}

fn at(micros: Option<i64>) -> Result<Option<jiff::Timestamp>, StoreError> {
    micros.map(time).transpose()
}

fn work(row: &Row) -> Result<WorkView, StoreError> {
    Ok(WorkView {
        id: get(row, 0)?,
        lane: get(row, 1)?,
        kind: parse_word::<WorkKind>(get(row, 2)?)?,
        state: parse_word::<WorkState>(get(row, 3)?)?,
        attempt: get(row, 4)?,
        run_after: time(get(row, 5)?)?,
        due_at: time(get(row, 6)?)?,
        run_before: at(get(row, 7)?)?,
        priority: get(row, 8)?,
        step: get(row, 9)?,
        checkpoint: get(row, 10)?,
        fence: get(row, 11)?,
        created: time(get(row, 12)?)?,
        started: at(get(row, 13)?)?,
        finished: at(get(row, 14)?)?,
        result: get::<Option<Value>>(row, 15)?.map(WorkResult::from),
        origin: get(row, 16)?,
        budgets: get::<Option<Vec<String>>>(row, 17)?.unwrap_or_default(),
        ending: get(row, 18)?,
        cancellation: cancellation(row, 19)?,
    })
}

/// Reads the columns `cancel_by`, `cancel_reason` and `cancel_at`, the first of which is at `from`.
fn cancellation(row: &Row, from: usize) -> Result<Option<Cancellation>, StoreError> {
    let Some(requested_by) = get::<Option<String>>(row, from)? else { return Ok(None) };
    let requested_at = time(get(row, from + 2)?)?;
    Ok(Some(Cancellation { requested_by, reason: get(row, from + 1)?, requested_at }))
}

fn lane_view(row: &Row) -> Result<LaneView, StoreError> {
    Ok(LaneView {
        lane: get(row, 0)?,
        head_kind: get::<Option<&str>>(row, 1)?.map(parse_word).transpose()?,
        head_at: at(get(row, 2)?)?,
        parked_on: get(row, 3)?,
        owner: get(row, 4)?,
        lease_until: at(get(row, 5)?)?,
        fence: get(row, 6)?,
        running: get(row, 7)?,
        signals: Signals { preempt: get(row, 8)?, cancel: get(row, 9)? },
    })
}
