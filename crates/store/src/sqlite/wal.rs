//! Folding the log into the file, beside the writer. Pages that changed lie scattered over the file, so that writing them
//! there takes longer than many commits; whoever waits for a commit must not wait for that.
//!
//! A thread of its own copies and syncs while the writer goes on, then what was written meanwhile, and so on: each time it
//! is less. The rest the writer copies by itself, and its next transaction then begins the log anew. A reader's old
//! snapshot may stand in the way; then the log grows on until the next time.
//!
//! The log is never cut: a sync of a file that grows also writes where its new blocks are, and costs half as much again as
//! one that overwrites.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::StoreError;

/// A log of so many pages is folded; the log of a small file earlier, because it may stand on a small disk, and has few pages
/// to copy however long it is.
const LOG_PAGES: u64 = 4000;
const LOG_PAGES_MIN: u64 = 1000;
/// What is left to the writer is at most so many pages, unless it writes faster than they can be copied.
const REST_PAGES: u64 = 200;
/// Writes that outrun the folding wait for it when the log has so many pages.
const LOG_PAGES_MAX: u64 = 32_000;

/// The writer's side.
pub(super) struct WalCheckpointer {
    /// How many pages the log has.
    pages: Arc<AtomicU64>,
    /// Below this the log is left alone.
    threshold: u64,
    /// How many pages the log of this file may have before it is folded.
    long: u64,
    /// Whether the last folding failed.
    refused: bool,
    /// Whether the other thread is at it.
    asked: bool,
    /// Whether it has said that it is done.
    done: bool,
    ask: Option<SyncSender<()>>,
    tell: Receiver<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WalCheckpointer {
    /// From now on `writer` never folds inside a commit; a thread with the connection `other` does it. `file` is the
    /// store's file: SQLite itself syncs it only when there is nothing left to copy, and then the writer would have to
    /// wait for all that was copied before.
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
        let (ask, asked) = sync_channel(1);
        let (said, tell) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-folder".to_owned())
            .spawn(move || fold_when_asked(&other, &file, &asked, &said))
            .map_err(|error| StoreError::Unavailable {
                what: "no thread could be started to fold the log".to_owned(),
                source: Some(Box::new(error)),
            })?;
        let long = long_for(writer);
        Ok(WalCheckpointer {
            pages,
            threshold: long,
            long,
            refused: false,
            asked: false,
            done: false,
            ask: Some(ask),
            tell,
            thread: Some(thread),
        })
    }

    /// After each commit, or after one that found the disk full; whether the writer's thread is to
    /// [finish](Folder::finish) what the other one has done.
    pub(super) fn after_commit(&mut self, disk_full: bool) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        // A log that is begun anew needs no more of the disk than it has. But to fold it the file may have to grow: what was
        // tried in vain on a full disk is tried again as soon as something could be written.
        if disk_full != self.refused {
            self.threshold = 0;
        }
        if self.asked {
            self.done = self.done || self.tell.try_recv().is_ok();
            return self.done || pages >= LOG_PAGES_MAX;
        }
        if pages >= self.threshold {
            self.ask();
        } else if pages < self.long {
            self.threshold = self.long;
        }
        false
    }

    /// Copies the rest, after the other thread, which is waited for when the log has become too long.
    pub(super) fn finish(&mut self, writer: &Connection) -> bool {
        if !self.done {
            let _ = self.tell.recv();
        }
        (self.asked, self.done) = (false, false);
        // Still as long when a snapshot stands in the way; a log that is begun anew counts from the start.
        self.long = long_for(writer);
        self.threshold = self.pages.load(Ordering::Relaxed) + self.long;
        let folded = fold(writer);
        self.refused = folded.is_none();
        folded.is_some_and(|(log, folded)| log == folded)
    }

    /// When nothing was written for a while; whether the file has all that the log has.
    pub(super) fn when_idle(&mut self, writer: &Connection) -> bool {
        if !self.asked {
            self.ask();
            return false;
        }
        self.done = self.done || self.tell.try_recv().is_ok();
        self.done && self.finish(writer)
    }

    fn ask(&mut self) {
        self.asked = self.ask.as_ref().is_some_and(|ask| ask.try_send(()).is_ok());
    }
}

impl Drop for WalCheckpointer {
    /// Its connection is closed before the writer's: the last one to leave removes the log.
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn fold_when_asked(connection: &Connection, file: &File, asked: &Receiver<()>, done: &SyncSender<()>) {
    while asked.recv().is_ok() {
        fold_most(connection, file);
        if done.send(()).is_err() {
            break;
        }
    }
}

/// As many pages as the file has, within bounds.
fn long_for(connection: &Connection) -> u64 {
    let pages = connection.query_row("pragma page_count", [], |row| row.get(0));
    pages.map_or(LOG_PAGES, |pages: u64| pages.clamp(LOG_PAGES_MIN, LOG_PAGES))
}

/// Folds and syncs until little is left, or until it does not become less.
fn fold_most(connection: &Connection, file: &File) {
    let (mut before, mut last) = (0, u64::MAX);
    while let Some((_, folded)) = fold(connection) {
        // A log that was begun anew has fewer pages than were folded before.
        let pages = folded.saturating_sub(before);
        if let Err(error) = file.sync_data() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The store's file was not synced while the log was folded; the writer does it"
            );
            break;
        }
        if pages <= REST_PAGES || pages > last / 4 * 3 {
            break;
        }
        (before, last) = (folded, pages);
    }
}

/// Copies what no reader's snapshot forbids, and keeps nobody from writing. How many pages the log had, and how many of
/// them are in the file.
fn fold(connection: &Connection) -> Option<(u64, u64)> {
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::PASSIVE) {
        Ok((log, folded)) => Some((u64::try_from(log).ok()?, u64::try_from(folded).ok()?)),
        // Everybody who writes is told so.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => None,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The log was not folded into the store's file; it grows until that succeeds"
            );
            None
        }
    }
}
