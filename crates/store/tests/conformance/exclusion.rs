//! Never two holders of one lane, nothing lost, nothing done twice, operations first: observed from outside the
//! store, while many claimers work on many lanes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::work::{WorkKind, WorkState};
use serde_json::json;
use store::{ClaimedWork, CompletionOutcome, NewWork, Release, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, short_or_long};
use crate::queue_fixture::{SOON, WorkProperties as _, done, eventually, manifest, operation, repaired};
use crate::worker_process::{Site, WorkerProcesses};

/// Most pending work while more is requested.
const BACKLOG: usize = 150;

/// Work that a killed process can have completed without recording it: one piece for each of its claimers.
const UNWITNESSED: usize = 3;

/// Observes who works on what, and records what was requested. Its own lock orders the observations.
#[derive(Default)]
struct Witness {
    state: Mutex<WitnessState>,
}

#[derive(Default)]
struct WitnessState {
    /// Counter of observations: a smaller number was earlier.
    time: u64,
    /// Running work of each lane.
    running: HashMap<Uuid, Uuid>,
    /// Operations that are certainly pending or running: their enqueue was acknowledged, their completion not yet
    /// sent.
    waiting: HashMap<Uuid, HashMap<Uuid, u64>>,
    ended: HashMap<Uuid, usize>,
    preempted: usize,
}

impl Witness {
    fn state(&self) -> MutexGuard<'_, WitnessState> {
        self.state.lock().unwrap()
    }

    /// The moment before a request to the store.
    fn now(&self) -> u64 {
        self.state().time
    }

    fn enqueued(&self, work: &NewWork) {
        let mut seen = self.state();
        // The requester may learn of its enqueue later than another of its completion.
        if work.kind == WorkKind::Operation && !seen.ended.contains_key(&work.id) {
            seen.time += 1;
            let time = seen.time;
            seen.waiting.entry(work.lane).or_default().insert(work.id, time);
        }
    }

    /// The store returned this work to a claim that was sent at `asked`.
    fn begins(&self, claimed: &ClaimedWork, asked: u64) {
        let mut seen = self.state();
        let (lane, work) = (claimed.lease.lane, claimed.lease.work);
        let before = seen.running.insert(lane, work);
        assert_eq!(before, None, "two pieces of work run on lane {lane}");
        if claimed.kind == WorkKind::Manifest {
            let passed = seen.waits_since(lane, asked);
            assert_eq!(passed, None, "manifest {work} passed an operation that was waiting on lane {lane}");
        }
    }

    /// A checkpoint sent at `asked` returned with or without the signal to yield.
    fn checkpointed(&self, claimed: &ClaimedWork, asked: u64, preempt: bool) {
        if claimed.kind == WorkKind::Manifest {
            let mut seen = self.state();
            assert!(
                preempt || seen.waits_since(claimed.lease.lane, asked).is_none(),
                "it did not learn of an operation"
            );
            seen.preempted += usize::from(preempt);
        }
    }

    /// It is about to be released: from now on others may have the lane.
    fn leaves(&self, claimed: &ClaimedWork) {
        assert_eq!(self.state().running.remove(&claimed.lease.lane), Some(claimed.lease.work));
    }

    /// Waits until that many pieces of work have finished.
    async fn have_ended(&self, count: usize) {
        eventually("work has ended", SOON, async || (self.state().ended.len() >= count).then_some(())).await;
    }

    /// It is about to be completed.
    fn ends(&self, claimed: &ClaimedWork) {
        self.leaves(claimed);
        let mut seen = self.state();
        *seen.ended.entry(claimed.lease.work).or_default() += 1;
        if let Some(waiting) = seen.waiting.get_mut(&claimed.lease.lane) {
            waiting.remove(&claimed.lease.work);
        }
    }
}

impl WitnessState {
    /// An operation of that lane that was enqueued before `asked` and is still pending.
    fn waits_since(&self, lane: Uuid, asked: u64) -> Option<Uuid> {
        self.waiting.get(&lane)?.iter().find(|(_, enqueued)| **enqueued <= asked).map(|(work, _)| *work)
    }
}

/// Claims, works in three steps, yields when signalled, and completes, until the end.
async fn claimer(store: Store, kind: WorkKind, witness: Arc<Witness>, over: Arc<AtomicBool>) {
    let owner = Uuid::new_v4();
    while !over.load(Ordering::SeqCst) {
        let asked = witness.now();
        let claimed = store.claim(kind, 8, owner).await.unwrap();
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        claimed.iter().for_each(|it| witness.begins(it, asked));
        let mut ending = Vec::new();
        'work: for it in claimed {
            for step in ["one", "two", "three"] {
                let asked = witness.now();
                let signals = store.checkpoint(it.lease, step, json!(null)).await.unwrap();
                witness.checkpointed(&it, asked, signals.preempt);
                if signals.preempt {
                    witness.leaves(&it);
                    store.release(Release::new(it.lease, Duration::ZERO, false)).await.unwrap();
                    continue 'work;
                }
            }
            ending.push(it);
        }
        ending.iter().for_each(|it| witness.ends(it));
        let outcomes =
            store.complete(&ending.iter().map(|it| done(it.lease)).collect::<Vec<_>>()).await.unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome == CompletionOutcome::Done));
    }
}

/// Asserts that all requested work was done once.
async fn assert_done(store: &Store, asked: &[Uuid]) {
    for block in asked.chunks(500) {
        let seen = store.works(block.to_vec()).await.unwrap();
        assert_eq!(seen.len(), block.len(), "work was lost");
        let undone = seen.iter().find(|work| work.state != WorkState::Completed);
        assert!(undone.is_none(), "{undone:?}");
    }
    assert_eq!(repaired(store).await, 0);
}

on_both_engines! {
    async fn eight_claimers_of_both_kinds_never_meet_on_a_lane_and_operations_go_first(env: &TestEnvironment) {
        let stores = stores(env).await;
        let lanes: Vec<Uuid> = (0..short_or_long(60, 500)).map(|_| Uuid::new_v4()).collect();
        let (witness, over) = (Arc::new(Witness::default()), Arc::new(AtomicBool::new(false)));
        let mut claimers = JoinSet::new();
        for n in 0..8 {
            let kind = WorkKind::ALL[n % 2];
            claimers.spawn(claimer(stores[n % stores.len()].clone(), kind, witness.clone(), over.clone()));
        }
        let time = Duration::from_secs(short_or_long(2, 60));
        let (start, mut asked) = (Instant::now(), Vec::new());
        for round in 0.. {
            if start.elapsed() > time {
                break;
            }
            // Every other block is of operations, on a few lanes each: most of them meet running manifests.
            let block: Vec<NewWork> = match round % 2 {
                0 => lanes.iter().skip(round % 7).step_by(3).map(|lane| manifest(*lane)).collect(),
                _ => lanes.iter().skip(round % 11).step_by(9).map(|lane| operation(*lane)).collect(),
            };
            env.store.enqueue(block.clone()).await.unwrap();
            block.iter().for_each(|work| witness.enqueued(work));
            asked.extend(block.iter().map(|work| work.id));
            // The backlog stays small, so that the time is spent on contended lanes.
            witness.have_ended(asked.len().saturating_sub(BACKLOG)).await;
        }
        witness.have_ended(asked.len()).await;
        over.store(true, Ordering::SeqCst);
        while let Some(ended) = claimers.join_next().await {
            ended.unwrap();
        }
        assert_done(&env.store, &asked).await;
        let seen = witness.state();
        assert!(asked.iter().all(|work| seen.ended.get(work) == Some(&1)), "each is done, and once");
        assert_eq!((seen.ended.len(), seen.running.len()), (asked.len(), 0));
        println!("{} pieces of work, {} made way", asked.len(), seen.preempted);
        assert!(seen.preempted > 0);
    }
}

/// Three handles that act as processes where the engine allows several.
async fn stores(env: &TestEnvironment) -> Vec<Store> {
    match env.is_shared() {
        true => vec![env.store.clone(), env.another().await, env.another().await],
        false => vec![env.store.clone()],
    }
}

/// Keeps three processes busy for `time`, killing one of them periodically or never.
async fn run_workers(site: &Site, time: Duration, kill_every: Option<Duration>, budgets: &[&str]) -> Store {
    let store = site.open().await;
    let lanes: Vec<Uuid> = (0..short_or_long(60, 500)).map(|_| Uuid::new_v4()).collect();
    let mut worker_process = WorkerProcesses::start(site, Duration::from_secs(3));
    let start = Instant::now();
    let (mut last_kill, mut asked, mut round) = (start, Vec::new(), 0_usize);
    while start.elapsed() < time {
        round += 1;
        let block: Vec<NewWork> = match round % 3 {
            0 => lanes
                .iter()
                .skip(round % 11)
                .step_by(9)
                .map(|lane| operation(*lane).counted(budgets))
                .collect(),
            _ => {
                lanes.iter().skip(round % 7).step_by(2).map(|lane| manifest(*lane).counted(budgets)).collect()
            }
        };
        store.enqueue(block.clone()).await.unwrap();
        asked.extend(block.iter().map(|work| work.id));
        assert_within_limits(&store).await;
        if kill_every.is_some_and(|every| last_kill.elapsed() > every) {
            // As random as the ids are.
            let victim = usize::from(asked[asked.len() - 1].as_bytes()[15]);
            worker_process.replace(site, victim);
            last_kill = Instant::now();
        }
        let enough = asked.len().saturating_sub(BACKLOG + UNWITNESSED * worker_process.kills);
        eventually("work has ended", SOON, async || {
            assert_within_limits(&store).await;
            (worker_process.ended().len() >= enough).then_some(())
        })
        .await;
    }
    eventually("all work is done", Duration::from_secs(60), async || {
        assert_within_limits(&store).await;
        let mut left = 0;
        for block in asked.chunks(500) {
            left += store
                .works(block.to_vec())
                .await
                .unwrap()
                .iter()
                .filter(|work| !work.state.is_terminal())
                .count();
        }
        (left == 0).then_some(())
    })
    .await;
    let kills = worker_process.kills;
    let ended = worker_process.stop();
    assert_done(&store, &asked).await;
    println!("{} pieces of work, {kills} kills, {} ends witnessed", asked.len(), ended.len());
    assert!(ended.iter().all(|work| asked.contains(work)));
    match kill_every {
        Some(_) => assert!(kills > 0 && ended.len() + UNWITNESSED * kills >= asked.len()),
        None => assert_eq!(ended.len(), asked.len()),
    }
    store
}

/// No budget counts more than its limit.
async fn assert_within_limits(store: &Store) {
    for budget in store.budgets().await.unwrap() {
        assert!(budget.used <= budget.limit, "{budget:?}");
    }
}

async fn assert_sound(store: &Store) {
    let broken: Vec<_> =
        store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Claims, and half of the time abandons what it claimed, as a killed process does; completes the rest, and what
/// others abandoned.
async fn forgetful(store: Store, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        let owner = Uuid::new_v4();
        // A lease of no duration has expired at the next check.
        let forgets = owner.as_bytes()[0].is_multiple_of(2);
        let lease = if forgets { Duration::ZERO } else { Duration::from_secs(60) };
        let claimed = store.claim_for(WorkKind::Manifest, 4, owner, lease).await.unwrap();
        let mut held = store.take_over(WorkKind::Manifest, 4, owner).await.unwrap();
        if !forgets {
            held.extend(claimed);
        }
        // Some of the completed work was taken over meanwhile: then the completion is rejected, and the other's
        // counts.
        store.complete(&held.iter().map(|it| done(it.lease)).collect::<Vec<_>>()).await.unwrap();
        tokio::task::yield_now().await;
    }
}

on_both_engines! {
    async fn no_budget_is_exceeded_or_leaks_while_three_workers_forget_what_they_hold(env: &TestEnvironment) {
        let (stores, over) = (stores(env).await, Arc::new(AtomicBool::new(false)));
        for (key, limit) in [("fleet", 9), ("region/north", 4), ("task/upgrade", 5)] {
            env.store.set_budget(key, Some(limit), None).await.unwrap();
        }
        let mut workers = JoinSet::new();
        for n in 0..3 {
            workers.spawn(forgetful(stores[n % stores.len()].clone(), over.clone()));
        }
        let all = ["fleet", "region/north", "task/upgrade"];
        let kinds = [&all[..1], &all[..2], &all[1..], &all[..]];
        let lanes: Vec<Uuid> = (0..24).map(|_| Uuid::new_v4()).collect();
        let asked: Vec<NewWork> =
            (0..short_or_long(400, 8000)).map(|n: usize| manifest(lanes[n % 24]).counted(kinds[n % 7 % 4])).collect();
        for block in asked.chunks(50) {
            env.store.enqueue(block.to_vec()).await.unwrap();
            assert_within_limits(&env.store).await;
        }
        let last = async || {
            assert_within_limits(&env.store).await;
            let mut left = 0;
            for block in asked.chunks(500) {
                let seen = env.store.works(block.iter().map(|work| work.id).collect()).await.unwrap();
                left += seen.iter().filter(|work| !work.state.is_terminal()).count();
            }
            (left == 0).then_some(())
        };
        eventually("all work is done", short_or_long(SOON, 20 * SOON), last).await;
        over.store(true, Ordering::SeqCst);
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        for budget in env.store.budgets().await.unwrap() {
            assert_eq!((budget.used, budget.parked), (0, 0), "{}", budget.key);
        }
        assert_eq!(repaired(&env.store).await, 0);
    }
}

#[test]
fn three_processes_never_meet_on_a_lane_on_postgresql() {
    block_on(async {
        let Some(site) = Site::postgres() else { return };
        let store = run_workers(&site, Duration::from_secs(short_or_long(2, 60)), None, &[]).await;
        assert_sound(&store).await;
    });
}

#[test]
fn three_processes_never_meet_on_a_lane_while_they_are_killed_on_postgresql() {
    block_on(async {
        let Some(site) = Site::postgres() else { return };
        let time = Duration::from_secs(short_or_long(3, 60));
        let store = run_workers(&site, time, Some(Duration::from_millis(700)), &[]).await;
        assert_sound(&store).await;
    });
}

#[test]
fn no_budget_is_exceeded_or_leaks_while_three_processes_are_killed_on_postgresql() {
    block_on(async {
        let Some(site) = Site::postgres() else { return };
        let store = site.open().await;
        for (key, limit) in [("fleet", 9), ("region/north", 7), ("task/upgrade", 5)] {
            store.set_budget(key, Some(limit), None).await.unwrap();
        }
        let time = Duration::from_secs(short_or_long(3, 60));
        let budgets = ["fleet", "region/north", "task/upgrade"];
        let store = run_workers(&site, time, Some(Duration::from_millis(900)), &budgets).await;
        for budget in store.budgets().await.unwrap() {
            assert_eq!((budget.used, budget.parked), (0, 0), "{}", budget.key);
        }
        assert_sound(&store).await;
    });
}
