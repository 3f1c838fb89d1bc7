//! The termination handler: the condition of the Node, and with the shipped health check the replacement of the Machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::clock::SystemClock;
use axum::Router;
use axum::routing::{get, put};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use machines::termination::{
    self, CloudProvider, MetadataAddress, TerminationError, TerminationSettings, TerminationState,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::{World, cluster, eventually, process, world};

/// The metadata service of an instance that is interrupted when the flag is set.
struct Metadata {
    address: MetadataAddress,
    interrupted: Arc<AtomicBool>,
    _running: JoinSet<()>,
}

impl Metadata {
    async fn start() -> Metadata {
        let interrupted = Arc::new(AtomicBool::new(false));
        let (amazon, google) = (interrupted.clone(), interrupted.clone());
        let termination_time = async move || match amazon.load(Ordering::SeqCst) {
            true => (http::StatusCode::OK, "2026-03-01T12:00:00Z"),
            false => (http::StatusCode::NOT_FOUND, ""),
        };
        let preempted = async move || if google.load(Ordering::SeqCst) { "TRUE" } else { "FALSE" };
        let routes = Router::new()
            .route("/latest/api/token", put(async || "token"))
            .route("/latest/meta-data/spot/termination-time", get(termination_time))
            .route("/computeMetadata/v1/instance/preempted", get(preempted));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Metadata { address, interrupted, _running: running }
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
    }
}

/// A running handler, with what it has observed.
struct Handler {
    state: watch::Receiver<Option<TerminationState>>,
    ended: JoinSet<Result<(), TerminationError>>,
}

impl Handler {
    fn start(client: Client, node: &str, provider: Option<CloudProvider>, metadata: &Metadata) -> Handler {
        let settings = TerminationSettings {
            node: node.to_owned(),
            provider,
            address: metadata.address.clone(),
            poll_interval: Duration::from_millis(20),
        };
        let (observed, state) = watch::channel(None);
        let mut ended = JoinSet::new();
        let observe = move |state| {
            let _ = observed.send(Some(state));
        };
        ended.spawn(termination::run(
            client,
            settings,
            Arc::new(SystemClock),
            observe,
            CancellationToken::new(),
        ));
        Handler { state, ended }
    }

    async fn reached(&mut self, state: TerminationState) {
        let wait = self.state.wait_for(|seen| *seen == Some(state));
        tokio::time::timeout(Duration::from_secs(40), wait).await.unwrap().unwrap();
    }

    async fn error(&mut self) -> String {
        self.ended.join_next().await.unwrap().unwrap().unwrap_err().to_string()
    }
}

async fn create_node(world: &World, suffix: &str, provider_id: &str) -> String {
    let name = format!("{}-{suffix}", world.namespace);
    let node = json!({
        "metadata": {"name": name}, "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]},
    });
    world.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    name
}

async fn terminating(world: &World, node: &str) -> Option<NodeCondition> {
    let node = world.nodes().get(node).await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|it| it.type_ == "Ready"), "the kubelet's conditions stay");
    conditions.into_iter().find(|it| it.type_ == "Terminating")
}

/// A client that may do what a Node's own credentials allow, and nothing else.
async fn restricted(world: &World) -> Client {
    let name = &world.namespace;
    let role = json!({
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        ],
    });
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    let (roles, bindings) =
        (Api::<ClusterRole>::all(world.client.clone()), Api::<ClusterRoleBinding>::all(world.client.clone()));
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(cluster().unwrap().kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some(name.clone());
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_11_a_notice_of_any_cloud_is_reported_once_on_the_node() {
    let Some(cluster) = cluster() else { return };
    let world = world(cluster).await;
    let client = restricted(&world).await;
    for (suffix, provider_id) in [("aws", "aws:///z/i-1"), ("gcp", "gce://p/z/n")] {
        let (metadata, node) = (Metadata::start().await, create_node(&world, suffix, provider_id).await);
        let mut handler = Handler::start(client.clone(), &node, None, &metadata);
        handler.reached(TerminationState::Watching).await;
        assert_eq!(terminating(&world, &node).await, None);
        metadata.interrupt();
        handler.reached(TerminationState::Reported).await;
        let reported = terminating(&world, &node).await.unwrap();
        assert_eq!(
            (reported.status.as_str(), reported.reason.as_deref()),
            ("True", Some("TerminationRequested"))
        );
        // A handler that is started again finds the condition, and keeps it.
        let before = world.nodes().get(&node).await.unwrap().resource_version();
        let mut again = Handler::start(client.clone(), &node, Some(CloudProvider::Aws), &metadata);
        again.reached(TerminationState::Reported).await;
        assert_eq!(world.nodes().get(&node).await.unwrap().resource_version(), before);
        world.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_somebody_takes_away_is_set_again() {
    let Some(cluster) = cluster() else { return };
    let world = world(cluster).await;
    let (metadata, node) = (Metadata::start().await, create_node(&world, "n", "aws:///z/i-1").await);
    metadata.interrupt();
    let mut handler = Handler::start(world.client.clone(), &node, Some(CloudProvider::Aws), &metadata);
    handler.reached(TerminationState::Reported).await;
    let first = world.nodes().get(&node).await.unwrap();
    world.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    // The handler ends when it finds no Node; its DaemonSet starts it again on the Node that is back.
    assert!(handler.error().await.starts_with(&format!("Node {node} does not exist")));
    let node = create_node(&world, "n", "aws:///z/i-1").await;
    let mut handler = Handler::start(world.client.clone(), &node, Some(CloudProvider::Aws), &metadata);
    handler.reached(TerminationState::Reported).await;
    let second = world.nodes().get(&node).await.unwrap();
    assert_ne!(first.uid(), second.uid());
    let mut bare: Node = second.clone();
    bare.status.as_mut().unwrap().conditions.as_mut().unwrap().retain(|it| it.type_ != "Terminating");
    bare.metadata.managed_fields = None;
    world.nodes().replace_status(&node, &PostParams::default(), &bare).await.unwrap();
    eventually("the condition is back", async || terminating(&world, &node).await.is_some()).await;
    world.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_elsewhere_and_no_node_end_the_handler_with_a_sentence() {
    let Some(cluster) = cluster() else { return };
    let world = world(cluster).await;
    let metadata = Metadata::start().await;
    let node = create_node(&world, "n", "vsphere://u").await;
    let mut handler = Handler::start(world.client.clone(), &node, None, &metadata);
    assert_eq!(
        handler.error().await,
        format!(
            "Node {node}: spec.providerID \"vsphere://u\" must begin with aws://, azure:// or gce://; elsewhere, give --cloud-provider"
        )
    );
    let mut handler = Handler::start(world.client.clone(), "none", None, &metadata);
    assert!(
        handler.error().await.starts_with("Node none does not exist; NODE_NAME or --node-name must name")
    );
    world.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_11_the_shipped_health_check_replaces_an_interrupted_machine() {
    let Some(cluster) = cluster() else { return };
    let world = world(cluster).await;
    let mut running = JoinSet::new();
    running.spawn(process(world.for_process.clone(), world.clone()));
    let check = json!({
        "metadata": {"name": "machine-api-termination-handler"},
        "spec": {
            "selector": {"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
            "maxUnhealthy": "100%", "nodeStartupTimeout": "0",
            "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}],
        },
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    world.create_set(2, json!({"size": "small", "spot": true})).await;
    world.running(2).await;
    let interrupted = world.list().await[0].name_any();
    eventually("the label reaches the Node", async || {
        let node = world.nodes().get(&interrupted).await.unwrap();
        node.labels().contains_key("machine.openshift.io/interruptible-instance")
    })
    .await;
    let metadata = Metadata::start().await;
    metadata.interrupt();
    let mut handler = Handler::start(world.client.clone(), &interrupted, Some(CloudProvider::Gcp), &metadata);
    handler.reached(TerminationState::Reported).await;
    eventually("the Machine is replaced", async || {
        let machines = world.list().await;
        machines.len() == 2 && machines.iter().all(|machine| machine.name_any() != interrupted)
    })
    .await;
    world.running(2).await;
}
