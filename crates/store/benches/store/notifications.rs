//! Cost of notifications for writers.
//!
//! The store has no switch for them. So its own enqueue, with the notification task running and another process
//! listening, is compared with bare calls of the same function on direct connections, which notify nobody. That also
//! counts the store's other overhead: its pool, its deadline, its arrays.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use api::work::WorkKind;
use serde_json::Value;
use store::{NewWork, Topic};
use tokio::task::JoinSet;
use tokio_postgres::Statement;
use uuid::Uuid;

use crate::clients::rate;
use crate::environment::{Lines, Machine, Place, TestEnvironment};
use crate::slices::{Plan, alternate};
use crate::table::{Goal, Row};

const ENQUEUERS: usize = 32;
/// Separate lanes, so that no client waits for another's lane.
const LANES_EACH: usize = 100;

pub(crate) async fn notifications(machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, Place::Postgres, &[]).await?;
    let loud = env.another(ENQUEUERS).await?;
    let listener = env.another(1).await?;
    let mut heard = JoinSet::new();
    let mut notifications = listener.notifications(Topic::Work(WorkKind::Manifest));
    heard.spawn(async move {
        loop {
            notifications.next().await;
        }
    });
    let lines = Lines::open(env.url()?, ENQUEUERS).await?;
    let mut quiet = Vec::new();
    for client in &lines.clients {
        let statement = client.prepare("select enqueue_v1($1, $2, $3, $4, $5, $6, $7, $8)").await?;
        quiet.push((client.clone(), statement));
    }
    let quiet: Arc<Vec<(Arc<tokio_postgres::Client>, Statement)>> = Arc::new(quiet);
    let lanes: Arc<Vec<Uuid>> = Arc::new((0..ENQUEUERS * LANES_EACH).map(|_| Uuid::new_v4()).collect());
    let lane_of = |number: usize, turn: usize| number * LANES_EACH + turn % LANES_EACH;

    let floor = async |slice| {
        rate(ENQUEUERS, slice, |number, end| {
            let (quiet, lanes) = (quiet.clone(), lanes.clone());
            async move {
                let (client, statement) = quiet.get(number).context("a connection")?;
                let mut count = 0;
                while Instant::now() < end {
                    let lane = lanes[lane_of(number, count)];
                    client
                        .query(
                            statement,
                            &[
                                &vec![Uuid::now_v7()],
                                &vec![lane],
                                &vec!["manifest"],
                                &vec![2_i32],
                                &vec![None::<i64>],
                                &vec![None::<i64>],
                                &vec![0_i32],
                                &vec![None::<Value>],
                            ],
                        )
                        .await?;
                    count += 1;
                }
                Ok(count)
            }
        })
        .await
    };
    let measured = async |slice| {
        rate(ENQUEUERS, slice, |number, end| {
            let (loud, lanes) = (loud.clone(), lanes.clone());
            async move {
                let mut count = 0;
                while Instant::now() < end {
                    let work =
                        NewWork::new(Uuid::now_v7(), lanes[lane_of(number, count)], WorkKind::Manifest);
                    loud.enqueue(vec![work]).await?;
                    count += 1;
                }
                Ok(count)
            }
        })
        .await
    };
    let pairs = alternate(plan, floor, measured).await?;
    drop(heard);
    loud.close().await;
    listener.close().await;
    env.store.close().await;
    let what = "PostgreSQL: 32 enqueuers, wake-ups on / off";
    Ok(vec![Row::compared(what, &pairs, Goal::AtLeast(0.8))])
}
