//! Real actuators on PostgreSQL, killed with -9 at random while manifests run. Then: every manifest is at its end, none ran
//! while another of its cluster did, no step ran more often than once and once more for each crash inside it, no stale fence
//! wrote, budgets are at zero.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use api::doc::Cluster;
use api::work::{Ending, WorkState};
use maintenance::trial;
use serde_json::json;
use store::{By, Completion, Fate, Hold, Keyring, Options, Store, StoreError, Transaction};
use testbed::process::{Child, example_path};
use testbed::{parts, postgres};
use tokio::time::Instant;
use uuid::Uuid;

/// Short, so that the dead are followed soon.
const LEASE: Duration = Duration::from_millis(1500);
const HANDS: usize = 3;

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

/// What the test stands on.
struct Site {
    _database: postgres::Database,
    _directory: tempfile::TempDir,
    url: String,
    key_file: PathBuf,
    log: PathBuf,
    store: Store,
}

impl Site {
    async fn new() -> Option<Site> {
        let Some(server) = postgres::shared() else {
            parts::skip(parts::POSTGRESQL, "no PostgreSQL server was found");
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

    fn hand(&self) -> Child {
        let mut command = Command::new(example_path("hand").unwrap());
        command.arg(&self.url).arg(&self.key_file).arg(&self.log).arg(LEASE.as_millis().to_string());
        Child::start(command).unwrap()
    }

    /// Clusters, and manifests for them, with a budget that is less than all of them.
    async fn fill(&self, clusters: usize, manifests: usize) -> Vec<Uuid> {
        let by = By::service("test");
        let mut ids = Vec::new();
        let mut write = Transaction::new();
        for index in 0..clusters {
            let id = Uuid::now_v7();
            write = write.create::<Cluster>(id, &trial::cluster(&format!("c{index}")), &by).unwrap();
            ids.push(id);
        }
        self.store.commit(write).await.unwrap();
        self.store.set_budget("fleet", Some(15), None).await.unwrap();
        let now = SystemClock.now();
        let asked: Vec<_> = (0..manifests)
            .map(|index| trial::manifest(Uuid::now_v7(), ids[index % clusters], Uuid::from_u128(1), now))
            .map(|manifest| (manifest, vec!["fleet".to_owned()]))
            .collect();
        for block in asked.chunks(500) {
            self.store.manifests().create(block, &by).await.unwrap();
        }
        asked.into_iter().map(|(manifest, _)| manifest.id).collect()
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

/// A line that a hand wrote.
struct Line {
    what: String,
    pid: u32,
    hold: Hold,
    step: String,
}

fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, pid, lane, owner, fence, work, step] = words.as_slice() else { panic!("{line:?}") };
        let uuid = |text: &str| text.parse::<Uuid>().unwrap();
        let hold =
            Hold { work: uuid(work), lane: uuid(lane), owner: uuid(owner), fence: fence.parse().unwrap() };
        Line { what: (*what).to_owned(), pid: pid.parse().unwrap(), hold, step: (*step).to_owned() }
    };
    text.lines().map(line).collect()
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_actuators_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(site) = Site::new().await else { return };
        let (clusters, manifests) = if soak() { (100, 2000) } else { (20, 200) };
        kill_at_random(&site, clusters, manifests).await;
    });
}

async fn kill_at_random(site: &Site, clusters: usize, manifests: usize) {
    let ids = site.fill(clusters, manifests).await;
    let mut hands: Vec<Child> = (0..HANDS).map(|_| site.hand()).collect();
    for hand in &mut hands {
        assert_eq!(hand.line(Duration::from_secs(60)).unwrap(), "ready");
    }
    let mut killed = HashSet::new();
    let begun = Instant::now();
    let limit = if soak() { Duration::from_secs(900) } else { Duration::from_secs(120) };
    loop {
        let ended = site.ended(&ids).await;
        if ended == ids.len() {
            break;
        }
        assert!(begun.elapsed() < limit, "{ended} of {} ended, {} kills", ids.len(), killed.len());
        // Which one, and when, is left to chance; what follows holds for every choice.
        let chance = Uuid::new_v4().as_u128();
        let pause = Duration::from_millis(150 + u64::try_from(chance % 700).unwrap());
        tokio::time::sleep(pause).await;
        // The end of the run is left in peace, so that it comes.
        if ended < ids.len() * 4 / 5 {
            let hand = &mut hands[usize::try_from((chance >> 32) % 3).unwrap()];
            killed.insert(hand.pid());
            hand.kill9().unwrap();
            *hand = site.hand();
        }
    }
    assert!(killed.len() >= 3, "the work was over before anything could happen: {} kills", killed.len());
    for hand in &mut hands {
        hand.close_input();
        let status = hand.wait(Duration::from_secs(40)).unwrap();
        assert!(status.success(), "{status}");
    }
    judge(site, &ids, &killed).await;
}

async fn judge(site: &Site, ids: &[Uuid], killed: &HashSet<u32>) {
    let log = lines(&std::fs::read_to_string(&site.log).unwrap());
    // Whoever holds a lane later has a higher fence: a line of a lower one behind it would be work beside work.
    let mut fences: BTreeMap<Uuid, i64> = BTreeMap::new();
    let mut begun: BTreeMap<(Uuid, &str), Vec<&Line>> = BTreeMap::new();
    for line in &log {
        let Hold { lane, fence, work, .. } = line.hold;
        let last = fences.entry(lane).or_insert(fence);
        assert!(*last <= fence, "{work} ran on {lane} under {fence} while somebody held it under {last}");
        *last = fence;
        if line.what == "begin" {
            begun.entry((work, line.step.as_str())).or_default().push(line);
        }
    }
    for ((work, step), times) in &begun {
        let but_last = &times[..times.len() - 1];
        let unexplained = but_last.iter().find(|line| !killed.contains(&line.pid));
        assert!(unexplained.is_none(), "step {step} of {work} ran again though nobody died in it");
    }
    let mut again = 0;
    for block in ids.chunks(500) {
        for work in site.store.works(block.to_vec()).await.unwrap() {
            assert!(
                matches!(work.state, WorkState::Completed | WorkState::RetriesExceeded),
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
        assert_eq!(site.store.complete(vec![end]).await.unwrap(), [Fate::Lost]);
    }
    for budget in site.store.budgets().await.unwrap() {
        assert_eq!((budget.used, budget.parked), (0, 0), "{budget:?}");
    }
    let broken: Vec<_> =
        site.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
