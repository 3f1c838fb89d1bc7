//! SimClient worlds, made anew for every mishap, and the trial of a task in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::{ManualClock, SystemClock};
use api::work::WorkState;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kubelink::Link;
use kubelink::apply::{ApplyOptions, Documents, apply};
use kubesim::kubelet::{KubeletOptions, Kubelets, NodeTemplate};
use maintenance::tasks;
use planner::task::{Catalogue, Definition};
use serde_json::{Value, json};
use steps::ClusterContext;
use steps::engine::fault_harness::{FaultHarness, StepFault};
use store::{Keyring, Location, Options, Store};
use tokio::task::JoinSet;

use crate::effects::{create, deployment};
use crate::environment::{TestRun, eventually, facts, map};

pub(crate) const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Looks whether a world is as it should be, knowing which step was struck.
pub(crate) type WorldCheck = fn(Link, String) -> BoxFuture<'static, Result<(), String>>;

/// A task, its parameters, and what it promises.
pub(crate) struct FaultRun {
    pub(crate) task: Definition,
    pub(crate) parameters: Value,
    /// Objects in YAML that are there before.
    pub(crate) objects: String,
    pub(crate) done: WorldCheck,
    pub(crate) undone: WorldCheck,
    /// Whether it is a cluster that we made.
    pub(crate) ours: bool,
    /// Whether it has a MachineSet with machines, and controllers for them.
    pub(crate) machines: bool,
}

/// A simulated cluster whose nodes live.
struct World {
    _cluster: kubesim::SimulatedCluster,
    _kubelets: Kubelets,
    context: Arc<ClusterContext>,
    controllers: JoinSet<()>,
}

impl World {
    /// Adds a MachineSet with machines, and controllers for them.
    async fn with_machines(mut self) -> World {
        let link = self.context.link.clone();
        crate::machines::prepare(&link, "default").await;
        crate::machines::named(&link, "default").await;
        self.controllers.spawn(crate::machines::control(link, "default".to_owned()));
        self
    }

    async fn new(objects: &str, ours: Option<&Store>) -> World {
        let cluster =
            kubesim::SimulatedCluster::start("sim", kubesim::ClusterOptions::default()).await.unwrap();
        let nodes = NODES.map(NodeTemplate::worker).to_vec();
        let life = Kubelets::start(
            cluster.client(),
            KubeletOptions { nodes, delay_factor: 0.0, ..KubeletOptions::default() },
        );
        let link = Link::from_client("sim", cluster.client(), Arc::new(SystemClock));
        let ready = async {
            loop {
                let nodes = kubelink::facts::nodes(&link).await.unwrap();
                if nodes.len() == NODES.len() && nodes.iter().all(|node| node.ready) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), ready).await.expect("the nodes become ready");
        let documents = Documents::parse(objects).unwrap();
        apply(&link, &documents, &ApplyOptions::default(), &kubelink::ProgressSink::disabled())
            .await
            .unwrap();
        let mut context = ClusterContext::new(link, facts(), Arc::new(SystemClock));
        if let Some(store) = ours {
            context = context.with_managed(crate::managed::managed_cluster(store).await);
        }
        World { _cluster: cluster, _kubelets: life, context: Arc::new(context), controllers: JoinSet::new() }
    }
}

impl FaultRun {
    /// Every mishap at every step, in a fresh world each.
    pub(crate) async fn all(self) {
        let names = self.task.step_names();
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let location = Location::Sqlite(directory.path().join("store.db"));
        let store =
            Store::open(Options::new(location, Keyring::ephemeral().unwrap(), clock.clone())).await.unwrap();
        let fresh = Arc::new(AtomicBool::new(true));
        let world: Arc<tokio::sync::Mutex<Option<World>>> = Arc::default();
        let struck = Arc::new(Mutex::new(String::new()));
        let FaultRun { task, parameters, objects, done, undone, ours, machines } = self;
        let (making, want_fresh) = (world.clone(), fresh.clone());
        let theirs = ours.then(|| store.clone());
        let make = move || -> BoxFuture<'static, _> {
            let (task, parameters, objects) = (task.clone(), parameters.clone(), objects.clone());
            let (world, fresh, ours) = (making.clone(), want_fresh.clone(), theirs.clone());
            Box::pin(async move {
                let mut world = world.lock().await;
                // A new plan for the same world, as after a takeover, or a new world.
                if fresh.swap(false, Ordering::SeqCst) {
                    let made = World::new(&objects, ours.as_ref()).await;
                    *world = Some(if machines { made.with_machines().await } else { made });
                }
                let context = world.as_ref().unwrap().context.clone();
                (tasks::plan(&task, &map(&parameters), &context.cluster).unwrap(), context)
            })
        };
        let checked = |look: WorldCheck| {
            let struck = struck.clone();
            Box::new(move |context: Arc<ClusterContext>| {
                look(context.link.clone(), struck.lock().unwrap().clone())
            }) as steps::engine::fault_harness::Check<ClusterContext>
        };
        let (done, undone) = (checked(done), checked(undone));
        let harness = FaultHarness { store, clock, make: Box::new(make), done, undone };
        for mishap in StepFault::ALL {
            for step in &names {
                fresh.store(true, Ordering::SeqCst);
                step.as_str().clone_into(&mut struck.lock().unwrap());
                harness.run_one(step, mishap).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loses_its_label_while_it_is_cycled_does_not_stay_cordoned() {
    let world = World::new(crate::fault_runs::SHOP, None).await;
    let link = world.context.link.clone();
    let nodes: Api<Node> = Api::all(link.client());
    let label = async |node: &str, pool: Value| {
        let labels = Patch::Merge(json!({"metadata": {"labels": {"pool": pool}}}));
        nodes.patch(node, &PatchParams::default(), &labels).await.unwrap();
    };
    for node in ["node-1", "node-2"] {
        label(node, json!("a")).await;
    }
    deployment(&link, "shop", "held", 2, "a").await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(link.client(), "shop");
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "held"}}});
    create(&budgets, json!({"metadata": {"name": "held"}, "spec": spec})).await;
    let cordoned = async || {
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        let found =
            all.into_iter().find(|node| node.spec.as_ref().and_then(|it| it.unschedulable) == Some(true));
        found.map(|node| node.name_any())
    };
    let (test, catalogue) = (TestRun::new().await, Catalogue::builtin());
    let parameters = json!({"selector": "pool=a"});
    let work = test.run(catalogue.find("cycle-nodes").unwrap(), &parameters, &link);
    let meanwhile = async {
        let held = eventually("a drain is held up", async || {
            let work = test.store.work(test.work).await.unwrap().unwrap();
            let step = steps::engine::Journal::read(work.checkpoint.as_ref()).step?;
            if step.message.contains("held") { cordoned().await } else { None }
        })
        .await;
        label(&held, Value::Null).await;
        budgets.delete("held", &DeleteParams::default()).await.unwrap();
    };
    let (end, ()) = tokio::join!(work, meanwhile);
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    assert_eq!(cordoned().await, None);
}
