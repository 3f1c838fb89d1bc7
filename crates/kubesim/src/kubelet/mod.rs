//! Simulated kubelets. They use the Kubernetes API only, so they work on kubesim and on a real API server alike: they
//! create nodes, report them ready and renew their leases; they run, complete, fail and stop the pods that are bound to them.
//!
//! Annotations ([`annotations`]) set the behaviour of single nodes and pods, so kubectl can change it. Everything else follows
//! from a seed and a clock that the caller provides.

pub mod annotations;
mod containers;
mod engine;
mod events;
mod node;
mod pod;
mod requests;
mod views;

use std::sync::Arc;
use std::time::Duration;

use api::clock::{SharedClock, SystemClock};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use containers::{Container, ContainerLog, ContainerRuntime};
pub use events::{KubeletEvent, PodName};

use crate::access::User;
use crate::cluster::{ClusterInner, SimulatedCluster};
use crate::events::{EventReport, EventSource, Severity, record, reference};
use crate::kinds;
use crate::verbs::{self, Caller};

/// What kubelets can do without a request where the API server runs in this process.
pub trait InProcessServer: Send + Sync + 'static {
    /// Appends a line to the log of a container.
    fn append_log(&self, pod_uid: &str, container: &str, line: &str);

    /// Renews leases in one batch and reports for each whether it was renewed. The caller renews the others by requests.
    fn renew_leases(&self, leases: &[Value], manager: &str, now: Timestamp) -> Vec<bool>;

    /// Records events, within the limits of the server.
    fn record_events(&self, events: &[KubeletEvent], now: Timestamp);
}

impl InProcessServer for ClusterInner {
    fn append_log(&self, pod_uid: &str, container: &str, line: &str) {
        self.logs.append(pod_uid, container, line);
    }

    fn renew_leases(&self, leases: &[Value], manager: &str, now: Timestamp) -> Vec<bool> {
        // Faults of the API server must reach kubelets too, and they are injected into requests.
        if !self.faults.is_clear() || self.stopped.is_cancelled() {
            return vec![false; leases.len()];
        }
        verbs::renew(&mut self.write(), leases, manager, &Caller::internal(User::admin(), now))
    }

    fn record_events(&self, events: &[KubeletEvent], now: Timestamp) {
        // A kubelet that does not reach the API server loses its events.
        if events.is_empty() || !self.faults.is_clear() || self.stopped.is_cancelled() {
            return;
        }
        let mut state = self.write();
        for event in events {
            let (kind, namespace, name, uid) = match &event.pod {
                Some(pod) => ("Pod", &*pod.namespace, &*pod.name, &*pod.uid),
                // Events of a kubelet about its node have the node's name in place of the uid.
                None => ("Node", "", &*event.node, &*event.node),
            };
            let Some(kind) = kinds::find("", kind) else { continue };
            let field_path = match &*event.container {
                "" => String::new(),
                container => format!("spec.containers{{{container}}}"),
            };
            let report = EventReport {
                source: EventSource::Kubelet { node: &event.node },
                object: &reference(kind, namespace, name, uid),
                field_path: &field_path,
                severity: if event.is_warning { Severity::Warning } else { Severity::Normal },
                reason: event.reason,
                message: &event.message,
            };
            record(&mut state, &mut self.events(), &report, now);
        }
    }
}

/// A real API server: it reads logs from kubelets, which do not exist here, and accepts requests only. Events would
/// cost a request each and are not reported.
impl InProcessServer for () {
    fn append_log(&self, _: &str, _: &str, _: &str) {}

    fn renew_leases(&self, leases: &[Value], _: &str, _: Timestamp) -> Vec<bool> {
        vec![false; leases.len()]
    }

    fn record_events(&self, _: &[KubeletEvent], _: Timestamp) {}
}

/// Options of the kubelets of one cluster.
#[derive(Clone)]
pub struct KubeletOptions {
    /// Nodes to create unless they exist.
    pub nodes: Vec<NodeTemplate>,
    /// Seed of the delays: the same seed gives the same delays.
    pub seed: u64,
    /// Source of the current time.
    pub clock: SharedClock,
    /// Interval between two renewals of a node's lease. The node's status is written every thirtieth interval.
    pub heartbeat: Duration,
    /// Factor on the delays of a real kubelet: 1 is about a second for a start, 0 is no delay.
    pub delay_factor: f64,
    /// Direct access to the API server, if it runs in this process.
    pub server: Arc<dyn InProcessServer>,
    /// What runs the containers of some images in this process.
    pub runtime: Option<Arc<dyn ContainerRuntime>>,
}

impl Default for KubeletOptions {
    fn default() -> KubeletOptions {
        KubeletOptions {
            nodes: Vec::new(),
            seed: 0,
            clock: Arc::new(SystemClock),
            heartbeat: Duration::from_secs(10),
            delay_factor: 1.0,
            server: Arc::new(()),
            runtime: None,
        }
    }
}

impl std::fmt::Debug for KubeletOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeletOptions")
            .field("nodes", &self.nodes)
            .field("seed", &self.seed)
            .field("heartbeat", &self.heartbeat)
            .field("delay_factor", &self.delay_factor)
            .finish_non_exhaustive()
    }
}

/// A node to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTemplate {
    /// The name of the node.
    pub name: String,
    /// Labels besides those that every node has.
    pub labels: Vec<(String, String)>,
    /// Capacity for pods.
    pub pods: u32,
}

impl NodeTemplate {
    /// A worker node.
    pub fn worker(name: impl Into<String>) -> NodeTemplate {
        let labels = vec![("node-role.kubernetes.io/worker".to_owned(), String::new())];
        NodeTemplate { name: name.into(), labels, pods: 110 }
    }

    /// A node of the control plane.
    pub fn control_plane(name: impl Into<String>) -> NodeTemplate {
        let labels = vec![("node-role.kubernetes.io/control-plane".to_owned(), String::new())];
        NodeTemplate { name: name.into(), labels, pods: 110 }
    }
}

/// The running kubelets of one cluster. They stop when this value is stopped or dropped.
#[derive(Debug)]
pub struct Kubelets {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Kubelets {
    /// Starts kubelets for the cluster that `client` reaches. Must be called within a Tokio runtime.
    pub fn start(client: Client, options: KubeletOptions) -> Kubelets {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(engine::run(client, options, stop.clone()));
        Kubelets { stop, tasks }
    }

    /// Starts kubelets for a simulated cluster, with its clock and its seed.
    pub fn for_cluster(cluster: &SimulatedCluster, nodes: Vec<NodeTemplate>) -> Kubelets {
        Kubelets::with_delay_factor(cluster, nodes, KubeletOptions::default().delay_factor)
    }

    /// Like [`Kubelets::for_cluster`], with another [`KubeletOptions::delay_factor`].
    pub fn with_delay_factor(
        cluster: &SimulatedCluster,
        nodes: Vec<NodeTemplate>,
        delay_factor: f64,
    ) -> Kubelets {
        let options = KubeletOptions { nodes, delay_factor, ..KubeletOptions::default() };
        Kubelets::with_options(cluster, options)
    }

    /// Like [`Kubelets::for_cluster`], with other options; clock, seed and server are the cluster's.
    pub fn with_options(cluster: &SimulatedCluster, options: KubeletOptions) -> Kubelets {
        let options = KubeletOptions {
            seed: cluster.seed(),
            clock: cluster.clock(),
            server: cluster.shared(),
            ..options
        };
        Kubelets::start(cluster.client(), options)
    }

    /// Stops the kubelets after the writes that are under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
