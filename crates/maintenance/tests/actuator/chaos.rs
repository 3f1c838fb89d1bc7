//! Real actuators and schedulers on PostgreSQL, killed with -9 at random while manifests run and are made. Then: every
//! manifest is at its end, none ran while another of its cluster did, no step ran more often than once and once more for each
//! crash inside it, no stale fence wrote, no budget was exceeded and all are at zero; and of each schedule, period and cluster
//! there is one manifest.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use api::doc::{Cluster, Manifest, MissedPolicy, ResultCode, Schedule, ScheduleState, SpreadBy};
use api::work::{Ending, WorkKind, WorkState};
use jiff::Timestamp;
use maintenance::fixture;
use serde_json::json;
use store::{
    AuditContext, Completion, CompletionOutcome, Keyring, ListOptions, Options, PAGE_MAX, Store, StoreError,
    Transaction, WorkLease,
};
use testkit::process::{ChildProcess, example_path};
use testkit::{postgres, prerequisites};
use tokio::time::Instant;
use uuid::Uuid;

/// Short, so that the dead are followed soon; long enough that nobody who lives loses it on a busy machine.
const LEASE: Duration = Duration::from_secs(4);
const ACTUATORS: usize = 3;
const SCHEDULERS: usize = 2;
/// A period of each schedule begins so often, in seconds, and so many are made ahead: far longer than a lease, so that not one
/// is missed while nobody has it.
const EVERY: i64 = 5;
const AHEAD: u32 = 5;
const SCHEDULES: [&str; 2] = ["one", "other"];
/// So many clusters are the schedules'. A process that dies keeps what it worked on for a lease, so that there must not be more
/// to do than the others can.
const SCHEDULED: usize = 5;
/// So much may run at once: less than there are slots, and clusters.
const FLEET: u32 = 15;
/// So long it goes on at least, for some periods to begin.
const AT_LEAST: Duration = Duration::from_secs(16);
/// So often somebody is killed at least; every third time a scheduler.
const KILLS_MIN: usize = 9;

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

/// What the test stands on.
struct Site {
    _database: postgres::TestDatabase,
    _directory: tempfile::TempDir,
    url: String,
    key_file: PathBuf,
    log: PathBuf,
    store: Store,
}

impl Site {
    async fn new() -> Option<Site> {
        let Some(server) = postgres::shared() else {
            prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
            return None;
        };
        let database = server.database().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("keys");
        let keyring = Keyring::read_or_create(&key_file).unwrap();
        let url = database.url().to_owned();
        let store =
            Store::open(Options::new(url.parse().unwrap(), keyring, Arc::new(SystemClock))).await.unwrap();
        let log = directory.path().join("log");
        Some(Site { _database: database, _directory: directory, url, key_file, log, store })
    }

    fn start(&self, role: &str) -> ChildProcess {
        self.start_with_lease(role, LEASE)
    }

    fn start_with_lease(&self, role: &str, lease: Duration) -> ChildProcess {
        let mut command = Command::new(example_path("test_process").unwrap());
        command
            .arg(role)
            .arg(&self.url)
            .arg(&self.key_file)
            .arg(&self.log)
            .arg(lease.as_millis().to_string());
        ChildProcess::start(command).unwrap()
    }

    /// Clusters, and manifests for them, with a budget that is less than all of them.
    async fn fill(&self, clusters: usize, manifests: usize) -> Vec<Uuid> {
        let by = AuditContext::service("test");
        let mut ids = Vec::new();
        let mut write = Transaction::new();
        for index in 0..clusters {
            let id = Uuid::now_v7();
            let mut cluster = fixture::cluster(&format!("c{index}"));
            cluster.labels.insert("scheduled".to_owned(), (index < SCHEDULED).to_string());
            write = write.create::<Cluster>(id, &cluster, &by).unwrap();
            ids.push(id);
        }
        self.store.commit(write).await.unwrap();
        self.store.set_budget("fleet", Some(FLEET), None).await.unwrap();
        let now = SystemClock.now();
        let asked: Vec<_> = (0..manifests)
            .map(|index| fixture::manifest(Uuid::now_v7(), ids[index % clusters], Uuid::from_u128(1), now))
            .map(|manifest| (manifest, vec!["fleet".to_owned()]))
            .collect();
        for block in asked.chunks(500) {
            self.store.manifests().create(block, &by).await.unwrap();
        }
        asked.into_iter().map(|(manifest, _)| manifest.id).collect()
    }

    /// Two rules, of which a period begins every few seconds.
    async fn schedule(&self, state: ScheduleState) {
        for id in SCHEDULES {
            let schedule = Schedule {
                id: id.to_owned(),
                state,
                task_id: Uuid::from_u128(1),
                calendars: vec![format!("*-*-* *:*:0/{EVERY}")],
                time_zone: "UTC".to_owned(),
                look_forward_count: AHEAD,
                schedule_across: "0s".to_owned(),
                spread_by: SpreadBy::Cluster,
                start_within: Some("60s".to_owned()),
                missed_policy: MissedPolicy::Skip,
                priority: 0,
                selectors: vec![json!({"key": "label.scheduled", "operator": "eq", "value": "true"})],
                parameters: serde_json::Map::new(),
            };
            self.store.schedules().put(&schedule, None, &AuditContext::service("test")).await.unwrap();
        }
    }

    /// Every manifest that there is.
    async fn manifests(&self) -> Vec<Manifest> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let selection = ListOptions { from, limit: PAGE_MAX, ..ListOptions::default() };
            let page = self.store.documents::<Manifest>().list(selection).await.unwrap();
            all.extend(page.items.into_iter().map(|it| it.document));
            from = page.next;
            if from.is_none() {
                return all;
            }
        }
    }

    async fn ended(&self, manifests: &[Uuid]) -> usize {
        let mut ended = 0;
        for block in manifests.chunks(500) {
            let works = self.store.works(block.to_vec()).await.unwrap();
            ended += works.iter().filter(|work| work.state.is_terminal()).count();
        }
        ended
    }
}

/// Line that a test process wrote.
struct Line {
    what: String,
    pid: u32,
    hold: WorkLease,
    step: String,
}

fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, pid, lane, owner, fence, work, step] = words.as_slice() else { panic!("{line:?}") };
        let uuid = |text: &str| text.parse::<Uuid>().unwrap();
        let hold = WorkLease {
            work: uuid(work),
            lane: uuid(lane),
            owner: uuid(owner),
            fence: fence.parse().unwrap(),
        };
        Line { what: (*what).to_owned(), pid: pid.parse().unwrap(), hold, step: (*step).to_owned() }
    };
    text.lines().map(line).collect()
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_actuators_and_schedulers_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(site) = Site::new().await else { return };
        let (clusters, manifests) = if soak() { (100, 2000) } else { (20, 300) };
        kill_at_random(&site, clusters, manifests).await;
    });
}

#[test]
fn released_work_continues_in_another_process_at_once_and_no_step_runs_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(site) = Site::new().await else { return };
        let ids = site.fill(20, 200).await;
        // With the usual lease: work that is taken over a minute later instead of released is at its second attempt.
        let mut processes = Vec::new();
        for already in [0, 20] {
            let mut process = site.start_with_lease("actuator", store::LEASE);
            assert_eq!(process.line(Duration::from_secs(60)).unwrap(), "ready");
            let begun = || lines(&std::fs::read_to_string(&site.log).unwrap_or_default()).len() > already;
            testkit::wait_until("it is at work", Duration::from_secs(60), || begun().then_some(())).unwrap();
            processes.push(process);
        }
        let [mut one, mut other] = <[ChildProcess; 2]>::try_from(processes).unwrap();
        one.terminate().unwrap();
        let status = one.wait(Duration::from_secs(30)).unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(one.line(Duration::from_secs(1)).unwrap(), "stopped");
        let begun = Instant::now();
        while site.ended(&ids).await < ids.len() {
            assert!(begun.elapsed() < 2 * store::LEASE, "not everything comes to its end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        other.terminate().unwrap();
        assert!(other.wait(Duration::from_secs(30)).unwrap().success());
        for work in site.store.works(ids).await.unwrap() {
            assert_eq!(
                (work.state, work.attempt),
                (WorkState::Completed, 1),
                "{}: {:?}",
                work.id,
                work.result
            );
        }
        let log = lines(&std::fs::read_to_string(&site.log).unwrap());
        let mut begun = HashSet::new();
        for line in log.iter().filter(|line| line.what == "begin") {
            assert!(begun.insert((line.hold.work, &line.step)), "step {} ran twice", line.step);
        }
        assert!(log.iter().map(|line| line.pid).collect::<HashSet<_>>().len() == 2, "both were at work");
    });
}

async fn kill_at_random(site: &Site, clusters: usize, manifests: usize) {
    let asked = site.fill(clusters, manifests).await;
    site.schedule(ScheduleState::Enabled).await;
    let roles = [["actuator"; ACTUATORS].as_slice(), &["scheduler"; SCHEDULERS]].concat();
    let mut processes: Vec<ChildProcess> = roles.iter().map(|role| site.start(role)).collect();
    for process in &mut processes {
        assert_eq!(process.line(Duration::from_secs(60)).unwrap(), "ready");
    }
    let mut killed = HashSet::new();
    let begun = Instant::now();
    let limit = if soak() { Duration::from_secs(900) } else { Duration::from_secs(180) };
    loop {
        let ended = site.ended(&asked).await;
        // The end of the run is left in peace, so that it comes.
        let wild = ended < asked.len() * 4 / 5 || killed.len() < KILLS_MIN;
        if !wild && ended == asked.len() && begun.elapsed() > AT_LEAST {
            break;
        }
        assert!(begun.elapsed() < limit, "{ended} of {} ended, {} kills", asked.len(), killed.len());
        // Which one, and when, is left to chance; what follows holds for every choice.
        let chance = Uuid::new_v4().as_u128();
        tokio::time::sleep(Duration::from_millis(150 + u64::try_from(chance % 1000).unwrap())).await;
        if wild {
            let chosen = usize::try_from((chance >> 32) % 64).unwrap();
            let nth = match killed.len() % 3 {
                2 => ACTUATORS + chosen % SCHEDULERS,
                _ => chosen % ACTUATORS,
            };
            killed.insert(processes[nth].pid());
            processes[nth].kill9().unwrap();
            processes[nth] = site.start(roles[nth]);
        }
    }
    // What is not begun of the schedules is withdrawn, and the rest comes to its end.
    let over = SystemClock.now();
    site.schedule(ScheduleState::Disabled).await;
    loop {
        let queue = site.store.queue(WorkKind::Manifest).await.unwrap();
        if queue.pending + queue.running == 0 {
            break;
        }
        assert!(begun.elapsed() < limit, "{queue:?}, {} kills", killed.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for process in &mut processes {
        process.close_input();
        let status = process.wait(Duration::from_secs(40)).unwrap();
        assert!(status.success(), "{status}");
    }
    let all = site.manifests().await;
    judge_schedules(&all, over);
    let ids: Vec<Uuid> = all.iter().map(|manifest| manifest.id).collect();
    assert!(asked.iter().all(|id| ids.contains(id)), "a manifest is missing");
    judge(site, &ids, &killed).await;
}

/// Checks that each schedule has exactly one manifest for each period and cluster, whatever was killed.
fn judge_schedules(all: &[Manifest], over: Timestamp) {
    for id in SCHEDULES {
        let mut made: BTreeMap<Timestamp, BTreeSet<Uuid>> = BTreeMap::new();
        for manifest in all.iter().filter(|it| it.created_by_schedule.as_deref() == Some(id)) {
            let is_first = made.entry(manifest.run_after).or_default().insert(manifest.cluster);
            assert!(is_first, "{id} made {} twice for {}", manifest.run_after, manifest.cluster);
        }
        let due: Vec<i64> = made.keys().filter(|at| **at <= over).map(|at| at.as_second()).collect();
        assert!(due.len() >= 3, "{id} made only {due:?}");
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] == EVERY), "{id} skipped periods: {due:?}");
        // A period that started while its manifests were first created may have only some of them.
        for (at, of) in made.range(..=over).skip(1) {
            assert_eq!(of.len(), SCHEDULED, "{id} at {at} has not reached every cluster");
        }
    }
}

/// Largest number of concurrent runs. Each lasts at least from its first line under a fence to the last.
fn most_concurrent(log: &[Line]) -> u32 {
    let mut spans: BTreeMap<(Uuid, i64), (usize, usize)> = BTreeMap::new();
    for (place, line) in log.iter().enumerate() {
        spans.entry((line.hold.work, line.hold.fence)).or_insert((place, place)).1 = place;
    }
    let mut change = vec![0_i32; log.len() + 1];
    for (first, last) in spans.into_values() {
        change[first] += 1;
        change[last + 1] -= 1;
    }
    let now = change.into_iter().scan(0, |now, change| {
        *now += change;
        Some(*now)
    });
    now.max().and_then(|most| most.try_into().ok()).unwrap_or(0)
}

async fn judge(site: &Site, ids: &[Uuid], killed: &HashSet<u32>) {
    let log = lines(&std::fs::read_to_string(&site.log).unwrap());
    // A later holder of a lane has a higher fence: a later line with a lower fence would be concurrent work.
    let mut fences: BTreeMap<Uuid, i64> = BTreeMap::new();
    let mut begun: BTreeMap<(Uuid, &str), Vec<&Line>> = BTreeMap::new();
    for line in &log {
        let WorkLease { lane, fence, work, .. } = line.hold;
        let last = fences.entry(lane).or_insert(fence);
        assert!(
            *last <= fence,
            "{work} ran on {lane} under {fence} while another worker held it under {last}"
        );
        *last = fence;
        if line.what == "begin" {
            begun.entry((work, line.step.as_str())).or_default().push(line);
        }
    }
    for ((work, step), times) in &begun {
        let but_last = &times[..times.len() - 1];
        let unexplained = but_last.iter().find(|line| !killed.contains(&line.pid));
        assert!(unexplained.is_none(), "step {step} of {work} ran again though nobody died in it");
        let by: HashSet<u32> = times.iter().map(|line| line.pid).collect();
        assert_eq!(by.len(), times.len(), "one and the same ran step {step} of {work} twice");
    }
    let at_once = most_concurrent(&log);
    assert!(at_once <= FLEET, "{at_once} ran at once");
    let mut again = 0;
    for block in ids.chunks(500) {
        for work in site.store.works(block.to_vec()).await.unwrap() {
            // What a schedule made may be withdrawn when that ends, or come too late behind what the test asked for.
            let code = work.result.as_ref().and_then(|it| it.code.as_ref()).map_or("", ResultCode::as_str);
            let passed_over = work.origin.is_some() && ["Superseded", "TimedOut"].contains(&code);
            assert!(
                passed_over || matches!(work.state, WorkState::Completed | WorkState::RetriesExceeded),
                "{} is {}: {:?}",
                work.id,
                work.state,
                work.result
            );
            again += usize::from(work.attempt > 1);
            if work.state == WorkState::Completed {
                for step in ["one", "two"] {
                    assert!(begun.contains_key(&(work.id, step)), "step {step} of {} never ran", work.id);
                }
            }
        }
    }
    assert!(again > 0, "nobody was killed while it worked");
    for line in log.iter().filter(|line| killed.contains(&line.pid)) {
        let dead = line.hold;
        let late = site.store.checkpoint(dead, "late", json!({})).await;
        assert!(matches!(late, Err(StoreError::LostLease { .. })), "{late:?}");
        let end = Completion::new(dead, Ending::Completed, json!({}));
        assert_eq!(site.store.complete(&[end]).await.unwrap(), [CompletionOutcome::Lost]);
    }
    for budget in site.store.budgets().await.unwrap() {
        assert_eq!((budget.used, budget.parked), (0, 0), "{budget:?}");
    }
    let broken: Vec<_> =
        site.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
