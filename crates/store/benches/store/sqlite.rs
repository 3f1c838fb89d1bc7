//! SQLite against raw synced writes on the same disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::clock::{Clock as _, SystemClock};
use api::work::{Ending, WorkKind};
use rusqlite::{Connection, params};
use serde_json::json;
use store::{ClaimedWork, Completion, CompletionOutcome, ENQUEUE_MAX, NewWork, Store};
use uuid::Uuid;

use crate::clients::Writers;
use crate::environment::{Backlog, Due, Ground, Machine, Place, TestEnvironment};
use crate::floors::RawFile;
use crate::slices::{Plan, alternate};
use crate::table::{Goal, Row};

pub(crate) async fn one_writer(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    writers(machine, plan, 1, "SQLite: one document write / raw 8 KiB fdatasync", 0.5).await
}

pub(crate) async fn many_writers(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    writers(machine, plan, 64, "SQLite: 64 concurrent writers / raw fdatasync", 3.5).await
}

async fn writers(
    machine: &Machine,
    plan: Plan,
    count: usize,
    what: &str,
    goal: f64,
) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Sqlite, &[]).await?;
    let raw = raw_file(&env)?;
    let writers = Writers::new(env.store.clone(), count).await?;
    let pairs =
        alternate(plan, async |slice| raw.rate(slice).await, async |slice| writers.rate(slice).await).await?;
    let faults = env.faults().await?;
    ensure!(faults == 0, "{faults} promises of the store were broken by writing documents");
    env.store.close().await;
    Ok(vec![Row::compared(what, &pairs, Goal::AtLeast(goal))])
}

/// Claim and complete by one worker, 100,000 pending.
pub(crate) async fn cycles(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Sqlite, &[Backlog::new(10_000, 10, Due::Now)]).await?;
    let raw = raw_file(&env)?;
    let mut rows = Vec::new();
    for (batch, goal) in [(1, 0.3), (50, 1.8)] {
        let floor = async |slice| raw.rate(slice).await;
        let measured = async |slice| {
            let (done, taken) = in_a_task(env.store.clone(), batch, slice).await?;
            top_up(&env.store, &done).await?;
            Ok(done.len() as f64 / taken.as_secs_f64())
        };
        let pairs = alternate(plan, floor, measured).await?;
        let what = format!("SQLite: queue cycle (claim, complete), batch {batch} / raw fdatasync");
        rows.push(Row::compared(what, &pairs, Goal::AtLeast(goal)));
    }
    let faults = env.faults().await?;
    ensure!(faults == 0, "{faults} promises of the store were broken by claiming and completing");
    env.store.close().await;
    Ok(rows)
}

/// A service's loop is a task of the runtime, not its main function.
async fn in_a_task(store: Store, batch: usize, slice: Duration) -> anyhow::Result<(Vec<Uuid>, Duration)> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(cycle(store, batch, slice));
    tasks.join_next().await.context("the worker")??
}

/// Served lanes, and the time that took.
async fn cycle(store: Store, batch: usize, slice: Duration) -> anyhow::Result<(Vec<Uuid>, Duration)> {
    let (owner, started) = (Uuid::new_v4(), Instant::now());
    let mut lanes = Vec::new();
    while started.elapsed() < slice {
        let claimed = store.claim(WorkKind::Manifest, batch, owner).await?;
        ensure!(claimed.len() == batch, "{} of {batch} were claimed although all are due", claimed.len());
        lanes.extend(claimed.iter().map(|it| it.lease.lane));
        let outcomes = store.complete(&completions(&claimed)).await?;
        ensure!(outcomes.iter().all(|it| *it == CompletionOutcome::Done), "a new lease was lost");
    }
    Ok((lanes, started.elapsed()))
}

pub(crate) fn completions(claimed: &[ClaimedWork]) -> Vec<Completion> {
    let completion = |it: &ClaimedWork| Completion::new(it.lease, Ending::Completed, json!({}));
    claimed.iter().map(completion).collect()
}

/// As many as were completed, so that the backlog stays constant.
pub(crate) async fn top_up(store: &Store, lanes: &[Uuid]) -> anyhow::Result<()> {
    for block in lanes.chunks(ENQUEUE_MAX) {
        let work = |lane: &Uuid| NewWork::new(Uuid::now_v7(), *lane, WorkKind::Manifest);
        store.enqueue(block.iter().map(work).collect()).await?;
    }
    Ok(())
}

fn raw_file(env: &TestEnvironment) -> anyhow::Result<RawFile> {
    match &env.ground {
        Ground::Directory(directory) => Ok(RawFile::new(directory.path())?),
        Ground::Database(_) => anyhow::bail!("a database has no directory"),
    }
}

/// Fills a closed store. Lanes are random, like clusters' uuids; ids grow, like those of new work.
pub(crate) fn load(path: &Path, backlogs: &[Backlog]) -> anyhow::Result<()> {
    let now = SystemClock.now().as_microsecond();
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "pragma synchronous = off; pragma cache_size = -1000000; pragma temp_store = memory;",
    )?;
    let mut loaded = 0;
    for backlog in backlogs {
        let transaction = connection.transaction()?;
        transaction
            .execute_batch("create temp table fresh (place integer primary key, lane blob not null)")?;
        transaction.execute(
            "with recursive n (i) as (select 0 union all select i + 1 from n where i + 1 < ?1)
             insert into fresh select i, randomblob(16) from n",
            [backlog.lanes],
        )?;
        let first = backlog.first_due(now);
        transaction.execute(
            "insert into lanes (lane, head_kind, head_class, head_at, head_priority)
             select lane, 'manifest', 2, ?1 + place, 0 from fresh order by lane",
            [first],
        )?;
        transaction.execute(
            "with recursive n (j) as (select 0 union all select j + 1 from n where j + 1 < ?1)
             insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
             select unhex(printf('%032x', ?2 + j * ?3 + place)), lane, 'manifest', 2, ?4 + j * ?3 + place,
                    ?4 + j * ?3 + place, 0, 'Pending', ?5, ?5
             from n cross join fresh",
            params![backlog.each, loaded, backlog.lanes, first, now],
        )?;
        transaction.execute_batch("drop table fresh")?;
        transaction.commit()?;
        loaded += backlog.lanes * backlog.each;
    }
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}
