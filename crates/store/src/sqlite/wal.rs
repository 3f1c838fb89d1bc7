//! Checkpoints the WAL beside the writer. Changed pages are scattered over the file, so that writing them takes
//! longer than many commits; a commit must not wait for that.
//!
//! A separate thread copies and syncs while the writer continues, then copies what was written meanwhile, and so on,
//! less each time. The writer copies the rest itself, and its next transaction then restarts the WAL. A reader's old
//! snapshot may prevent that; then the WAL grows until the next time.
//!
//! The WAL is never truncated: a sync of a growing file also writes block allocations, and costs half as much again
//! as an overwrite.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::StoreError;

/// Length at which the WAL is checkpointed; that of a small file earlier, because it may be on a small disk, and has
/// few pages to copy.
const LOG_PAGES: u64 = 4000;
const LOG_PAGES_MIN: u64 = 1000;
/// Most pages left to the writer, unless it writes faster than they can be copied.
const REST_PAGES: u64 = 200;
/// Length at which writes wait for the checkpoint.
const LOG_PAGES_MAX: u64 = 32_000;

/// The writer's side.
pub(super) struct WalCheckpointer {
    /// Pages in the WAL.
    pages: Arc<AtomicU64>,
    /// No checkpoint below this length.
    threshold: u64,
    /// Length at which the WAL of this file is checkpointed.
    long: u64,
    /// Whether the last checkpoint failed.
    refused: bool,
    /// Whether the thread is working.
    is_requested: bool,
    /// Whether the thread has reported completion.
    done: bool,
    start_thread: Option<SyncSender<()>>,
    done_receiver: Receiver<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WalCheckpointer {
    /// Disables checkpoints inside commits of `writer`; a thread with the connection `other` does them. `file` is the
    /// store's file: SQLite itself syncs it only when there is nothing left to copy, and the writer would then wait
    /// for all that was copied before.
    pub(super) fn start(
        writer: &mut Connection,
        other: Connection,
        file: Arc<File>,
    ) -> Result<WalCheckpointer, StoreError> {
        // Sets the same hook, so it comes first.
        writer.pragma_update(None, "wal_autocheckpoint", 0)?;
        let pages = Arc::new(AtomicU64::new(0));
        let seen = pages.clone();
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let (start_thread, requests) = sync_channel(1);
        let (done_sender, done_receiver) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || checkpoint_on_request(&other, &file, &requests, &done_sender))
            .map_err(|error| StoreError::Unavailable {
                what: "the checkpoint thread could not be started".to_owned(),
                source: Some(Box::new(error)),
            })?;
        let long = checkpoint_length(writer);
        Ok(WalCheckpointer {
            pages,
            threshold: long,
            long,
            refused: false,
            is_requested: false,
            done: false,
            start_thread: Some(start_thread),
            done_receiver,
            thread: Some(thread),
        })
    }

    /// Called after each commit, or after one that found the disk full; returns whether the writer's thread has to
    /// [finish](WalCheckpointer::finish) the checkpoint.
    pub(super) fn after_commit(&mut self, disk_full: bool) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        // A restarted WAL needs no more disk space than it has. But a checkpoint may have to grow the file: after a
        // failure on a full disk it is tried again as soon as a write succeeds.
        if disk_full != self.refused {
            self.threshold = 0;
        }
        if self.is_requested {
            self.done = self.done || self.done_receiver.try_recv().is_ok();
            return self.done || pages >= LOG_PAGES_MAX;
        }
        if pages >= self.threshold {
            self.start_thread();
        } else if pages < self.long {
            self.threshold = self.long;
        }
        false
    }

    /// Copies the rest after the thread; waits for the thread when the WAL has become too long.
    pub(super) fn finish(&mut self, writer: &Connection) -> bool {
        if !self.done {
            let _ = self.done_receiver.recv();
        }
        (self.is_requested, self.done) = (false, false);
        // Unchanged when a snapshot prevents it; a restarted WAL counts from the start.
        self.long = checkpoint_length(writer);
        self.threshold = self.pages.load(Ordering::Relaxed) + self.long;
        let checkpointed = checkpoint(writer);
        self.refused = checkpointed.is_none();
        checkpointed.is_some_and(|(log, checkpointed)| log == checkpointed)
    }

    /// Called when idle; returns whether the file contains everything in the WAL.
    pub(super) fn when_idle(&mut self, writer: &Connection) -> bool {
        if !self.is_requested {
            self.start_thread();
            return false;
        }
        self.done = self.done || self.done_receiver.try_recv().is_ok();
        self.done && self.finish(writer)
    }

    fn start_thread(&mut self) {
        self.is_requested =
            self.start_thread.as_ref().is_some_and(|start_thread| start_thread.try_send(()).is_ok());
    }
}

impl Drop for WalCheckpointer {
    /// Its connection is closed before the writer's: the last connection to close removes the WAL.
    fn drop(&mut self) {
        drop(self.start_thread.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn checkpoint_on_request(
    connection: &Connection,
    file: &File,
    requests: &Receiver<()>,
    done: &SyncSender<()>,
) {
    while requests.recv().is_ok() {
        checkpoint_most(connection, file);
        if done.send(()).is_err() {
            break;
        }
    }
}

/// Number of pages of the file, within bounds.
fn checkpoint_length(connection: &Connection) -> u64 {
    let pages = connection.query_row("pragma page_count", [], |row| row.get(0));
    pages.map_or(LOG_PAGES, |pages: u64| pages.clamp(LOG_PAGES_MIN, LOG_PAGES))
}

/// Checkpoints and syncs until little is left, or until it does not become less.
fn checkpoint_most(connection: &Connection, file: &File) {
    let (mut before, mut last) = (0, u64::MAX);
    while let Some((_, checkpointed)) = checkpoint(connection) {
        // A restarted WAL has fewer pages than were checkpointed before.
        let pages = checkpointed.saturating_sub(before);
        if let Err(error) = file.sync_data() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "Syncing the store's file during a WAL checkpoint failed; the writer retries"
            );
            break;
        }
        if pages <= REST_PAGES || pages > last / 4 * 3 {
            break;
        }
        (before, last) = (checkpointed, pages);
    }
}

/// Copies pages that no reader's snapshot needs, without blocking writers. Returns the pages in the WAL, and how many
/// of them are in the file.
fn checkpoint(connection: &Connection) -> Option<(u64, u64)> {
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::PASSIVE) {
        Ok((log, checkpointed)) => Some((u64::try_from(log).ok()?, u64::try_from(checkpointed).ok()?)),
        // Every writer gets this error.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => None,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "WAL checkpoint failed; the WAL grows until one succeeds"
            );
            None
        }
    }
}
