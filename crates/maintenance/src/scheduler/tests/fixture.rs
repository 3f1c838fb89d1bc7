//! Fixture: a store of either engine, a manual clock, clusters and schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock as _, ManualClock, SharedClock, SystemClock};
use api::doc::{Cluster, MissedPolicy, Schedule, ScheduleState, SpreadBy};
use api::secret::Secret;
use api::work::WorkState;
use jiff::{Timestamp, ToSpan};
use serde_json::{Map, json};
use store::{AuditContext, Keyring, Location, Options, Store, VersionedDocument, WorkView};
use testkit::{postgres, prerequisites};
use uuid::Uuid;

use super::super::{Deps, Metrics, Scheduler, Timing};

pub(super) const TASK: Uuid = Uuid::from_u128(0x7a5c);

pub(super) struct TestScheduler {
    pub(super) store: Store,
    pub(super) options: Options,
    pub(super) clock: Arc<ManualClock>,
    _storage: Storage,
}

enum Storage {
    Directory(#[expect(dead_code, reason = "removed when dropped")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "dropped when dropped")] postgres::TestDatabase),
}

impl TestScheduler {
    pub(super) async fn sqlite() -> TestScheduler {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        TestScheduler::open(location, Storage::Directory(directory)).await
    }

    pub(super) async fn postgres() -> Option<TestScheduler> {
        let Some(server) = postgres::shared() else {
            prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
            return None;
        };
        let database = server.database().unwrap();
        Some(TestScheduler::open(database.url().parse().unwrap(), Storage::Database(database)).await)
    }

    async fn open(location: Location, storage: Storage) -> TestScheduler {
        let truth: SharedClock = Arc::new(SystemClock);
        let options = Options::new(location, Keyring::ephemeral().unwrap(), truth);
        let store = Store::open(options.clone()).await.unwrap();
        // The clock of the scheduler is manual; that of the store is real.
        TestScheduler { store, options, clock: ManualClock::at(SystemClock.now()), _storage: storage }
    }

    /// The store as opened by another process; on SQLite, which supports one process, the same.
    pub(super) async fn open_another(&self) -> Store {
        match self.options.location {
            Location::Postgres(_) => Store::open(self.options.clone()).await.unwrap(),
            Location::Sqlite(_) => self.store.clone(),
        }
    }

    pub(super) fn deps(&self, store: Store) -> Deps {
        let clock = self.clock.clone();
        Deps { store, clock, metrics: Metrics::default(), owner: Uuid::new_v4(), timing: Timing::default() }
    }

    /// Scheduler that has read the feed once.
    pub(super) async fn scheduler(&self) -> Scheduler {
        opened(&self.deps(self.store.clone())).await
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) async fn import(&self, cluster: &Cluster) -> Uuid {
        self.store.clusters().import(cluster, &Secret::new(b"{}".to_vec()), &by()).await.unwrap().0
    }

    pub(super) async fn cluster(&self, uuid: Uuid) -> VersionedDocument<Cluster> {
        self.store.clusters().get(uuid).await.unwrap().unwrap()
    }

    pub(super) async fn change_cluster(&self, uuid: Uuid, change: impl FnOnce(&mut Cluster)) {
        let read = self.cluster(uuid).await;
        let mut wanted = read.document.clone();
        change(&mut wanted);
        self.store.clusters().update(&read, &wanted, &by()).await.unwrap();
    }

    pub(super) async fn put(&self, schedule: &Schedule) {
        self.store.schedules().put(schedule, None, &by()).await.unwrap();
    }

    pub(super) async fn schedule(&self, id: &str) -> VersionedDocument<Schedule> {
        self.store.schedules().find(&format!("/maintenanceschedules/{id}")).await.unwrap().unwrap()
    }

    /// The pending manifests of a schedule.
    pub(super) async fn pending(&self, schedule: &str) -> Vec<WorkView> {
        let mut pending = self.store.pending_for_origin(schedule, None, 1000).await.unwrap();
        pending.sort_by_key(|work| (work.run_after, work.lane));
        pending
    }

    /// Clusters with pending manifests of a schedule.
    pub(super) async fn clusters_of(&self, schedule: &str) -> BTreeSet<Uuid> {
        self.pending(schedule).await.into_iter().map(|work| work.lane).collect()
    }

    pub(super) async fn state(&self, manifest: Uuid) -> WorkState {
        self.store.work(manifest).await.unwrap().unwrap().state
    }
}

/// Reads the feed and runs a pass, as the service does. Returns the numbers of created and withdrawn manifests.
pub(super) async fn reconcile(scheduler: &mut Scheduler) -> (usize, usize) {
    catch_up(scheduler).await;
    scheduler.pass().await.unwrap()
}

/// Scheduler that has listed everything.
pub(super) async fn opened(deps: &Deps) -> Scheduler {
    let mut scheduler = Scheduler::new(deps);
    scheduler.follow_feed().await.unwrap();
    scheduler
}

/// Reads all changes up to now. PostgreSQL shows a change in the feed only when no older transaction runs on the whole
/// server, including those of other tests; so this writes a marker and waits for it.
pub(super) async fn catch_up(scheduler: &mut Scheduler) {
    let marker = api::doc::Version {
        version: Uuid::new_v4().to_string(),
        openshift_pullspec: String::new(),
        installer_pullspec: None,
        enabled: false,
        default: false,
    };
    let (uuid, _) = scheduler.deps.store.versions().create(&marker, &by()).await.unwrap();
    let mut from = scheduler.feed.position().unwrap();
    loop {
        let page = scheduler.deps.store.feed_after(from, 1000).await.unwrap();
        if page.changes.iter().any(|change| change.uuid == uuid) {
            break;
        }
        from = page.next;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    scheduler.follow_feed().await.unwrap();
}

pub(super) fn by() -> AuditContext {
    AuditContext { actor: "tester".to_owned(), reason: String::new(), correlation_id: None }
}

/// Imported cluster of ring 1 that existed before every test.
pub(super) fn cluster(name: &str) -> Cluster {
    Cluster {
        labels: BTreeMap::from([("ring".to_owned(), "1".to_owned())]),
        created_at: SystemClock.now() - 1000.hours(),
        ..crate::fixture::cluster(name)
    }
}

/// Schedule for ring 1 whose next period starts two hours after `now`, and then every day.
pub(super) fn daily(id: &str, now: Timestamp) -> Schedule {
    Schedule {
        id: id.to_owned(),
        state: ScheduleState::Enabled,
        task_id: TASK,
        calendars: vec![calendar_at(now + 2.hours())],
        time_zone: "UTC".to_owned(),
        look_forward_count: 1,
        schedule_across: "0s".to_owned(),
        spread_by: SpreadBy::Cluster,
        start_within: None,
        missed_policy: MissedPolicy::Skip,
        priority: 0,
        selectors: vec![json!({ "key": "label.ring", "operator": "eq", "value": "1" })],
        parameters: Map::new(),
    }
}

/// Every day at the hour and minute of an instant.
pub(super) fn calendar_at(at: Timestamp) -> String {
    at.strftime("*-*-* %H:%M").to_string()
}

pub(super) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(short_or_long(180, 1800)), test)
            .await
            .expect("the test hangs")
    })
}

/// `short` in every run, `long` in the soak.
#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
pub(super) fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var_os("SHIPSHAPE_SOAK").is_some() { long } else { short }
}

/// Runs a test on both engines; afterwards checks the invariants of the store.
macro_rules! on_both_engines {
    ($(#[$meta:meta])* async fn $name:ident($test:ident: &TestScheduler) $body:block) => {
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn on($test: &TestScheduler) $body

            async fn run_and_check(test: TestScheduler) {
                on(&test).await;
                let findings = test.store.check().await.unwrap();
                let broken: Vec<_> = findings.into_iter().filter(|it| !it.faults.is_empty()).collect();
                assert!(broken.is_empty(), "{broken:#?}");
            }

            #[test]
            fn on_sqlite() {
                $crate::scheduler::tests::fixture::block_on(async { run_and_check(TestScheduler::sqlite().await).await });
            }

            #[test]
            fn on_postgresql() {
                $crate::scheduler::tests::fixture::block_on(async {
                    if let Some(test) = TestScheduler::postgres().await {
                        run_and_check(test).await;
                    }
                });
            }
        }
    };
}

pub(super) use on_both_engines;
