//! SQLite inside the process: one host, one process, no server. Writes go through the one writer; reads through a
//! small pool of read-only connections, which the writer does not block.

mod budgets;
mod commit;
mod completion;
mod entries;
mod log_file;
mod open;
mod queue;
mod read;
mod records;
mod side_queues;
mod sweeps;
mod transfer;
mod wal;
mod writer;

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::StoreError;
use crate::instant::{micros, time};
use crate::notify::{Notifications, Notifier, Topic};

pub(crate) use transfer::Import;

use writer::{Session, Writer};

/// An open SQLite store.
#[derive(Debug, Clone)]
pub(crate) struct Sqlite {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    notifier: Notifier,
    /// Raised only by an import; positions of another generation are invalid.
    generation: AtomicI64,
    clock: api::clock::SharedClock,
    /// Held while the store is open, so that no second process opens the file.
    lock: Mutex<Option<Lock>>,
}

/// The lock on a file; released explicitly, because a child process shares it between its fork and the start of its
/// program.
#[derive(Debug)]
struct Lock {
    file: File,
    /// File that the WAL checkpointer syncs. Closing it releases SQLite's own locks of this process on the file (as
    /// POSIX demands), so it is closed after every connection.
    store: Option<Arc<File>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.store.take());
        let _ = self.file.unlock();
    }
}

/// Pool of read-only connections.
#[derive(Debug)]
struct Readers {
    free: Mutex<VecDeque<Connection>>,
    permits: Semaphore,
}

impl Readers {
    /// The most recently used connection, whose pages are cached, or the first one returned.
    async fn take(&self) -> Result<Connection, StoreError> {
        let permit = self.permits.acquire().await.map_err(|_| closed())?;
        let connection = self.free().pop_front().ok_or_else(closed)?;
        // The permit is returned with the connection.
        permit.forget();
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut free = self.free();
        if !self.permits.is_closed() {
            free.push_front(connection);
            self.permits.add_permits(1);
        }
    }

    /// Closes the pool.
    fn close(&self) {
        let mut free = self.free();
        self.permits.close();
        free.clear();
    }

    fn free(&self) -> std::sync::MutexGuard<'_, VecDeque<Connection>> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Result or panic of `work`: the connection stays usable in either case.
fn caught<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> std::thread::Result<Result<T, StoreError>> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(connection)))
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { what: what.to_owned(), source: None }
}

fn closed() -> StoreError {
    unavailable("the store is closed")
}

impl Sqlite {
    pub(crate) fn location(&self) -> String {
        format!("sqlite:{}", self.shared.path.display())
    }

    pub(crate) fn notifications(&self, topic: Topic) -> Notifications {
        self.shared.notifier.subscribe(topic)
    }

    pub(crate) async fn close(&self) {
        // Readers first: the last connection to close checkpoints the WAL, and only the writer can.
        self.shared.readers.close();
        self.shared.writer.close().await;
        drop(self.shared.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }

    /// Checks that the file can be read and, as far as known, written.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.shared.writer.results()?;
        self.meta("generation").await.map(drop)
    }

    /// There is one writer, and nobody waits for its uncommitted changes.
    #[expect(clippy::unused_async, reason = "the other engine queries its server")]
    pub(crate) async fn feed_delay(&self) -> Result<std::time::Duration, StoreError> {
        Ok(std::time::Duration::ZERO)
    }

    /// Runs `work` in a write transaction and returns when it is on disk.
    async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.shared.writer.write(work).await
    }

    /// Runs `work` on one snapshot of committed data.
    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        if let Writer::Inline(_) = self.shared.writer {
            return self.shared.writer.inline_read(work).expect("an inline writer reads for its readers");
        }
        let connection = self.shared.readers.take().await?;
        let shared = self.shared.clone();
        // The file may have to be read from disk; the runtime's threads must not wait for that. A cancelled caller
        // still returns the connection.
        let outcome = tokio::task::spawn_blocking(move || {
            let outcome = caught(&connection, work);
            shared.readers.give_back(connection);
            outcome
        })
        .await
        .map_err(|_| unavailable("the runtime is shutting down"))?;
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The same for one document by its key. It touches a few pages, nearly always cached: switching to another
    /// thread and back would take several times as long.
    async fn look_up<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let spare = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
        let readers = &self.shared.readers;
        if !spare || matches!(self.shared.writer, Writer::Inline(_)) {
            return self.read(work).await;
        }
        // A caller that only reads would otherwise never yield its thread.
        tokio::task::consume_budget().await;
        let connection = readers.take().await?;
        let outcome = caught(&connection, work);
        readers.give_back(connection);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Time by the store's clock, in microseconds.
    fn now(&self) -> i64 {
        self.shared.clock.now().as_microsecond()
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::CannotOpen
                | ErrorCode::OperationInterrupted
                | ErrorCode::ReadOnly,
            ) => StoreError::Unavailable { what: error.to_string(), source: Some(Box::new(error)) },
            _ => StoreError::Broken { what: error.to_string(), source: Some(Box::new(error)) },
        }
    }
}

/// JSON as stored text.
fn json_text(value: &serde_json::Value) -> String {
    value.to_string()
}
