//! Cost of a claim with a large backlog, behind a busy lane, and behind work that is not due. It must cost as much as
//! with next to no backlog.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::work::WorkKind;
use store::{CLAIM_MAX, Store};
use uuid::Uuid;

use crate::environment::{Backlog, Due, Machine, Place, TestEnvironment};
use crate::slices::{Plan, alternate};
use crate::sqlite::{completions, top_up};
use crate::table::{Goal, Row};

/// Small backlog that the others are compared with.
const FEW: usize = 1000;
/// A lease that outlasts every run.
const DAY: Duration = Duration::from_secs(86_400);

/// Two backlogs; the second must hardly increase the cost of a claim.
struct Comparison {
    what: String,
    goal: f64,
    floor: Vec<Backlog>,
    measured: Vec<Backlog>,
}

/// Size is compared with next to nothing; shapes with as much work in as many lanes, evenly spread and all due.
fn comparisons(engine: &str, large: usize) -> [Comparison; 3] {
    let few = Backlog::new(FEW, 1, Due::Now);
    let (hot, future) = (large / 10, large / 2);
    [
        Comparison {
            what: format!("{engine}: claim, {large} pending / {FEW} pending"),
            goal: 2.0,
            floor: vec![few],
            measured: vec![Backlog::new(large / 10, 10, Due::Now)],
        },
        Comparison {
            what: format!("{engine}: claim behind a hot lane ({hot}) / uniform"),
            goal: 1.5,
            floor: vec![Backlog::new(FEW, hot / FEW + 1, Due::Now)],
            measured: vec![few, Backlog::new(1, hot, Due::First)],
        },
        Comparison {
            what: format!("{engine}: claim behind a future backlog ({future}) / uniform"),
            goal: 1.5,
            floor: vec![few, Backlog::new(future / 10, 10, Due::Now)],
            measured: vec![few, Backlog::new(future / 10, 10, Due::Tomorrow)],
        },
    ]
}

pub(crate) async fn claims(machine: &Machine, place: Place, plan: Plan) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for Comparison { what, goal, floor, measured } in comparisons(place.name(), plan.large) {
        let uniform = TestEnvironment::new(machine, place, &floor).await?;
        let env = TestEnvironment::new(machine, place, &measured).await?;
        if measured.iter().any(|it| it.due == Due::First) {
            // The busy lane: its first piece of work is claimed, all others wait behind it.
            let held = env.store.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), DAY).await?;
            ensure!(held.len() == 1, "the hot lane could not be claimed");
            let pending = env.store.pending(held[0].lease.lane, 2).await?;
            ensure!(pending.len() == 2, "another lane than the hot one was claimed first");
        }
        let floor = async |slice| in_a_task(uniform.store.clone(), slice).await;
        let measured = async |slice| in_a_task(env.store.clone(), slice).await;
        let pairs = alternate(plan, floor, measured).await?;
        rows.push(Row::compared(what, &pairs, Goal::AtMost(goal)));
        let faults = env.faults().await?;
        ensure!(faults == 0, "{faults} promises of the store were broken by claiming");
        env.store.close().await;
        uniform.store.close().await;
    }
    Ok(rows)
}

async fn in_a_task(store: Store, slice: Duration) -> anyhow::Result<f64> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(time_per_claim(store, slice));
    tasks.join_next().await.context("the claimer")??
}

/// Seconds for each claim of a full batch. Claimed work is completed and replaced outside of the measurement.
async fn time_per_claim(store: Store, slice: Duration) -> anyhow::Result<f64> {
    let (owner, started) = (Uuid::new_v4(), Instant::now());
    let (mut spent, mut claims) = (Duration::ZERO, 0);
    while started.elapsed() < slice {
        let before = Instant::now();
        let claimed = store.claim(WorkKind::Manifest, CLAIM_MAX, owner).await?;
        spent += before.elapsed();
        claims += 1;
        ensure!(
            claimed.len() == CLAIM_MAX,
            "{} of {CLAIM_MAX} were claimed although all are due",
            claimed.len()
        );
        store.complete(&completions(&claimed)).await?;
        let lanes: Vec<Uuid> = claimed.iter().map(|it| it.lease.lane).collect();
        top_up(&store, &lanes).await?;
    }
    Ok(spent.as_secs_f64() / f64::from(claims))
}
