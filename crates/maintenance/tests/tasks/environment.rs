//! A real cluster with controllers, in which simulated nodes live, and a worker that carries out one manifest.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::admin::Entry;
use api::clock::{SharedClock, SystemClock};
use api::doc::ProvisioningState;
use api::work::{WorkKind, WorkState};
use kubelink::{AllowedRisks, Kubeconfig, Link, Timeouts};
use kubesim::kubelet::{KubeletOptions, Kubelets, NodeTemplate};
use maintenance::tasks;
use planner::task::Definition;
use serde_json::{Map, Value, json};
use steps::engine::{ATTEMPTS_MAX, Journal, RunControl, RunOutcome, RunRequest};
use steps::{ClusterContext, ClusterFacts};
use store::{Keyring, Location, NewWork, Options, Store, Transaction, WorkView};
use testkit::kube::{PrivateTestCluster, private};
use tokio::runtime::Runtime;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(120);

/// The cluster of all tests of this executable.
pub(crate) struct Real {
    pub(crate) cluster: PrivateTestCluster,
    /// Where the nodes live, whatever becomes of a test's own runtime.
    _runtime: Runtime,
    _kubelets: Kubelets,
}

/// The nodes, each with the pool that it is in.
pub(crate) const POOLS: [(&str, &str); 5] =
    [("host-1", "host"), ("host-2", "host"), ("cycle-1", "cycle"), ("cycle-2", "cycle"), ("held-1", "held")];

/// The cluster; `None`, said aloud, where this machine has none.
pub(crate) fn real() -> Option<&'static Real> {
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    let real = REAL.get_or_init(|| {
        let cluster = private(testkit::kube::TestClusterOptions::default().with_controllers())?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let nodes = POOLS.map(|(name, pool)| {
            let mut node = NodeTemplate::worker(name);
            node.labels.push(("pool".to_owned(), pool.to_owned()));
            node
        });
        let kubeconfig = cluster.kubeconfig().to_owned();
        let life = std::thread::scope(|scope| {
            let start = || {
                runtime.block_on(async {
                    let options = KubeletOptions {
                        nodes: nodes.to_vec(),
                        delay_factor: 0.05,
                        ..KubeletOptions::default()
                    };
                    Kubelets::start(link_to(&kubeconfig).client(), options)
                })
            };
            scope.spawn(start).join().unwrap()
        });
        Some(Real { cluster, _runtime: runtime, _kubelets: life })
    });
    if real.is_none() {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES_CONTROLLERS, testkit::kube::MISSING);
    }
    real.as_ref()
}

pub(crate) fn link_to(kubeconfig: &str) -> Link {
    let kubeconfig = Kubeconfig::parse(kubeconfig, None, &AllowedRisks::nothing()).unwrap();
    Link::open("real", &kubeconfig, Timeouts::default(), Arc::new(SystemClock)).unwrap()
}

/// Polls until there is a result.
pub(crate) async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let started = tokio::time::Instant::now();
    loop {
        if let Some(result) = poll().await {
            return result;
        }
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Real {
    pub(crate) fn link(&self) -> Link {
        link_to(self.cluster.kubeconfig())
    }

    /// Waits until all nodes of the pools are ready.
    pub(crate) async fn nodes_are_ready(&self, link: &Link) {
        eventually("all nodes are ready", async || {
            let nodes = kubelink::facts::nodes(link).await.ok()?;
            let is_ready = |name: &str| nodes.iter().any(|node| node.name == name && node.ready);
            POOLS.iter().all(|(name, _)| is_ready(name)).then_some(())
        })
        .await;
    }
}

pub(crate) fn facts() -> ClusterFacts {
    ClusterFacts {
        uuid: Uuid::now_v7(),
        id: "/subscriptions/s/resourcegroups/g/providers/x/openshiftclusters/c".to_owned(),
        name: "c".to_owned(),
        location: "here".to_owned(),
        version: None,
        provisioning_state: ProvisioningState::Succeeded,
        labels: BTreeMap::new(),
    }
}

/// Manifest in a store of its own.
pub(crate) struct TestRun {
    pub(crate) store: Store,
    pub(crate) work: Uuid,
    pub(crate) control: RunControl,
    directory: Arc<tempfile::TempDir>,
}

/// Result of running a manifest.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) state: WorkState,
    pub(crate) work: WorkView,
    pub(crate) entries: Vec<Entry>,
}

impl RunResult {
    pub(crate) fn message(&self) -> String {
        self.work.result.as_ref().map(|it| it.message().to_owned()).unwrap_or_default()
    }

    pub(crate) fn code(&self) -> String {
        let code = self.work.result.as_ref().and_then(|it| it.code.as_ref());
        code.map(ToString::to_string).unwrap_or_default()
    }

    /// All messages of the history.
    pub(crate) fn messages(&self) -> String {
        self.entries.iter().filter_map(|entry| entry.message.clone()).collect::<Vec<_>>().join("\n")
    }
}

impl TestRun {
    pub(crate) async fn new() -> TestRun {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
        let store = Store::open(options).await.unwrap();
        TestRun::enqueue(store, Arc::new(directory)).await
    }

    async fn enqueue(store: Store, directory: Arc<tempfile::TempDir>) -> TestRun {
        let work = Uuid::now_v7();
        // In a lane of its own.
        store.enqueue(vec![NewWork::new(work, Uuid::now_v7(), WorkKind::Manifest)]).await.unwrap();
        TestRun { store, work, control: RunControl::new(), directory }
    }

    /// Another manifest in the same store; withdraws this one if it is pending.
    pub(crate) async fn another(&self) -> TestRun {
        if let Some(rest) = self.store.work(self.work).await.unwrap()
            && rest.state == WorkState::Pending
        {
            self.store.commit(Transaction::new().withdraw(self.work, json!({}))).await.unwrap();
        }
        TestRun::enqueue(self.store.clone(), self.directory.clone()).await
    }

    /// File of the store.
    pub(crate) fn database(&self) -> std::path::PathBuf {
        self.directory.path().join("store.db")
    }

    /// Runs at most one attempt.
    pub(crate) async fn run(&self, task: &Definition, parameters: &Value, link: &Link) -> RunResult {
        let context = ClusterContext::new(link.clone(), facts(), Arc::new(SystemClock));
        self.run_with(task, parameters, Arc::new(context)).await
    }

    /// Like [`TestRun::run`], with the context of the caller.
    pub(crate) async fn run_with(
        &self,
        task: &Definition,
        parameters: &Value,
        context: Arc<ClusterContext>,
    ) -> RunResult {
        let plan = tasks::plan(task, &map(parameters), &context.cluster).unwrap();
        let clock: SharedClock = Arc::new(SystemClock);
        let claimed = self.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap().pop().unwrap();
        let request = RunRequest {
            store: &self.store,
            claimed: &claimed,
            plan: &plan,
            context,
            journal: Journal::read(claimed.checkpoint.as_ref()),
            control: self.control.clone(),
            clock,
            actor: "service:test",
            attempts_max: ATTEMPTS_MAX,
        };
        match steps::engine::run(request).await {
            RunOutcome::Finished(completion) => drop(self.store.complete(&[completion]).await.unwrap()),
            RunOutcome::Released { yielding, .. } => self.store.release(yielding).await.unwrap(),
            RunOutcome::LeaseLost => panic!("the lease was lost"),
        }
        let work = self.store.work(self.work).await.unwrap().unwrap();
        let entries = self.store.entries(self.work, None, 500).await.unwrap();
        RunResult { state: work.state, work, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
    }
}

pub(crate) fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Runs a built-in task once.
pub(crate) async fn run_builtin(name: &str, parameters: &Value, link: &Link) -> RunResult {
    let catalogue = planner::task::Catalogue::builtin();
    TestRun::new().await.run(catalogue.find(name).unwrap(), parameters, link).await
}
