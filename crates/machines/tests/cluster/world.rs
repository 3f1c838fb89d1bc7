//! A namespace with the controllers' kinds, a provider in memory, and a stand-in for the kubelets of its instances.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::clock::SystemClock;
use api::crd::machine::{Machine, MachineHealthCheck, MachineSet};
use controller::{LeaseDurations, Observability};
use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use kubesim::{ClusterOptions, SimulatedCluster};
use machines::{Metrics, Settings};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::ApiFaults;
use crate::memory_cloud::Cloud;

/// Longest time for a state to be reached; only a test that fails waits for it.
const DEADLINE: Duration = Duration::from_secs(120);

/// The namespace in a simulated cluster.
const SIMULATED_NAMESPACE: &str = "openshift-machine-api";

/// A namespace, its cloud, and the kubelets of the instances.
#[derive(Clone)]
pub(crate) struct World {
    /// About how often a Machine at rest is compared with its instance.
    pub(crate) resync: Duration,
    /// Durations of the leases, where several processes run.
    pub(crate) lease: Option<LeaseDurations>,
    pub(crate) metrics: Metrics,
    /// The simulated cluster that the world is in, if it is in one, which stops with it.
    _simulator: Option<Arc<SimulatedCluster>>,
    pub(crate) client: Client,
    pub(crate) for_process: Client,
    pub(crate) namespace: String,
    pub(crate) cloud: Arc<Cloud>,
    _kubelets: Arc<JoinSet<()>>,
}

/// The shared cluster's kubeconfig, with the definitions applied; `None`, with a message, if this machine has no cluster.
pub(crate) fn cluster() -> Option<&'static testkit::kube::TestCluster> {
    static APPLIED: OnceLock<()> = OnceLock::new();
    let Some(cluster) = testkit::kube::shared() else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    APPLIED.get_or_init(|| apply_definitions(cluster));
    Some(cluster)
}

/// Applies the definitions to a cluster, and waits until they are served.
pub(crate) fn apply_definitions(cluster: &testkit::kube::TestCluster) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    for arguments in [
        ["apply", "--server-side", "--force-conflicts", "-f", directory].as_slice(),
        &["wait", "--for=condition=Established", "--timeout=60s", "-f", directory],
    ] {
        let output = cluster.kubectl().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The client of a process, as the command makes it: an eviction that a budget refuses must not be repeated below the drain.
pub(crate) async fn client(cluster: &testkit::kube::TestCluster) -> Client {
    connect(cluster, false).await
}

/// The client of a test, which waits where the API server asks for it, such as after a change of a definition.
pub(crate) async fn patient_client(cluster: &testkit::kube::TestCluster) -> Client {
    connect(cluster, true).await
}

async fn connect(cluster: &testkit::kube::TestCluster, retry: bool) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = retry;
    Client::try_from(config).unwrap()
}

/// A world of its own.
pub(crate) async fn world(cluster: &'static testkit::kube::TestCluster) -> World {
    let namespace = tokio::task::spawn_blocking(|| cluster.namespace("machines").unwrap()).await.unwrap();
    let client = patient_client(cluster).await;
    let for_process = connect(cluster, false).await;
    World::in_namespace(client, for_process, &namespace)
}

/// The process: all controllers, until it is dropped.
pub(crate) async fn process(client: Client, world: World) {
    let settings = Settings {
        lease: world.lease,
        resync: world.resync,
        ..Settings::new(&world.namespace, "test", "scripted")
    };
    let (clock, observability) = (Arc::new(SystemClock), Observability::default());
    let shutdown = CancellationToken::new();
    let (cloud, metrics) = (world.cloud.clone(), world.metrics.clone());
    machines::run(client, cloud, settings, clock, observability, metrics, shutdown).await.unwrap();
}

impl World {
    /// The world of a namespace that exists.
    pub(crate) fn in_namespace(client: Client, for_process: Client, namespace: &str) -> World {
        let cloud = Arc::new(Cloud::default());
        let mut kubelets = JoinSet::new();
        kubelets.spawn(run_kubelets(client.clone(), cloud.clone()));
        World {
            resync: Duration::from_secs(2),
            lease: None,
            metrics: Metrics::default(),
            _simulator: None,
            client,
            for_process,
            namespace: namespace.to_owned(),
            cloud,
            _kubelets: Arc::new(kubelets),
        }
    }

    /// A world in a simulated cluster of its own, for many quick runs.
    pub(crate) async fn simulated() -> World {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::default() };
        let simulator = Arc::new(SimulatedCluster::start("machines", options).await.unwrap());
        let client = simulator.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in api::crd::definitions() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        create_namespace(&client, SIMULATED_NAMESPACE).await;
        let world = World::in_namespace(client.clone(), client, SIMULATED_NAMESPACE);
        World { resync: Duration::from_millis(300), _simulator: Some(simulator), ..world }
    }

    /// Another world in the same cluster, with a namespace and a cloud of its own.
    pub(crate) async fn beside(&self, namespace: &str) -> World {
        create_namespace(&self.client, namespace).await;
        let world = World::in_namespace(self.client.clone(), self.for_process.clone(), namespace);
        World { resync: self.resync, _simulator: self._simulator.clone(), ..world }
    }

    /// Runs a process of this world until the set is dropped.
    pub(crate) fn start(&self) -> JoinSet<()> {
        let mut running = JoinSet::new();
        running.spawn(process(self.for_process.clone(), self.clone()));
        running
    }

    /// The value of a metric of the processes; 0 if it has none.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// The reasons of the events about an object.
    pub(crate) async fn events(&self, name: &str) -> BTreeSet<String> {
        self.events_about(name).await.into_iter().filter_map(|event| event.reason).collect()
    }

    /// The messages of the events about an object that have this reason.
    pub(crate) async fn event_messages(&self, name: &str, reason: &str) -> Vec<String> {
        let events = self.events_about(name).await.into_iter();
        let with_reason = events.filter(|event| event.reason.as_deref() == Some(reason));
        with_reason.filter_map(|event| event.message).collect()
    }

    async fn events_about(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        events.filter(|event| event.involved_object.name.as_deref() == Some(name)).collect()
    }

    /// The world with a process whose requests can fail.
    pub(crate) fn with_api_faults(self) -> (World, ApiFaults) {
        let faults = ApiFaults::default();
        (World { for_process: faults.client(&self.for_process), ..self }, faults)
    }

    pub(crate) fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn sets(&self) -> Api<MachineSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn checks(&self) -> Api<MachineHealthCheck> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates the MachineSet of the world, whose name is the namespace's, so that names of Nodes are unique in the cluster.
    pub(crate) async fn create_set(&self, replicas: u32, value: Value) {
        let labels = json!({"machine.openshift.io/cluster-api-cluster": "c", "set": self.namespace});
        let set = json!({
            "metadata": {"name": self.namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"set": self.namespace}},
                "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": value}}},
            },
        });
        let set = serde_json::from_value(set).unwrap();
        self.sets().create(&PostParams::default(), &set).await.unwrap();
    }

    pub(crate) async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets().patch(&self.namespace, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn list(&self) -> Vec<Machine> {
        self.machines().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn delete(&self, machine: &str) {
        let _ = self.machines().delete(machine, &DeleteParams::default()).await;
    }

    /// Makes a Node ready or not, since the given time.
    pub(crate) async fn set_ready(&self, node: &str, ready: &str, since: &str) {
        set_ready(&self.nodes(), node, ready, since).await;
    }

    /// Whether so many Machines run, each with its instance, and no other Machine or instance is left.
    pub(crate) async fn runs(&self, count: usize) -> bool {
        let machines = self.list().await;
        let mut names: Vec<String> = machines.iter().map(ResourceExt::name_any).collect();
        names.sort();
        let runs = |machine: &Machine| {
            let phase = machine.status.as_ref().and_then(|status| status.phase.as_ref());
            machine.metadata.deletion_timestamp.is_none()
                && phase.is_some_and(|phase| phase.as_str() == "Running")
        };
        machines.len() == count && machines.iter().all(runs) && names == self.cloud.instances()
    }

    /// Waits until so many Machines run, each with one instance and one Node, and no other Machine or instance is left.
    pub(crate) async fn running(&self, count: usize) {
        let what = format!("{count} Machines run in {}", self.namespace);
        eventually(&what, async || self.runs(count).await).await;
        assert!(self.cloud.made_max() <= 1, "an instance was created twice for one Machine");
        let nodes = self.nodes().list(&ListParams::default()).await.unwrap();
        let ours = nodes.items.iter().filter(|node| node.name_any().starts_with(&self.namespace));
        for node in ours {
            let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
            let alive = self.cloud.instances().contains(&node.name_any());
            assert!(!(cordoned && alive), "node {} is left cordoned", node.name_any());
        }
    }
}

async fn create_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

/// Polls until a state is reached.
pub(crate) async fn eventually(what: &str, reached: impl AsyncFn() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let wait = async {
        loop {
            ticks.tick().await;
            if reached().await {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "{what}: not within {DEADLINE:?}");
}

/// Registers a ready Node for every instance.
async fn run_kubelets(client: Client, cloud: Arc<Cloud>) {
    let nodes: Api<Node> = Api::all(client);
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        for name in cloud.instances() {
            if known.contains(&name) {
                continue;
            }
            let node =
                json!({"metadata": {"name": name}, "spec": {"providerID": format!("scripted:///{name}")}});
            let node = serde_json::from_value(node).unwrap();
            match nodes.create(&PostParams::default(), &node).await {
                Ok(_) => set_ready(&nodes, &name, "True", "2026-01-01T00:00:00Z").await,
                // A Node that exists is the test's.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                // The API server is away.
                Err(_) => continue,
            }
            known.insert(name);
        }
    }
}

async fn set_ready(nodes: &Api<Node>, node: &str, ready: &str, since: &str) {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": since,
        "reason": "Test", "message": ""});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let _ = nodes.patch_status(node, &PatchParams::default(), &patch).await;
}
