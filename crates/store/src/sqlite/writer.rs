//! The one writer. A thread owns the only writing connection, takes jobs from a bounded channel, runs what is
//! waiting in one transaction, commits, and answers all. The commit itself is the batching window: nothing waits
//! for more work to arrive.
//!
//! Each job stands alone: one that fails takes back only its own changes. Nobody is answered before the commit is
//! on disk; when the commit fails, everybody in it is told so.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::clock::SharedClock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fold::Folder;
use crate::StoreError;
use crate::open::{Disturbance, Moment, Options};
use crate::wake::{Bells, Topics};

/// So many jobs may wait; beyond that callers wait to hand theirs in.
const WAITING_MAX: usize = 1024;
/// A transaction takes at most so many jobs.
const GROUP_MAX: usize = 512;
/// A transaction takes no further job after so much work: those inside wait for it.
const GROUP_TIME: Duration = Duration::from_millis(5);
/// After so long without a job the log is folded into the file and cut.
const IDLE: Duration = Duration::from_secs(2);
/// So long the writer looks for the next job before it sleeps: whoever was answered often comes back at once, and waking
/// a thread takes about as long as half a commit.
const LINGER: Duration = Duration::from_micros(300);

/// What a job works with.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    /// The time of this job, in microseconds.
    pub(super) now: i64,
    /// What this job has news for.
    pub(super) topics: Topics,
}

/// Runs in the writer's transaction, or learns why there is none; returns what is to be done with the fate of the commit.
type Job = Box<dyn FnOnce(Result<&mut Session<'_>, StoreError>) -> Ran + Send>;
/// Answers the caller.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

struct Ran {
    succeeded: bool,
    answer: Answer,
}

/// Hands jobs to the writer.
#[derive(Debug, Clone)]
pub(super) enum Writer {
    Grouped(Arc<Grouped>),
    Inline(Arc<Inline>),
}

pub(super) struct Grouped {
    jobs: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

pub(super) struct Inline {
    connection: Mutex<Connection>,
    clock: SharedClock,
    bells: Bells,
    disturbance: Option<Disturbance>,
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
        folder: Option<Folder>,
        clock: SharedClock,
        bells: Bells,
    ) -> std::io::Result<Writer> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || Thread { connection, folder, clock, bells, jobs: receiver }.run())?;
        Ok(Writer::Grouped(Arc::new(Grouped {
            jobs: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Writes on the caller's thread.
    pub(super) fn inline(connection: Connection, options: &Options, bells: Bells) -> Writer {
        let (clock, disturbance) = (options.clock.clone(), options.disturbance.clone());
        Writer::Inline(Arc::new(Inline { connection: Mutex::new(connection), clock, bells, disturbance }))
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
                let Some(disturbance) = &inline.disturbance else { return inline.write(work) };
                disturbance.at(Moment::Before).await?;
                let written = inline.write(work);
                disturbance.at(Moment::After).await?;
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
            Writer::Inline(inline) => Some(work(&inline.lock())),
        }
    }

    /// Takes no more jobs, finishes those that wait, and closes the connection.
    pub(super) async fn close(&self) {
        let Writer::Grouped(grouped) = self else { return };
        drop(grouped.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
        let thread = grouped.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread ends after the jobs in hand; joining it on a blocking thread keeps the runtime free.
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
        let (sender, receiver) = oneshot::channel();
        let mut job: Job = Box::new(move |session| {
            let outcome = session.and_then(work);
            let succeeded = outcome.is_ok();
            let answer: Answer = Box::new(move |committed| {
                let _ = sender.send(committed.and(outcome));
            });
            Ran { succeeded, answer }
        });
        let jobs =
            self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone().ok_or_else(closed)?;
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
        receiver.await.map_err(|_| closed())?
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
        let connection = self.lock();
        let now = self.clock.now().as_microsecond();
        let mut session = Session { connection: &connection, now, topics: Topics::default() };
        execute(&connection, "begin immediate")?;
        let outcome = work(&mut session).and_then(|value| execute(&connection, "commit").map(|()| value));
        if outcome.is_err() && !connection.is_autocommit() {
            let _ = execute(&connection, "rollback");
        }
        let topics = session.topics;
        drop(connection);
        if outcome.is_ok() {
            self.bells.ring(topics);
        }
        outcome
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable { what: "the store is closed".to_owned(), source: None }
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

struct Thread {
    connection: Connection,
    folder: Option<Folder>,
    clock: SharedClock,
    bells: Bells,
    jobs: Receiver<Job>,
}

impl Thread {
    fn run(mut self) {
        let mut folded = true;
        loop {
            match self.next() {
                Ok(first) => {
                    self.group(first);
                    if let Some(folder) = &mut self.folder {
                        folder.after_commit(&self.connection);
                    }
                    folded = false;
                }
                Err(RecvTimeoutError::Timeout) if !folded => {
                    // A reader's snapshot may stand in the way; then the next idle moment does it.
                    folded = self
                        .connection
                        .query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0))
                        .is_ok_and(|busy| busy == 0);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        drop(self.folder.take());
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The store's file was not closed cleanly"
            );
        }
    }

    /// The next job, or that there was none for a while.
    fn next(&self) -> Result<Job, RecvTimeoutError> {
        let begun = Instant::now();
        while begun.elapsed() < LINGER {
            match self.jobs.try_recv() {
                Ok(job) => return Ok(job),
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
        self.jobs.recv_timeout(IDLE)
    }

    /// One transaction: `first`, and what waits behind it.
    fn group(&self, first: Job) {
        let begun = Instant::now();
        let mut answers: Vec<Answer> = Vec::new();
        let mut topics = Topics::default();
        let mut open = false;
        let mut next = Some(first);
        let mut failure = None;
        while let Some(job) = next.take() {
            if !open && let Err(error) = execute(&self.connection, "begin immediate") {
                (job(Err(again(&error))).answer)(Ok(()));
                failure = Some(error);
                break;
            }
            // The first job needs no savepoint: when it fails, the transaction is begun anew.
            let alone = answers.is_empty();
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
            if ran.succeeded {
                topics.merge(session.topics);
            }
            let settled = match (ran.succeeded, alone) {
                (true, true) => Ok(()),
                (true, false) => execute(&self.connection, "release job"),
                // Some failures (a full disk among them) make SQLite roll back the whole transaction by itself.
                (false, _) if self.connection.is_autocommit() => {
                    open = false;
                    if alone {
                        Ok(())
                    } else {
                        Err(StoreError::Unavailable {
                            what: "a neighbour's failure undid this write".to_owned(),
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
                answers.push(ran.answer);
            } else {
                // It changed nothing and nobody before it did: its own error is the truth already.
                (ran.answer)(Ok(()));
            }
            if let Err(error) = settled {
                failure = Some(error);
                break;
            }
            if answers.len() < GROUP_MAX && begun.elapsed() < GROUP_TIME {
                next = self.jobs.try_recv().ok();
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
                self.bells.ring(topics);
                answers.into_iter().for_each(|answer| answer(Ok(())));
            }
            Some(error) => {
                for answer in answers {
                    answer(Err(again(&error)));
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "A group of writes was not committed"
                );
            }
        }
    }
}

/// The same failure, for one more of those it befell.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::DiskFull => StoreError::DiskFull,
        other => StoreError::Unavailable { what: format!("the commit failed: {other}"), source: None },
    }
}
