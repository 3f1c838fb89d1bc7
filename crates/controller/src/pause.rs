//! Stops and continues controllers without ending them.

use std::sync::Arc;

use tokio::sync::watch;

/// Pauses controllers: no reconcile starts, those in progress end, and what changes meanwhile is reconciled afterwards. Clones share
/// their state.
#[derive(Debug, Clone)]
pub struct Pause(Arc<watch::Sender<bool>>);

impl Default for Pause {
    fn default() -> Pause {
        Pause(Arc::new(watch::Sender::new(false)))
    }
}

impl Pause {
    /// Pauses, or continues.
    pub fn set(&self, paused: bool) {
        self.0.send_if_modified(|current| std::mem::replace(current, paused) != paused);
    }

    /// Whether it is paused.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
