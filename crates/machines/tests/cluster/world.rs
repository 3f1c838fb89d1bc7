//! A namespace with the controllers' kinds, a provider in memory, and a stand-in for the kubelets of its instances.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::clock::SystemClock;
use api::crd::machine::{Machine, MachineHealthCheck, MachineSet};
use async_trait::async_trait;
use cloud::{
    AddressKind, Instance, InstanceAddress, InstanceError, InstanceProvider, InstanceRequest, SecretRefs,
};
use controller::Observability;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use machines::{Metrics, Settings};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest time for a state to be reached; only a test that fails waits for it.
const DEADLINE: Duration = Duration::from_secs(40);

/// What a call of the provider does when the process shall end at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    BeforeEffect,
    AfterEffect,
}

/// A cloud without latency.
#[derive(Debug, Default)]
pub(crate) struct Cloud {
    state: Mutex<State>,
    pub(crate) ended: Mutex<Option<CancellationToken>>,
}

#[derive(Debug, Default)]
struct State {
    /// Instances by the name of their Machine, with its uid.
    instances: BTreeMap<String, (String, Instance)>,
    /// How often an instance was made for each uid.
    made: BTreeMap<String, u32>,
    calls: u32,
    end: Option<(u32, CallEnd)>,
}

impl Cloud {
    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn instances(&self) -> Vec<String> {
        self.state(|state| state.instances.keys().cloned().collect())
    }

    /// Takes an instance away, as a cloud does that interrupts it.
    pub(crate) fn vanish(&self, name: &str) {
        self.state(|state| state.instances.remove(name));
    }

    /// The largest number of instances that were made for one Machine.
    pub(crate) fn made_max(&self) -> u32 {
        self.state(|state| state.made.values().copied().max().unwrap_or_default())
    }

    /// Lets the process end at its n-th call; the token is cancelled then.
    pub(crate) fn end_at(&self, call: u32, end: CallEnd) -> CancellationToken {
        let token = CancellationToken::new();
        *self.ended.lock().unwrap() = Some(token.clone());
        self.state(|state| (state.calls, state.end) = (0, Some((call, end))));
        token
    }

    pub(crate) fn end_never(&self) {
        self.state(|state| state.end = None);
    }

    /// Runs a call; the process never sees the end of its last one.
    async fn call<T>(&self, effect: impl FnOnce(&mut State) -> T) -> T {
        let ends = self.state(|state| {
            state.calls += 1;
            state.end.filter(|(call, _)| *call <= state.calls).map(|(call, end)| (call == state.calls, end))
        });
        let never = async || {
            if let Some(token) = &*self.ended.lock().unwrap() {
                token.cancel();
            }
            std::future::pending::<()>().await;
        };
        match ends {
            Some((true, CallEnd::AfterEffect)) => {
                self.state(effect);
                never().await;
                unreachable!("a call that never returns")
            }
            Some(_) => {
                never().await;
                unreachable!("a call that never returns")
            }
            None => self.state(effect),
        }
    }
}

#[async_trait]
impl InstanceProvider for Cloud {
    fn secrets(&self, spec: &Value) -> Result<SecretRefs, InstanceError> {
        match spec.get("invalid") {
            Some(_) => Err(InstanceError::InvalidConfiguration("providerSpec.value.invalid".to_owned())),
            None => Ok(SecretRefs::default()),
        }
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        Ok(self.call(|state| state.instances.get(&request.name).map(|(_, it)| it.clone())).await)
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        if request.provider_spec.get("size") == Some(&json!("huge")) {
            return Err(InstanceError::InvalidConfiguration("size \"huge\" is not offered".to_owned()));
        }
        let instance = Instance {
            provider_id: format!("scripted:///{}", request.name),
            addresses: vec![InstanceAddress { kind: AddressKind::Hostname, address: request.name.clone() }],
            state: "Running".to_owned(),
            provider_status: json!({"vmState": "Running"}),
            region: Some("here".to_owned()),
            zone: None,
            instance_type: Some("small".to_owned()),
            interruptible: request.provider_spec.get("spot").is_some(),
        };
        Ok(self
            .call(|state| {
                let entry = state.instances.entry(request.name.clone());
                let made = &mut state.made;
                let (_, instance) = entry.or_insert_with(|| {
                    *made.entry(request.uid.clone()).or_default() += 1;
                    (request.uid.clone(), instance)
                });
                instance.clone()
            })
            .await)
    }

    async fn update(&self, _: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        Ok(found.clone())
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        self.call(|state| state.instances.remove(&request.name)).await;
        Ok(())
    }
}

/// A namespace, its cloud, and the kubelets of the instances.
#[derive(Clone)]
pub(crate) struct World {
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
    APPLIED.get_or_init(|| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
        for arguments in [
            ["apply", "--server-side", "--force-conflicts", "-f", directory].as_slice(),
            &["wait", "--for=condition=Established", "--timeout=60s", "-f", directory],
        ] {
            let output = cluster.kubectl().args(arguments).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    });
    Some(cluster)
}

/// The client of a process, as the command makes it: an eviction that a budget refuses must not be repeated below the drain.
pub(crate) async fn client(cluster: &testkit::kube::TestCluster) -> Client {
    connect(cluster, false).await
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
    // The test itself waits where the API server asks for it, such as after a change of a definition.
    let client = connect(cluster, true).await;
    let for_process = connect(cluster, false).await;
    World::in_namespace(client, for_process, &namespace)
}

/// The process: all controllers, until it is dropped.
pub(crate) async fn process(client: Client, world: World) {
    let settings = Settings {
        lease: None,
        resync: Duration::from_secs(2),
        ..Settings::new(&world.namespace, "test", "scripted")
    };
    let (clock, observability) = (Arc::new(SystemClock), Observability::default());
    let shutdown = CancellationToken::new();
    machines::run(client, world.cloud.clone(), settings, clock, observability, Metrics::default(), shutdown)
        .await
        .unwrap();
}

impl World {
    /// The world of a namespace that exists.
    pub(crate) fn in_namespace(client: Client, for_process: Client, namespace: &str) -> World {
        let cloud = Arc::new(Cloud::default());
        let mut kubelets = JoinSet::new();
        kubelets.spawn(run_kubelets(client.clone(), cloud.clone()));
        World { client, for_process, namespace: namespace.to_owned(), cloud, _kubelets: Arc::new(kubelets) }
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

    /// Waits until so many Machines run, each with one instance and one Node, and no other Machine or instance is left.
    pub(crate) async fn running(&self, count: usize) {
        eventually(&format!("{count} Machines run in {}", self.namespace), async || {
            let machines = self.list().await;
            let mut names: Vec<String> = machines.iter().map(ResourceExt::name_any).collect();
            names.sort();
            let runs = |machine: &Machine| {
                let status = machine.status.as_ref();
                machine.metadata.deletion_timestamp.is_none()
                    && status
                        .and_then(|it| it.phase.as_ref())
                        .is_some_and(|phase| phase.as_str() == "Running")
            };
            machines.len() == count && machines.iter().all(runs) && names == self.cloud.instances()
        })
        .await;
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
    let mut known: BTreeMap<String, ()> = BTreeMap::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        for name in cloud.instances() {
            if known.insert(name.clone(), ()).is_some() {
                continue;
            }
            let node =
                json!({"metadata": {"name": name}, "spec": {"providerID": format!("scripted:///{name}")}});
            let node = serde_json::from_value(node).unwrap();
            if nodes.create(&PostParams::default(), &node).await.is_ok() {
                set_ready(&nodes, &name, "True", "2026-01-01T00:00:00Z").await;
            }
        }
    }
}

async fn set_ready(nodes: &Api<Node>, node: &str, ready: &str, since: &str) {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": since,
        "reason": "Test", "message": ""});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let _ = nodes.patch_status(node, &PatchParams::default(), &patch).await;
}
