//! Stores of either engine with backlogs of any shape.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::clock::{SharedClock, SystemClock};
use api::doc::Document;
use serde::{Deserialize, Serialize};
use store::{Keyring, Location, Options, Store};
use tempfile::TempDir;
use testkit::postgres::{self, TestDatabase, TestPostgres};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

/// Settings of the engine's own sessions: a peer with others would not be comparable.
const SESSION: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_seqscan=off \
    -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off";

/// Engines available on this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// With `fsync` on, as the testkit configures it.
    pub(crate) postgres: Option<TestPostgres>,
}

impl Machine {
    pub(crate) fn find(with_postgres: bool) -> anyhow::Result<Machine> {
        let installed = with_postgres && postgres::is_installed()?;
        // One fleet's working set fits into memory on any suitable host.
        let options =
            postgres::PostgresOptions::default().with("shared_buffers", "512MB").with("max_wal_size", "8GB");
        Ok(Machine { postgres: installed.then(|| TestPostgres::start(options)).transpose()? })
    }

    /// A directory on a real disk: the system's temporary directory may be memory.
    pub(crate) fn directory(&self) -> anyhow::Result<TempDir> {
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("a directory for the benchmark's files")
    }

    /// A new database on the server.
    pub(crate) fn database(&self) -> anyhow::Result<TestDatabase> {
        self.postgres.as_ref().context("a PostgreSQL server")?.database()
    }
}

/// An engine to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Sqlite => "SQLite",
            Place::Postgres => "PostgreSQL",
        }
    }
}

/// An open store and its storage. Fields are dropped in order: the store, then its storage.
#[derive(Debug)]
pub(crate) struct TestEnvironment {
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) ground: Ground,
}

/// Storage of the store.
#[derive(Debug)]
pub(crate) enum Ground {
    Directory(TempDir),
    Database(TestDatabase),
}

impl TestEnvironment {
    /// A store with these backlogs.
    pub(crate) async fn new(
        machine: &Machine,
        place: Place,
        backlogs: &[Backlog],
    ) -> anyhow::Result<TestEnvironment> {
        let (location, ground) = match place {
            Place::Sqlite => {
                let directory = machine.directory()?;
                (Location::Sqlite(directory.path().join("store.db")), Ground::Directory(directory))
            }
            Place::Postgres => {
                let database = machine.database()?;
                (database.url().parse()?, Ground::Database(database))
            }
        };
        let clock: SharedClock = Arc::new(SystemClock);
        let options = Options::new(location, Keyring::ephemeral()?, clock);
        let mut store = Store::open(options.clone()).await?;
        if !backlogs.is_empty() {
            store.close().await;
            drop(store);
            match &options.location {
                Location::Sqlite(path) => crate::sqlite::load(path, backlogs)?,
                Location::Postgres(url) => crate::postgres::load(url.expose(), backlogs).await?,
            }
            store = Store::open(options.clone()).await?;
        }
        Ok(TestEnvironment { store, options, ground })
    }

    /// The same store, opened again with that many connections; PostgreSQL only.
    pub(crate) async fn another(&self, connections: usize) -> anyhow::Result<Store> {
        Ok(Store::open(Options { connections, ..self.options.clone() }).await?)
    }

    /// The database's URL.
    pub(crate) fn url(&self) -> anyhow::Result<&str> {
        match &self.ground {
            Ground::Database(database) => Ok(database.url()),
            Ground::Directory(_) => anyhow::bail!("a directory has no URL"),
        }
    }

    /// Number of faults that `store check` finds.
    pub(crate) async fn faults(&self) -> anyhow::Result<usize> {
        let broken: Vec<_> =
            self.store.check().await?.into_iter().filter(|it| !it.faults.is_empty()).collect();
        for finding in &broken {
            eprintln!("broken promise: {}: {:?}", finding.invariant, finding.faults);
        }
        Ok(broken.iter().map(|it| it.faults.len()).sum())
    }
}

/// Pending manifests: `lanes` lanes with `each` of them, round-robin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    pub(crate) lanes: usize,
    pub(crate) each: usize,
    pub(crate) due: Due,
}

/// Due time of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// An hour ago.
    Now,
    /// Two hours ago: before all others.
    First,
    /// Tomorrow.
    Tomorrow,
}

impl Backlog {
    pub(crate) fn new(lanes: usize, each: usize, due: Due) -> Backlog {
        Backlog { lanes, each, due }
    }

    /// Due time of its first manifest, in microseconds.
    pub(crate) fn first_due(self, now: i64) -> i64 {
        const HOUR: i64 = 3_600_000_000;
        match self.due {
            Due::Now => now - HOUR,
            Due::First => now - 2 * HOUR,
            Due::Tomorrow => now + 24 * HOUR,
        }
    }
}

/// Direct connections beside the store's.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) clients: Vec<Arc<Client>>,
    _drivers: JoinSet<()>,
}

impl Lines {
    pub(crate) async fn open(url: &str, count: usize) -> anyhow::Result<Lines> {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.options(SESSION).ssl_mode(tokio_postgres::config::SslMode::Disable);
        let (mut clients, mut drivers) = (Vec::with_capacity(count), JoinSet::new());
        for _ in 0..count {
            let (client, connection) = config.connect(NoTls).await?;
            drivers.spawn(async move { drop(connection.await) });
            clients.push(Arc::new(client));
        }
        ensure!(!clients.is_empty(), "no connections were asked for");
        Ok(Lines { clients, _drivers: drivers })
    }

    pub(crate) fn first(&self) -> &Client {
        &self.clients[0]
    }
}

/// A document of about 1 KB, like most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    name: String,
    pub(crate) count: u64,
    text: String,
}

impl Note {
    pub(crate) fn new(number: usize) -> Note {
        Note { name: format!("note-{number}"), count: 0, text: "Shipshape and Bristol fashion. ".repeat(32) }
    }
}

impl Document for Note {
    const KIND: &'static str = "note";

    fn path(&self) -> String {
        format!("/notes/{}", self.name)
    }

    fn scope(&self) -> String {
        "/notes".to_owned()
    }
}

/// Time limit of preparations.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
