//! Folding the log into the file, beside the writer. Pages that changed lie scattered over the file, so that writing them
//! there takes longer than many commits; whoever waits for a commit must not wait for that.
//!
//! A thread of its own copies while the writer goes on. What was written meanwhile is little: that the writer copies by
//! itself, and its next transaction then begins the log anew. A reader's old snapshot may stand in the way; then the log
//! grows on until the next time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::StoreError;

/// A log of so many pages is folded.
const LOG_PAGES: u64 = 4000;
/// Writes that outrun the folding wait for it when the log has so many pages.
const LOG_PAGES_MAX: u64 = 32_000;

/// The writer's side.
pub(super) struct Folder {
    /// How many pages the log has.
    pages: Arc<AtomicU64>,
    /// Below this the log is left alone.
    threshold: u64,
    /// Whether the other thread is at it.
    asked: bool,
    ask: Option<SyncSender<()>>,
    done: Receiver<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Folder {
    /// From now on `writer` never folds inside a commit; a thread with the connection `other` does it.
    pub(super) fn start(writer: &mut Connection, other: Connection) -> Result<Folder, StoreError> {
        // Sets the same hook, so it comes first.
        writer.pragma_update(None, "wal_autocheckpoint", 0)?;
        let pages = Arc::new(AtomicU64::new(0));
        let seen = pages.clone();
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let (ask, asked) = sync_channel(1);
        let (tell, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-folder".to_owned())
            .spawn(move || fold_when_asked(&other, &asked, &tell))
            .map_err(|error| StoreError::Unavailable {
                what: "no thread could be started to fold the log".to_owned(),
                source: Some(Box::new(error)),
            })?;
        Ok(Folder { pages, threshold: LOG_PAGES, asked: false, ask: Some(ask), done, thread: Some(thread) })
    }

    /// After each commit, when everybody is answered.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.asked {
            let done = match pages < LOG_PAGES_MAX {
                true => self.done.try_recv().is_ok(),
                false => self.done.recv().is_ok(),
            };
            if done {
                self.asked = false;
                fold(writer);
                // Still as long when a snapshot stands in the way; a log that is begun anew counts from the start.
                self.threshold = pages + LOG_PAGES;
            }
        } else if pages >= self.threshold {
            self.asked = self.ask.as_ref().is_some_and(|ask| ask.try_send(()).is_ok());
        } else if pages < LOG_PAGES {
            self.threshold = LOG_PAGES;
        }
    }
}

impl Drop for Folder {
    /// Its connection is closed before the writer's: the last one to leave removes the log.
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn fold_when_asked(connection: &Connection, asked: &Receiver<()>, done: &SyncSender<()>) {
    while asked.recv().is_ok() {
        fold(connection);
        if done.send(()).is_err() {
            break;
        }
    }
}

/// Copies what no reader's snapshot forbids, and keeps nobody from writing.
fn fold(connection: &Connection) {
    if let Err(error) = connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::PASSIVE) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "The log was not folded into the store's file; it grows until that succeeds"
        );
    }
}
