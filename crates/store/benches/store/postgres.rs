//! PostgreSQL against plainer uses of the same server.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::ensure;
use api::work::WorkKind;
use store::{CLAIM_MAX, CompletionOutcome, NewWork, Store};
use uuid::Uuid;

use crate::clients::{Writers, rate};
use crate::environment::{Backlog, Due, Lines, Machine, Place, TestEnvironment};
use crate::peer::{self, Peer};
use crate::slices::{Plan, alternate};
use crate::sqlite::completions;
use crate::table::{Goal, Row};

const CONNECTIONS: usize = 8;

/// Changes of documents against the barest commit.
pub(crate) async fn updates(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Postgres, &[]).await?;
    let lines = Lines::open(env.url()?, CONNECTIONS).await?;
    lines
        .first()
        .batch_execute(
            "create table plain (id integer primary key, n bigint not null) with (fillfactor = 50)",
        )
        .await?;
    lines.first().batch_execute("insert into plain select i, 0 from generate_series(0, 7) as i").await?;
    let mut plain = Vec::new();
    for client in &lines.clients {
        plain.push((client.clone(), client.prepare("update plain set n = n + 1 where id = $1").await?));
    }
    let plain = Arc::new(plain);
    let writers = Writers::new(env.another(CONNECTIONS).await?, CONNECTIONS).await?;
    let floor = async |slice| {
        rate(CONNECTIONS, slice, |number, end| {
            let plain = plain.clone();
            async move {
                let (client, statement) = &plain[number];
                let id = i32::try_from(number)?;
                let mut count = 0;
                while Instant::now() < end {
                    client.execute(statement, &[&id]).await?;
                    count += 1;
                }
                Ok(count)
            }
        })
        .await
    };
    let observing = writers.observing();
    let plain = alternate(plan, floor, async |slice| observing.rate(slice).await).await?;
    let audited = alternate(plan, floor, async |slice| writers.rate(slice).await).await?;
    env.store.close().await;
    let what = "PostgreSQL: document update with feed row, 8 connections / plain commits";
    let with_record = "PostgreSQL: the same with its audit record / plain commits";
    Ok(vec![
        Row::compared(what, &plain, Goal::AtLeast(0.65)),
        Row::compared(with_record, &audited, Goal::Shown),
    ])
}

/// Enqueue, claim, complete by 8 workers in batches of 50 with 100,000 pending, against the same without exclusion.
pub(crate) async fn queue(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Postgres, &[Backlog::new(10_000, 10, Due::Now)]).await?;
    let lines = Lines::open(env.url()?, CONNECTIONS).await?;
    peer::make(lines.first()).await?;
    let mut peers = Vec::new();
    for client in &lines.clients {
        peers.push(Peer::new(client.clone()).await?);
    }
    let lanes = lines.first().query("select lane from lanes", &[]).await?;
    let lanes: Arc<Vec<Uuid>> = Arc::new(lanes.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?);
    let watch = Arc::new(Watch::default());
    let turn = Arc::new(AtomicUsize::new(0));
    let store = env.another(CONNECTIONS).await?;

    let floor = async |slice| {
        rate(CONNECTIONS, slice, |number, end| {
            let (peer, lanes, turn) = (peers[number].clone(), lanes.clone(), turn.clone());
            async move {
                let mut count = 0;
                while Instant::now() < end {
                    peer.enqueue(&fifty(&lanes, &turn)).await?;
                    count += peer.cycle().await?;
                }
                Ok(count)
            }
        })
        .await
    };
    let measured = async |slice| {
        rate(CONNECTIONS, slice, |_, end| {
            let (store, lanes, turn, watch) = (store.clone(), lanes.clone(), turn.clone(), watch.clone());
            async move {
                let owner = Uuid::new_v4();
                let mut count = 0;
                while Instant::now() < end {
                    let work = |lane: Uuid| NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest);
                    store.enqueue(fifty(&lanes, &turn).into_iter().map(work).collect()).await?;
                    count += watch.cycle(&store, owner).await?;
                }
                Ok(count)
            }
        })
        .await
    };
    let pairs = alternate(plan, floor, measured).await?;
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks: i64 = lines.first().query_one(sql, &[]).await?.try_get(0)?;
    let faults = env.faults().await?;
    store.close().await;
    env.store.close().await;
    let cycles = watch.ended();
    Ok(vec![
        Row::compared(
            "PostgreSQL: enqueue, claim, complete, batch 50, 100,000 pending / no exclusion",
            &pairs,
            Goal::AtLeast(0.4),
        ),
        Row::none_of("PostgreSQL: double runs", watch.double_runs.load(Ordering::Relaxed), cycles),
        Row::none_of("PostgreSQL: deadlocks", usize::try_from(deadlocks)?, cycles),
        Row::none_of("PostgreSQL: violations (store check)", faults, cycles),
    ])
}

/// The next fifty lanes, scattered.
fn fifty(lanes: &[Uuid], turn: &AtomicUsize) -> Vec<Uuid> {
    let from = turn.fetch_add(CLAIM_MAX, Ordering::Relaxed);
    // A stride coprime to the number of lanes visits all of them before any again.
    (from..from + CLAIM_MAX).map(|place| lanes[place * 7919 % lanes.len()]).collect()
}

/// Checks from outside that no lane has two holders, and that no work completes twice.
#[derive(Debug, Default)]
struct Watch {
    running: Mutex<HashSet<Uuid>>,
    ended: Mutex<HashSet<Uuid>>,
    double_runs: AtomicUsize,
}

impl Watch {
    /// Claims and completes a batch; returns how many.
    async fn cycle(&self, store: &Store, owner: Uuid) -> anyhow::Result<usize> {
        let claimed = store.claim(WorkKind::Manifest, CLAIM_MAX, owner).await?;
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let doubled = claimed.iter().filter(|it| !running.insert(it.lease.lane)).count();
            self.double_runs.fetch_add(doubled, Ordering::Relaxed);
        }
        {
            // Marked free before the completion: a later claim of the lane must find it free here.
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            for it in &claimed {
                running.remove(&it.lease.lane);
            }
        }
        let outcomes = store.complete(&completions(&claimed)).await?;
        ensure!(outcomes.iter().all(|it| *it == CompletionOutcome::Done), "a new lease was lost");
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let doubled = claimed.iter().filter(|it| !ended.insert(it.lease.work)).count();
        self.double_runs.fetch_add(doubled, Ordering::Relaxed);
        Ok(claimed.len())
    }

    fn ended(&self) -> usize {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Fills an unused store. Lanes are random, like clusters' uuids; ids grow, like those of new work.
pub(crate) async fn load(url: &str, backlogs: &[Backlog]) -> anyhow::Result<()> {
    let lines = Lines::open(url, 1).await?;
    let client = lines.first();
    let now: i64 = client.query_one("select micros_v1()", &[]).await?.try_get(0)?;
    let mut loaded = 0_i64;
    for backlog in backlogs {
        let (count, each, first) =
            (i64::try_from(backlog.lanes)?, i64::try_from(backlog.each)?, backlog.first_due(now));
        client.batch_execute("create temp table fresh (place bigint not null, lane uuid not null)").await?;
        client
            .execute(
                "insert into fresh select i, gen_random_uuid() from generate_series(0, $1::bigint - 1) as i",
                &[&count],
            )
            .await?;
        client
            .execute(
                "insert into lanes (lane, head_kind, head_class, head_at, head_priority)
                 select lane, 'manifest', 2, $1::bigint + place, 0 from fresh",
                &[&first],
            )
            .await?;
        client
            .execute(
                "insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
                 select lpad(to_hex($1::bigint + n.j * $2::bigint + f.place), 32, '0')::uuid, f.lane, 'manifest', 2,
                        $3::bigint + n.j * $2 + f.place, $3 + n.j * $2 + f.place, 0, 'Pending', $4::bigint, $4
                 from generate_series(0, $5::bigint - 1) as n (j) cross join fresh f",
                &[&loaded, &count, &first, &now, &each],
            )
            .await?;
        client.batch_execute("drop table fresh").await?;
        loaded += count * each;
    }
    client.batch_execute("vacuum analyze work").await?;
    client.batch_execute("vacuum analyze lanes").await?;
    Ok(())
}
