//! How a store is opened, and every error of doing so. Each error is one sentence with the fault and the remedy; a
//! rejected store is left untouched.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use api::clock::SharedClock;
use api::secret::Secret;

use crate::StoreError;
use crate::keyring::{KeyFileError, Keyring};

/// Location of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file on this host, for one process.
    Sqlite(PathBuf),
    /// A server, for many processes; the URL may contain a password and is shown without it.
    Postgres(Secret<String>),
}

impl FromStr for Location {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Location, OpenError> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => {
                // `sqlite:///var/x.db` is the spelling as a URL.
                let path = path.strip_prefix("//").unwrap_or(path);
                Ok(Location::Sqlite(PathBuf::from(path)))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Location::Postgres(Secret::new(text.to_owned())))
            }
            // The text is not repeated: it may be a password with a typing error in front.
            _ => Err(OpenError::Url { why: "unknown scheme".to_owned() }),
        }
    }
}

/// Whether opening a store migrates an older schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrate {
    /// Migrate it.
    #[default]
    Auto,
    /// Fail.
    Never,
}

/// How SQLite executes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// On one thread that commits waiting writes together.
    #[default]
    Grouped,
    /// On the caller's thread, at once: for simulations, which must not depend on the scheduling of threads.
    Inline,
}

/// Injects errors into reads and writes of an inline store, for simulations. A write also yields to other tasks
/// before and after it.
#[derive(Clone)]
pub struct FaultInjector(Arc<dyn Fn(FaultPoint) -> Result<(), StoreError> + Send + Sync>);

/// Points at which an error can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// A read; the error is its result.
    Read,
    /// Before a write; an error prevents it.
    BeforeWrite,
    /// After a write; an error simulates a lost response.
    AfterWrite,
}

impl FaultInjector {
    /// Calls `disturb` at every read and write.
    pub fn new(
        disturb: impl Fn(FaultPoint) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> FaultInjector {
        FaultInjector(Arc::new(disturb))
    }

    pub(crate) fn at_read(&self) -> Result<(), StoreError> {
        (self.0)(FaultPoint::Read)
    }

    pub(crate) async fn at(&self, moment: FaultPoint) -> Result<(), StoreError> {
        let disturbed = (self.0)(moment);
        tokio::task::yield_now().await;
        disturbed
    }
}

impl fmt::Debug for FaultInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultInjector")
    }
}

/// Options of opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Location of the store.
    pub location: Location,
    /// Keys of its secrets.
    pub keyring: Keyring,
    /// Clock of SQLite. PostgreSQL uses its own.
    pub clock: SharedClock,
    /// Whether an older schema is migrated.
    pub migrate: Migrate,
    /// How SQLite executes writes.
    pub write_mode: WriteMode,
    /// Errors injected into an inline store.
    pub fault_injector: Option<FaultInjector>,
    /// PostgreSQL: password, when it is not in the URL.
    pub password: Option<Secret<String>>,
    /// PostgreSQL: CA certificates of the server; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// PostgreSQL: most connections.
    pub connections: usize,
}

impl Options {
    /// Default options for a store at that location.
    pub fn new(location: Location, keyring: Keyring, clock: SharedClock) -> Options {
        Options {
            location,
            keyring,
            clock,
            migrate: Migrate::default(),
            write_mode: WriteMode::default(),
            fault_injector: None,
            password: None,
            ca_file: None,
            connections: 8,
        }
    }
}

/// Schema version of a store, and the newest that this release knows; 0 for no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// Version of the store.
    pub found: i64,
    /// Newest known version.
    pub known: i64,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not supported.
    #[error("store.url: {why}; accepted: sqlite:PATH, postgres://USER@HOST:PORT/DATABASE")]
    Url {
        /// The fault, without the URL, which may contain a password.
        why: String,
    },
    /// Another process uses the file.
    #[error("store {}: is in use by another process{}; several processes need PostgreSQL", path.display(), holder.as_deref().unwrap_or(""))]
    InUse {
        /// The file.
        path: PathBuf,
        /// ` (process 123)`, when it is known.
        holder: Option<String>,
    },
    /// The file or its directory cannot be written or read.
    #[error("store {}: {what}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The failed access.
        what: String,
        /// The cause.
        #[source]
        source: Option<std::io::Error>,
    },
    /// The file is not a database, or is damaged.
    #[error("store {}: {what}; it was left untouched, restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The evidence.
        what: String,
    },
    /// The database belongs to another program.
    #[error("store {place}: contains tables of another program; use a separate database")]
    Foreign {
        /// Database, without password.
        place: String,
    },
    /// The schema is newer than this release supports.
    #[error("store {place}: its schema is {found}, this release supports up to {known}; run a newer release")]
    TooNew {
        /// Database, without password.
        place: String,
        /// Its schema version.
        found: i64,
        /// Newest known version.
        known: i64,
    },
    /// The schema is older than this release needs, and migrating is not allowed.
    #[error(
        "store {place}: its schema is {found}, this release needs {needed}; run `shipshape store migrate`"
    )]
    TooOld {
        /// Database, without password.
        place: String,
        /// Its schema version; 0 for an empty database.
        found: i64,
        /// Required version.
        needed: i64,
    },
    /// An applied migration differs from the one that this release has under that number.
    #[error("store {place}: the applied migration {number} differs from the one in this release")]
    Diverged {
        /// Database, without password.
        place: String,
        /// Number of the migration.
        number: i64,
    },
    /// A migration failed.
    #[error("store {place}: migration {number} failed and was rolled back: {why}")]
    Migration {
        /// Database, without password.
        place: String,
        /// Number of the migration.
        number: i64,
        /// Message of the database.
        why: String,
    },
    /// The server cannot be reached, or rejected the connection.
    #[error("store {place}: {why}")]
    Server {
        /// Server and database, without password.
        place: String,
        /// The cause, in one sentence.
        why: String,
    },
    /// The server is older than supported.
    #[error("store {place}: is PostgreSQL {found}; accepted: 13 or later")]
    ServerTooOld {
        /// Server and database, without password.
        place: String,
        /// Its version.
        found: String,
    },
    /// The key file does not match the store.
    #[error("store {place}: its secrets are sealed with key {wanted}, which the key file does not contain")]
    WrongKey {
        /// Database, without password.
        place: String,
        /// Id of the required key.
        wanted: String,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The store was reached but failed.
    #[error(transparent)]
    Store(#[from] crate::StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_from_its_url() {
        let sqlite = |path: &str| Location::Sqlite(PathBuf::from(path));
        assert_eq!("sqlite:a/b.db".parse::<Location>().unwrap(), sqlite("a/b.db"));
        assert_eq!("sqlite:/a/b.db".parse::<Location>().unwrap(), sqlite("/a/b.db"));
        assert_eq!("sqlite:///a/b.db".parse::<Location>().unwrap(), sqlite("/a/b.db"));
        assert!(matches!("postgres://u@h/d".parse(), Ok(Location::Postgres(_))));
        assert!(matches!("postgresql://u@h/d".parse(), Ok(Location::Postgres(_))));
    }

    #[test]
    fn a_rejected_url_is_not_repeated_since_it_may_contain_a_password() {
        for nonsense in ["", "x", "sqlite:", "mysql://u:hunter2@h/d", "postgres:hunter2", "file:hunter2"] {
            let error = nonsense.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains("accepted: sqlite:PATH"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
