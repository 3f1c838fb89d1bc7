//! The change feed: completeness, and the cost of a read without news.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use store::{Etag, Position, Store, Subject};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::clients::{Writers, rate};
use crate::environment::{Lines, Machine, Place, TestEnvironment};
use crate::slices::{Plan, alternate};
use crate::table::{Goal, Row};

const WRITERS: usize = 8;
const PAGE: usize = 500;
/// A change: document and version.
type DocumentVersion = (Uuid, String);

/// Eight writers, one reader: every committed change must arrive once.
pub(crate) async fn lost(machine: &Machine, place: Place, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, place, &[]).await?;
    let writers = Writers::new(env.store.clone(), WRITERS).await?;
    let from = env.store.feed_end().await?;
    let ended = Arc::new(AtomicBool::new(false));
    let mut reader = JoinSet::new();
    reader.spawn(read_all(env.store.clone(), from, ended.clone()));
    let mut committed: HashMap<DocumentVersion, usize> = HashMap::new();
    let end = Instant::now() + plan.feed;
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        let writers = writers.clone();
        tasks.spawn(async move { writers.write(number, end).await.map(versions) });
    }
    if place == Place::Postgres {
        tasks.spawn(late_writer(Lines::open(env.url()?, 1).await?, end));
    }
    while let Some(written) = tasks.join_next().await {
        written??.into_iter().for_each(|it| *committed.entry(it).or_default() += 1);
    }
    ended.store(true, Ordering::Release);
    let delivered = reader.join_next().await.context("the feed's reader")???;
    let lost = committed.iter().filter(|(it, count)| delivered.get(*it) != Some(*count)).count();
    let invented = delivered.keys().filter(|it| !committed.contains_key(*it)).count();
    let faults = env.faults().await?;
    env.store.close().await;
    let what = format!("{}: feed rows lost, repeated or invented, 8 writers", place.name());
    Ok(vec![Row::none_of(what, lost + invented + faults, committed.len())])
}

fn versions(written: Vec<(Uuid, Etag)>) -> Vec<DocumentVersion> {
    written.into_iter().map(|(uuid, etag)| (uuid, etag.to_string())).collect()
}

/// Pages through the feed until the writers have ended and nothing more arrives.
async fn read_all(
    store: Store,
    mut position: Position,
    ended: Arc<AtomicBool>,
) -> anyhow::Result<HashMap<DocumentVersion, usize>> {
    let mut delivered: HashMap<DocumentVersion, usize> = HashMap::new();
    loop {
        let last_look = ended.load(Ordering::Acquire);
        let page = store.feed_after(position, PAGE).await?;
        position = page.next;
        for change in &page.changes {
            if let Subject::Document { etag, .. } = change.subject {
                *delivered.entry((change.uuid, etag.to_string())).or_default() += 1;
            }
        }
        if page.changes.is_empty() && last_look {
            return Ok(delivered);
        }
    }
}

/// Draws sequence numbers early and commits late, or not at all: this makes a feed by sequence lose rows.
async fn late_writer(lines: Lines, end: Instant) -> anyhow::Result<Vec<DocumentVersion>> {
    let client = lines.first();
    let insert = client
        .prepare(
            "insert into feed (kind, uuid, etag, deleted, at) values ('late', $1, 1, false, micros_v1())",
        )
        .await?;
    let mut written = Vec::new();
    for turn in 0_u64.. {
        if Instant::now() >= end {
            break;
        }
        let uuid = Uuid::new_v4();
        client.batch_execute("begin").await?;
        client.execute(&insert, &[&uuid]).await?;
        tokio::time::sleep(Duration::from_millis(turn * 7 % 30)).await;
        if turn % 3 == 2 {
            client.batch_execute("rollback").await?;
        } else {
            client.batch_execute("commit").await?;
            written.push((uuid, "\"1\"".to_owned()));
        }
    }
    Ok(written)
}

/// Reads without news, with many rows retained, against the cheapest query of a server.
pub(crate) async fn empty_polls(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Postgres, &[]).await?;
    let lines = Lines::open(env.url()?, 1).await?;
    let rows = i64::try_from(plan.large)?;
    // In separate transactions, as in production.
    for block in 0..10 {
        let sql = "insert into feed (kind, uuid, etag, deleted, at)
                   select 'note', gen_random_uuid(), 1, false, micros_v1() from generate_series(1, $1::bigint)";
        lines
            .first()
            .execute(sql, &[&(rows / 10)])
            .await
            .with_context(|| format!("block {block} of the feed"))?;
    }
    lines.first().batch_execute("vacuum analyze feed").await?;
    let poller = env.another(1).await?;
    // As in every service, another timer is due soon: the runtime's clock need not be set again for each deadline.
    let mut ticking = JoinSet::new();
    ticking.spawn(async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
        }
    });
    let position = poller.feed_end().await?;
    let one = lines.first().prepare("select 1").await?;
    let client = lines.clients[0].clone();
    let floor = async |slice| {
        let per_second = rate(1, slice, |_, end| {
            let (client, one) = (client.clone(), one.clone());
            async move {
                let mut count = 0;
                while Instant::now() < end {
                    client.query(&one, &[]).await?;
                    count += 1;
                }
                Ok(count)
            }
        });
        Ok(1.0 / per_second.await?)
    };
    let measured = async |slice| {
        let per_second = rate(1, slice, |_, end| {
            let poller = poller.clone();
            async move {
                let mut count = 0;
                while Instant::now() < end {
                    let page = poller.feed_after(position, PAGE).await?;
                    anyhow::ensure!(page.changes.is_empty(), "there are news where nobody writes");
                    count += 1;
                }
                Ok(count)
            }
        });
        Ok(1.0 / per_second.await?)
    };
    let pairs = alternate(plan, floor, measured).await?;
    poller.close().await;
    env.store.close().await;
    let what = format!("PostgreSQL: empty feed poll, {rows} rows retained / select 1");
    Ok(vec![Row::compared(what, &pairs, Goal::AtMost(1.6))])
}
