//! The service: the tasks that all clusters share, and one task per cluster that this process owns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::clock::SharedClock;
use api::health::HealthSample;
use futures_util::FutureExt as _;
use kubelink::{AllowedRisks, LinksLimits, Timeouts};
use steps::ClusterConnections;
use store::{HealthWriter, PAGE_MAX, Reader, WorkerRegistry};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::balance::bucket;
use crate::config::{Config, Timing};
use crate::fleet::{self, Fleet};
use crate::membership::{self, OwnedBuckets};
use crate::metrics::Metrics;
use crate::worker::{Shared, Worker};
use crate::writer::{self, Outgoing};

/// Most connections that are kept; a process that owns more clusters than this opens some of them anew in each visit.
const LINKS_MAX: usize = 20_000;

/// Time between the first visits of clusters that come at once.
const FIRST_VISITS: Duration = Duration::from_millis(100);

/// What the service stands on.
#[derive(Debug)]
pub struct Deps {
    /// The store, for reading.
    pub reader: Reader,
    /// Where records go.
    pub health: HealthWriter,
    /// The pool of monitors.
    pub registry: WorkerRegistry,
    /// What kubeconfigs may do.
    pub allow_kubeconfig: AllowedRisks,
    /// The clock.
    pub clock: SharedClock,
    /// Metrics.
    pub metrics: Metrics,
    /// Settings.
    pub config: Config,
    /// Whether the service is ready; shared with who asks.
    pub status: Status,
}

/// The service ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("the {task} of the monitor ended unexpectedly")]
pub struct Error {
    task: &'static str,
}

/// Whether a monitor is ready; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Status(Arc<Mutex<Option<Times>>>);

/// When a monitor started, and when its membership and its cache were last current.
#[derive(Debug, Clone, Copy)]
struct Times {
    started: Instant,
    refreshed: Option<Instant>,
    read: Option<Instant>,
}

impl Status {
    /// Why the monitor is not ready: its membership and its cache must have been current within the last minute, counted from its
    /// start. A monitor that owns no bucket is ready.
    pub fn obstacle(&self) -> Option<&'static str> {
        const AGE_MAX: Duration = Duration::from_secs(60);
        let Times { started, refreshed, read } = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let is_current = |at: Option<Instant>| at.unwrap_or(started).elapsed() <= AGE_MAX;
        match (is_current(refreshed), is_current(read)) {
            (true, true) => None,
            (false, _) => Some("the pool of monitors was not refreshed for a minute"),
            (_, false) => Some("the change feed was not read for a minute"),
        }
    }

    fn set(&self, started: Instant, refreshed: Option<Instant>, read: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Times { started, refreshed, read });
    }
}

/// Runs the monitor until shutdown.
pub async fn run(deps: Deps, shutdown: CancellationToken) -> Result<(), Error> {
    let Deps { reader, health, registry, allow_kubeconfig, clock, metrics, config, status } = deps;
    let timing = config.timing;
    let worker = Uuid::new_v4();
    let (fleet_sender, fleet) = watch::channel(Fleet::default());
    let (owned_sender, owned) = watch::channel((OwnedBuckets::default(), None));
    let outgoing = Outgoing::default();
    // Records are written after the last visit has ended.
    let writing = CancellationToken::new();
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    spawn(
        &mut tasks,
        "feed",
        fleet::follow(reader.clone(), timing, metrics.clone(), fleet_sender, shutdown.clone()),
    );
    spawn(
        &mut tasks,
        "membership",
        membership::take_part(registry, worker, timing, metrics.clone(), owned_sender, shutdown.clone()),
    );
    let mut writer = JoinSet::new();
    let written = writer::write(
        health,
        worker,
        outgoing.clone(),
        clock.clone(),
        timing,
        metrics.clone(),
        writing.clone(),
    );
    spawn(&mut writer, "writer", written);

    let timeouts = Timeouts { connect: timing.connect, request: timing.request };
    let limits = LinksLimits { count_max: LINKS_MAX, idle_max: Duration::from_secs(60 * 60), timeouts };
    let connections = ClusterConnections::new(reader.clone(), limits, allow_kubeconfig, clock.clone());
    let shared = Arc::new(Shared {
        reader,
        connections,
        clock,
        config,
        metrics,
        outgoing,
        fleet: fleet.clone(),
        observer: worker,
    });
    let mut visits = Visits { shared, running: HashMap::new(), tasks: JoinSet::new(), started: 0 };
    let supervised = visits.supervise(fleet, owned, status, timing, &shutdown);
    let result = tokio::select! {
        () = supervised => Ok(()),
        Some(ended) = tasks.join_next(), if !shutdown.is_cancelled() => {
            if shutdown.is_cancelled() { Ok(()) } else { Err(Error { task: ended.unwrap_or("task") }) }
        }
        Some(_) = writer.join_next() => Err(Error { task: "writer" }),
    };
    visits.stop(&timing).await;
    shutdown.cancel();
    writing.cancel();
    while tasks.join_next().await.is_some() {}
    while writer.join_next().await.is_some() {}
    result
}

fn spawn(
    tasks: &mut JoinSet<&'static str>,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        task.await;
        name
    });
}

/// The tasks of the clusters.
#[derive(Debug)]
struct Visits {
    shared: Arc<Shared>,
    /// The running task of each cluster: its number, and what stops it.
    running: HashMap<Uuid, (u64, CancellationToken)>,
    /// They return their cluster and number when they panicked.
    tasks: JoinSet<Option<(Uuid, u64)>>,
    started: u64,
}

impl Visits {
    /// Starts and stops tasks as clusters and buckets come and go, until shutdown.
    async fn supervise(
        &mut self,
        mut fleet: watch::Receiver<Fleet>,
        mut owned: watch::Receiver<(OwnedBuckets, Option<Instant>)>,
        status: Status,
        timing: Timing,
        shutdown: &CancellationToken,
    ) {
        let started = Instant::now();
        loop {
            let present = fleet.borrow_and_update().clone();
            let (buckets, refreshed) = owned.borrow_and_update().clone();
            status.set(started, refreshed, present.read_at);
            self.shared.metrics.ready(status.obstacle().is_none());
            self.apply(&present, &buckets).await;
            tokio::select! {
                () = shutdown.cancelled() => return,
                Ok(()) = fleet.changed() => {}
                Ok(()) = owned.changed() => {}
                Some(ended) = self.tasks.join_next() => self.ended(ended.ok().flatten()),
                () = tokio::time::sleep(timing.poll) => {}
            }
        }
    }

    /// Starts what this process owns and stops what it does not.
    async fn apply(&mut self, fleet: &Fleet, buckets: &BTreeSet<usize>) {
        let mut skipped = 0;
        let mut wanted: Vec<Uuid> = Vec::new();
        for (uuid, cluster) in fleet.clusters.iter().filter(|(uuid, _)| buckets.contains(&bucket(**uuid))) {
            if fleet.skip_reason(cluster).is_some() {
                skipped += 1;
            } else {
                wanted.push(*uuid);
            }
        }
        let keep: HashSet<Uuid> = wanted.iter().copied().collect();
        self.running.retain(|uuid, (_, stop)| {
            let is_kept = keep.contains(uuid);
            if !is_kept {
                stop.cancel();
            }
            is_kept
        });
        wanted.retain(|uuid| !self.running.contains_key(uuid));
        // A fleet is spread over the interval; one cluster that was just created need not wait that long.
        let number = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let spread = FIRST_VISITS.saturating_mul(number).min(self.shared.config.interval.duration());
        for block in wanted.chunks(PAGE_MAX) {
            let mut known = self.known(block.to_vec()).await;
            for uuid in block {
                let (uuid, stop) = (*uuid, CancellationToken::new());
                let worker = Worker::new(self.shared.clone(), uuid, known.remove(&uuid), spread);
                self.started += 1;
                let number = self.started;
                self.running.insert(uuid, (number, stop.clone()));
                self.tasks.spawn(async move {
                    let ended = AssertUnwindSafe(worker.run(stop)).catch_unwind().await;
                    ended.is_err().then_some((uuid, number))
                });
            }
        }
        self.shared.metrics.visiting(self.running.len(), &[("subscription", skipped)]);
    }

    /// The records of clusters whose task is about to start. Without them the first visit writes a record in any case.
    async fn known(&self, clusters: Vec<Uuid>) -> HashMap<Uuid, HealthSample> {
        let read = timeout(self.shared.config.timing.request, self.shared.reader.health(clusters)).await;
        let samples = read.ok().and_then(Result::ok).unwrap_or_default();
        samples.into_iter().map(|it| (it.cluster, it)).collect()
    }

    /// A task has ended. One that panicked is started again.
    fn ended(&mut self, panicked: Option<(Uuid, u64)>) {
        let Some((cluster, number)) = panicked else { return };
        tracing::error!(cluster.id = %cluster, "The task of a cluster panicked; it starts again");
        if self.running.get(&cluster).is_some_and(|(running, _)| *running == number) {
            self.running.remove(&cluster);
        }
    }

    /// Stops all tasks. A visit ends at its next await, so this is quick.
    async fn stop(&mut self, timing: &Timing) {
        self.running.values().for_each(|(_, stop)| stop.cancel());
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(timing.grace, all_ended).await.is_err() {
            self.tasks.abort_all();
        }
    }
}
