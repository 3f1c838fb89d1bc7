//! The actuator's goals, for both engines: from due to the first step in under 20 ms (half of all) and 200 ms (99 of 100);
//! manifests of one step that does nothing, end to end, at no less than 0.60 of the rate at which the store alone claims and
//! ends them with the same batch in the same run.
//!
//! A missed goal is printed, and the run still ends well: speed depends on the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::clock::{SharedClock, SystemClock};
use api::doc::Cluster;
use api::work::{Ending, WorkKind};
use jiff::{SignedDuration, Timestamp};
use maintenance::actuator::{self, Config, Deps, Metrics};
use maintenance::fixture::{self, ScriptedTasks};
use serde_json::json;
use steps::engine::{Plan, Step, StepOutcome};
use store::{AuditContext, Completion, Keyring, Location, Options, Store, Transaction};
use testkit::postgres;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Manifests whose lag is measured, one after another.
const LAGS: usize = 200;
/// Manifests that are worked as fast as can be, one for each cluster.
const MANY: usize = 5_000;
/// How often both are measured.
const TURNS: usize = 5;
/// What is claimed at once, by the actuator and by the store alone.
const BATCH: usize = 50;
/// What the actuator works at once: one batch is at work while the next is claimed and read.
const SLOTS: usize = 2 * BATCH;
/// So long after they are written the manifests are due: the actuator has looked round by then, and rests.
const AHEAD: SignedDuration = SignedDuration::from_secs(4);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{:<44} {:>14} {:>12}", "", "measured", "goal");
    let directory = tempfile::tempdir()?;
    let sqlite = Location::Sqlite(directory.path().join("store.db"));
    measure("SQLite", sqlite).await?;
    match postgres::shared() {
        Some(server) => {
            let database = server.database()?;
            measure("PostgreSQL", database.url().parse()?).await?;
        }
        None => println!("PostgreSQL is not here and was not measured"),
    }
    Ok(())
}

async fn measure(engine: &str, location: Location) -> anyhow::Result<()> {
    let clock: SharedClock = Arc::new(SystemClock);
    let store = Store::open(Options::new(location, Keyring::ephemeral()?, clock.clone())).await?;
    let mut lags = lags(&store, &clock).await?;
    lags.sort_unstable();
    let at = |share: usize| lags[(lags.len() * share).div_ceil(100).saturating_sub(1)];
    report(engine, "due to step, half of all", at(50), Duration::from_millis(20));
    report(engine, "due to step, 99 of 100", at(99), Duration::from_millis(200));
    // Alternating, so that a busy machine slows both; the median round counts.
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let alone = raw(&store, &clock).await?;
        turns.push((end_to_end(&store, &clock).await?, alone));
    }
    turns.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let (worked, alone) = turns[TURNS / 2];
    let share = worked / alone;
    let fits = if share >= 0.60 { "" } else { "  MISSED" };
    println!(
        "{:<44} {share:>14.2} {:>12}{fits}",
        format!("{engine}: no-op manifests to claim-and-complete"),
        "0.60"
    );
    println!("{:<44} {:>12.0}/s {:>10.0}/s", format!("{engine}: manifests, the store alone"), worked, alone);
    store.close().await;
    Ok(())
}

fn report(engine: &str, what: &str, measured: Duration, goal: Duration) {
    let fits = if measured <= goal { "" } else { "  MISSED" };
    let (measured, goal) = (format!("{:.1} ms", measured.as_secs_f64() * 1000.0), format!("{goal:?}"));
    println!("{:<44} {measured:>14} {goal:>12}{fits}", format!("{engine}: {what}"));
}

/// Clusters with a manifest each.
async fn fill(store: &Store, count: usize, due: impl Fn(usize) -> Timestamp) -> anyhow::Result<()> {
    let by = AuditContext::service("bench");
    for block in (0..count).collect::<Vec<_>>().chunks(250) {
        let mut write = Transaction::new();
        let mut asked = Vec::new();
        for index in block {
            let (cluster, id) = (Uuid::now_v7(), Uuid::now_v7());
            // Clusters that the actuator does not probe during the measurement.
            let document = fixture::updating_cluster(&cluster.to_string());
            write = write.create::<Cluster>(cluster, &document, &by)?;
            asked.push((fixture::manifest(id, cluster, Uuid::from_u128(1), due(*index)), Vec::new()));
        }
        store.commit(write).await?;
        store.manifests().create(&asked, &by).await?;
    }
    Ok(())
}

/// Actuator whose manifests report how late they start.
fn start(
    store: &Store,
    clock: &SharedClock,
    slots: usize,
    begun: impl Fn(Duration) + Clone + Send + Sync + 'static,
) -> Running {
    let tasks = ScriptedTasks::new(Arc::new(()), move |assignment| {
        let (begun, due) = (begun.clone(), assignment.manifest.run_after);
        Ok(Plan::new().step(Step::action("nothing", move |_, cx| {
            begun(cx.clock.now().duration_since(due).unsigned_abs());
            async { Ok(StepOutcome::default()) }
        })))
    });
    let deps = Deps {
        store: store.clone(),
        tasks: Arc::new(tasks),
        clock: clock.clone(),
        metrics: Metrics::default(),
        config: Config { slots, ..Config::default() },
        owner: Uuid::new_v4(),
    };
    let shutdown = CancellationToken::new();
    let mut task = JoinSet::new();
    task.spawn(actuator::run(deps, shutdown.clone()));
    Running { task, shutdown }
}

struct Running {
    task: JoinSet<Result<(), actuator::Error>>,
    shutdown: CancellationToken,
}

impl Running {
    async fn stop(mut self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// From due to the first step, of manifests that come due one after another.
async fn lags(store: &Store, clock: &SharedClock) -> anyhow::Result<Vec<Duration>> {
    let first = clock.now() + SignedDuration::from_secs(2);
    let due = |index: usize| first + SignedDuration::from_millis(i64::try_from(index * 25).unwrap_or(0));
    fill(store, LAGS, due).await?;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let running = start(store, clock, 20, move |lag| {
        // Nobody listens any more when the measuring is over.
        let _ = begun.send(lag);
    });
    let mut lags = Vec::new();
    while lags.len() < LAGS {
        lags.push(begins.recv().await.unwrap_or_default());
    }
    running.stop().await?;
    Ok(lags)
}

/// Manifests a second that the store alone claims and ends.
async fn raw(store: &Store, clock: &SharedClock) -> anyhow::Result<f64> {
    let now = clock.now();
    fill(store, MANY, |_| now).await?;
    let (owner, begun, done) = (Uuid::new_v4(), Instant::now(), AtomicUsize::new(0));
    while done.load(Ordering::Relaxed) < MANY {
        let claimed = store.claim(WorkKind::Manifest, BATCH, owner).await?;
        let ends: Vec<Completion> =
            claimed.iter().map(|it| Completion::new(it.lease, Ending::Completed, json!({}))).collect();
        done.fetch_add(store.complete(&ends).await?.len(), Ordering::Relaxed);
    }
    Ok(MANY as f64 / begun.elapsed().as_secs_f64())
}

/// Manifests a second that an actuator works, from the claim to the end.
async fn end_to_end(store: &Store, clock: &SharedClock) -> anyhow::Result<f64> {
    // The measuring task is woken once, not by every manifest, which would distort the result.
    let (left, all) = (Arc::new(AtomicUsize::new(MANY)), Arc::new(Notify::new()));
    let notifier = all.clone();
    let running = start(store, clock, SLOTS, move |_| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            notifier.notify_one();
        }
    });
    let due = clock.now() + AHEAD;
    fill(store, MANY, |_| due).await?;
    let rest = due.duration_since(clock.now());
    anyhow::ensure!(rest.is_positive(), "the manifests were due before all of them were written");
    tokio::time::sleep(rest.unsigned_abs()).await;
    let begun = Instant::now();
    // Nobody looks at the queue while it is worked; from the last begin to the last end it is looked at often.
    all.notified().await;
    loop {
        let queue = store.queue(WorkKind::Manifest).await?;
        if queue.pending + queue.running == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = MANY as f64 / begun.elapsed().as_secs_f64();
    running.stop().await?;
    Ok(rate)
}
