//! The plan matches the runs: random fleets of clusters, schedules, manifests and budgets are planned, and then run by a
//! scheduler and an actuator under a virtual clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::admin::{PlanGrouping, PlanOutcome};
use api::clock::SharedClock;
use api::doc::{Document, Manifest, MissedPolicy, Schedule, ScheduleState, SpreadBy, TaskStats};
use api::work::{Ending, WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use maintenance::actuator::{self, Assignment, Config};
use maintenance::fixture::{self, ScriptedTasks};
use maintenance::scheduler;
use planner::plan::{FleetRecords, PlanInput, PlanRequest, compute};
use planner::task::Catalogue;
use proptest::prelude::*;
use serde_json::{Map, json};
use steps::engine::fault_harness::VirtualClock;
use steps::engine::{Plan, Step, StepOutcome};
use store::{
    AuditContext, Completion, Keyring, ListOptions, Location, NewWork, Options, Release, Store, Topic,
    Transaction, VersionedDocument, WorkLease, WorkView, WriteMode,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const HORIZON: Duration = Duration::from_secs(3600);
/// Timers have a resolution of a millisecond, and errors of successive runs add up.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(500);
/// Duration that the plan assumes for an operation.
const OPERATION_TIME: Duration = Duration::from_secs(30 * 60);
/// Duration of each task. They have no common divisor, so that few runs end at the same time.
const TASKS: [u64; 4] = [31, 127, 419, 907];

#[derive(Debug, Clone)]
struct Fleet {
    clusters: usize,
    schedules: Vec<Rule>,
    orders: Vec<Order>,
    /// Orders that exist when the plan is computed.
    early: Vec<(Order, EarlyState)>,
    /// Operations: the cluster, and when they are due.
    operations: Vec<(usize, u16)>,
    fleet_limit: Option<u32>,
    task_limit: Option<u32>,
}

#[derive(Debug, Clone)]
struct Rule {
    task: usize,
    minutes: u8,
    across: u16,
    look_forward: u32,
    start_within: u16,
    priority: i32,
    by_schedule: bool,
}

#[derive(Debug, Clone)]
struct Order {
    cluster: usize,
    task: usize,
    due: u16,
    window: u16,
    priority: i32,
}

/// State of an order before the plan is computed.
#[derive(Debug, Clone, Copy)]
enum EarlyState {
    /// Running, for the duration of its task.
    Runs,
    /// Started and released.
    Started,
    /// Released before its first step, so that it may still time out.
    Parked,
}

fn fleets() -> impl Strategy<Value = Fleet> {
    let rule = (0_usize..4, 0_u8..3, 0_u16..600, 1_u32..3, 30_u16..900, -1_i32..2, any::<bool>()).prop_map(
        |(task, minutes, across, look_forward, start_within, priority, by_schedule)| Rule {
            task,
            minutes,
            across,
            look_forward,
            start_within,
            priority,
            by_schedule,
        },
    );
    let order = (0_usize..5, 0_usize..4, 1_u16..3000, 30_u16..1800, -1_i32..2)
        .prop_map(|(cluster, task, due, window, priority)| Order { cluster, task, due, window, priority });
    // The limit of a task may be 0, which stops only this task.
    let limit = |least: u32| prop::option::of(least..3);
    let state = prop::sample::select(vec![EarlyState::Runs, EarlyState::Started, EarlyState::Parked]);
    let early = prop::collection::vec((order.clone(), state), 0..4);
    let operations = prop::collection::vec((0_usize..5, 1_u16..3000), 0..2);
    let rules = prop::collection::vec(rule, 0..3);
    let orders = prop::collection::vec(order, 0..8);
    (1_usize..6, rules, orders, early, operations, limit(1), limit(0)).prop_map(
        |(clusters, schedules, orders, early, operations, fleet_limit, task_limit)| Fleet {
            clusters,
            schedules,
            orders,
            early,
            operations,
            fleet_limit,
            task_limit,
        },
    )
}

fn task(number: usize) -> Uuid {
    Uuid::from_u128(0x7a5c_0000 + number as u128)
}

/// Store with the initial fleet.
async fn open_store(fleet: &Fleet, clock: &SharedClock) -> Store {
    let location = Location::Sqlite(":memory:".into());
    let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
    let store = Store::open(Options { write_mode: WriteMode::Inline, ..options }).await.unwrap();
    let (by, now) = (AuditContext::service("test"), clock.now());
    let mut write = Transaction::new();
    let mut clusters = Vec::new();
    for number in 0..fleet.clusters {
        let uuid = Uuid::from_u128(0xc105 + number as u128);
        write = write.create(uuid, &fixture::cluster(&format!("c{number}")), &by).unwrap();
        clusters.push(uuid);
    }
    for (number, seconds) in TASKS.into_iter().enumerate() {
        let mut stats = TaskStats::of(task(number));
        stats.add([Duration::from_secs(seconds); 10]);
        write = write.create(Uuid::new_v4(), &stats, &by).unwrap();
    }
    for (number, rule) in fleet.schedules.iter().enumerate() {
        write = write.create(Uuid::new_v4(), &schedule(number, rule), &by).unwrap();
    }
    store.commit(write).await.unwrap();
    for (key, limit) in
        [("fleet".to_owned(), fleet.fleet_limit), (format!("task/{}", task(1)), fleet.task_limit)]
    {
        if limit.is_some() {
            store.set_budget(&key, limit, None).await.unwrap();
        }
    }
    for (number, (order, state)) in fleet.early.iter().enumerate() {
        let cluster = clusters[order.cluster % clusters.len()];
        let manifest = Manifest {
            priority: order.priority,
            run_before: now + SignedDuration::from_secs(i64::from(order.window)),
            ..fixture::manifest(Uuid::from_u128(0xea57_0000 + number as u128), cluster, task(order.task), now)
        };
        let budgets = vec!["fleet".to_owned(), format!("task/{}", manifest.task_id)];
        store.manifests().create(&[(manifest, budgets)], &by).await.unwrap();
        // A manifest without room stays due, blocked by a budget or by its cluster.
        let claimed = store.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), 2 * HORIZON).await.unwrap();
        for claimed in claimed {
            let (checkpoint, begun) = match state {
                EarlyState::Runs => continue,
                EarlyState::Started => (
                    json!({"step": {"name": "work", "index": 1, "of": 1, "since": now, "message": ""}}),
                    true,
                ),
                EarlyState::Parked => {
                    (json!({"waiting": {"code": "Precondition", "message": "not yet", "since": now}}), false)
                }
            };
            let rest = Duration::from_secs(u64::from(order.due));
            let checkpoint = Some(("begun".to_owned(), checkpoint));
            let back = Release {
                checkpoint,
                started: begun,
                unless_cancelled: true,
                ..Release::new(claimed.lease, rest, false)
            };
            store.release(back).await.unwrap();
        }
    }
    for (number, (cluster, due)) in fleet.operations.iter().enumerate() {
        let id = Uuid::from_u128(0x0be7_0000 + number as u128);
        let due = now + SignedDuration::from_secs(i64::from(*due));
        let lane = clusters[cluster % clusters.len()];
        let operation = NewWork { run_after: Some(due), ..NewWork::new(id, lane, WorkKind::Operation) };
        store.enqueue(vec![operation]).await.unwrap();
    }
    for (number, order) in fleet.orders.iter().enumerate() {
        let from = now + SignedDuration::from_secs(i64::from(order.due));
        let cluster = clusters[order.cluster % clusters.len()];
        let manifest = Manifest {
            priority: order.priority,
            run_before: from + SignedDuration::from_secs(i64::from(order.window)),
            ..fixture::manifest(
                Uuid::from_u128(0x0bde_0000 + number as u128),
                cluster,
                task(order.task),
                from,
            )
        };
        let budgets = vec!["fleet".to_owned(), format!("task/{}", manifest.task_id)];
        store.manifests().create(&[(manifest, budgets)], &by).await.unwrap();
    }
    store
}

fn schedule(number: usize, rule: &Rule) -> Schedule {
    let minutes = ["*:00/20", "*:05/30", "*:10"][usize::from(rule.minutes)];
    Schedule {
        id: format!("schedule-{number}"),
        state: ScheduleState::Enabled,
        task_id: task(rule.task),
        calendars: vec![format!("*-*-* {minutes}")],
        time_zone: "UTC".to_owned(),
        look_forward_count: rule.look_forward,
        schedule_across: format!("{}s", rule.across),
        spread_by: if rule.by_schedule { SpreadBy::Schedule } else { SpreadBy::Cluster },
        start_within: Some(format!("{}s", rule.start_within)),
        missed_policy: MissedPolicy::Skip,
        priority: rule.priority,
        selectors: vec![json!({"key": "provisioningState", "operator": "eq", "value": "Succeeded"})],
        parameters: Map::new(),
    }
}

/// Every task is one step that takes as long as its task does.
fn script(assignment: Assignment<'_>) -> Result<Plan<()>, steps::engine::StepError> {
    let number = (0..TASKS.len()).find(|it| task(*it) == assignment.manifest.task_id).unwrap();
    let span = Duration::from_secs(TASKS[number]);
    let work = Step::action("work", move |_: Arc<()>, _| async move {
        tokio::time::sleep(span).await;
        Ok(StepOutcome::default())
    });
    let work = Step { timeout: HORIZON, ..work };
    Ok(Plan { time_limit: HORIZON, ..Plan::new().step(work) })
}

/// What happened: how each manifest began, by cluster, schedule and due time.
type Key = (String, String, i64);

/// Works an operation as a backend would, which takes as long as the plan takes every operation to last.
async fn backend_of(store: Store) {
    let mut running = JoinSet::new();
    let mut bell = store.notifications(Topic::Work(WorkKind::Operation));
    loop {
        for claimed in store.claim_for(WorkKind::Operation, 10, Uuid::new_v4(), 2 * HORIZON).await.unwrap() {
            running.spawn(end_after(store.clone(), claimed.lease, OPERATION_TIME));
        }
        let due = store.until_due(WorkKind::Operation).await.unwrap().unwrap_or(HORIZON);
        tokio::select! {
            () = bell.next() => {}
            () = tokio::time::sleep(due.max(Duration::from_millis(1))) => {}
        }
    }
}

async fn end_after(store: Store, hold: WorkLease, span: Duration) {
    tokio::time::sleep(span).await;
    store.complete(&[Completion::new(hold, Ending::Completed, json!({}))]).await.unwrap();
}

/// Everything that the plan is computed from.
async fn observed(store: &Store, now: Timestamp) -> PlanInput {
    async fn all<T: Document>(store: &Store) -> Vec<VersionedDocument<T>> {
        let mut found = Vec::new();
        store.documents::<T>().for_each(|read| found.push(read)).await.unwrap();
        found
    }
    let clusters: Vec<_> = all(store).await.into_iter().map(|it| (it.uuid, it.document)).collect();
    let mut live = Vec::new();
    for kind in WorkKind::ALL {
        live.extend(store.live(kind, None, 1000).await.unwrap());
    }
    let mut seen = PlanInput::new(FleetRecords {
        subscriptions: Vec::new(),
        health: store.health(clusters.iter().map(|it| it.0).collect()).await.unwrap(),
        clusters,
        schedules: all(store).await.into_iter().map(|it| (it.document, it.changed)).collect(),
        stats: all(store).await.into_iter().map(|it| it.document).collect(),
        live,
        budgets: store.budgets().await.unwrap(),
        actuators: store.leases("actuator/").await.unwrap().len(),
    });
    let unsettled = seen.unsettled(now, HORIZON);
    seen.settle(&store.works(unsettled).await.unwrap());
    seen
}

async fn run_for_real(store: &Store, clock: &SharedClock) -> HashMap<Key, WorkView> {
    let shutdown = CancellationToken::new();
    let mut services = JoinSet::new();
    services.spawn(backend_of(store.clone()));
    for work in store.running(WorkKind::Manifest, 100).await.unwrap() {
        let lane = store.lane(work.lane).await.unwrap().unwrap();
        let hold =
            WorkLease { work: work.id, lane: work.lane, owner: lane.owner.unwrap(), fence: work.fence };
        let task_of = |number: &usize| work.budgets.contains(&format!("task/{}", task(*number)));
        let span = TASKS[(0..TASKS.len()).find(task_of).unwrap()];
        services.spawn(end_after(store.clone(), hold, Duration::from_secs(span)));
    }
    let deps = scheduler::Deps {
        store: store.clone(),
        clock: clock.clone(),
        metrics: scheduler::Metrics::default(),
        owner: Uuid::new_v4(),
        timing: scheduler::Timing::default(),
    };
    let token = shutdown.clone();
    services.spawn(async move { scheduler::run(deps, token).await.unwrap() });
    let deps = actuator::Deps {
        store: store.clone(),
        tasks: Arc::new(ScriptedTasks::new(Arc::new(()), script)),
        clock: clock.clone(),
        metrics: actuator::Metrics::default(),
        config: Config::default(),
        owner: Uuid::new_v4(),
    };
    let token = shutdown.clone();
    services.spawn(async move { actuator::run(deps, token).await.unwrap() });
    // Housekeeping sweeps away what is too late.
    let swept = store.clone();
    services.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            swept.expire(None, 1000).await.unwrap();
        }
    });
    tokio::time::sleep(HORIZON + Duration::from_secs(5)).await;
    services.abort_all();
    while services.join_next().await.is_some() {}
    store.expire(None, 1000).await.unwrap();

    let manifests = store.documents::<Manifest>();
    let page = manifests.list(ListOptions { limit: 1000, ..ListOptions::default() }).await.unwrap();
    let works = store.works(page.items.iter().map(|it| it.uuid).collect()).await.unwrap();
    let works: HashMap<Uuid, WorkView> = works.into_iter().map(|it| (it.id, it)).collect();
    // An order that rested is due at another time than it was asked for; its id is enough.
    let of = |manifest: &Manifest| match &manifest.created_by_schedule {
        Some(schedule) => (manifest.cluster.to_string(), schedule.clone(), manifest.run_after.as_second()),
        None => (manifest.cluster.to_string(), manifest.id.to_string(), 0),
    };
    page.items.iter().map(|it| (of(&it.document), works[&it.uuid].clone())).collect()
}

async fn compare(fleet: Fleet) -> Result<(), TestCaseError> {
    let start: Timestamp = "2026-03-02T00:00:07Z".parse().unwrap();
    let clock: SharedClock = Arc::new(VirtualClock::from(start));
    let store = open_store(&fleet, &clock).await;
    let question = PlanRequest {
        horizon: HORIZON,
        cluster: None,
        schedule: None,
        task: None,
        outcome: None,
        grouping: PlanGrouping::Run,
        skip: 0,
        limit: 10_000,
    };
    let seen = observed(&store, clock.now()).await;
    let (foretold, _) = compute(&seen, &Catalogue::builtin(), &question, clock.now(), &|| false).unwrap();
    let at_work: Vec<Uuid> =
        store.running(WorkKind::Manifest, 100).await.unwrap().iter().map(|it| it.id).collect();
    let mut happened = run_for_real(&store, &clock).await;
    happened.retain(|_, work| !at_work.contains(&work.id));
    let ids: HashMap<String, String> = (0..fleet.clusters)
        .map(|it| (fixture::cluster(&format!("c{it}")).id, Uuid::from_u128(0xc105 + it as u128).to_string()))
        .collect();
    for entry in &foretold.entries {
        let named = entry.schedule.clone().or(entry.manifest.map(|it| it.to_string())).unwrap_or_default();
        let due = if entry.schedule.is_some() { entry.run_after } else { 0 };
        let key = (ids[entry.cluster.as_ref().unwrap()].clone(), named, due);
        let Some(work) = happened.remove(&key) else {
            return Err(TestCaseError::fail(format!("{entry:?} never was")));
        };
        match entry.outcome {
            PlanOutcome::Misses => {
                prop_assert_eq!(work.state, WorkState::TimedOut, "{:?}: {:?}", entry, work);
            }
            PlanOutcome::Runs => {
                let Some(started) = work.started else {
                    return Err(TestCaseError::fail(format!("{entry:?} never began: {work:?}")));
                };
                // When begun work was taken up again follows from its end; what is not at its end yet tells nothing.
                let took = entry.end.duration_since(entry.start);
                let began = match work.finished {
                    _ if started != start => started,
                    Some(finished) => finished - took,
                    None => continue,
                };
                let late = began.duration_since(entry.start);
                prop_assert!(late.abs() <= TOLERANCE, "{:?} began {:?} from its time", entry, late);
            }
        }
    }
    // Whatever else is there has not begun within the time, and was not too late for it.
    for (key, work) in happened {
        let begun = match (work.started, work.finished) {
            // It had begun before the plan was made; whether it was taken up again, its end tells.
            (Some(started), finished) if started == start => finished.is_some_and(|it| it < foretold.to),
            (started, _) => started.is_some_and(|it| it < foretold.to),
        };
        prop_assert!(!begun && work.state != WorkState::TimedOut, "{:?} was not foretold: {:?}", key, work);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_the_plan_says_is_what_happens(fleet in fleets()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(compare(fleet))?;
    }
}
