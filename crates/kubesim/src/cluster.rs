//! One simulated cluster: its state, its door, and what keeps it in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::clock::{SharedClock, SystemClock};
use hyper::{Request, Response};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, AccessError};
use crate::controllers;
use crate::faults::Faults;
use crate::http::{self, Credentials, Server, ServerError, User};
use crate::logs::Logs;
use crate::objects::{JournalError, Objects};
use crate::registry::Registry;
use crate::state::State;
use crate::status::StatusError;

/// The name of a cluster's journal in its directory.
const JOURNAL_FILE: &str = "journal";

/// How a cluster is made.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Where its journal, keys and port are kept; without it, everything is gone when the process ends.
    pub directory: Option<PathBuf>,
    /// The clock it lives by.
    pub clock: SharedClock,
    /// Sets apart the random choices of one run from those of another.
    pub seed: u64,
}

impl Default for ClusterOptions {
    /// A cluster in memory that lives by this machine's clock.
    fn default() -> ClusterOptions {
        ClusterOptions { directory: None, clock: Arc::new(SystemClock), seed: 0 }
    }
}

/// A cluster cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its directory cannot be made.
    #[error("the directory {} could not be made", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Its journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its keys cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Its door cannot be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// What every cluster has could not be written.
    #[error("the first objects could not be written: {0}")]
    InitialObjects(String),
    /// The name is taken.
    #[error("there is a cluster {0} already")]
    NameTaken(String),
}

/// What everything in a cluster shares.
#[derive(Debug)]
pub struct ClusterInner {
    /// The name.
    pub name: String,
    /// The clock.
    pub clock: SharedClock,
    /// Who may come in.
    pub access: Access,
    /// What goes wrong.
    pub faults: Faults,
    /// What containers print.
    pub logs: Logs,
    pub(crate) seed: u64,
    pub(crate) stopped: CancellationToken,
    unreachable: AtomicBool,
    state: RwLock<State>,
    address: std::net::SocketAddr,
}

impl ClusterInner {
    /// The state, to look at.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, alone, to change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that are served now.
    pub(crate) fn kinds(&self) -> Arc<Registry> {
        self.read().kinds.clone()
    }

    /// Whether nobody is let in over the network.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

/// A running cluster. It ends when it is stopped or dropped.
#[derive(Debug)]
pub struct SimulatedCluster {
    shared: Arc<ClusterInner>,
    tasks: Mutex<JoinSet<()>>,
}

impl SimulatedCluster {
    /// Starts a cluster, from its journal if it has one.
    pub async fn start(name: &str, options: ClusterOptions) -> Result<SimulatedCluster, StartError> {
        let directory = options.directory.as_deref();
        if let Some(path) = directory {
            std::fs::create_dir_all(path)
                .map_err(|source| StartError::Directory { path: path.to_owned(), source })?;
        }
        let objects = match directory {
            Some(directory) => Objects::open(&journal_of(directory))?,
            None => Objects::in_memory(),
        };
        let access = Access::open(directory)?;
        let server = Server::open(directory).await?;
        let shared = Arc::new(ClusterInner {
            name: name.to_owned(),
            clock: options.clock,
            access,
            faults: Faults::default(),
            logs: Logs::default(),
            seed: options.seed,
            stopped: CancellationToken::new(),
            unreachable: AtomicBool::new(false),
            state: RwLock::new(State::new(objects)),
            address: server.address(),
        });
        controllers::bootstrap(&shared)
            .map_err(|failure: StatusError| StartError::InitialObjects(failure.message))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(server.serve(shared.clone()));
        tasks.spawn(controllers::supervise(shared.clone()));
        Ok(SimulatedCluster { shared, tasks: Mutex::new(tasks) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.shared.address)
    }

    /// A kubeconfig for the administrator, with everything inline.
    pub fn kubeconfig(&self) -> String {
        self.shared.access.kubeconfig(&self.shared.name, &self.url())
    }

    /// A kubeconfig for whoever the cluster was made for, with everything inline.
    pub fn customer_kubeconfig(&self) -> String {
        self.shared.access.customer_kubeconfig(&self.shared.name, &self.url())
    }

    /// A client for the administrator that does not go over the network.
    pub fn client(&self) -> kube::Client {
        let shared = self.shared.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let shared = shared.clone();
            async move {
                if shared.stopped.is_cancelled() {
                    return Err(http::ConnectionReset);
                }
                let credentials = Credentials { certificate: Some(User::admin()) };
                let response: Result<Response<http::Body>, http::ConnectionReset> =
                    http::handle(shared, credentials, request).await;
                response
            }
        });
        kube::Client::new(service, "default")
    }

    /// Faults of the API server.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Lets callers in over the network, or nobody any longer, as when the machines of a control plane do not run. Whoever is
    /// inside ([`SimulatedCluster::client`]) does not notice.
    pub fn set_reachable(&self, reachable: bool) {
        let was_unreachable = self.shared.unreachable.swap(!reachable, Ordering::Relaxed);
        if !reachable && !was_unreachable {
            self.shared.faults.drop_watches();
        }
    }

    /// What containers print.
    pub fn logs(&self) -> &Logs {
        &self.shared.logs
    }

    /// The clock it lives by.
    pub fn clock(&self) -> SharedClock {
        self.shared.clock.clone()
    }

    /// What everything in it shares.
    pub(crate) fn shared(&self) -> Arc<ClusterInner> {
        self.shared.clone()
    }

    /// The seed it was given.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Ends the cluster: nobody is let in any longer, every connection is closed. What was response is in the journal.
    pub async fn stop(&self) {
        self.shared.stopped.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

impl Drop for SimulatedCluster {
    fn drop(&mut self) {
        self.shared.stopped.cancel();
    }
}

fn journal_of(directory: &Path) -> PathBuf {
    directory.join(JOURNAL_FILE)
}

/// Many clusters in one process.
#[derive(Debug, Default)]
pub struct SimulatedClusters {
    clusters: Mutex<BTreeMap<String, Arc<SimulatedCluster>>>,
}

impl SimulatedClusters {
    /// No clusters yet.
    pub fn new() -> SimulatedClusters {
        SimulatedClusters::default()
    }

    /// Starts a cluster under a name of its own.
    pub async fn start(
        &self,
        name: &str,
        options: ClusterOptions,
    ) -> Result<Arc<SimulatedCluster>, StartError> {
        if self.get(name).is_some() {
            return Err(StartError::NameTaken(name.to_owned()));
        }
        let cluster = Arc::new(SimulatedCluster::start(name, options).await?);
        self.clusters().insert(name.to_owned(), cluster.clone());
        Ok(cluster)
    }

    /// The cluster of this name.
    pub fn get(&self, name: &str) -> Option<Arc<SimulatedCluster>> {
        self.clusters().get(name).cloned()
    }

    /// Every cluster, by name.
    pub fn list(&self) -> Vec<Arc<SimulatedCluster>> {
        self.clusters().values().cloned().collect()
    }

    /// Ends and forgets a cluster; its directory stays.
    pub async fn remove(&self, name: &str) {
        let removed = self.clusters().remove(name);
        if let Some(cluster) = removed {
            cluster.stop().await;
        }
    }

    /// Ends every cluster.
    pub async fn stop(&self) {
        for cluster in self.list() {
            cluster.stop().await;
        }
    }

    fn clusters(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<SimulatedCluster>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
