//! One actuator (or two) on a small fleet, under a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use api::admin::EntryEvent;
use api::clock::SharedClock;
use api::doc::{Cluster, TaskStats};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use maintenance::actuator::{self, Assignment, ClusterProbe, Config, Deps, LEASE_PREFIX, Metrics};
use maintenance::trial::{self, ScriptedTasks};
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

struct Bed {
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

impl Bed {
    async fn new() -> Bed {
        let clock: SharedClock = Arc::new(VirtualClock::from(Timestamp::from_second(1_800_000_000).unwrap()));
        let options =
            Options::new(Location::Sqlite(":memory:".into()), Keyring::ephemeral().unwrap(), clock.clone());
        let away = Arc::new(AtomicBool::new(false));
        let writes = Arc::new(AtomicU32::new(0));
        let (gone, counted) = (away.clone(), writes.clone());
        let disturbance = FaultInjector::new(move |moment| {
            counted.fetch_add(u32::from(moment == FaultPoint::BeforeWrite), Ordering::SeqCst);
            match gone.load(Ordering::SeqCst) {
                true => Err(StoreError::Unavailable { what: "away".to_owned(), source: None }),
                false => Ok(()),
            }
        });
        let options = Options { write_mode: WriteMode::Inline, fault_injector: Some(disturbance), ..options };
        let store = Store::open(options).await.unwrap();
        let cluster = Uuid::now_v7();
        let by = AuditContext::service("test");
        let write = Transaction::new().create::<Cluster>(cluster, &trial::cluster("one"), &by).unwrap();
        store.commit(write).await.unwrap();
        Bed {
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

    async fn ask(&self) -> Uuid {
        self.ask_on(self.cluster).await
    }

    async fn ask_on(&self, cluster: Uuid) -> Uuid {
        let id = Uuid::now_v7();
        let manifest = trial::manifest(id, cluster, TASK, self.clock.now());
        let budgets = vec![format!("task/{TASK}")];
        self.store.manifests().create(&[(manifest, budgets)], &AuditContext::service("test")).await.unwrap();
        id
    }

    /// A manifest on each of so many further clusters, of which nobody asks whether they answer.
    async fn ask_on_as_many(&self, count: usize) -> Vec<Uuid> {
        let by = AuditContext::service("test");
        let mut ids = Vec::new();
        for block in (0..count).collect::<Vec<_>>().chunks(100) {
            let (mut write, mut asked) = (Transaction::new(), Vec::new());
            for index in block {
                let cluster = Uuid::now_v7();
                let document = trial::changing(&format!("c{index}"));
                write = write.create::<Cluster>(cluster, &document, &by).unwrap();
                asked.push((trial::manifest(Uuid::now_v7(), cluster, TASK, self.clock.now()), Vec::new()));
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

    /// Waits until the work is as wanted.
    async fn until(&self, id: Uuid, wanted: impl Fn(&WorkView) -> bool) -> WorkView {
        let look = async {
            let mut pause = Duration::from_millis(5);
            loop {
                let work = self.work(id).await;
                if wanted(&work) {
                    return work;
                }
                sleep(pause).await;
                pause += pause / 20;
            }
        };
        match timeout(Duration::from_secs(2 * 3600), look).await {
            Ok(work) => work,
            Err(_) => panic!("{:?}", self.work(id).await),
        }
    }

    async fn until_ended(&self, id: Uuid) -> WorkView {
        self.until(id, |work| work.state.is_terminal()).await
    }

    async fn until_in_step(&self, id: Uuid) {
        self.until(id, |work| Journal::read(work.checkpoint.as_ref()).step.is_some()).await;
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
async fn a_manifest_is_begun_the_moment_it_is_asked_for() {
    let mut bed = Bed::new().await;
    bed.start(noop);
    sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    let id = bed.ask().await;
    let work = bed.until_ended(id).await;
    assert!(asked.elapsed() <= Duration::from_millis(20), "{:?}", asked.elapsed());
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 1));
    assert_eq!(work.result.unwrap().to_json()["message"], "nothing to do");
}

#[tokio::test(start_paused = true)]
async fn manifests_that_are_quickly_done_are_claimed_and_ended_together() {
    let mut bed = Bed::new().await;
    let asked = bed.ask_on_as_many(2 * Config::default().slots).await;
    let before = bed.writes.load(Ordering::SeqCst);
    bed.start(noop);
    for id in &asked {
        assert_eq!(bed.until_ended(*id).await.state, WorkState::Completed);
        let log = bed.store.entries(*id, None, 100).await.unwrap();
        assert_eq!(log.last().map(|(_, entry)| entry.event), Some(EntryEvent::Finished));
    }
    // Two claims and the ends of two batches; a look at the queue when it is empty, the leases, the look at the first cluster.
    let writes = bed.writes.load(Ordering::SeqCst) - before;
    assert!(writes <= 8, "{writes} writes for {} manifests", asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_manifest_of_tomorrow_begins_when_its_time_comes() {
    let mut bed = Bed::new().await;
    bed.start(noop);
    let id = Uuid::now_v7();
    let due = bed.clock.now() + jiff::SignedDuration::from_secs(1234);
    let manifest = trial::manifest(id, bed.cluster, TASK, due);
    bed.store.manifests().create(&[(manifest, vec![])], &AuditContext::service("test")).await.unwrap();
    let started = bed.until_ended(id).await.started.unwrap();
    let lag = started.duration_since(due).as_millis();
    assert!((0..20).contains(&lag), "{lag} ms");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_run_ends_or_rests_with_its_reason() {
    let mut bed = Bed::new().await;
    bed.start(|_| Err(StepError::terminal("UnknownTask", "task ID not registered")));
    let unknown = bed.ask().await;
    let work = bed.until_ended(unknown).await;
    assert_eq!(work.state, WorkState::Failed);
    assert_eq!(work.result.unwrap().to_json()["message"], "task ID not registered");
    let gone = bed.ask_on(Uuid::now_v7()).await;
    let work = bed.until_ended(gone).await;
    assert_eq!(
        (work.state, &work.result.unwrap().to_json()["code"]),
        (WorkState::Cancelled, &json!("ClusterGone"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_task_requires_is_waited_for_until_the_window_closes() {
    let mut bed = Bed::new().await;
    bed.start_with(ScriptedTasks::new(Arc::new(()), stuck(StepErrorKind::Precondition)));
    let id = bed.ask().await;
    let work = bed.until(id, |work| work.checkpoint.is_some()).await;
    let waiting = Journal::read(work.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!((waiting.code, waiting.message.as_str()), (WaitingCode::Precondition, "why not"));
    assert_eq!((work.state, work.attempt, work.started), (WorkState::Pending, 0, None));
    assert_eq!(bed.until_ended(id).await.state, WorkState::TimedOut, "nothing of it was begun");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_is_told_once_and_told_to_be_back_once() {
    let mut bed = Bed::new().await;
    let (there, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (seen, counted) = (there.clone(), asked.clone());
    let mut tasks = ScriptedTasks::new(Arc::new(()), move |assignment| match seen.load(Ordering::SeqCst) {
        true => noop(assignment),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    let answers = there.clone();
    tasks.answer = Box::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        match answers.load(Ordering::SeqCst) {
            true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
            false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
        }
    });
    bed.start_with(tasks);
    let id = bed.ask().await;
    sleep(Duration::from_secs(300)).await;
    let work = bed.work(id).await;
    assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
    let health = bed.store.health(vec![bed.cluster]).await.unwrap().pop().unwrap();
    assert_eq!((health.reachable, &health.details.to_json()["message"]), (false, &json!("no answer")));
    assert_eq!(health.since.as_second(), 1_800_000_000, "since the first look, and no later one was written");
    assert_eq!(
        asked.load(Ordering::SeqCst),
        3,
        "it was asked when it appeared, a minute and three minutes later"
    );
    there.store(true, Ordering::SeqCst);
    assert_eq!(bed.until_ended(id).await.state, WorkState::Completed);
    sleep(Duration::from_secs(1)).await;
    let health = bed.store.health(vec![bed.cluster]).await.unwrap().pop().unwrap();
    assert_eq!((health.reachable, health.details.to_json()), (true, json!({"version": "v1.2.3"})));
}

#[tokio::test(start_paused = true)]
async fn an_imported_cluster_is_looked_at_when_it_appears() {
    let mut bed = Bed::new().await;
    bed.start(noop);
    sleep(Duration::from_secs(1)).await;
    let id = Uuid::now_v7();
    let write = Transaction::new()
        .create::<Cluster>(id, &trial::cluster("two"), &AuditContext::service("test"))
        .unwrap();
    bed.store.commit(write).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let seen = bed.store.health(vec![bed.cluster, id]).await.unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|it| it.reachable && it.details.to_json() == json!({"version": "v1.0.0"})));
}

#[tokio::test(start_paused = true)]
async fn clusters_that_do_not_answer_are_waited_for_together() {
    let mut bed = Bed::new().await;
    let mut write = Transaction::new();
    let silent: Vec<Uuid> = (0..200).map(|_| Uuid::now_v7()).collect();
    for (index, id) in silent.iter().enumerate() {
        let document = trial::cluster(&format!("silent-{index}"));
        write = write.create::<Cluster>(*id, &document, &AuditContext::service("test")).unwrap();
    }
    bed.store.commit(write).await.unwrap();
    let mut tasks = ScriptedTasks::new(Arc::new(()), noop);
    tasks.takes = Box::new(|_| Duration::from_secs(10));
    tasks.answer = Box::new(|_| Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")));
    bed.start_with(tasks);
    sleep(Duration::from_secs(150)).await;
    let seen = bed.store.health(silent.clone()).await.unwrap();
    assert!(seen.len() == silent.len() && seen.iter().all(|it| !it.reachable), "{}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_an_operation_reach_a_running_plan_at_once() {
    let mut bed = Bed::new().await;
    bed.start(waits);
    let id = bed.ask().await;
    bed.until_in_step(id).await;
    let asked = Instant::now();
    let operation = NewWork::new(Uuid::now_v7(), bed.cluster, WorkKind::Operation);
    bed.store.enqueue(vec![operation]).await.unwrap();
    let work = bed.until(id, |work| work.state == WorkState::Pending).await;
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    let waiting = Journal::read(work.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!((waiting.code, work.attempt), (WaitingCode::Preempted, 0));
    let operation = bed.store.claim(WorkKind::Operation, 1, Uuid::now_v7()).await.unwrap().pop().unwrap();
    let done = store::Completion::new(operation.lease, api::work::Ending::Completed, json!({}));
    bed.store.complete(&[done]).await.unwrap();
    bed.until(id, |work| work.state == WorkState::InProgress).await;
    let asked = Instant::now();
    bed.cancel(id).await;
    let work = bed.until_ended(id).await;
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    assert_eq!(work.state, WorkState::Cancelled);
    assert_eq!(work.result.unwrap().to_json()["by"], "ada");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_hands_everything_back_within_thirty_seconds() {
    for (script, at_most) in [(waits as Script, 1), (endless as Script, 30)] {
        let mut bed = Bed::new().await;
        bed.start(script);
        let id = bed.ask().await;
        bed.until_in_step(id).await;
        assert_eq!(bed.store.leases(LEASE_PREFIX).await.unwrap().len(), 1);
        let asked = Instant::now();
        bed.shutdown.cancel();
        bed.workers.join_next().await.unwrap().unwrap();
        assert!(asked.elapsed() <= Duration::from_secs(at_most), "{:?}", asked.elapsed());
        let work = bed.work(id).await;
        assert_eq!((work.state, work.attempt), (WorkState::Pending, 0));
        assert_eq!(bed.store.lane(bed.cluster).await.unwrap().unwrap().owner, None);
        assert!(bed.store.leases(LEASE_PREFIX).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_actuator_held_is_taken_over_and_goes_on() {
    let mut bed = Bed::new().await;
    bed.start(waits);
    let id = bed.ask().await;
    bed.until_in_step(id).await;
    bed.workers.abort_all();
    bed.workers.join_next().await;
    let died = Instant::now();
    bed.start(noop);
    let work = bed.until_ended(id).await;
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 2));
    assert!(died.elapsed() <= Duration::from_secs(60 + 11), "{:?}", died.elapsed());
    let log = bed.store.entries(id, None, 100).await.unwrap();
    assert!(log.iter().any(|(_, entry)| entry.event == EntryEvent::TakenOver));
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_has_more_to_do_than_slots_takes_over_from_a_dead_one_all_the_same() {
    let mut bed = Bed::new().await;
    let lost = bed.ask().await;
    let dead = bed.store.claim_for(WorkKind::Manifest, 1, Uuid::now_v7(), Duration::ZERO).await.unwrap();
    assert_eq!(dead[0].lease.work, lost);
    bed.ask_on_as_many(30 * Config::default().slots).await;
    bed.start(|_| {
        Ok(Plan::new().step(Step::action("ten-seconds", |_, _| async {
            sleep(Duration::from_secs(10)).await;
            Ok(StepOutcome::default())
        })))
    });
    let begun = Instant::now();
    let work = bed.until_ended(lost).await;
    // One round of what was begun before, one of its own, and the time between two looks.
    assert!(begun.elapsed() <= Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!((work.state, work.attempt), (WorkState::Completed, 2));
    assert!(bed.store.queue(WorkKind::Manifest).await.unwrap().pending > 20 * Config::default().slots as u64);
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_has_more_to_do_than_slots_hears_that_it_is_to_end() {
    let mut bed = Bed::new().await;
    bed.ask_on_as_many(30 * Config::default().slots).await;
    let shutdown = bed.shutdown.clone();
    bed.start_with(ScriptedTasks::new(Arc::new(()), move |_| {
        let shutdown = shutdown.clone();
        Ok(Plan::new().step(Step::action("ask-for-the-end", move |_, _| {
            shutdown.cancel();
            async { Ok(StepOutcome::default()) }
        })))
    }));
    bed.workers.join_next().await.unwrap().unwrap();
    let queue = bed.store.queue(WorkKind::Manifest).await.unwrap();
    assert!(queue.pending > 0, "it went on to the end of the queue");
    assert_eq!(queue.running, 0, "what it held is ended or handed back");
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_cannot_renew_stops_before_its_lease_runs_out() {
    let mut bed = Bed::new().await;
    let alive = Arc::new(AtomicU32::new(0));
    struct Living(Arc<AtomicU32>);
    impl Drop for Living {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let counted = alive.clone();
    bed.start_with(ScriptedTasks::new(Arc::new(()), move |_| {
        let counted = counted.clone();
        Ok(Plan::new().step(Step::action("endless", move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            let living = Living(counted.clone());
            async move {
                std::future::pending::<()>().await;
                drop(living);
                Ok(StepOutcome::default())
            }
        })))
    }));
    let id = bed.ask().await;
    bed.until_in_step(id).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    bed.away.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(41)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0, "nothing runs that may soon be somebody else's");
    bed.away.store(false, Ordering::SeqCst);
    bed.until(id, |work| work.attempt == 2).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1, "it was taken over by the next round");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_three_times_is_stopped_for_the_fleet() {
    let mut bed = Bed::new().await;
    bed.start(|_| Ok(Plan::new().step(Step::action("bad", |_, _| async { panic!("a bug") }))));
    for _ in 0..3 {
        let id = bed.ask().await;
        assert_eq!(bed.until_ended(id).await.result.unwrap().to_json()["code"], "Panic");
    }
    let id = bed.ask().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bed.work(id).await.state, WorkState::Pending);
    let budget = bed.store.budgets().await.unwrap().pop().unwrap();
    assert_eq!((budget.key, budget.limit), (format!("task/{TASK}"), 0));
}

#[tokio::test(start_paused = true)]
async fn what_tasks_take_and_how_they_end_is_counted() {
    let mut bed = Bed::new().await;
    bed.start(|_| {
        let step = Step::action("slow", |_, _| async {
            sleep(Duration::from_secs(3)).await;
            Ok(StepOutcome::default())
        });
        Ok(Plan::new().step(step))
    });
    let path = api::doc::Document::path(&TaskStats::of(TASK));
    let id = bed.ask().await;
    bed.until_ended(id).await;
    sleep(Duration::from_secs(2)).await;
    let first = bed.store.documents::<TaskStats>().find(&path).await.unwrap().unwrap().document;
    assert_eq!(first.runs(), 1, "the plan knows of the first run at once");
    for _ in 0..5 {
        let id = bed.ask().await;
        bed.until_ended(id).await;
    }
    sleep(Duration::from_secs(120)).await;
    let stats = bed.store.documents::<TaskStats>().find(&path).await.unwrap().unwrap().document;
    assert_eq!(stats.durations_ms.len(), 6);
    assert!(stats.percentile(95).unwrap() >= Duration::from_secs(3));
    let listing = store::AuditQuery { target: Some(path), limit: 100, ..Default::default() };
    let audited = bed.store.audit_list(listing).await.unwrap();
    assert_eq!(audited.len(), 1, "what is written all day is not in the audit log: {audited:?}");
    let mut registry = Registry::with_prefix("shipshape_actuator");
    bed.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let told = r#"shipshape_actuator_manifests_total{task="scripted",outcome="Completed"} 6"#;
    assert!(text.contains(told), "{text}");
    for name in ["start_lag_seconds_count 6", "attempts_count 6", "running 0", "takeovers_total 0"] {
        assert!(text.contains(&format!("shipshape_actuator_{name}")), "{name}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_answers_again_is_noticed_though_nothing_is_done_on_it() {
    let mut bed = Bed::new().await;
    let there = Arc::new(AtomicBool::new(false));
    let answers = there.clone();
    let mut tasks = ScriptedTasks::new(Arc::new(()), noop);
    tasks.answer = Box::new(move |_| match answers.load(Ordering::SeqCst) {
        true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    bed.start_with(tasks);
    sleep(Duration::from_secs(30)).await;
    assert!(!bed.store.health(vec![bed.cluster]).await.unwrap()[0].reachable);
    there.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(60)).await;
    assert!(bed.store.health(vec![bed.cluster]).await.unwrap()[0].reachable);
}

#[tokio::test(start_paused = true)]
async fn a_failed_end_on_a_cluster_that_answers_again_tells_that_it_does() {
    let mut bed = Bed::new().await;
    let there = Arc::new(AtomicBool::new(false));
    let (seen, answers) = (there.clone(), there.clone());
    let mut tasks = ScriptedTasks::new(Arc::new(()), move |_| match seen.load(Ordering::SeqCst) {
        true => {
            Ok(Plan::new().step(Step::action("no", |_, _| async { Err(StepError::terminal("No", "no")) })))
        }
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    tasks.answer = Box::new(move |_| match answers.load(Ordering::SeqCst) {
        true => Ok(ClusterProbe { version: "v1.2.3".to_owned() }),
        false => Err(StepError::new(StepErrorKind::Unreachable, "Unreachable", "no answer")),
    });
    bed.start_with(tasks);
    let id = bed.ask().await;
    sleep(Duration::from_secs(1)).await;
    there.store(true, Ordering::SeqCst);
    assert_eq!(bed.until_ended(id).await.state, WorkState::Failed);
    sleep(Duration::from_millis(10)).await;
    assert!(bed.store.health(vec![bed.cluster]).await.unwrap()[0].reachable);
}

/// A plan that marks the cluster and then waits; its undo takes the mark away.
fn marked(marks: &Arc<AtomicU32>) -> Plan<()> {
    let (set, cleared) = (marks.clone(), marks.clone());
    let mark = Step::action("mark", move |_: Arc<()>, _| {
        set.store(1, Ordering::SeqCst);
        async { Ok(StepOutcome::default()) }
    })
    .undo(move |_, _, _| {
        cleared.store(0, Ordering::SeqCst);
        async { Ok(Some("the mark was taken away".to_owned())) }
    });
    let wait = Step::wait("for-ever", Duration::from_secs(3600), |_, _| async {
        Ok(PollStatus::Waiting("for ever".to_owned()))
    });
    Plan::new().step(mark).step(wait)
}

#[tokio::test(start_paused = true)]
async fn begun_work_that_is_cancelled_while_its_plan_cannot_be_made_is_undone_when_it_can() {
    let mut bed = Bed::new().await;
    let (marks, away) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (seen, gone) = (marks.clone(), away.clone());
    bed.start_with(ScriptedTasks::new(Arc::new(()), move |_| match gone.load(Ordering::SeqCst) {
        true => Err(StepError::transient("Store", "the store gave no answer")),
        false => Ok(marked(&seen)),
    }));
    let id = bed.ask().await;
    bed.until(id, |work| work.step.as_deref() == Some("for-ever")).await;
    away.store(true, Ordering::SeqCst);
    // An operation makes it rest; behind that its plan cannot be made.
    let operation = NewWork::new(Uuid::now_v7(), bed.cluster, WorkKind::Operation);
    bed.store.enqueue(vec![operation]).await.unwrap();
    bed.until(id, |work| work.state == WorkState::Pending).await;
    bed.cancel(id).await;
    // The kill switch does not keep it from its end.
    bed.store.set_budget(&format!("task/{TASK}"), Some(0), None).await.unwrap();
    let operation = bed.store.claim(WorkKind::Operation, 1, Uuid::now_v7()).await.unwrap().pop().unwrap();
    let done = store::Completion::new(operation.lease, api::work::Ending::Completed, json!({}));
    bed.store.complete(&[done]).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!((bed.work(id).await.state, marks.load(Ordering::SeqCst)), (WorkState::Pending, 1));
    away.store(false, Ordering::SeqCst);
    let result = bed.until_ended(id).await.result.unwrap().to_json();
    assert_eq!((&result["code"], &result["by"]), (&json!("Cancelled"), &json!("ada")));
    assert_eq!((&result["reason"], marks.load(Ordering::SeqCst)), (&json!("not today"), 0));
}

#[tokio::test(start_paused = true)]
async fn ends_that_no_holder_writes_and_undos_that_fail_are_counted() {
    let mut bed = Bed::new().await;
    bed.start(|_| {
        let stuck = Step::action("a", |_, _| async { Ok(StepOutcome::default()) })
            .undo(|_, _, _| async { Err(StepError::terminal("No", "no way back")) });
        let fails = Step::action("b", |_, _| async { Err(StepError::terminal("No", "no")) });
        Ok(Plan::new().step(stuck).step(fails))
    });
    let failed = bed.ask().await;
    assert_eq!(bed.until_ended(failed).await.state, WorkState::Failed);
    sleep(Duration::from_secs(20)).await;
    bed.store.set_budget(&format!("task/{TASK}"), Some(0), None).await.unwrap();
    let (late, cancelled) = (bed.ask().await, bed.ask().await);
    bed.cancel(cancelled).await;
    sleep(Duration::from_secs(3600)).await;
    // The lane is let out, and the claim that takes it up closes what is too late.
    bed.store.set_budget(&format!("task/{TASK}"), None, None).await.unwrap();
    assert_eq!(bed.until_ended(late).await.state, WorkState::TimedOut);
    sleep(Duration::from_secs(20)).await;
    let mut registry = Registry::with_prefix("shipshape_actuator");
    bed.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for (outcome, count) in [("Failed", 1), ("TimedOut", 1), ("Cancelled", 1)] {
        let told =
            format!(r#"shipshape_actuator_manifests_total{{task="scripted",outcome="{outcome}"}} {count}"#);
        assert!(text.contains(&told), "{told}: {text}");
    }
    assert!(text.contains("shipshape_actuator_undo_failed_total 1"), "{text}");
}
