//! How a store is opened, and every reason why it is not. Each reason is one sentence that names what is wrong and
//! what would do; whatever is refused is left untouched.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use api::clock::SharedClock;
use api::secret::Secret;

use crate::StoreError;
use crate::keyring::{KeyFileError, Keyring};

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file on this host, for one process.
    Sqlite(PathBuf),
    /// A server, for many processes; the text may hold a password and is shown without it.
    Postgres(Secret<String>),
}

impl FromStr for Location {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Location, OpenError> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => {
                // `sqlite:///var/x.db` is the spelling of those who think of it as a URL.
                let path = path.strip_prefix("//").unwrap_or(path);
                Ok(Location::Sqlite(PathBuf::from(path)))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Location::Postgres(Secret::new(text.to_owned())))
            }
            // The text is not repeated: it may be a password with a typing error in front.
            _ => Err(OpenError::Url { why: "the scheme is not known".to_owned() }),
        }
    }
}

/// Whether a store whose schema is older than this release is brought up to date when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrate {
    /// It is.
    #[default]
    Auto,
    /// It is refused.
    Never,
}

/// How SQLite's writes are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// By one thread that commits what is waiting together.
    #[default]
    Grouped,
    /// On the caller's thread, at once: for simulations, which must not depend on how threads are scheduled.
    Inline,
}

/// For simulations: asked at every read and write of an inline store. A write also lets other tasks run before and after it.
#[derive(Clone)]
pub struct FaultInjector(Arc<dyn Fn(FaultPoint) -> Result<(), StoreError> + Send + Sync>);

/// When the store is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// Something is read; an error is the answer.
    Read,
    /// Nothing is written yet; an error keeps it so.
    BeforeWrite,
    /// It is written; an error is an answer that was lost.
    AfterWrite,
}

impl FaultInjector {
    /// Asks `disturb` at every read and write.
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

/// What is needed to open a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it is.
    pub location: Location,
    /// The keys of its secrets.
    pub keyring: Keyring,
    /// The clock that SQLite goes by. PostgreSQL goes by its own.
    pub clock: SharedClock,
    /// What to do with an older schema.
    pub migrate: Migrate,
    /// How SQLite writes.
    pub write_mode: WriteMode,
    /// What goes wrong with inline writes.
    pub fault_injector: Option<FaultInjector>,
    /// PostgreSQL: the password, when it is not in the URL.
    pub password: Option<Secret<String>>,
    /// PostgreSQL: the certificates by which its server is known; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// PostgreSQL: how many connections at most.
    pub connections: usize,
}

impl Options {
    /// The usual choices for a store at that place.
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

/// The schema that a store has, and the newest that this release knows; 0 is no schema at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// What the store has.
    pub found: i64,
    /// What we know.
    pub known: i64,
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not one of ours.
    #[error("store.url: {why}; accepted: sqlite:PATH, postgres://USER@HOST:PORT/DATABASE")]
    Url {
        /// What is wrong with it, without the URL, which may hold a password.
        why: String,
    },
    /// The file is in use.
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
        /// What cannot be done with it.
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
        /// How it shows.
        what: String,
    },
    /// The database belongs to something else.
    #[error("store {place}: holds tables that are not Shipshape's; give it a database of its own")]
    Foreign {
        /// The database, without password.
        place: String,
    },
    /// The schema is newer than this release understands.
    #[error("store {place}: its schema is {found}, this release knows up to {known}; run a newer release")]
    TooNew {
        /// The database, without password.
        place: String,
        /// Its schema.
        found: i64,
        /// The newest that we know.
        known: i64,
    },
    /// The schema is older than this release needs, and it may not migrate.
    #[error(
        "store {place}: its schema is {found}, this release needs {needed}; run `shipshape store migrate`"
    )]
    TooOld {
        /// The database, without password.
        place: String,
        /// Its schema; 0 for an empty database.
        found: i64,
        /// What we need.
        needed: i64,
    },
    /// A migration that was applied is not the one that we know by that number.
    #[error("store {place}: migration {number} was applied with another text than this release has")]
    Diverged {
        /// The database, without password.
        place: String,
        /// Which migration.
        number: i64,
    },
    /// A migration failed.
    #[error("store {place}: migration {number} failed, nothing of it was kept: {why}")]
    Migration {
        /// The database, without password.
        place: String,
        /// Which migration.
        number: i64,
        /// What the database said.
        why: String,
    },
    /// The server cannot be reached, or it refused us.
    #[error("store {place}: {why}")]
    Server {
        /// The server and database, without password.
        place: String,
        /// One sentence.
        why: String,
    },
    /// The server is older than we can use.
    #[error("store {place}: is PostgreSQL {found}; accepted: 13 or later")]
    ServerTooOld {
        /// The server and database, without password.
        place: String,
        /// Its version.
        found: String,
    },
    /// The keys do not fit the store.
    #[error("store {place}: its secrets are sealed with key {wanted}, which the key file does not hold")]
    WrongKey {
        /// The database, without password.
        place: String,
        /// The key that it needs.
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
    fn a_refused_url_is_not_repeated_since_it_may_hold_a_password() {
        for nonsense in ["", "x", "sqlite:", "mysql://u:hunter2@h/d", "postgres:hunter2", "file:hunter2"] {
            let refusal = nonsense.parse::<Location>().unwrap_err().to_string();
            assert!(refusal.contains("accepted: sqlite:PATH"), "{refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }
}
