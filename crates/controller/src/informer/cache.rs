//! The objects of an informer: a function of what the watch delivered and of what this process wrote. No I/O and no clock.
//!
//! Three sources report objects: a listing (everything, consistent with the time at which it began), the watch (every change, late),
//! and this process's own writes (at once). Rules, so that the cache is never older than what this process wrote:
//!
//! - A watch event that is older than the cached object is ignored.
//! - A listing replaces everything except what was written after it began and is newer.
//! - An object that this process deleted stays hidden, with everything older under its name, until the watch reports the deletion or
//!   something later, or a listing that began later is complete.
//!
//! What was written and is not confirmed by the watch has a time; the informer lists again when one is too old. This removes an object
//! that the watch will never report, because it does not match the selection or was deleted before the watch began.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use tokio::time::Instant;

use crate::change::Change;
use crate::key::ObjectKey;

/// A write of this process that the watch has not reported yet.
#[derive(Clone, Copy)]
struct Unconfirmed {
    /// The listings that had begun when it was written.
    listing: u64,
    at: Instant,
}

/// An object that this process deleted, not confirmed by the watch.
struct Deletion {
    uid: String,
    /// The version in which it was deleted: what is older, of this object or of earlier ones of its name, is past.
    version: Option<u64>,
    unconfirmed: Unconfirmed,
}

/// The cached objects of one informer.
pub(super) struct Cache<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// The cached objects that were written and not confirmed.
    written: HashMap<ObjectKey, Unconfirmed>,
    deleted: HashMap<ObjectKey, Deletion>,
    /// The objects of the listing in progress.
    listing: BTreeMap<ObjectKey, Arc<K>>,
    listings_begun: u64,
}

impl<K> Default for Cache<K> {
    fn default() -> Cache<K> {
        Cache {
            objects: BTreeMap::new(),
            written: HashMap::new(),
            deleted: HashMap::new(),
            listing: BTreeMap::new(),
            listings_begun: 0,
        }
    }
}

impl<K: Resource> Cache<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        let from = self.objects.range(ObjectKey::namespaced(namespace, "")..);
        from.take_while(move |(key, _)| key.namespace() == namespace).map(|(_, object)| object)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// A listing begins; one that was in progress is void.
    pub(super) fn begin_listing(&mut self) {
        self.listings_begun += 1;
        self.listing.clear();
    }

    pub(super) fn listed(&mut self, object: K) {
        let key = ObjectKey::of(&object);
        // The cached object is kept if it is the same, so that a listing does not double the memory.
        let cached = self.get(&key).filter(|cached| is_same_version(cached.meta(), object.meta())).cloned();
        self.listing.insert(key, cached.unwrap_or_else(|| Arc::new(object)));
    }

    /// The listing is complete. Returns the changes, including deletions that the watch missed.
    pub(super) fn finish_listing(&mut self) -> Vec<Change<K>> {
        let listed = mem::take(&mut self.listing);
        let current = self.listings_begun;
        self.deleted.retain(|_, deletion| deletion.unconfirmed.listing >= current);
        self.written.retain(|_, unconfirmed| unconfirmed.listing >= current);

        let is_gone = |key: &&ObjectKey| !listed.contains_key(*key) && !self.written.contains_key(*key);
        let gone: Vec<ObjectKey> = self.objects.keys().filter(is_gone).cloned().collect();
        let mut changes: Vec<Change<K>> =
            gone.iter().filter_map(|key| self.objects.remove(key)).map(Change::deleted).collect();
        for (key, object) in listed {
            let is_outdated = self.written.contains_key(&key)
                && self.get(&key).is_some_and(|cached| is_older(object.meta(), cached.meta()));
            if !is_outdated && !self.is_deleted(&key, object.meta()) {
                changes.extend(self.put(key, object));
            }
        }
        changes
    }

    /// The watch reports an object that was created or changed.
    pub(super) fn watched(&mut self, object: K) -> Option<Change<K>> {
        let key = ObjectKey::of(&object);
        let is_outdated = self.get(&key).is_some_and(|cached| is_older(object.meta(), cached.meta()));
        if is_outdated || self.is_deleted(&key, object.meta()) {
            return None;
        }
        // The watch is past the deletion when it reports a later object of the name.
        self.deleted.remove(&key);
        self.put(key, Arc::new(object))
    }

    /// The watch reports that an object was deleted.
    pub(super) fn watched_deletion(&mut self, object: &K) -> Option<Change<K>> {
        let key = ObjectKey::of(object);
        if self.deleted.get(&key).is_some_and(|deletion| deletion.uid == uid(object.meta())) {
            self.deleted.remove(&key);
        }
        let cached = self.get(&key)?;
        // A later object of the same name, which this process created.
        if uid(cached.meta()) != uid(object.meta()) && is_older(object.meta(), cached.meta()) {
            return None;
        }
        self.written.remove(&key);
        self.objects.remove(&key).map(Change::deleted)
    }

    /// This process wrote an object, and the API server responded with it.
    pub(super) fn written(&mut self, object: Arc<K>, now: Instant) -> Option<Change<K>> {
        let key = ObjectKey::of(&*object);
        let is_known = self.get(&key).is_some_and(|cached| {
            is_older(object.meta(), cached.meta()) || is_same_version(object.meta(), cached.meta())
        });
        if is_known || self.is_deleted(&key, object.meta()) {
            return None;
        }
        let change = self.put(key.clone(), object);
        self.written.insert(key, Unconfirmed { listing: self.listings_begun, at: now });
        change
    }

    /// This process deleted the object with this metadata, and the API server responded that it is gone.
    pub(super) fn deleted(&mut self, meta: &ObjectMeta, now: Instant) -> Option<Change<K>> {
        let key = ObjectKey::of_meta(meta);
        if !self.is_deleted(&key, meta) {
            let unconfirmed = Unconfirmed { listing: self.listings_begun, at: now };
            let deletion = Deletion { uid: uid(meta).to_owned(), version: version(meta), unconfirmed };
            self.deleted.insert(key.clone(), deletion);
        }
        if self.get(&key).is_none_or(|cached| uid(cached.meta()) != uid(meta)) {
            return None;
        }
        self.written.remove(&key);
        self.objects.remove(&key).map(Change::deleted)
    }

    /// Whether an object is one that this process deleted, or an earlier one of its name.
    fn is_deleted(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        self.deleted.get(key).is_some_and(|deletion| {
            let is_earlier =
                matches!((version(meta), deletion.version), (Some(one), Some(other)) if one < other);
            deletion.uid == uid(meta) || is_earlier
        })
    }

    /// The time of the oldest write that the watch has not confirmed.
    pub(super) fn oldest_unconfirmed(&self) -> Option<Instant> {
        let deleted = self.deleted.values().map(|deletion| &deletion.unconfirmed);
        self.written.values().chain(deleted).map(|unconfirmed| unconfirmed.at).min()
    }

    /// Caches an object as confirmed.
    fn put(&mut self, key: ObjectKey, object: Arc<K>) -> Option<Change<K>> {
        self.written.remove(&key);
        match self.objects.insert(key, object.clone()) {
            Some(old) if is_same_version(old.meta(), object.meta()) => None,
            Some(old) => Some(Change::updated(old, object)),
            None => Some(Change::created(object)),
        }
    }
}

/// A resource version as a number. Kubernetes documents since 1.35 that the versions of one kind compare as numbers, and no API server
/// has behaved otherwise. A version that is no number is never older than another, so then the watch decides.
fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref()?.parse().ok()
}

fn is_older(one: &ObjectMeta, than: &ObjectMeta) -> bool {
    matches!((version(one), version(than)), (Some(one), Some(other)) if one < other)
}

fn is_same_version(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.resource_version.is_some() && one.resource_version == other.resource_version && uid(one) == uid(other)
}

fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}
