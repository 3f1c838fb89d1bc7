//! Behaviour of one or two actuators on a small fleet, under a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use api::admin::EntryEvent;
use api::clock::SharedClock;
use api::doc::{Cluster, TaskStats};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use maintenance::actuator::{self, Assignment, ClusterProbe, Config, Deps, LEASE_PREFIX, Metrics};
use maintenance::fixture::{self, ScriptedTasks};
use prometheus_client::registry::Registry;
use serde_json::json;
use steps::engine::fault_harness::VirtualClock;
use steps::engine::{Journal, Plan, PollStatus, Step, StepError, StepErrorKind, StepOutcome, WaitingCode};
use store::{
    AuditContext, FaultInjector, FaultPoint, Keyring, Location, NewWork, Options, Store, StoreError,
    Transaction, WorkView, WriteMode,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const TASK: Uuid = Uuid::from_u128(7);

struct TestActuator {
    store: Store,
    clock: SharedClock,
    cluster: Uuid,
    metrics: Metrics,
    away: Arc<AtomicBool>,
    writes: Arc<AtomicU32>,
    workers: JoinSet<()>,
    shutdown: CancellationToken,
}

type Script = fn(Assignment<'_>) -> Result<Plan<()>, StepError>;

impl TestActuator {
    async fn new() -> TestActuator {
        let clock: SharedClock = Arc::new(VirtualClock::from(Timestamp::from_second(1_800_000_000).unwrap()));
        let options =
            Options::new(Location::Sqlite(":memory:".into()), Keyring::ephemeral().unwrap(), clock.clone());
        let away = Arc::new(AtomicBool::new(false));
        let writes = Arc::new(AtomicU32::new(0));
        let (gone, counted) = (away.clone(), writes.clone());
        let fault_injector = FaultInjector::new(move |moment| {
            counted.fetch_add(u32::from(moment == FaultPoint::BeforeWrite), Ordering::SeqCst);
            match gone.load(Ordering::SeqCst) {
                true => Err(StoreError::Unavailable { what: "away".to_owned(), source: None }),
                false => Ok(()),
            }
        });
        let options =
            Options { write_mode: WriteMode::Inline, fault_injector: Some(fault_injector), ..options };
        let store = Store::open(options).await.unwrap();
        let cluster = Uuid::now_v7();
        let by = AuditContext::service("test");
        let write = Transaction::new().create::<Cluster>(cluster, &fixture::cluster("one"), &by).unwrap();
        store.commit(write).await.unwrap();
        TestActuator {
            store,
            clock,
            cluster,
            metrics: Metrics::default(),
            away,
            writes,
            workers: JoinSet::new(),
            shutdown: CancellationToken::new(),
        }
    }

    fn start(&mut self, script: Script) {
        self.start_with(ScriptedTasks::new(Arc::new(()), script));
    }

    fn start_with(&mut self, tasks: ScriptedTasks<()>) {
        let deps = Deps {
            store: self.store.clone(),
            tasks: Arc::new(tasks),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            config: Config::default(),
            owner: Uuid::now_v7(),
        };
        let shutdown = self.shutdown.clone();
        self.workers.spawn(async move { actuator::run(deps, shutdown).await.unwrap() });
    }

    async fn create_manifest(&self) -> Uuid {
        self.create_manifest_on(self.cluster).await
    }

    async fn create_manifest_on(&self, cluster: Uuid) -> Uuid {
        let id = Uuid::now_v7();
        let manifest = fixture::manifest(id, cluster, TASK, self.clock.now());
        let budgets = vec![format!("task/{TASK}")];
        self.store.manifests().create(&[(manifest, budgets)], &AuditContext::service("test")).await.unwrap();
        id
    }

    /// Creates a manifest on each of `count` further clusters, which the actuator does not probe.
    async fn create_manifests(&self, count: usize) -> Vec<Uuid> {
        let by = AuditContext::service("test");
        let mut ids = Vec::new();
        for block in (0..count).collect::<Vec<_>>().chunks(100) {
            let (mut write, mut asked) = (Transaction::new(), Vec::new());
            for index in block {
                let cluster = Uuid::now_v7();
                let document = fixture::updating_cluster(&format!("c{index}"));
                write = write.create::<Cluster>(cluster, &document, &by).unwrap();
                asked.push((fixture::manifest(Uuid::now_v7(), cluster, TASK, self.clock.now()), Vec::new()));
            }
            self.store.commit(write).await.unwrap();
            self.store.manifests().create(&asked, &by).await.unwrap();
            ids.extend(asked.iter().map(|(manifest, _)| manifest.id));
        }
        ids
    }

    async fn work(&self, id: Uuid) -> WorkView {
        self.store.work(id).await.unwrap().unwrap()
    }

    /// Waits until the condition holds.
    async fn wait_until(&self, id: Uuid, condition: impl Fn(&WorkView) -> bool) -> WorkView {
        let poll = async {
            let mut pause = Duration::from_millis(5);
            loop {
                let work = self.work(id).await;
                if condition(&work) {
                    return work;
                }
                sleep(pause).await;
                pause += pause / 20;
            }
        };
        match timeout(Duration::from_secs(2 * 3600), poll).await {
            Ok(work) => work,
            Err(_) => panic!("{:?}", self.work(id).await),
        }
    }

    async fn wait_until_finished(&self, id: Uuid) -> WorkView {
        self.wait_until(id, |work| work.state.is_terminal()).await
    }

    async fn wait_until_in_step(&self, id: Uuid) {
        self.wait_until(id, |work| Journal::read(work.checkpoint.as_ref()).step.is_some()).await;
    }

    async fn cancel(&self, id: Uuid) {
        let view = self.store.manifests().view(id).await.unwrap().unwrap();
        let by =
            AuditContext { actor: "ada".to_owned(), reason: "not today".to_owned(), correlation_id: None };
        self.store.manifests().cancel(&view.manifest, &by).await.unwrap();
    }
}

fn noop(_: Assignment<'_>) -> Result<Plan<()>, StepError> {
    Ok(Plan::new()
        .step(Step::action("nothing", |_, _| async { Ok(StepOutcome::with_message("nothing to do")) })))
}

fn waits(_: Assignment<'_>) -> Result<Plan<()>, StepError> {
    let wait = Step::wait("for-ever", Duration::from_secs(3600), |_, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    Ok(Plan::new().step(wait))
}

fn endless(_: Assignment<'_>) -> Result<Plan<()>, StepError> {
    Ok(Plan::new()
        .step(Step::action("endless", |_, _| std::future::pending::<Result<StepOutcome, StepError>>())))
}

fn stuck(kind: StepErrorKind) -> impl Fn(Assignment<'_>) -> Result<Plan<()>, StepError> {
    move |_| Err(StepError::new(kind, "Why", "why not"))
}

#[tokio::test(start_paused = true)]
async fn a_manifest_starts_as_soon_as_it_is_created() {
    let mut test = TestActuator::new().await;
    test.start(noop);
    sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    let id = test.create_manifest().await;
    let work = test.wait_until_finished(id).await;
    assert!(asked.elapsed() <= Duration::from_millis(20), "{:?}", asked.elapsed());
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 1));
    assert_eq!(work.result.unwrap().to_json()["message"], "nothing to do");
}

#[tokio::test(start_paused = true)]
async fn short_manifests_are_claimed_and_completed_in_batches() {
    let mut test = TestActuator::new().await;
    let asked = test.create_manifests(2 * Config::default().slots).await;
    let before = test.writes.load(Ordering::SeqCst);
    test.start(noop);
    for id in &asked {
        assert_eq!(test.wait_until_finished(*id).await.state, WorkState::Completed);
        let log = test.store.entries(*id, None, 100).await.unwrap();
        assert_eq!(log.last().map(|(_, entry)| &entry.event), Some(&EntryEvent::Finished));
    }
    // Two claims and two batches of completions; one claim of the empty queue, the leases, the probe of the first cluster.
    let writes = test.writes.load(Ordering::SeqCst) - before;
    assert!(writes <= 8, "{writes} writes for {} manifests", asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_future_manifest_starts_when_it_is_due() {
    let mut test = TestActuator::new().await;
    test.start(noop);
    let id = Uuid::now_v7();
    let due = test.clock.now() + jiff::SignedDuration::from_secs(1234);
    let manifest = fixture::manifest(id, test.cluster, TASK, due);
    test.store.manifests().create(&[(manifest, vec![])], &AuditContext::service("test")).await.unwrap();
    let started = test.wait_until_finished(id).await.started.unwrap();
    let lag = started.duration_since(due).as_millis();
    assert!((0..20).contains(&lag), "{lag} ms");
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_cannot_run_finishes_with_its_reason() {
    let mut test = TestActuator::new().await;
    test.start(|_| Err(StepError::terminal("UnknownTask", "task ID not registered")));
    let unknown = test.create_manifest().await;
    let work = test.wait_until_finished(unknown).await;
    assert_eq!(work.state, WorkState::Failed);
    assert_eq!(work.result.unwrap().to_json()["message"], "task ID not registered");
    let gone = test.create_manifest_on(Uuid::now_v7()).await;
    let work = test.wait_until_finished(gone).await;
    assert_eq!(
        (work.state, &work.result.unwrap().to_json()["code"]),
        (WorkState::Cancelled, &json!("ClusterGone"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_manifest_waits_for_its_preconditions_until_its_window_closes() {
    let mut test = TestActuator::new().await;
    test.start_with(ScriptedTasks::new(Arc::new(()), stuck(StepErrorKind::Precondition)));
    let id = test.create_manifest().await;
    let work = test.wait_until(id, |work| work.checkpoint.is_some()).await;
    let waiting = Journal::read(work.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!((waiting.code, waiting.message.as_str()), (WaitingCode::Precondition, "why not"));
    assert_eq!((work.state, work.attempt, work.started), (WorkState::Pending, 0, None));
    assert_eq!(test.wait_until_finished(id).await.state, WorkState::TimedOut, "it had no effect");
}

#[tokio::test(start_paused = true)]
async fn changes_of_reachability_are_written_once() {
    let mut test = TestActuator::new().await;
    let (there, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (seen, counted) = (there.clone(), asked.clone());
    let mut tasks = ScriptedTasks::new(Arc::new(()), move |assignment| match seen.load(Ordering::SeqCst) {
        true => noop(assignment),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    let answers = there.clone();
    tasks.probe = Box::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        match answers.load(Ordering::SeqCst) {
            true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
            false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
        }
    });
    test.start_with(tasks);
    let id = test.create_manifest().await;
    sleep(Duration::from_secs(300)).await;
    let work = test.work(id).await;
    assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
    let health = test.store.health(vec![test.cluster]).await.unwrap().pop().unwrap();
    assert_eq!((health.reachable, &health.details.to_json()["message"]), (false, &json!("no answer")));
    assert_eq!(
        health.since.as_second(),
        1_800_000_000,
        "since the first probe, and no later one was written"
    );
    assert_eq!(
        asked.load(Ordering::SeqCst),
        3,
        "it was probed when it appeared, one minute and three minutes later"
    );
    there.store(true, Ordering::SeqCst);
    assert_eq!(test.wait_until_finished(id).await.state, WorkState::Completed);
    sleep(Duration::from_secs(1)).await;
    let health = test.store.health(vec![test.cluster]).await.unwrap().pop().unwrap();
    assert_eq!((health.reachable, health.details.to_json()), (true, json!({"version": "v1.2.3"})));
}

#[tokio::test(start_paused = true)]
async fn an_imported_cluster_is_probed_when_it_appears() {
    let mut test = TestActuator::new().await;
    test.start(noop);
    sleep(Duration::from_secs(1)).await;
    let id = Uuid::now_v7();
    let write = Transaction::new()
        .create::<Cluster>(id, &fixture::cluster("two"), &AuditContext::service("test"))
        .unwrap();
    test.store.commit(write).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let seen = test.store.health(vec![test.cluster, id]).await.unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|it| it.reachable && it.details.to_json() == json!({"version": "v1.0.0"})));
}

#[tokio::test(start_paused = true)]
async fn unreachable_clusters_are_probed_concurrently() {
    let mut test = TestActuator::new().await;
    let mut write = Transaction::new();
    let silent: Vec<Uuid> = (0..200).map(|_| Uuid::now_v7()).collect();
    for (index, id) in silent.iter().enumerate() {
        let document = fixture::cluster(&format!("silent-{index}"));
        write = write.create::<Cluster>(*id, &document, &AuditContext::service("test")).unwrap();
    }
    test.store.commit(write).await.unwrap();
    let mut tasks = ScriptedTasks::new(Arc::new(()), noop);
    tasks.probe_duration = Box::new(|_| Duration::from_secs(10));
    tasks.probe = Box::new(|_| Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")));
    test.start_with(tasks);
    sleep(Duration::from_secs(150)).await;
    let seen = test.store.health(silent.clone()).await.unwrap();
    assert!(seen.len() == silent.len() && seen.iter().all(|it| !it.reachable), "{}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_an_operation_reach_a_running_plan_at_once() {
    let mut test = TestActuator::new().await;
    test.start(waits);
    let id = test.create_manifest().await;
    test.wait_until_in_step(id).await;
    let asked = Instant::now();
    let operation = NewWork::new(Uuid::now_v7(), test.cluster, WorkKind::Operation);
    test.store.enqueue(vec![operation]).await.unwrap();
    let work = test.wait_until(id, |work| work.state == WorkState::Pending).await;
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    let waiting = Journal::read(work.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!((waiting.code, work.attempt), (WaitingCode::Preempted, 0));
    let operation = test.store.claim(WorkKind::Operation, 1, Uuid::now_v7()).await.unwrap().pop().unwrap();
    let done = store::Completion::new(operation.lease, api::work::Ending::Completed, json!({}));
    test.store.complete(&[done]).await.unwrap();
    test.wait_until(id, |work| work.state == WorkState::InProgress).await;
    let asked = Instant::now();
    test.cancel(id).await;
    let work = test.wait_until_finished(id).await;
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    assert_eq!(work.state, WorkState::Cancelled);
    assert_eq!(work.result.unwrap().to_json()["by"], "ada");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_all_leases_within_thirty_seconds() {
    for (script, at_most) in [(waits as Script, 1), (endless as Script, 30)] {
        let mut test = TestActuator::new().await;
        test.start(script);
        let id = test.create_manifest().await;
        test.wait_until_in_step(id).await;
        assert_eq!(test.store.leases(LEASE_PREFIX).await.unwrap().len(), 1);
        let asked = Instant::now();
        test.shutdown.cancel();
        test.workers.join_next().await.unwrap().unwrap();
        assert!(asked.elapsed() <= Duration::from_secs(at_most), "{:?}", asked.elapsed());
        let work = test.work(id).await;
        assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
        assert_eq!(test.store.lane(test.cluster).await.unwrap().unwrap().owner, None);
        assert!(test.store.leases(LEASE_PREFIX).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_crashed_actuator_is_taken_over_and_continues() {
    let mut test = TestActuator::new().await;
    test.start(waits);
    let id = test.create_manifest().await;
    test.wait_until_in_step(id).await;
    test.workers.abort_all();
    test.workers.join_next().await;
    let died = Instant::now();
    test.start(noop);
    let work = test.wait_until_finished(id).await;
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 2));
    assert!(died.elapsed() <= Duration::from_secs(60 + 11), "{:?}", died.elapsed());
    let log = test.store.entries(id, None, 100).await.unwrap();
    assert!(log.iter().any(|(_, entry)| entry.event == EntryEvent::TakenOver));
}

#[tokio::test(start_paused = true)]
async fn a_busy_actuator_takes_over_from_a_crashed_one() {
    let mut test = TestActuator::new().await;
    let lost = test.create_manifest().await;
    let dead = test.store.claim_for(WorkKind::Manifest, 1, Uuid::now_v7(), Duration::ZERO).await.unwrap();
    assert_eq!(dead[0].lease.work, lost);
    test.create_manifests(30 * Config::default().slots).await;
    test.start(|_| {
        Ok(Plan::new().step(Step::action("ten-seconds", |_, _| async {
            sleep(Duration::from_secs(10)).await;
            Ok(StepOutcome::default())
        })))
    });
    let begun = Instant::now();
    let work = test.wait_until_finished(lost).await;
    // One round of earlier manifests, its own, and the interval between two takeovers.
    assert!(begun.elapsed() <= Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 2));
    assert!(
        test.store.queue(WorkKind::Manifest).await.unwrap().pending > 20 * Config::default().slots as u64
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_actuator_notices_the_shutdown() {
    let mut test = TestActuator::new().await;
    test.create_manifests(30 * Config::default().slots).await;
    let shutdown = test.shutdown.clone();
    test.start_with(ScriptedTasks::new(Arc::new(()), move |_| {
        let shutdown = shutdown.clone();
        Ok(Plan::new().step(Step::action("request-shutdown", move |_, _| {
            shutdown.cancel();
            async { Ok(StepOutcome::default()) }
        })))
    }));
    test.workers.join_next().await.unwrap().unwrap();
    let queue = test.store.queue(WorkKind::Manifest).await.unwrap();
    assert!(queue.pending > 0, "it continued to the end of the queue");
    assert_eq!(queue.running, 0, "its work is completed or released");
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_cannot_renew_stops_before_its_lease_expires() {
    let mut test = TestActuator::new().await;
    let alive = Arc::new(AtomicU32::new(0));
    struct AliveGuard(Arc<AtomicU32>);
    impl Drop for AliveGuard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let counted = alive.clone();
    test.start_with(ScriptedTasks::new(Arc::new(()), move |_| {
        let counted = counted.clone();
        Ok(Plan::new().step(Step::action("endless", move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            let guard = AliveGuard(counted.clone());
            async move {
                std::future::pending::<()>().await;
                drop(guard);
                Ok(StepOutcome::default())
            }
        })))
    }));
    let id = test.create_manifest().await;
    test.wait_until_in_step(id).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    test.away.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(41)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0, "no step runs whose lease may expire");
    test.away.store(false, Ordering::SeqCst);
    test.wait_until(id, |work| work.attempt == 2).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1, "the next takeover continued it");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_three_times_is_stopped_for_the_fleet() {
    let mut test = TestActuator::new().await;
    test.start(|_| Ok(Plan::new().step(Step::action("bad", |_, _| async { panic!("a bug") }))));
    for _ in 0..3 {
        let id = test.create_manifest().await;
        assert_eq!(test.wait_until_finished(id).await.result.unwrap().to_json()["code"], "Panic");
    }
    let id = test.create_manifest().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(test.work(id).await.state, WorkState::Pending);
    let budget = test.store.budgets().await.unwrap().pop().unwrap();
    assert_eq!((budget.key, budget.limit), (format!("task/{TASK}"), 0));
}

#[tokio::test(start_paused = true)]
async fn durations_and_outcomes_of_tasks_are_recorded() {
    let mut test = TestActuator::new().await;
    test.start(|_| {
        let step = Step::action("slow", |_, _| async {
            sleep(Duration::from_secs(3)).await;
            Ok(StepOutcome::default())
        });
        Ok(Plan::new().step(step))
    });
    let path = api::doc::Document::path(&TaskStats::of(TASK));
    let id = test.create_manifest().await;
    test.wait_until_finished(id).await;
    sleep(Duration::from_secs(2)).await;
    let first = test.store.documents::<TaskStats>().find(&path).await.unwrap().unwrap().document;
    assert_eq!(first.runs(), 1, "the first run is written at once");
    for _ in 0..5 {
        let id = test.create_manifest().await;
        test.wait_until_finished(id).await;
    }
    sleep(Duration::from_secs(120)).await;
    let stats = test.store.documents::<TaskStats>().find(&path).await.unwrap().unwrap().document;
    assert_eq!(stats.durations_ms.len(), 6);
    assert!(stats.percentile(95).unwrap() >= Duration::from_secs(3));
    let listing = store::AuditQuery { target: Some(path), limit: 100, ..Default::default() };
    let audited = test.store.audit_list(listing).await.unwrap();
    assert_eq!(audited.len(), 1, "updates of statistics are not in the audit log: {audited:?}");
    let mut registry = Registry::with_prefix("shipshape_actuator");
    test.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let expected = r#"shipshape_actuator_manifests_total{task="scripted",outcome="Completed"} 6"#;
    assert!(text.contains(expected), "{text}");
    for name in ["start_lag_seconds_count 6", "attempts_count 6", "running 0", "takeovers_total 0"] {
        assert!(text.contains(&format!("shipshape_actuator_{name}")), "{name}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reachable_cluster_is_noticed_without_any_manifest() {
    let mut test = TestActuator::new().await;
    let there = Arc::new(AtomicBool::new(false));
    let answers = there.clone();
    let mut tasks = ScriptedTasks::new(Arc::new(()), noop);
    tasks.probe = Box::new(move |_| match answers.load(Ordering::SeqCst) {
        true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    test.start_with(tasks);
    sleep(Duration::from_secs(30)).await;
    assert!(!test.store.health(vec![test.cluster]).await.unwrap()[0].reachable);
    there.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(60)).await;
    assert!(test.store.health(vec![test.cluster]).await.unwrap()[0].reachable);
}

#[tokio::test(start_paused = true)]
async fn a_failed_manifest_shows_that_its_cluster_is_reachable_again() {
    let mut test = TestActuator::new().await;
    let there = Arc::new(AtomicBool::new(false));
    let (seen, answers) = (there.clone(), there.clone());
    let mut tasks = ScriptedTasks::new(Arc::new(()), move |_| match seen.load(Ordering::SeqCst) {
        true => {
            Ok(Plan::new().step(Step::action("no", |_, _| async { Err(StepError::terminal("No", "no")) })))
        }
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    tasks.probe = Box::new(move |_| match answers.load(Ordering::SeqCst) {
        true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    test.start_with(tasks);
    let id = test.create_manifest().await;
    sleep(Duration::from_secs(1)).await;
    there.store(true, Ordering::SeqCst);
    assert_eq!(test.wait_until_finished(id).await.state, WorkState::Failed);
    sleep(Duration::from_millis(10)).await;
    assert!(test.store.health(vec![test.cluster]).await.unwrap()[0].reachable);
}

/// Plan that marks the cluster and then waits; its undo removes the mark.
fn marked(marks: &Arc<AtomicU32>) -> Plan<()> {
    let (set, cleared) = (marks.clone(), marks.clone());
    let mark = Step::action("mark", move |_: Arc<()>, _| {
        set.store(1, Ordering::SeqCst);
        async { Ok(StepOutcome::default()) }
    })
    .undo(move |_, _, _| {
        cleared.store(0, Ordering::SeqCst);
        async { Ok(Some("the mark was removed".to_owned())) }
    });
    let wait = Step::wait("for-ever", Duration::from_secs(3600), |_, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    Plan::new().step(mark).step(wait)
}

#[tokio::test(start_paused = true)]
async fn a_started_manifest_cancelled_while_its_plan_cannot_be_built_is_undone_later() {
    let mut test = TestActuator::new().await;
    let (marks, away) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (seen, gone) = (marks.clone(), away.clone());
    test.start_with(ScriptedTasks::new(Arc::new(()), move |_| match gone.load(Ordering::SeqCst) {
        true => Err(StepError::transient("Store", "the store is unavailable")),
        false => Ok(marked(&seen)),
    }));
    let id = test.create_manifest().await;
    test.wait_until(id, |work| work.step.as_deref() == Some("for-ever")).await;
    away.store(true, Ordering::SeqCst);
    // An operation preempts it; afterwards its plan cannot be built.
    let operation = NewWork::new(Uuid::now_v7(), test.cluster, WorkKind::Operation);
    test.store.enqueue(vec![operation]).await.unwrap();
    test.wait_until(id, |work| work.state == WorkState::Pending).await;
    test.cancel(id).await;
    // A budget of 0 does not prevent the undo.
    test.store.set_budget(&format!("task/{TASK}"), Some(0), None).await.unwrap();
    let operation = test.store.claim(WorkKind::Operation, 1, Uuid::now_v7()).await.unwrap().pop().unwrap();
    let done = store::Completion::new(operation.lease, api::work::Ending::Completed, json!({}));
    test.store.complete(&[done]).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!((test.work(id).await.state, marks.load(Ordering::SeqCst)), (WorkState::Pending, 1));
    away.store(false, Ordering::SeqCst);
    let result = test.wait_until_finished(id).await.result.unwrap().to_json();
    assert_eq!((&result["code"], &result["by"]), (&json!("Cancelled"), &json!("ada")));
    assert_eq!((&result["reason"], marks.load(Ordering::SeqCst)), (&json!("not today"), 0));
}

#[tokio::test(start_paused = true)]
async fn completions_without_a_lease_holder_and_failed_undos_are_counted() {
    let mut test = TestActuator::new().await;
    test.start(|_| {
        let stuck = Step::action("a", |_, _| async { Ok(StepOutcome::default()) })
            .undo(|_, _, _| async { Err(StepError::terminal("No", "no way back")) });
        let fails = Step::action("b", |_, _| async { Err(StepError::terminal("No", "no")) });
        Ok(Plan::new().step(stuck).step(fails))
    });
    let failed = test.create_manifest().await;
    assert_eq!(test.wait_until_finished(failed).await.state, WorkState::Failed);
    sleep(Duration::from_secs(20)).await;
    test.store.set_budget(&format!("task/{TASK}"), Some(0), None).await.unwrap();
    let (late, cancelled) = (test.create_manifest().await, test.create_manifest().await);
    test.cancel(cancelled).await;
    sleep(Duration::from_secs(3600)).await;
    // The lane is no longer parked, and the next claim closes the manifest that is too late.
    test.store.set_budget(&format!("task/{TASK}"), None, None).await.unwrap();
    assert_eq!(test.wait_until_finished(late).await.state, WorkState::TimedOut);
    sleep(Duration::from_secs(20)).await;
    let mut registry = Registry::with_prefix("shipshape_actuator");
    test.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for (outcome, count) in [("Failed", 1), ("TimedOut", 1), ("Cancelled", 1)] {
        let expected =
            format!(r#"shipshape_actuator_manifests_total{{task="scripted",outcome="{outcome}"}} {count}"#);
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    assert!(text.contains("shipshape_actuator_undo_failed_total 1"), "{text}");
}
