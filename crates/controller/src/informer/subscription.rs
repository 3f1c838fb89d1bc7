//! A reader of an informer's changes that may be slow: changes of the same object are merged until they are read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::change::{Change, Object};
use crate::informer::Observation;
use crate::key::ObjectKey;
use crate::lock;

/// The changes of an informer for one reader, the oldest first. It begins with everything in the cache.
///
/// Several changes of an object that were not read are returned as one, from what was last returned to what is now; an object that was
/// created and deleted meanwhile is returned as deleted. So the memory of a reader that never reads is bounded by the number of
/// objects. A controller does not use this: its mapping sees every single change.
pub struct Subscription<K: Object> {
    pub(super) pending: Arc<Pending<K>>,
    pub(super) _observation: Observation<K>,
}

impl<K: Object> Subscription<K> {
    /// Waits for the next change. Cancel-safe.
    pub async fn next(&self) -> Change<K> {
        loop {
            let added = self.pending.added.notified();
            if let Some(change) = self.try_next() {
                return change;
            }
            added.await;
        }
    }

    /// The next change, if there is one.
    pub fn try_next(&self) -> Option<Change<K>> {
        let mut unread = lock(&self.pending.unread);
        let key = unread.order.pop_front()?;
        unread.changes.remove(&key)
    }
}

/// Unread changes.
pub(super) struct Pending<K> {
    unread: Mutex<Unread<K>>,
    added: Notify,
}

struct Unread<K> {
    changes: HashMap<ObjectKey, Change<K>>,
    order: VecDeque<ObjectKey>,
}

impl<K> Default for Pending<K> {
    fn default() -> Pending<K> {
        let unread = Unread { changes: HashMap::new(), order: VecDeque::new() };
        Pending { unread: Mutex::new(unread), added: Notify::new() }
    }
}

impl<K: Object> Pending<K> {
    pub(super) fn add(&self, change: &Change<K>) {
        let key = change.key();
        let mut unread = lock(&self.unread);
        match unread.changes.remove(&key) {
            Some(earlier) => {
                unread.changes.insert(key, merge(earlier, change.clone()));
            }
            None => {
                unread.order.push_back(key.clone());
                unread.changes.insert(key, change.clone());
            }
        }
        drop(unread);
        self.added.notify_one();
    }
}

/// One change for two that follow each other.
fn merge<K>(earlier: Change<K>, later: Change<K>) -> Change<K> {
    match (earlier.old, later.new) {
        (None, None) => Change { old: later.old, new: None },
        (old, new) => Change { old, new },
    }
}
