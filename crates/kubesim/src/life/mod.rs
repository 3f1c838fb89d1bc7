//! Life in a cluster: what kubelets would do, done through the API, so that it works on kubesim and on a real API server
//! alike. Nodes are made, report that they are ready and renew their leases; pods that were put on them run, end, fail and
//! take their time to stop.
//!
//! What is special about a node or a pod is said by annotations ([`marks`]), with kubectl like any other change. Everything
//! else follows from a seed and a clock that are handed in.

mod engine;
pub mod marks;
mod node;
mod pod;
mod views;

use std::sync::Arc;
use std::time::Duration;

use api::clock::{SharedClock, SystemClock};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Shared};
use crate::http::User;
use crate::verbs::{self, Caller};

/// What is at hand where the API server runs in this process.
pub trait Host: Send + Sync + 'static {
    /// Adds a line to what a container has said.
    fn say(&self, pod_uid: &str, container: &str, line: &str);

    /// Renews what can be renewed of these leases, all at once, and answers for each whether it was. The rest is asked for
    /// by requests, like everything else.
    fn renew(&self, leases: &[Value], manager: &str, now: Timestamp) -> Vec<bool>;
}

impl Host for Shared {
    fn say(&self, pod_uid: &str, container: &str, line: &str) {
        self.logs.append(pod_uid, container, line);
    }

    fn renew(&self, leases: &[Value], manager: &str, now: Timestamp) -> Vec<bool> {
        // Whatever goes wrong with the API server is met by those who renew, too.
        if !self.faults.is_clear() || self.ended.is_cancelled() {
            return vec![false; leases.len()];
        }
        let User { name: user, groups } = User::admin();
        verbs::renew(&mut self.write(), leases, manager, &Caller { user, groups, now })
    }
}

/// A real API server: it asks kubelets for what containers say, so nobody keeps it here, and it takes requests only.
impl Host for () {
    fn say(&self, _: &str, _: &str, _: &str) {}

    fn renew(&self, leases: &[Value], _: &str, _: Timestamp) -> Vec<bool> {
        vec![false; leases.len()]
    }
}

/// How a cluster lives.
#[derive(Clone)]
pub struct LifeOptions {
    /// Nodes to make where they are not there yet, by name.
    pub nodes: Vec<NodePlan>,
    /// The same seed gives the same delays.
    pub seed: u64,
    /// What tells the time.
    pub clock: SharedClock,
    /// How often a node renews its lease; its status is written thirty times more seldom.
    pub heartbeat: Duration,
    /// How long things take, against a real kubelet: 1 is a second or so for a start, 0 is at once.
    pub pace: f64,
    /// What is at hand beside the API.
    pub host: Arc<dyn Host>,
}

impl Default for LifeOptions {
    fn default() -> LifeOptions {
        LifeOptions {
            nodes: Vec::new(),
            seed: 0,
            clock: Arc::new(SystemClock),
            heartbeat: Duration::from_secs(10),
            pace: 1.0,
            host: Arc::new(()),
        }
    }
}

impl std::fmt::Debug for LifeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LifeOptions")
            .field("nodes", &self.nodes)
            .field("seed", &self.seed)
            .field("heartbeat", &self.heartbeat)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// A node that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its labels, besides those that every node has.
    pub labels: Vec<(String, String)>,
    /// What it can hold.
    pub pods: u32,
}

impl NodePlan {
    /// A worker.
    pub fn worker(name: impl Into<String>) -> NodePlan {
        let labels = vec![("node-role.kubernetes.io/worker".to_owned(), String::new())];
        NodePlan { name: name.into(), labels, pods: 110 }
    }

    /// A machine of the control plane.
    pub fn control_plane(name: impl Into<String>) -> NodePlan {
        let labels = vec![("node-role.kubernetes.io/control-plane".to_owned(), String::new())];
        NodePlan { name: name.into(), labels, pods: 110 }
    }
}

/// A cluster that lives for as long as this value does.
#[derive(Debug)]
pub struct Life {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Life {
    /// Begins; it must be called within a runtime.
    pub fn start(client: Client, options: LifeOptions) -> Life {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(engine::run(client, options, stop.clone()));
        Life { stop, tasks }
    }

    /// Begins in a simulated cluster, by its clock and its seed.
    pub fn of(cluster: &Cluster, nodes: Vec<NodePlan>) -> Life {
        Life::paced(cluster, nodes, LifeOptions::default().pace)
    }

    /// The same, where things take longer or shorter.
    pub fn paced(cluster: &Cluster, nodes: Vec<NodePlan>, pace: f64) -> Life {
        let options = LifeOptions {
            nodes,
            seed: cluster.seed(),
            clock: cluster.clock(),
            host: cluster.shared(),
            pace,
            ..LifeOptions::default()
        };
        Life::start(cluster.client(), options)
    }

    /// Ends; what is being written is finished.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
