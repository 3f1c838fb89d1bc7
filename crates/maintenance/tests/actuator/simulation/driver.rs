//! One seed: a small fleet, its manifests, its actuators, and the events that disturb them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::clock::{Clock as _, SharedClock};
use api::doc::{Cluster, Manifest};
use api::work::{Ending, WorkKind};
use jiff::{SignedDuration, Timestamp};
use maintenance::actuator::{self, Assignment, Config, Deps, Metrics};
use maintenance::fixture::{self, ScriptedTasks};
use serde_json::json;
use steps::engine::StepError;
use store::{
    AuditContext, CancelOutcome, Completion, Keyring, Location, NewWork, Options, Store, Topic, Transaction,
    WriteMode,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::faults::{Faults, JumpingClock};
use super::judge::judge;
use super::random::Random;
use super::script;
use super::world::World;

/// Number of events per fleet.
const EVENTS: u64 = 16;
/// Time after the last event within which all work must finish.
const SETTLE_TIME: Duration = Duration::from_secs(4 * 60 * 60);
/// Time after the last event at which the budget of 0 is lifted: cancelled work has finished by then.
const STOP_TIME: Duration = Duration::from_secs(30 * 60);

/// Counts of the events of a seed.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) crashes: u64,
    pub(super) shutdowns: u64,
    pub(super) refused: u64,
    pub(super) hiccups: u64,
    pub(super) stops: u64,
    pub(super) cancels_at_once: u64,
    pub(super) cancels_asked: u64,
    pub(super) operations: u64,
    pub(super) taken_over: u64,
    pub(super) preempted: u64,
    pub(super) undone: u64,
    pub(super) ended: [u64; 5],
    pub(super) log: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.shutdowns += other.shutdowns;
        self.refused += other.refused;
        self.hiccups += other.hiccups;
        self.stops += other.stops;
        self.cancels_at_once += other.cancels_at_once;
        self.cancels_asked += other.cancels_asked;
        self.operations += other.operations;
        self.taken_over += other.taken_over;
        self.preempted += other.preempted;
        self.undone += other.undone;
        self.ended.iter_mut().zip(other.ended).for_each(|(all, it)| *all += it);
    }

    /// Whether every kind of event happened often enough.
    pub(super) fn is_representative(&self) -> bool {
        let all = [
            self.crashes,
            self.shutdowns,
            self.refused,
            self.hiccups,
            self.stops,
            self.cancels_at_once,
            self.cancels_asked,
            self.operations,
            self.taken_over,
            self.preempted,
            self.undone,
        ];
        all.into_iter().chain(self.ended).all(|count| count > 20)
    }
}

/// Simulated fleet.
pub(super) struct Fleet {
    pub(super) store: Store,
    pub(super) world: Arc<World>,
    pub(super) manifests: Vec<Manifest>,
    /// Running work that was cancelled, and when.
    pub(super) asked: Vec<(Uuid, Timestamp)>,
    pub(super) operations: Vec<Uuid>,
    pub(super) tally: Tally,
    clusters: Vec<Uuid>,
    clock: Arc<JumpingClock>,
    faults: Arc<Faults>,
    random: Random,
    actuators: Vec<Option<Worker>>,
    limit: Option<u32>,
    /// Whether the fleet budget is 0.
    stopped: bool,
}

/// Actuator that can crash.
struct Worker {
    task: JoinSet<()>,
    shutdown: CancellationToken,
    owner: Uuid,
}

pub(super) async fn simulate(seed: u64) -> Result<Tally, String> {
    let mut fleet = Fleet::new(seed).await;
    fleet.faults.switch(true);
    let mut backend = JoinSet::new();
    backend.spawn(backend_of(fleet.store.clone(), fleet.world.clone(), seed));
    for _ in 0..EVENTS {
        let until = Instant::now() + fleet.random.millis(16_000);
        loop {
            tokio::select! {
                biased;
                () = fleet.faults.crash.notified() => fleet.crash(),
                () = tokio::time::sleep_until(until) => break,
            }
        }
        fleet.inject_event().await;
        fleet.start_actuators();
    }
    fleet.faults.switch(false);
    fleet.clock.jump_to(0);
    fleet.start_actuators();
    let calm = Instant::now();
    while !fleet.is_over().await {
        if calm.elapsed() > SETTLE_TIME {
            fleet.world.wrong("not all work finished".to_owned());
            break;
        }
        sleep(Duration::from_secs(30)).await;
        if fleet.stopped && calm.elapsed() > STOP_TIME {
            fleet.stopped = false;
            let _ = fleet.store.set_budget("fleet", fleet.limit, None).await;
        }
        // As housekeeping does.
        let _ = fleet.store.expire(None, 1000).await;
    }
    fleet.end().await;
    judge(&mut fleet).await;
    let mut seen = fleet.world.seen();
    fleet.tally.log = std::mem::take(&mut seen.log);
    fleet.tally.refused = fleet.faults.refused.load(Ordering::SeqCst);
    fleet.tally.hiccups = fleet.faults.hiccups.load(Ordering::SeqCst);
    if seen.wrong.is_empty() {
        Ok(std::mem::take(&mut fleet.tally))
    } else {
        Err(format!("{:#?}\n{}", seen.wrong, fleet.tally.log.join("\n")))
    }
}

impl Fleet {
    async fn new(seed: u64) -> Fleet {
        let random = Random::new(seed);
        let clock = JumpingClock::new();
        let faults = Faults::new(seed);
        let shared: SharedClock = clock.clone();
        let options =
            Options::new(Location::Sqlite(":memory:".into()), Keyring::ephemeral().unwrap(), shared);
        let fault_injector = Some(faults.injector());
        let options = Options { write_mode: WriteMode::Inline, fault_injector, ..options };
        let store = Store::open(options).await.unwrap();
        let world = World::new();
        world.store.set(store.clone()).unwrap();
        let by = AuditContext::service("simulation");
        let mut clusters = Vec::new();
        let mut write = Transaction::new();
        for index in 0..2 + random.below(3) {
            let (id, document) = (random.uuid(), fixture::cluster(&format!("c{index}")));
            write = write.create::<Cluster>(id, &document, &by).unwrap();
            clusters.push(id);
        }
        store.commit(write).await.unwrap();
        let mut limited = None;
        if random.happens(500) {
            let limit = 1 + random.below(2);
            limited = u32::try_from(limit).ok();
            store.set_budget("fleet", limited, None).await.unwrap();
            *world.fleet_limit.lock().unwrap() = usize::try_from(limit).ok();
        }
        let mut manifests = Vec::new();
        for _ in 0..3 + random.below(6) {
            let cluster = clusters[usize::try_from(random.below(clusters.len() as u64)).unwrap()];
            let from =
                clock.now() + SignedDuration::from_millis(i64::try_from(random.below(90_000)).unwrap());
            let mut manifest = fixture::manifest(random.uuid(), cluster, Uuid::from_u128(1), from);
            let window = if random.happens(150) { 3_000 } else { 60_000 + random.below(900_000) };
            manifest.run_before = from + SignedDuration::from_millis(i64::try_from(window).unwrap());
            manifests.push(manifest);
        }
        let budgeted: Vec<_> = manifests.iter().map(|it| (it.clone(), vec!["fleet".to_owned()])).collect();
        store.manifests().create(&budgeted, &by).await.unwrap();
        let mut fleet = Fleet {
            store,
            world,
            manifests,
            asked: Vec::new(),
            operations: Vec::new(),
            tally: Tally::default(),
            clusters,
            clock,
            faults,
            random,
            actuators: vec![None, None],
            limit: limited,
            stopped: false,
        };
        fleet.start_actuators();
        fleet
    }

    fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.random.below(from.len() as u64)).unwrap()]
    }

    /// Starts the actuators that do not run.
    fn start_actuators(&mut self) {
        for index in 0..self.actuators.len() {
            let there = self.actuators[index].as_mut().is_some_and(|it| it.task.try_join_next().is_none());
            if there {
                continue;
            }
            let (owner, shutdown) = (self.random.uuid(), CancellationToken::new());
            let slots = 1 + usize::try_from(self.random.below(3)).unwrap();
            self.world.slots.lock().unwrap().insert(owner, slots);
            let faults = self.faults.clone();
            let plan = move |assignment: Assignment<'_>| match faults.hiccup() {
                true => Err(StepError::transient("Simulated", "the plan cannot be built now")),
                false => script::plan(assignment),
            };
            let deps = Deps {
                store: self.store.clone(),
                tasks: Arc::new(ScriptedTasks::new(self.world.clone(), plan)),
                clock: self.clock.clone(),
                metrics: Metrics::default(),
                config: Config { slots, ..Config::default() },
                owner,
            };
            let (world, token) = (self.world.clone(), shutdown.clone());
            let mut task = JoinSet::new();
            task.spawn(async move {
                if let Err(error) = actuator::run(deps, token).await {
                    world.wrong(format!("an actuator ended: {error:?}"));
                }
            });
            self.world.log(format!("actuator {owner} starts"));
            self.actuators[index] = Some(Worker { task, shutdown, owner });
        }
    }

    /// Crashes one of the actuators at an arbitrary point.
    fn crash(&mut self) {
        let index = usize::try_from(self.random.below(self.actuators.len() as u64)).unwrap();
        if let Some(worker) = self.actuators[index].take() {
            self.world.log(format!("actuator {} dies", worker.owner));
            self.tally.crashes += 1;
            drop(worker.task);
        }
    }

    /// Injects one random event.
    async fn inject_event(&mut self) {
        let by = AuditContext::service("simulation");
        match self.random.below(13) {
            0..3 => self.crash(),
            3 => {
                let index = usize::try_from(self.random.below(self.actuators.len() as u64)).unwrap();
                if let Some(worker) = &self.actuators[index] {
                    self.world.log(format!("actuator {} is shut down", worker.owner));
                    self.tally.shutdowns += 1;
                    worker.shutdown.cancel();
                }
            }
            4..7 => self.cancel(&by).await,
            7..9 => {
                let (id, lane) = (self.random.uuid(), *self.pick(&self.clusters));
                let work = NewWork::new(id, lane, WorkKind::Operation);
                if self.store.enqueue(vec![work]).await.is_ok() {
                    self.world.log(format!("operation {id} for {lane}"));
                    self.tally.operations += 1;
                }
                // A failed response may hide a write that happened.
                self.operations.push(id);
            }
            9 => {
                let span = self.random.millis(90_000);
                self.world.log(format!("the store is away for {span:?}"));
                self.faults.outage_until(Instant::now() + span);
            }
            10 => {
                let ahead = i64::try_from(self.random.below(10_000)).unwrap() - 5_000;
                self.world.log(format!("the clock is {ahead} ms ahead"));
                self.clock.jump_to(ahead);
            }
            11 => {
                let limit = if self.stopped { self.limit } else { Some(0) };
                self.world.log(format!("the fleet's limit is to be {limit:?}"));
                // A failed response may hide a write that happened: the fleet counts as stopped until a write surely lifted it.
                let is_lifted = self.store.set_budget("fleet", limit, None).await.is_ok() && self.stopped;
                self.stopped = !is_lifted;
                self.tally.stops += u64::from(self.stopped);
            }
            _ => {
                let id = self.pick(&self.manifests).id;
                if let Ok(Some(view)) = self.store.manifests().view(id).await {
                    let _ = self.store.manifests().expedite(&view.manifest, &by).await;
                }
            }
        }
    }

    async fn cancel(&mut self, by: &AuditContext) {
        let id = self.pick(&self.manifests).id;
        let Ok(Some(view)) = self.store.manifests().view(id).await else { return };
        match self.store.manifests().cancel(&view.manifest, by).await {
            Ok(CancelOutcome::Cancelled) => {
                self.world.log(format!("{id} is cancelled"));
                self.tally.cancels_at_once += 1;
            }
            Ok(CancelOutcome::Requested) => {
                self.world.log(format!("{id} is to be cancelled"));
                self.tally.cancels_asked += 1;
                self.asked.push((id, self.clock.now()));
            }
            Err(_) => {}
        }
    }

    async fn is_over(&self) -> bool {
        let ids = self.manifests.iter().map(|it| it.id).chain(self.operations.iter().copied());
        let works = self.store.works(ids.collect()).await.unwrap_or_default();
        works.len() >= self.manifests.len() && works.iter().all(|work| work.state.is_terminal())
    }

    /// Shuts everything down in order.
    async fn end(&mut self) {
        for worker in self.actuators.iter_mut().filter_map(Option::take) {
            worker.shutdown.cancel();
            let Worker { mut task, .. } = worker;
            let begun = Instant::now();
            while task.join_next().await.is_some() {}
            if begun.elapsed() > Duration::from_secs(30) {
                self.world.wrong(format!("a shutdown took {:?}", begun.elapsed()));
            }
        }
    }
}

/// Carries out the customers' operations, as the backend would.
async fn backend_of(store: Store, world: Arc<World>, seed: u64) {
    let random = Random::new(seed ^ 0xbac);
    let owner = random.uuid();
    let mut bell = store.notifications(Topic::Work(WorkKind::Operation));
    loop {
        let mut claimed = store.claim(WorkKind::Operation, 2, owner).await.unwrap_or_default();
        claimed.extend(store.take_over(WorkKind::Operation, 2, owner).await.unwrap_or_default());
        for work in claimed {
            let hold = work.lease;
            {
                let _here = world.at_work(hold, false);
                world.log(format!("operation {} runs", hold.work));
                sleep(random.millis(10_000)).await;
            }
            let done = Completion::new(hold, Ending::Completed, json!({}));
            while store.complete(std::slice::from_ref(&done)).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), bell.next()).await;
    }
}
