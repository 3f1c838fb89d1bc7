//! The service: opened, then served until it is asked to stop.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{SharedClock, SystemClock};
use api::secret::Secret;
use serve::{Listener, ListenerLimits, SharedService};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call_context::FaultEffects;
use crate::client::{SimClient, SimClientError};
use crate::failure::Failure;
use crate::faults::Faults;
use crate::simulator::{Parts, Simulator};
use crate::{database, http, install, secrets};

/// A process that was just ended may hold the directory for a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// How a simulated cloud is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything is kept; without it, everything is gone when the service ends.
    pub directory: Option<PathBuf>,
    /// Where it listens; port 0 is any. Only the loopback interface is accepted: the token goes in the clear.
    pub listen: SocketAddr,
    /// The clock it lives by.
    pub clock: SharedClock,
    /// The same seed gives the same delays and the same chance faults. It is kept: a directory goes on with its first seed.
    pub seed: u64,
    /// How long things take: 1 is as in a real cloud, 0.02 makes a cluster within a minute, 0 is at once.
    pub pace: f64,
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
    listener: Listener,
    token: Secret<String>,
    runs: mpsc::UnboundedReceiver<Uuid>,
}

impl Service {
    /// Opens the database and a port. Waits for a moment for another service that is leaving the directory.
    pub async fn open(options: Options) -> Result<Service, OpenError> {
        let Options { directory, listen, clock, seed, pace } = options;
        if !listen.ip().is_loopback() {
            return Err(OpenError::Exposed(listen));
        }
        let lock = match &directory {
            Some(directory) => Some(enter(directory).await?),
            None => None,
        };
        let file = directory.as_ref().map(|it| it.join("cloud.db"));
        let db = database::open(file.as_deref()).map_err(unusable)?;
        let seed = kept(&db, "seed", || Ok(seed)).map_err(unusable)?;
        let token: String = kept(&db, "bearer", || secrets::text(43)).map_err(unusable)?;
        let listener = Listener::bind(listen, limits())
            .await
            .map_err(|source| OpenError::Listen { address: listen, source })?;
        if let Some(directory) = &directory {
            tell(&directory.join("token"), &token)?;
            tell(&directory.join("url"), &listener.url())?;
        }
        let (sender, runs) = mpsc::unbounded_channel();
        let simulator = Simulator::new(Parts { db, clock, seed, pace, directory, runs: sender, lock });
        let unfinished = simulator.within(FaultEffects::default(), install::all).map_err(unusable)?;
        for cluster in unfinished {
            let _ = simulator.runs.send(cluster);
        }
        Ok(Service { simulator: Arc::new(simulator), listener, token: Secret::new(token), runs })
    }

    /// Where it listens, as `http://127.0.0.1:4000`.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// What callers must know. It stays the same for as long as the directory does.
    pub fn token(&self) -> Secret<String> {
        self.token.clone()
    }

    /// A client of it.
    pub fn client(&self) -> Result<SimClient, SimClientError> {
        SimClient::new(&self.url(), self.token())
    }

    /// What is to go wrong.
    pub fn faults(&self) -> Faults {
        self.simulator.faults.clone()
    }

    /// Answers until it is asked to stop; then every call that is under way is answered, and every cluster ended. What was
    /// accepted goes on at the next start.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Service { simulator, listener, token, mut runs, .. } = self;
        let routes = http::routes(simulator.clone(), token.expose());
        let mut clusters = JoinSet::new();
        let ending = CancellationToken::new();
        let mut serving = pin!(listener.serve(SharedService(routes), ending.clone()));
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                // It goes on until it is asked to end.
                () = serving.as_mut() => return Ok(()),
                Some(ended) = clusters.join_next(), if !clusters.is_empty() => {
                    if let Err(error) = ended {
                        return Err(ServeError(Box::new(error)));
                    }
                }
                Some(cluster) = runs.recv() => {
                    clusters.spawn(install::run(simulator.clone(), cluster, ending.child_token()));
                }
            }
        }
        ending.cancel();
        serving.await;
        while clusters.join_next().await.is_some() {}
        simulator.clusters.stop().await;
        Ok(())
    }
}

/// Everybody is on this machine. A call that hangs on purpose is not waited for at the end.
fn limits() -> ListenerLimits {
    let (connections, closing) = (16_384, Duration::from_secs(1));
    ListenerLimits { connections, connections_per_address: connections, closing, ..ListenerLimits::default() }
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
