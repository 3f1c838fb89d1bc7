//! The service: opened, then served until it is asked to stop.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::clock::{SharedClock, SystemClock};
use api::secret::Secret;
use axum::Router;
use kubesim::SimulatedCluster;
use kubesim::kubelet::ContainerRuntime;
use serde_json::Value;
use serve::{Listener, SharedService};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call_context::FaultEffects;
use crate::client::{SimClient, SimClientError};
use crate::cloud_metadata;
use crate::endpoints::Endpoints;
use crate::failure::Failure;
use crate::faults::Faults;
use crate::listeners::TlsIdentity;
use crate::providers::ResourceProviders;
use crate::simulator::{Parts, Simulator};
use crate::{
    arm, blob, database, entra, http, identities, install, keyvault, listeners, metadata, secrets, seed,
};

/// A process that was just ended may hold the directory for a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// How a simulated cloud is made.
#[derive(Clone)]
pub struct Options {
    /// Where everything is kept; without it, everything is gone when the service ends.
    pub directory: Option<PathBuf>,
    /// The address of the resource manager; port 0 is the one that it had before, or any. Only the loopback interface is accepted.
    pub listen: SocketAddr,
    /// The clock it lives by.
    pub clock: SharedClock,
    /// The same seed gives the same delays and the same chance faults. It is kept: a directory goes on with its first seed.
    pub seed: u64,
    /// How long things take: 1 is as in a real cloud, 0.02 makes a cluster within a minute, 0 is at once.
    pub pace: f64,
    /// What runs the containers of some images of the simulated clusters in this process.
    pub runtimes: Option<Runtimes>,
    /// The payload of new clusters, with the controllers that own their machines. Without it the installer writes what they would.
    pub payload: Option<Payload>,
}

/// Manifests that the installer creates in a cluster, in their order. Kinds that simulated clusters do not serve are left out.
pub type Payload = Arc<[Value]>;

/// Makes the container runtime of a simulated cluster.
pub type Runtimes = Arc<dyn Fn(&Arc<SimulatedCluster>) -> Arc<dyn ContainerRuntime> + Send + Sync>;

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("directory", &self.directory)
            .field("listen", &self.listen)
            .field("seed", &self.seed)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    /// In memory, at any port, by this machine's clock, at once.
    fn default() -> Options {
        Options {
            directory: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock: Arc::new(SystemClock),
            seed: 0,
            pace: 0.0,
            runtimes: None,
            payload: None,
        }
    }
}

/// A simulated cloud cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is one that others can reach.
    #[error("{0} is no address of the loopback interface; a simulated cloud listens nowhere else")]
    Exposed(SocketAddr),
    /// The port cannot be had.
    #[error("nothing can listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be made or read.
    #[error("{}: {what}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        #[source]
        source: Option<std::io::Error>,
    },
    /// The database cannot be used.
    #[error("the database of the simulated cloud cannot be used")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A simulated cloud failed while it served.
#[derive(Debug, thiserror::Error)]
#[error("the simulated cloud failed")]
pub struct ServeError(#[source] Box<dyn std::error::Error + Send + Sync>);

fn unusable(failure: Failure) -> OpenError {
    OpenError::Database(Box::new(failure))
}

/// A simulated cloud that listens and does not answer yet. Dropping it, or the future of [`Service::serve`], ends it as a kill would.
#[derive(Debug)]
pub struct Service {
    simulator: Arc<Simulator>,
    emulated: EmulatedListeners,
    token: Secret<String>,
    runs: mpsc::UnboundedReceiver<Uuid>,
    /// The files of a service without a directory.
    _temporary: Option<TempDir>,
}

/// The container registry of a service in this process. It has no images; it only checks passwords.
#[derive(Debug, Clone)]
pub struct ImageRegistry {
    simulator: Weak<Simulator>,
}

impl ImageRegistry {
    /// Whether a pull with this token and password is accepted. Fault rules do not apply; a service that has ended accepts none.
    pub fn accepts(&self, token: &str, password: &str) -> Result<bool, ServeError> {
        let Some(simulator) = self.simulator.upgrade() else { return Ok(false) };
        simulator
            .within(FaultEffects::default(), |cx| {
                let registry = arm::own_registry(&cx.endpoints.subscription_id);
                arm::kinds::registry::accepts(cx, &registry, token, password)
            })
            .map_err(|failure| ServeError(Box::new(failure)))
    }
}

/// The listeners that speak Azure's protocols.
#[derive(Debug)]
struct EmulatedListeners {
    /// The resource manager, Entra ID, the data plane of managed identities and `/sim`.
    resource_manager: Listener,
    blob: Listener,
    metadata: Listener,
    /// Bound listeners of vaults, with the names of the vaults.
    new_vaults: mpsc::UnboundedReceiver<(String, std::net::TcpListener)>,
    tls: TlsIdentity,
}

impl Service {
    /// Opens the database and a port. Waits for a moment for another service that is leaving the directory.
    pub async fn open(options: Options) -> Result<Service, OpenError> {
        let Options { directory, listen, clock, seed, pace, runtimes, payload } = options;
        if !listen.ip().is_loopback() {
            return Err(OpenError::Exposed(listen));
        }
        // Its files are named in `endpoints.json`, which processes in other directories read.
        let directory = match directory {
            Some(directory) => Some(std::path::absolute(&directory).map_err(|source| OpenError::File {
                path: directory,
                what: "the path cannot be made absolute",
                source: Some(source),
            })?),
            None => None,
        };
        let lock = match &directory {
            Some(directory) => Some(enter(directory).await?),
            None => None,
        };
        let file = directory.as_ref().map(|it| it.join("cloud.db"));
        let db = database::open(file.as_deref()).map_err(unusable)?;
        let seed = kept(&db, "seed", || Ok(seed)).map_err(unusable)?;
        let token: String = kept(&db, "bearer", || secrets::text(43)).map_err(unusable)?;
        let temporary = match &directory {
            Some(_) => None,
            None => Some(temporary_directory()?),
        };
        let faults = Faults::new(seed);
        let tls = TlsIdentity::open(&db, faults.clone()).map_err(unusable)?;
        let bind = |name: &str| listeners::bind(&db, name).map_err(unusable);
        let resource_manager = match listen.port() {
            0 => bind("resourceManager")?,
            _ => std::net::TcpListener::bind(listen)
                .map_err(|source| OpenError::Listen { address: listen, source })?,
        };
        let (blob, metadata) = (bind("blob")?, bind("metadata")?);
        let files =
            directory.clone().or_else(|| Some(temporary.as_ref()?.path().to_owned())).unwrap_or_default();
        let principal = identities::service_principal(&db).map_err(unusable)?;
        let secure = |tcp| listeners::url(tcp, "https").map_err(unusable);
        let subscription_id = seed::uuid(seed, &["subscription"]).to_string();
        let endpoints = Endpoints {
            authority: secure(&resource_manager)?,
            tenant_id: identities::tenant(seed),
            resource_manager: secure(&resource_manager)?,
            vaults: BTreeMap::new(),
            registry: arm::own_registry(&subscription_id).to_string(),
            issuer_account: arm::own_issuer_account(&subscription_id).to_string(),
            issuer_url: arm::own_issuer_url(&secure(&blob)?),
            blob: secure(&blob)?,
            subscription_id,
            client_id: principal.principal.client_id.clone(),
            client_secret_file: files.join("client-secret"),
            ca_file: files.join("ca.pem"),
            token_file: files.join("token"),
            metadata: listeners::url(&metadata, "http").map_err(unusable)?,
            identity_service: format!("{}/identities", secure(&resource_manager)?),
            pace,
        };
        tell(&endpoints.token_file, &token)?;
        tell(&endpoints.client_secret_file, &principal.secret)?;
        tell(&endpoints.ca_file, &tls.authority)?;
        let (sender, runs) = mpsc::unbounded_channel();
        let (vaults, new_vaults) = mpsc::unbounded_channel();
        let simulator = Simulator::new(Parts {
            db,
            clock,
            seed,
            pace,
            faults,
            directory,
            runs: sender,
            lock,
            endpoints,
            vaults,
            runtimes,
            payload,
        });
        simulator.within(FaultEffects::default(), arm::prepare).map_err(unusable)?;
        for vault in simulator.within(FaultEffects::default(), arm::vault_names).map_err(unusable)? {
            simulator.ensure_vault(&vault).map_err(unusable)?;
        }
        let unfinished = simulator.within(FaultEffects::default(), install::all).map_err(unusable)?;
        for cluster in unfinished {
            let _ = simulator.runs.send(cluster);
        }
        let bound = |tcp: std::io::Result<Listener>| {
            tcp.map_err(|source| OpenError::Listen { address: listen, source })
        };
        let emulated = EmulatedListeners {
            resource_manager: bound(tls.listen(resource_manager))?,
            blob: bound(tls.listen(blob))?,
            metadata: bound(listeners::listen(metadata))?,
            new_vaults,
            tls,
        };
        let token = Secret::new(token);
        Ok(Service { simulator: Arc::new(simulator), emulated, token, runs, _temporary: temporary })
    }

    /// The addresses of the emulated services. Vaults that are created later are absent.
    pub fn endpoints(&self) -> Endpoints {
        self.simulator.endpoints().as_ref().clone()
    }

    /// The file with the addresses of the emulated services, which [`SimClient::open`] reads.
    pub fn endpoints_file(&self) -> PathBuf {
        self.simulator.endpoints().file()
    }

    /// A client of it.
    pub fn client(&self) -> Result<SimClient, SimClientError> {
        SimClient::new(self.endpoints())
    }

    /// What is to go wrong.
    pub fn faults(&self) -> Faults {
        self.simulator.faults.clone()
    }

    /// The container registry, as seen by a puller of images.
    pub fn registry(&self) -> ImageRegistry {
        ImageRegistry { simulator: Arc::downgrade(&self.simulator) }
    }

    /// Resource providers of this process to which the resource manager forwards requests. There are none at first.
    pub fn providers(&self) -> ResourceProviders {
        self.simulator.providers.clone()
    }

    /// Answers until it is asked to stop; then every call that is under way is answered, and every cluster ended. What was
    /// accepted goes on at the next start.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Service { simulator, emulated, token, mut runs, _temporary } = self;
        let EmulatedListeners { resource_manager, blob, metadata, mut new_vaults, tls } = emulated;
        let mut clusters = JoinSet::new();
        let ending = CancellationToken::new();
        let mut serving = JoinSet::new();
        let mut serve = |listener: Listener, routes: Router| {
            serving.spawn(listener.serve(SharedService(routes), ending.clone()));
        };
        serve(resource_manager, main_routes(&simulator, token.expose()));
        serve(blob, blob::routes(simulator.clone()));
        serve(metadata, metadata::routes(simulator.clone()));
        let ended = loop {
            tokio::select! {
                () = shutdown.cancelled() => break Ok(()),
                Some(ended) = clusters.join_next(), if !clusters.is_empty() => {
                    if let Err(error) = ended {
                        break Err(ServeError(Box::new(error)));
                    }
                }
                Some(cluster) = runs.recv() => {
                    clusters.spawn(install::run(simulator.clone(), cluster, ending.child_token()));
                }
                Some((name, tcp)) = new_vaults.recv() => match tls.listen(tcp) {
                    Ok(listener) => serve(listener, keyvault::routes(simulator.clone(), &name)),
                    Err(error) => break Err(ServeError(Box::new(error))),
                },
            }
        };
        ended?;
        ending.cancel();
        while serving.join_next().await.is_some() {}
        while clusters.join_next().await.is_some() {}
        simulator.clusters.stop().await;
        Ok(())
    }
}

/// The resource manager, Entra ID, Microsoft Graph, the data plane of managed identities, and what only a simulator can do.
fn main_routes(simulator: &Arc<Simulator>, token: &str) -> Router {
    http::routes(simulator.clone(), token)
        .merge(entra::routes(simulator.clone()))
        .merge(entra::identity_routes(simulator.clone()))
        .merge(entra::graph_routes(simulator.clone()))
        .merge(cloud_metadata::routes(simulator.clone()))
        .fallback_service(arm::routes(simulator.clone()))
}

/// A directory that goes with the service.
fn temporary_directory() -> Result<TempDir, OpenError> {
    tempfile::Builder::new().prefix("cloudsim-").tempdir().map_err(|source| OpenError::File {
        path: std::env::temp_dir(),
        what: "a directory for the files of a simulated cloud cannot be made",
        source: Some(source),
    })
}

/// A value that is kept from the first start on.
fn kept<T: serde::Serialize + serde::de::DeserializeOwned>(
    db: &rusqlite::Connection,
    name: &str,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(found) = database::record(db, "meta", name)? {
        return Ok(found);
    }
    let made = make()?;
    database::write(db, "meta", name, &made)?;
    Ok(made)
}

/// Makes the directory, and locks it: two services in one would write over each other.
async fn enter(directory: &Path) -> Result<File, OpenError> {
    let failed = |path: &Path, what: &'static str| {
        let path = path.to_owned();
        move |source| OpenError::File { path, what, source: Some(source) }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed(directory, "the directory cannot be made"))?;
    let path = directory.join("lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed(&path, "the file cannot be written"))?;
    let entered = async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_AGAIN).await,
                Err(TryLockError::Error(source)) => {
                    return Err(failed(&path, "the file cannot be locked")(source));
                }
            }
        }
    };
    match tokio::time::timeout(LOCK_PATIENCE, entered).await {
        Ok(entered) => entered.map(|()| file),
        Err(_) => Err(OpenError::File {
            path: directory.to_owned(),
            what: "another simulated cloud runs there; end it, or name another directory",
            source: None,
        }),
    }
}

/// A file for the owner's eyes only. It is made anew and takes its place as a whole, so that no link leads the write elsewhere.
fn tell(path: &Path, text: &str) -> Result<(), OpenError> {
    let fresh = path.with_extension("new");
    // What a process left that was killed here.
    let _ = std::fs::remove_file(&fresh);
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|source| OpenError::File {
            path: path.to_owned(),
            what: "the file cannot be written",
            source: Some(source),
        })
}
