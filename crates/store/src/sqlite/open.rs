//! Opens a file: permissions, rejected files, and the schema. A rejected file is left untouched.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use tokio::sync::Semaphore;

use super::log_file;
use super::wal::WalCheckpointer;
use super::writer::Writer;
use super::{Lock, Readers, Shared, Sqlite};
use crate::migrate::{self, Migration, Plan, migration};
use crate::notify::Notifier;
use crate::open::{Location, Migrate, OpenError, Options, Schema, WriteMode};

/// Largest file that is integrity-checked when it is opened; a larger one would make starting slow, and `store check`
/// does it on request.
const SCAN_BYTES: u64 = 256 * 1024 * 1024;

/// Application id in the header of every database of this store, which distinguishes it from files of other programs.
const APPLICATION_ID: i64 = 0x5368_7073; // "Shps"

/// Migrations of this engine.
pub(crate) static MIGRATIONS: &[Migration] = &[
    migration!("sqlite", 1, "keel"),
    migration!("sqlite", 2, "entries"),
    migration!("sqlite", 3, "turns"),
    migration!("sqlite", 4, "one_index"),
    migration!("sqlite", 5, "ending"),
    migration!("sqlite", 6, "side_queues"),
    migration!("sqlite", 7, "audit_marks"),
    migration!("sqlite", 8, "cancellations"),
    migration!("sqlite", 9, "health"),
];

/// Start of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

impl Sqlite {
    /// Opens the file for writing, creating it if there is none.
    pub(crate) async fn open(options: &Options) -> Result<Sqlite, OpenError> {
        let Location::Sqlite(path) = options.location.clone() else {
            return Err(OpenError::Url { why: "not an SQLite URL".to_owned() });
        };
        let (options, place) = (options.clone(), path.clone());
        if options.write_mode == WriteMode::Inline {
            return open(&place, &options);
        }
        tokio::task::spawn_blocking(move || open(&place, &options)).await.map_err(|error| {
            OpenError::File { path, what: format!("opening it failed: {error}"), source: None }
        })?
    }

    /// Opens a file that another process may use, for reading only.
    pub(crate) fn open_to_read(options: &Options) -> Result<Sqlite, OpenError> {
        let Location::Sqlite(path) = &options.location else {
            return Err(OpenError::Url { why: "not an SQLite URL".to_owned() });
        };
        if !path.exists() {
            return Err(file(path, "does not exist; `shipshape up` creates one"));
        }
        let connection = check_file(path)?;
        let found = schema(path, &connection)?;
        match migrate::plan(&place(path), &found, MIGRATIONS, Migrate::Never)? {
            Plan::UpToDate => {}
            Plan::Apply { .. } => unreachable!("a plan that may not migrate is refused"),
        }
        let generation = generation(path, &connection)?.into();
        let readers = readers(path, 2)?;
        let notifier = Notifier::default();
        // Nothing can be written through it: SQLite rejects writes on a read-only connection.
        let writer = Writer::inline(connection, options, notifier.clone());
        let shared = Shared {
            path: path.clone(),
            writer,
            readers,
            notifier,
            generation,
            clock: options.clock.clone(),
            lock: Mutex::new(None),
        };
        Ok(Sqlite { shared: Arc::new(shared) })
    }

    /// Schema version of a file, and the newest known.
    pub(crate) fn schema(options: &Options) -> Result<Schema, OpenError> {
        let Location::Sqlite(path) = &options.location else {
            return Err(OpenError::Url { why: "not an SQLite URL".to_owned() });
        };
        let known = MIGRATIONS.last().map_or(0, |it| it.number);
        if !path.exists() {
            return Ok(Schema { found: 0, known });
        }
        let applied = schema(path, &check_file(path)?)?;
        Ok(Schema { found: applied.iter().map(|it| it.number).max().unwrap_or(0), known })
    }
}

fn open(path: &Path, options: &Options) -> Result<Sqlite, OpenError> {
    let in_memory = path == Path::new(":memory:");
    let mut lock = if in_memory { None } else { Some(lock(path)?) };
    if !in_memory && !path.exists() {
        if has_log(path) {
            return Err(orphaned_wal(path));
        }
        make(path, options)?;
    }
    let found = if in_memory { Vec::new() } else { schema(path, &check_file(path)?)? };
    let migrate = if in_memory { Migrate::Auto } else { options.migrate };
    let plan = migrate::plan(&place(path), &found, MIGRATIONS, migrate)?;
    let mut connection = writable(path).map_err(|error| refused(path, &error))?;
    if let Plan::Apply { from } = plan {
        if !in_memory {
            copy_before_migration(path, &connection, from)?;
        }
        apply_all(path, &connection, from, options)?;
    }
    let generation = generation(path, &connection)?.into();
    let notifier = Notifier::default();
    let (writer, readers) = match options.write_mode {
        WriteMode::Inline => (
            Writer::inline(connection, options, notifier.clone()),
            Readers { free: Mutex::default(), permits: Semaphore::new(0) },
        ),
        WriteMode::Grouped => {
            let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
            let readers = readers(path, cores * 2)?;
            let checkpointer = match &mut lock {
                None => None,
                Some(lock) => Some(checkpointer(path, &mut connection, lock)?),
            };
            let writer = Writer::grouped(connection, checkpointer, options.clock.clone(), notifier.clone())
                .map_err(|source| OpenError::File {
                path: path.to_owned(),
                what: "the writer thread could not be started".to_owned(),
                source: Some(source),
            })?;
            (writer, readers)
        }
    };
    let shared = Shared {
        path: path.to_owned(),
        writer,
        readers,
        notifier,
        generation,
        clock: options.clock.clone(),
        lock: Mutex::new(lock),
    };
    Ok(Sqlite { shared: Arc::new(shared) })
}

/// A connection that may write, and whose commits are on disk when they return.
fn writable(path: &Path) -> rusqlite::Result<Connection> {
    let connection = match log_file::vfs() {
        Some(name) => Connection::open_with_flags_and_vfs(path, OpenFlags::default(), name)?,
        None => Connection::open(path)?,
    };
    configure(&connection)?;
    // The buffered WAL relies on `full`: unsynced bytes are not written yet. A smaller cache than for readers: a
    // commit that moves pages scans the whole cache.
    connection.execute_batch(
        "pragma cache_size = -32768; pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on;
         pragma journal_size_limit = 67108864;",
    )?;
    Ok(connection)
}

/// Starts the checkpointer of `writer`'s WAL, with a connection of its own.
fn checkpointer(path: &Path, writer: &mut Connection, lock: &mut Lock) -> Result<WalCheckpointer, OpenError> {
    let other = writable(path).map_err(|error| refused(path, &error))?;
    let store = File::options().read(true).write(true).open(path).map_err(|source| OpenError::File {
        path: path.to_owned(),
        what: "cannot be opened for syncing".to_owned(),
        source: Some(source),
    })?;
    let store = Arc::new(store);
    lock.store = Some(store.clone());
    WalCheckpointer::start(writer, other, store).map_err(|error| file(path, &error.to_string()))
}

/// Creates a new store beside its path and moves it there when it is complete: an empty or partial file at the path
/// is then always damage. Only this user may read it.
fn make(path: &Path, options: &Options) -> Result<(), OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        what: "cannot be created".to_owned(),
        source: Some(source),
    };
    let draft = sibling(path, ".new");
    for leftover in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(sibling(&draft, leftover));
    }
    File::options().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    let connection = writable(&draft).map_err(|error| refused(&draft, &error))?;
    apply_all(path, &connection, 0, options)?;
    connection.close().map_err(|(_, error)| refused(&draft, &error))?;
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(&draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, path))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(failed)
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn apply_all(path: &Path, connection: &Connection, from: i64, options: &Options) -> Result<(), OpenError> {
    MIGRATIONS
        .iter()
        .filter(|it| it.number > from)
        .try_for_each(|migration| apply(path, connection, migration, options))
}

fn place(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn file(path: &Path, what: &str) -> OpenError {
    OpenError::File { path: path.to_owned(), what: what.to_owned(), source: None }
}

/// Describes why SQLite rejected a file.
fn refused(path: &Path, error: &rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenError::Damaged {
            path: path.to_owned(),
            what: format!("is damaged or not a database ({error})"),
        },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            file(path, "cannot be written; it and its directory must be writable by this user")
        }
        Some(ErrorCode::DiskFull) => file(path, "its disk is full"),
        _ => file(path, &error.to_string()),
    }
}

/// Keeps other processes out while the returned file is open.
fn lock(path: &Path) -> Result<Lock, OpenError> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(file(directory, "is not a directory; create it or choose another location"));
    }
    let name = sibling(path, ".lock");
    let mut lock =
        File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&name).map_err(
            |source| OpenError::File {
                path: name.clone(),
                what: "cannot be written; the directory must be writable by this user".to_owned(),
                source: Some(source),
            },
        )?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>().ok().map(|pid| format!(" (process {pid})"));
            return Err(OpenError::InUse { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => {
            return Err(OpenError::File {
                path: name,
                what: "cannot be locked".to_owned(),
                source: Some(source),
            });
        }
    }
    // Only a hint for a process that finds the file in use; the lock decides.
    let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(Lock { file: lock, store: None })
}

/// Checks an existing file without changing it; the connection is read-only.
fn check_file(path: &Path) -> Result<Connection, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let read = |source| OpenError::File {
        path: path.to_owned(),
        what: "cannot be read".to_owned(),
        source: Some(source),
    };
    let metadata = std::fs::metadata(path).map_err(read)?;
    if !metadata.is_file() {
        return Err(file(path, "is not a file"));
    }
    if metadata.permissions().readonly() {
        return Err(file(path, "is read-only; it and its directory must be writable by this user"));
    }
    let mut header = [0; 100];
    match File::open(path).map_err(read)?.read_exact(&mut header) {
        Ok(()) => {}
        Err(_) => {
            return Err(damaged(format!(
                "is truncated: {} bytes are too few for a database",
                metadata.len()
            )));
        }
    }
    if header[..16] != *MAGIC {
        return Err(damaged("is not a database".to_owned()));
    }
    let page_bytes = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65536,
        other => other,
    };
    let pages = u64::from(u32::from_be_bytes([header[28], header[29], header[30], header[31]]));
    // A checkpoint writes the first page first: when it was interrupted, the file is shorter than its header states,
    // and the rest is still in the WAL. What is really missing is found below.
    if metadata.len() < pages * page_bytes && !has_log(path) {
        return Err(damaged(format!(
            "is truncated: it has {} of its {} bytes",
            metadata.len(),
            pages * page_bytes
        )));
    }
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| refused(path, &error))?;
    configure(&connection).map_err(|error| refused(path, &error))?;
    if metadata.len() <= SCAN_BYTES {
        let verdict: String = connection
            .query_row("pragma quick_check(1)", [], |row| row.get(0))
            .map_err(|error| damaged(format!("is damaged ({error})")))?;
        if verdict != "ok" {
            return Err(damaged(format!("is damaged ({})", verdict.replace('\n', " "))));
        }
    }
    Ok(connection)
}

/// SQLite applies a WAL to any file that it finds beside it, and would write its content into a new one.
fn orphaned_wal(path: &Path) -> OpenError {
    let log = sibling(path, "-wal");
    let what = format!(
        "is missing, but its write-ahead log {} exists; restore the file, or move the log away to create a new store",
        log.display()
    );
    file(path, &what)
}

/// Whether the WAL holds writes that are not in the file yet.
fn has_log(path: &Path) -> bool {
    std::fs::metadata(sibling(path, "-wal")).is_ok_and(|log| log.len() > 0)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(128);
    // Plans must not depend on bound values: otherwise SQLite prepares a statement again whenever a bound value meets
    // a partial index, which cost as much as all the rest of a claim.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch("pragma cache_size = -65536; pragma temp_store = memory;")
}

/// Applied migrations of a file.
fn schema(path: &Path, connection: &Connection) -> Result<Vec<migrate::Applied>, OpenError> {
    let file_error = |error: rusqlite::Error| refused(path, &error);
    let tables: i64 = connection
        .query_row("select count(*) from sqlite_schema where type = 'table'", [], |row| row.get(0))
        .map_err(file_error)?;
    if tables == 0 {
        return Ok(Vec::new());
    }
    let application: i64 =
        connection.query_row("pragma application_id", [], |row| row.get(0)).map_err(file_error)?;
    if application != APPLICATION_ID {
        return Err(OpenError::Foreign { place: place(path) });
    }
    let mut statement =
        connection.prepare("select number, checksum from schema order by number").map_err(file_error)?;
    let applied = statement
        .query_map([], |row| Ok(migrate::Applied { number: row.get(0)?, checksum: row.get(1)? }))
        .and_then(Iterator::collect)
        .map_err(file_error)?;
    Ok(applied)
}

/// Copies an existing file before a migration changes it, as the way back to the previous release.
fn copy_before_migration(path: &Path, connection: &Connection, from: i64) -> Result<(), OpenError> {
    let copy = sibling(path, &format!(".before-migration-{}", from + 1));
    let failed = |why: String| file(&copy, &format!("the backup before the migration failed: {why}"));
    // A copy of that name is from an earlier attempt, or from before a return to it. The file still has the
    // old schema, with all later writes: its copy replaces the other.
    let fresh = sibling(&copy, ".new");
    let _ = std::fs::remove_file(&fresh);
    super::transfer::copy(connection, &fresh).map_err(failed)?;
    std::fs::rename(&fresh, &copy).map_err(|error| failed(error.to_string()))?;
    tracing::info!("Copied the store to {} before migrating it", copy.display());
    Ok(())
}

fn apply(
    path: &Path,
    connection: &Connection,
    migration: &Migration,
    options: &Options,
) -> Result<(), OpenError> {
    let now = options.clock.now().as_microsecond();
    let applied = (|| -> rusqlite::Result<()> {
        connection.execute_batch("begin immediate")?;
        if migration.number == 1 {
            connection.execute_batch(&format!(
                "pragma application_id = {APPLICATION_ID};
                 create table schema (number integer not null primary key, name text not null, checksum text not null, applied integer not null);"
            ))?;
        }
        connection.execute_batch(migration.sql)?;
        connection.execute(
            "insert into schema (number, name, checksum, applied) values (?1, ?2, ?3, ?4)",
            params![migration.number, migration.name, migration.checksum(), now],
        )?;
        if migration.number == 1 {
            for (key, value) in migrate::first_meta() {
                connection.execute("insert into meta (key, value) values (?1, ?2)", params![key, value])?;
            }
        }
        connection.execute_batch("commit")
    })();
    applied.map_err(|error| {
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("rollback");
        }
        OpenError::Migration { place: place(path), number: migration.number, why: error.to_string() }
    })
}

fn generation(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    let text: Option<String> = connection
        .query_row("select value from meta where key = 'generation'", [], |row| row.get(0))
        .optional()
        .map_err(|error| refused(path, &error))?;
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| OpenError::Damaged { path: path.to_owned(), what: "has no generation".to_owned() })
}

fn readers(path: &Path, count: usize) -> Result<Readers, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut free = VecDeque::with_capacity(count);
    for _ in 0..count {
        let connection = Connection::open_with_flags(path, flags).map_err(|error| refused(path, &error))?;
        configure(&connection).map_err(|error| refused(path, &error))?;
        free.push_back(connection);
    }
    Ok(Readers { free: Mutex::new(free), permits: Semaphore::new(count) })
}
