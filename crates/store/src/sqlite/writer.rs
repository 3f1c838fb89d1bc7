//! The single writer. There is one writing connection. A thread takes jobs from a bounded channel, runs the waiting
//! ones in one transaction, commits, and responds to all. The commit itself is the batching window: no job waits for
//! others to arrive. A caller that finds no other writes on its own thread instead: switching to the writer's thread
//! and back costs about as much as a commit.
//!
//! Each job succeeds or fails alone: one that fails or panics rolls back only its own changes, and a panic resumes in
//! its caller. Nobody gets a response before the commit is on disk; when the commit fails, every job in it fails.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use api::clock::SharedClock;
use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use super::wal::WalCheckpointer;
use crate::StoreError;
use crate::notify::{Notifier, Topics};
use crate::open::{FaultInjector, FaultPoint, Options};

/// Most waiting jobs; beyond that callers wait to submit theirs.
const WAITING_MAX: usize = 1024;
/// Most jobs in one transaction.
const GROUP_MAX: usize = 512;
/// Time after which a transaction takes no further job: those inside wait for it.
const GROUP_TIME: Duration = Duration::from_millis(5);
/// Idle time after which the WAL is checkpointed.
const IDLE: Duration = Duration::from_secs(2);
/// Time for which the writer polls for the next job before it sleeps: a caller often returns at once, and waking a
/// thread takes about half a commit.
const POLL_TIME: Duration = Duration::from_micros(300);
/// Context of a job.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    /// Time of this job, in microseconds.
    pub(super) now: i64,
    /// Topics to notify after the commit.
    pub(super) topics: Topics,
}

/// Runs in the writer's transaction, or receives the reason why there is none.
type Job = Box<dyn FnOnce(Result<&mut Session<'_>, StoreError>) -> JobOutcome + Send>;
/// Responds to the caller with the outcome of the commit.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

struct JobOutcome {
    succeeded: bool,
    disk_full: bool,
    answer: Answer,
}

/// Submits jobs to the writer.
#[derive(Debug, Clone)]
pub(super) enum Writer {
    Grouped(Arc<Grouped>),
    Inline(Arc<Inline>),
}

pub(super) struct Grouped {
    jobs: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Callers that wait for a response of the thread.
    waiting: AtomicUsize,
    /// Whether the last write that changed anything found the disk full.
    disk_full: Arc<AtomicBool>,
    state: Arc<Mutex<Option<WriterState>>>,
}

/// State of the writing connection; none after the store is closed.
struct WriterState {
    connection: Connection,
    checkpointer: Option<WalCheckpointer>,
    clock: SharedClock,
    notifier: Notifier,
    /// Whether anything was written since the thread last checked.
    written: bool,
    disk_full: Arc<AtomicBool>,
    /// Changed rows at the last check.
    changes: u64,
}

pub(super) struct Inline {
    connection: Mutex<Connection>,
    clock: SharedClock,
    notifier: Notifier,
    fault_injector: Option<FaultInjector>,
}

impl std::fmt::Debug for Grouped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grouped")
    }
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inline")
    }
}

impl Writer {
    /// Starts the writer thread.
    pub(super) fn grouped(
        connection: Connection,
        checkpointer: Option<WalCheckpointer>,
        clock: SharedClock,
        notifier: Notifier,
    ) -> std::io::Result<Writer> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let disk_full = Arc::new(AtomicBool::new(false));
        let state = WriterState {
            connection,
            checkpointer,
            clock,
            notifier,
            written: false,
            disk_full: disk_full.clone(),
            changes: 0,
        };
        let state = Arc::new(Mutex::new(Some(state)));
        let thread = Thread { state: state.clone(), jobs: receiver };
        let thread =
            std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || thread.run())?;
        Ok(Writer::Grouped(Arc::new(Grouped {
            jobs: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            waiting: AtomicUsize::new(0),
            disk_full,
            state,
        })))
    }

    /// Writes on the caller's thread.
    pub(super) fn inline(connection: Connection, options: &Options, notifier: Notifier) -> Writer {
        let (clock, fault_injector) = (options.clock.clone(), options.fault_injector.clone());
        Writer::Inline(Arc::new(Inline {
            connection: Mutex::new(connection),
            clock,
            notifier,
            fault_injector,
        }))
    }

    /// Runs `work` in a transaction and returns when it is on disk.
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        match self {
            Writer::Grouped(grouped) => grouped.write(work).await,
            Writer::Inline(inline) => {
                let Some(fault_injector) = &inline.fault_injector else { return inline.write(work) };
                fault_injector.at(FaultPoint::BeforeWrite).await?;
                let written = inline.write(work);
                fault_injector.at(FaultPoint::AfterWrite).await?;
                written
            }
        }
    }

    /// Reads on the writer's own connection; only inline, where readers have none of their own.
    pub(super) fn inline_read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        match self {
            Writer::Grouped(_) => None,
            Writer::Inline(inline) => {
                let disturbed = inline.fault_injector.as_ref().map_or(Ok(()), FaultInjector::at_read);
                Some(disturbed.and_then(|()| work(&inline.lock())))
            }
        }
    }

    /// Whether a write can succeed, as far as known without trying.
    pub(super) fn results(&self) -> Result<(), StoreError> {
        let Writer::Grouped(grouped) = self else { return Ok(()) };
        let thread = grouped.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished) {
            return Err(StoreError::Unavailable {
                what: "the writer thread has stopped".to_owned(),
                source: None,
            });
        }
        match grouped.disk_full.load(Ordering::Relaxed) {
            true => Err(StoreError::DiskFull),
            false => Ok(()),
        }
    }

    /// Rejects new jobs, finishes waiting ones, and closes the connection.
    pub(super) async fn close(&self) {
        let Writer::Grouped(grouped) = self else { return };
        drop(grouped.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
        let thread = grouped.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread ends after the accepted jobs; joining it on a blocking thread keeps the runtime free.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Grouped {
    async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        // A caller that always writes alone would otherwise never yield its thread, nor notice cancellation.
        tokio::task::consume_budget().await;
        let work = match self.write_alone(work) {
            Ok(outcome) => return outcome,
            Err(work) => work,
        };
        let (sender, receiver) = oneshot::channel();
        let mut job: Job = Box::new(move |session| {
            // The thread is shared: one caller's panic must not end it.
            let outcome = catch_unwind(AssertUnwindSafe(|| session.and_then(work)));
            let succeeded = matches!(outcome, Ok(Ok(_)));
            let disk_full = matches!(outcome, Ok(Err(StoreError::DiskFull)));
            let answer: Answer = Box::new(move |committed| {
                let _ = sender.send(outcome.map(|outcome| committed.and(outcome)));
            });
            JobOutcome { succeeded, disk_full, answer }
        });
        let jobs = self.jobs()?;
        let waiting = WaitingCaller::new(&self.waiting);
        // The channel is seldom full; when it is, waiting must not block the runtime's thread.
        loop {
            match jobs.try_send(job) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => {
                    job = back;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(TrySendError::Disconnected(_)) => return Err(closed()),
            }
        }
        drop(jobs);
        let answer = receiver.await.map_err(|_| closed())?;
        drop(waiting);
        answer.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn jobs(&self) -> Result<SyncSender<Job>, StoreError> {
        self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone().ok_or_else(closed)
    }

    /// Writes on the caller's thread if no other caller writes or waits; otherwise, or if the runtime has no other
    /// thread, returns the work.
    fn write_alone<T, F>(&self, work: F) -> Result<Result<T, StoreError>, F>
    where
        F: FnOnce(&mut Session<'_>) -> Result<T, StoreError>,
    {
        let spare = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !spare || self.waiting.load(Ordering::Relaxed) > 0 {
            return Err(work);
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(work),
        };
        let Some(open) = state.as_mut() else { return Ok(Err(closed())) };
        let outcome = tokio::task::block_in_place(|| {
            transact(&open.connection, open.clock.now().as_microsecond(), &open.notifier, work)
        });
        let needs_thread = open.after_commit(matches!(outcome, Err(StoreError::DiskFull)));
        drop(state);
        if needs_thread && let Ok(jobs) = self.jobs() {
            // Nobody waits for this job; when the channel is full the thread is awake anyway.
            let nothing = |_: Result<&mut Session<'_>, StoreError>| JobOutcome {
                succeeded: true,
                disk_full: false,
                answer: Box::new(drop),
            };
            let _ = jobs.try_send(Box::new(nothing));
        }
        Ok(outcome)
    }
}

/// Counts one waiting caller until it is dropped, by cancellation too.
struct WaitingCaller<'a>(&'a AtomicUsize);

impl WaitingCaller<'_> {
    fn new(count: &AtomicUsize) -> WaitingCaller<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingCaller(count)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inline {
    fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        transact(&self.lock(), self.clock.now().as_microsecond(), &self.notifier, work)
    }
}

/// One transaction for one job, on the caller's thread.
fn transact<T>(
    connection: &Connection,
    now: i64,
    notifier: &Notifier,
    work: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut session = Session { connection, now, topics: Topics::default() };
    execute(connection, "begin immediate")?;
    let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut session)))
        .map(|outcome| outcome.and_then(|value| execute(connection, "commit").map(|()| value)));
    if !matches!(outcome, Ok(Ok(_))) && !connection.is_autocommit() {
        let _ = execute(connection, "rollback");
    }
    if let Ok(Ok(_)) = outcome {
        notifier.notify(session.topics);
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

fn closed() -> StoreError {
    StoreError::Unavailable { what: "the store is closed".to_owned(), source: None }
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

struct Thread {
    state: Arc<Mutex<Option<WriterState>>>,
    jobs: Receiver<Job>,
}

impl Thread {
    fn run(self) {
        let mut checkpointed = true;
        loop {
            match self.next() {
                Ok(first) => {
                    if let Some(state) = self.state().as_mut() {
                        let disk_full = state.group(first, &self.jobs);
                        if state.after_commit(disk_full) {
                            state.finish_checkpoint();
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(state) = self.state().as_mut() {
                        let idle = !std::mem::take(&mut state.written);
                        // A reader's snapshot may prevent it; then a later idle moment does it.
                        checkpointed = idle && (checkpointed || state.checkpoint_when_idle());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let Some(WriterState { connection, checkpointer, .. }) = self.state().take() else { return };
        drop(checkpointer);
        if let Err((_, error)) = connection.close() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The store's file was not closed cleanly"
            );
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Option<WriterState>> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Next job, or a timeout.
    fn next(&self) -> Result<Job, RecvTimeoutError> {
        let started = Instant::now();
        while started.elapsed() < POLL_TIME {
            match self.jobs.try_recv() {
                Ok(job) => return Ok(job),
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
        self.jobs.recv_timeout(IDLE)
    }
}

impl WriterState {
    /// Called after each transaction; returns whether the thread has to finish a checkpoint.
    fn after_commit(&mut self, disk_full: bool) -> bool {
        self.written = true;
        // A transaction without a change says nothing about the disk.
        let changes = self.connection.total_changes();
        if disk_full || changes != self.changes {
            self.changes = changes;
            self.disk_full.store(disk_full, Ordering::Relaxed);
        }
        self.checkpointer.as_mut().is_some_and(|checkpointer| checkpointer.after_commit(disk_full))
    }

    fn finish_checkpoint(&mut self) {
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.finish(&self.connection);
        }
    }

    /// Whether the file contains everything in the WAL.
    fn checkpoint_when_idle(&mut self) -> bool {
        self.checkpointer.as_mut().is_none_or(|checkpointer| checkpointer.when_idle(&self.connection))
    }

    /// Runs one transaction: `first`, and the jobs waiting behind it. Returns whether the disk was full.
    fn group(&self, first: Job, jobs: &Receiver<Job>) -> bool {
        let started = Instant::now();
        let mut results: Vec<Answer> = Vec::new();
        let mut topics = Topics::default();
        let mut open = false;
        let mut next = Some(first);
        let mut failure = None;
        let mut disk_full = false;
        while let Some(job) = next.take() {
            if !open && let Err(error) = execute(&self.connection, "begin immediate") {
                (job(Err(again(&error))).answer)(Ok(()));
                failure = Some(error);
                break;
            }
            // The first job needs no savepoint: when it fails, the transaction is restarted.
            let alone = results.is_empty();
            open = true;
            if !alone && let Err(error) = execute(&self.connection, "savepoint job") {
                (job(Err(again(&error))).answer)(Ok(()));
                failure = Some(error);
                break;
            }
            let mut session = Session {
                connection: &self.connection,
                now: self.clock.now().as_microsecond(),
                topics: Topics::default(),
            };
            let ran = job(Ok(&mut session));
            disk_full |= ran.disk_full;
            if ran.succeeded {
                topics.merge(session.topics);
            }
            let settled = match (ran.succeeded, alone) {
                (true, true) => Ok(()),
                (true, false) => execute(&self.connection, "release job"),
                // Some failures (a full disk among them) make SQLite roll back the whole transaction.
                (false, _) if self.connection.is_autocommit() => {
                    open = false;
                    if alone {
                        Ok(())
                    } else {
                        Err(StoreError::Unavailable {
                            what: "the failure of another write rolled this one back".to_owned(),
                            source: None,
                        })
                    }
                }
                (false, true) => {
                    open = false;
                    execute(&self.connection, "rollback")
                }
                (false, false) => execute(&self.connection, "rollback to job")
                    .and_then(|()| execute(&self.connection, "release job")),
            };
            if ran.succeeded || !alone {
                results.push(ran.answer);
            } else {
                // Neither it nor an earlier job changed anything: its own error is final.
                (ran.answer)(Ok(()));
            }
            if let Err(error) = settled {
                failure = Some(error);
                break;
            }
            if results.len() < GROUP_MAX && started.elapsed() < GROUP_TIME {
                next = jobs.try_recv().ok();
            }
        }
        if failure.is_none() && open {
            failure = execute(&self.connection, "commit").err();
        }
        if failure.is_some() && !self.connection.is_autocommit() {
            let _ = execute(&self.connection, "rollback");
        }
        match failure {
            None => {
                self.notifier.notify(topics);
                results.into_iter().for_each(|answer| answer(Ok(())));
                disk_full
            }
            Some(error) => {
                for answer in results {
                    answer(Err(again(&error)));
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Committing a group of writes failed"
                );
                disk_full || matches!(error, StoreError::DiskFull)
            }
        }
    }
}

/// The same failure for another job.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::DiskFull => StoreError::DiskFull,
        other => StoreError::Unavailable { what: format!("the commit failed: {other}"), source: None },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::clock::SystemClock;

    use super::super::Sqlite;
    use super::*;
    use crate::{Keyring, Location, Options};

    async fn opened(directory: &tempfile::TempDir) -> Sqlite {
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
        Sqlite::open(&options).await.unwrap()
    }

    fn note(session: &mut Session<'_>, key: &str) -> Result<(), StoreError> {
        session.set_meta(&[(key.to_owned(), "x".to_owned())])
    }

    /// A caller panics in the middle of its changes; the changes of other callers stay, and the writer continues.
    async fn a_panic_reaches_only_its_caller(sqlite: &Sqlite) {
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..20 {
            let sqlite = sqlite.clone();
            writers.spawn(async move {
                let write = move |session: &mut Session<'_>| {
                    note(session, &format!("key-{number}"))?;
                    assert!(number % 4 > 0, "a caller's own mistake");
                    Ok(number)
                };
                sqlite.write(write).await
            });
        }
        let (mut answered, mut panicked) = (Vec::new(), 0);
        while let Some(ended) = writers.join_next().await {
            match ended {
                Ok(outcome) => answered.push(outcome.unwrap()),
                Err(error) => panicked += usize::from(error.is_panic()),
            }
        }
        assert_eq!((answered.len(), panicked), (15, 5));
        for number in 0..20 {
            let found = sqlite.meta(&format!("key-{number}")).await.unwrap();
            assert_eq!(found.is_some(), answered.contains(&number), "{number}");
        }
        sqlite.write(|session| note(session, "after")).await.unwrap();
        sqlite.ping().await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_in_one_write_ends_neither_the_writers_thread_nor_its_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        a_panic_reaches_only_its_caller(&opened(&directory).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_panic_in_a_write_on_the_callers_thread_affects_no_other_write() {
        let directory = tempfile::tempdir().unwrap();
        a_panic_reaches_only_its_caller(&opened(&directory).await).await;
    }

    /// Waits for such a ping response: callers get theirs before the writer has updated its state.
    async fn pinged(sqlite: &Sqlite, expected: impl Fn(&Result<(), StoreError>) -> bool) {
        let waiting = async {
            while !expected(&sqlite.ping().await) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("nobody noticed");
    }

    #[tokio::test]
    async fn a_store_without_its_writer_thread_fails_a_ping() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = opened(&directory).await;
        sqlite.ping().await.unwrap();
        let Writer::Grouped(grouped) = &sqlite.shared.writer else { panic!("it has a thread") };
        drop(grouped.jobs.lock().unwrap().take());
        pinged(&sqlite, Result::is_err).await;
        assert!(sqlite.meta("generation").await.is_ok(), "it can still be read");
    }

    #[tokio::test]
    async fn a_store_on_a_full_disk_fails_a_ping_until_a_write_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = opened(&directory).await;
        // A file that may not grow behaves as on a full disk.
        let limit = |pages: u64| {
            sqlite.write(move |session| {
                Ok(session
                    .connection
                    .query_row(&format!("pragma max_page_count = {pages}"), [], |_| Ok(()))?)
            })
        };
        limit(1).await.unwrap();
        let large = |session: &mut Session<'_>| session.set_meta(&[("k".to_owned(), "x".repeat(1 << 20))]);
        assert!(matches!(sqlite.write(large).await, Err(StoreError::DiskFull)));
        pinged(&sqlite, |answer| matches!(answer, Err(StoreError::DiskFull))).await;
        sqlite.write(|_| Ok(())).await.unwrap();
        sqlite.write(|_| Ok(())).await.unwrap();
        assert!(sqlite.ping().await.is_err(), "nothing was written meanwhile");
        limit(1 << 20).await.unwrap();
        sqlite.write(large).await.unwrap();
        pinged(&sqlite, Result::is_ok).await;
    }
}
