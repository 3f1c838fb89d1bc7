//! Lookup of cached objects by values that a function computes from them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use tokio_util::sync::DropGuard;

use crate::change::{Change, Object};
use crate::informer::Shared;
use crate::key::ObjectKey;
use crate::lock;

type Values<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// An index over the objects of an informer, always consistent with its cache. Made by [`Informer::index`]; dropping it ends it.
///
/// [`Informer::index`]: crate::Informer::index
pub struct Index<K: Object> {
    pub(super) slot: Arc<Slot<K>>,
    pub(super) shared: Arc<Shared<K>>,
    pub(super) _watch: Arc<DropGuard>,
}

impl<K: Object> Index<K> {
    /// The objects with this value, in order of their keys.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        // The informer changes an index only while it holds the write lock of the cache.
        self.shared.read(|cache| {
            let keys = lock(&self.slot.keys);
            let keys = keys.get(value).into_iter().flatten();
            keys.filter_map(|key| cache.get(key).cloned()).collect()
        })
    }

    /// The keys of the objects with this value.
    pub fn keys(&self, value: &str) -> Vec<ObjectKey> {
        lock(&self.slot.keys).get(value).into_iter().flatten().cloned().collect()
    }
}

/// The content of an index.
pub(super) struct Slot<K> {
    values: Values<K>,
    keys: Mutex<HashMap<String, BTreeSet<ObjectKey>>>,
}

impl<K: Object> Slot<K> {
    pub(super) fn new(values: Values<K>) -> Slot<K> {
        Slot { values, keys: Mutex::default() }
    }

    pub(super) fn add(&self, object: &K) {
        let key = ObjectKey::of(object);
        let mut keys = lock(&self.keys);
        for value in (self.values)(object) {
            keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&self, object: &K) {
        let key = ObjectKey::of(object);
        let mut keys = lock(&self.keys);
        for value in (self.values)(object) {
            if let Some(of_value) = keys.get_mut(&value) {
                of_value.remove(&key);
                if of_value.is_empty() {
                    keys.remove(&value);
                }
            }
        }
    }
}

/// Applies a change to the indexes that still exist, and forgets the others.
pub(super) fn update<K: Object>(slots: &mut Vec<Weak<Slot<K>>>, change: &Change<K>) {
    slots.retain(|slot| {
        let Some(slot) = slot.upgrade() else { return false };
        if let Some(old) = &change.old {
            slot.remove(old);
        }
        if let Some(new) = &change.new {
            slot.add(new);
        }
        true
    });
}
