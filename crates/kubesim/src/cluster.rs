//! One simulated cluster: its state, its API server and its controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::clock::{SharedClock, SystemClock};
use hyper::{Request, Response};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::access::token::{BoundClaims, Claims, ISSUER, ObjectClaim};
use crate::access::{AUTHENTICATED, Access, AccessError, User};
use crate::controllers;
use crate::events::EventLimits;
use crate::faults::Faults;
use crate::http::{self, Credentials, Server, ServerError};
use crate::logs::Logs;
use crate::objects::{JournalError, Objects, object_key};
use crate::registry::Registry;
use crate::state::State;
use crate::status::StatusError;
use crate::webhooks::Connections;

/// The name of a cluster's journal in its directory.
const JOURNAL_FILE: &str = "journal";

/// Options of a simulated cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Directory of its journal, keys and port. Without it, everything is lost when the process exits.
    pub directory: Option<PathBuf>,
    /// Source of the current time.
    pub clock: SharedClock,
    /// Seed of the random choices.
    pub seed: u64,
    /// Whether the controllers and the scheduler run. Without them the cluster is for the test of other controllers:
    /// it still has the initial objects, and each namespace its service account.
    pub controllers: bool,
}

impl Default for ClusterOptions {
    /// A cluster in memory that uses the clock of this machine.
    fn default() -> ClusterOptions {
        ClusterOptions { directory: None, clock: Arc::new(SystemClock), seed: 0, controllers: true }
    }
}

/// A cluster cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory cannot be created.
    #[error("failed to create the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The keys cannot be opened.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The listener cannot be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The initial objects cannot be written.
    #[error("failed to create the initial objects: {0}")]
    InitialObjects(String),
    /// Another cluster has this name.
    #[error("a cluster named {0} already exists")]
    NameTaken(String),
}

/// No token of a ServiceAccount can be given out.
#[derive(Debug, thiserror::Error)]
pub enum ServiceAccountError {
    /// There is no such ServiceAccount.
    #[error("no ServiceAccount {0} exists")]
    NotFound(String),
    /// The token cannot be signed.
    #[error("failed to sign a token: {0}")]
    Sign(String),
}

/// The parts of a cluster that its server, controllers and kubelets share.
#[derive(Debug)]
pub struct ClusterInner {
    /// The name of the cluster.
    pub name: String,
    /// Source of the current time.
    pub clock: SharedClock,
    /// Certificates and tokens.
    pub access: Access,
    /// Faults of the API server.
    pub faults: Faults,
    /// Logs of containers.
    pub logs: Logs,
    pub(crate) webhook_connections: Connections,
    pub(crate) seed: u64,
    pub(crate) has_controllers: bool,
    pub(crate) stopped: CancellationToken,
    unreachable: AtomicBool,
    events: Mutex<EventLimits>,
    state: RwLock<State>,
    address: std::net::SocketAddr,
}

impl ClusterInner {
    /// Locks the state for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for writing.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the limits of recorded events. The state is locked first.
    pub(crate) fn events(&self) -> MutexGuard<'_, EventLimits> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that are currently served.
    pub(crate) fn kinds(&self) -> Arc<Registry> {
        self.read().kinds.clone()
    }

    /// Whether connections over the network are rejected.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

/// A running cluster. It stops when [`SimulatedCluster::stop`] is called or the value is dropped.
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
            webhook_connections: Connections::default(),
            seed: options.seed,
            has_controllers: options.controllers,
            stopped: CancellationToken::new(),
            unreachable: AtomicBool::new(false),
            events: Mutex::new(EventLimits::default()),
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

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.shared.address)
    }

    /// A kubeconfig for the administrator, with everything inline.
    pub fn kubeconfig(&self) -> String {
        self.shared.access.kubeconfig(&self.shared.name, &self.url())
    }

    /// A kubeconfig for the customer who owns the cluster, with everything inline.
    pub fn customer_kubeconfig(&self) -> String {
        self.shared.access.customer_kubeconfig(&self.shared.name, &self.url())
    }

    /// A client of the administrator that does not use the network.
    pub fn client(&self) -> kube::Client {
        self.client_with(Credentials::User(User::admin()), "default")
    }

    /// A client of another user, such as a node, that does not use the network.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let groups = groups.iter().copied().chain([AUTHENTICATED]);
        self.client_with(Credentials::User(User::new(user, groups)), "default")
    }

    /// A client with the rights of a ServiceAccount that does not use the network, for a program that runs in this
    /// process instead of a pod. Its requests get 401 while the ServiceAccount does not exist.
    pub fn client_for_service_account(&self, namespace: &str, name: &str) -> kube::Client {
        let credentials =
            Credentials::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() };
        self.client_with(credentials, namespace)
    }

    /// A kubeconfig with a token of an existing ServiceAccount, with everything inline. The token is valid for `seconds`,
    /// at the longest until the ServiceAccount is deleted.
    pub fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        seconds: i64,
    ) -> Result<String, ServiceAccountError> {
        let state = self.shared.read();
        let account = state.objects.get("/serviceaccounts", &object_key(namespace, name));
        let uid = account.map(|account| account.uid().to_string());
        drop(state);
        let uid = uid.ok_or_else(|| ServiceAccountError::NotFound(object_key(namespace, name)))?;
        let bound = BoundClaims {
            namespace: namespace.to_owned(),
            serviceaccount: ObjectClaim { name: name.to_owned(), uid },
            pod: None,
            secret: None,
            node: None,
        };
        let claims = Claims::new(bound, vec![ISSUER.to_owned()], self.shared.clock.now(), seconds);
        let access = &self.shared.access;
        let token = access.sign(&claims).map_err(ServiceAccountError::Sign)?;
        Ok(access.token_kubeconfig(name, &token, &self.shared.name, &self.url()))
    }

    fn client_with(&self, credentials: Credentials, namespace: &str) -> kube::Client {
        let shared = self.shared.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (shared, credentials) = (shared.clone(), credentials.clone());
            async move {
                if shared.stopped.is_cancelled() {
                    return Err(http::ConnectionReset);
                }
                let response: Result<Response<http::Body>, http::ConnectionReset> =
                    http::handle(shared, credentials, request).await;
                response
            }
        });
        kube::Client::new(service, namespace)
    }

    /// Faults of the API server.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Accepts or rejects connections over the network. A cluster whose control plane machines are stopped is
    /// unreachable. Clients in the process ([`SimulatedCluster::client`]) are not affected.
    pub fn set_reachable(&self, reachable: bool) {
        let was_unreachable = self.shared.unreachable.swap(!reachable, Ordering::Relaxed);
        if !reachable && !was_unreachable {
            self.shared.faults.drop_watches();
        }
    }

    /// Logs of containers.
    pub fn logs(&self) -> &Logs {
        &self.shared.logs
    }

    /// Source of the current time.
    pub fn clock(&self) -> SharedClock {
        self.shared.clock.clone()
    }

    /// The parts that server, controllers and kubelets share.
    pub(crate) fn shared(&self) -> Arc<ClusterInner> {
        self.shared.clone()
    }

    /// Seed of the random choices.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Stops the cluster and closes every connection. The journal holds all changes that were acknowledged.
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

/// All simulated clusters of a process.
#[derive(Debug, Default)]
pub struct SimulatedClusters {
    clusters: Mutex<BTreeMap<String, Arc<SimulatedCluster>>>,
}

impl SimulatedClusters {
    /// An empty set.
    pub fn new() -> SimulatedClusters {
        SimulatedClusters::default()
    }

    /// Starts a cluster with a unique name.
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

    /// All clusters, ordered by name.
    pub fn list(&self) -> Vec<Arc<SimulatedCluster>> {
        self.clusters().values().cloned().collect()
    }

    /// Stops and removes a cluster; its directory stays.
    pub async fn remove(&self, name: &str) {
        let removed = self.clusters().remove(name);
        if let Some(cluster) = removed {
            cluster.stop().await;
        }
    }

    /// Stops all clusters.
    pub async fn stop(&self) {
        for cluster in self.list() {
            cluster.stop().await;
        }
    }

    fn clusters(&self) -> MutexGuard<'_, BTreeMap<String, Arc<SimulatedCluster>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
