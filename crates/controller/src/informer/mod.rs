//! One watch for a kind and a selection, with a cache, indexes and any number of readers.
//!
//! The fan-out is ours because the shared streams of `kube::runtime` drop deletions, wait for the slowest reader, and give a late
//! reader nothing of what was there before. Here a change is applied to the cache and its indexes, then passed to every observer
//! before the next change is applied. An observer only puts keys into a set, so none is slow, and none loses anything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::change::{Change, Object};
use crate::informers::Observability;
use crate::key::ObjectKey;
use crate::lock;

mod cache;
mod index;
#[cfg(test)]
mod property;
mod run;
mod subscription;
#[cfg(test)]
pub(crate) mod tests;

use cache::Cache;
pub use index::Index;
pub use run::ObserverPanicked;
pub(crate) use run::{Watch, run};
pub use subscription::Subscription;

/// What an informer selects from the objects of its `Api`. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl Selection {
    /// All objects.
    pub fn all() -> Selection {
        Selection::default()
    }

    /// The object of this name. A role that is limited to that `resourceName` suffices.
    pub fn named(name: &str) -> Selection {
        Selection { fields: Some(format!("metadata.name={name}")), labels: None }
    }

    /// Only objects that match this label selector.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Selection {
        self.labels = Some(selector.to_owned());
        self
    }

    /// Only objects that match this field selector.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Selection {
        self.fields = Some(selector.to_owned());
        self
    }
}

/// The objects of one kind and selection, kept up to date by one watch. Made by [`Informers`]; the watch ends when the last handle,
/// index and reader is dropped.
///
/// Cached objects lack `metadata.managedFields`, which would be half of the memory. The API server takes a write without them as "keep".
///
/// [`Informers`]: crate::Informers
pub struct Informer<K: Object> {
    pub(crate) shared: Arc<Shared<K>>,
    api: Api<K>,
    resource: ApiResource,
    observability: Observability,
    /// Ends the watch when it is dropped.
    watch: Arc<DropGuard>,
}

impl<K: Object> Informer<K> {
    pub(crate) fn new(
        api: Api<K>,
        resource: ApiResource,
        observability: Observability,
    ) -> (Informer<K>, CancellationToken) {
        let end = CancellationToken::new();
        let shared = Arc::new(Shared::default());
        (Informer { shared, api, resource, observability, watch: Arc::new(end.clone().drop_guard()) }, end)
    }

    /// The API that this informer watches.
    pub fn api(&self) -> &Api<K> {
        &self.api
    }

    pub(crate) fn client(&self) -> Client {
        self.api.clone().into_client()
    }

    pub(crate) fn api_version(&self) -> &str {
        &self.resource.api_version
    }

    pub(crate) fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// Kind and name of an object, for messages.
    pub(crate) fn describe<A: Resource>(&self, object: &A) -> String {
        let key = ObjectKey::of(object);
        match object.meta().generate_name.as_deref() {
            Some(prefix) if key.name.is_empty() => format!("{} {key}{prefix}…", self.kind()),
            _ => format!("{} {key}", self.kind()),
        }
    }

    /// The path of the objects of this kind in a namespace.
    pub(crate) fn url(&self, namespace: Option<&str>) -> String {
        DynamicObject::url_path(&self.resource, namespace)
    }

    pub(crate) fn observability(&self) -> &Observability {
        &self.observability
    }

    /// The cached object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.read(|cache| cache.get(key).cloned())
    }

    /// All cached objects, in order of their keys.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.read(|cache| cache.iter().cloned().collect())
    }

    /// The cached objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.read(|cache| cache.in_namespace(namespace).cloned().collect())
    }

    /// The number of cached objects.
    pub fn len(&self) -> usize {
        self.shared.read(Cache::len)
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether everything was listed once.
    pub fn is_synced(&self) -> bool {
        *self.shared.listed.borrow() > 0
    }

    /// Waits until everything was listed once.
    pub async fn synced(&self) {
        self.shared.listed_since(1).await;
    }

    /// Lists again, and returns when the cache is at least as new as this call.
    ///
    /// For a write whose response was lost, before it is repeated under another name; and for a cache that was kept warm by a process
    /// that now becomes the leader.
    pub async fn catch_up(&self) {
        let request = self.shared.requested.fetch_add(1, Ordering::SeqCst) + 1;
        self.shared.relist.notify_one();
        self.shared.listed_since(request).await;
    }

    /// An index over the values that `values` computes from each object. `values` must depend on the object alone.
    pub fn index(&self, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index<K> {
        let slot = Arc::new(index::Slot::new(Box::new(values)));
        let mut data = self.shared.data.write().unwrap_or_else(PoisonError::into_inner);
        for object in data.cache.iter() {
            slot.add(object);
        }
        data.indexes.push(Arc::downgrade(&slot));
        drop(data);
        Index { slot, shared: self.shared.clone(), _watch: self.watch.clone() }
    }

    /// A reader of changes, beginning with everything in the cache.
    pub fn subscribe(&self) -> Subscription<K> {
        let pending = Arc::new(subscription::Pending::default());
        let reader = pending.clone();
        let _observation = self.observe(move |change| reader.add(change));
        Subscription { pending, _observation }
    }

    /// Calls `observer` for everything in the cache and then for every change, until the guard is dropped. It must be quick, and may
    /// read caches and indexes but neither write nor observe.
    pub(crate) fn observe(&self, observer: impl Fn(&Change<K>) + Send + Sync + 'static) -> Observation<K> {
        let observer: Arc<Observer<K>> = Arc::new(observer);
        // No change can be applied between the reading of the cache and the registration.
        let mut observers = lock(&self.shared.observers);
        for object in self.list() {
            observer(&Change::created(object));
        }
        observers.push(Arc::downgrade(&observer));
        drop(observers);
        Observation { _observer: observer, _watch: self.watch.clone() }
    }

    /// Puts an object that this process has just written, as the API server responded with it, into the cache. The cache is then never
    /// older than this write, whatever the watch still delivers.
    pub fn remember(&self, mut written: K) -> Arc<K> {
        written.meta_mut().managed_fields = None;
        let written = Arc::new(written);
        let namespace = self.api.namespace();
        if namespace.is_none() || namespace == written.meta().namespace.as_deref() {
            let object = written.clone();
            self.shared.update(|cache| cache.written(object, Instant::now()).into_iter().collect());
        }
        written
    }

    /// Removes an object of this cache that this process has just deleted, and keeps it out until the watch has reported the deletion.
    /// Only when the API server responded that it is gone: an object with finalizers is returned by a delete, and is remembered.
    pub fn forget(&self, deleted: &K) {
        let meta = deleted.meta();
        self.shared.update(|cache| cache.deleted(meta, Instant::now()).into_iter().collect());
    }
}

type Observer<K> = dyn Fn(&Change<K>) + Send + Sync;

/// A registered observer; dropping it ends the observation.
pub(crate) struct Observation<K> {
    _observer: Arc<Observer<K>>,
    _watch: Arc<DropGuard>,
}

/// What the handles of an informer and its watch share.
pub(crate) struct Shared<K> {
    /// Taken first by everything that changes the cache, so that changes reach observers in order.
    observers: Mutex<Vec<Weak<Observer<K>>>>,
    data: RwLock<Data<K>>,
    /// The newest request for a listing. The first is made by the creation.
    requested: AtomicU64,
    relist: Notify,
    /// The newest request that a complete listing has served.
    listed: watch::Sender<u64>,
    /// Set when an observer panicked: changes may be lost, so the process must not continue.
    observer_panicked: watch::Sender<bool>,
}

struct Data<K> {
    cache: Cache<K>,
    indexes: Vec<Weak<index::Slot<K>>>,
}

impl<K> Default for Shared<K> {
    fn default() -> Shared<K> {
        Shared {
            observers: Mutex::default(),
            data: RwLock::new(Data { cache: Cache::default(), indexes: Vec::new() }),
            requested: AtomicU64::new(1),
            relist: Notify::new(),
            listed: watch::Sender::new(0),
            observer_panicked: watch::Sender::new(false),
        }
    }
}

impl<K: Object> Shared<K> {
    fn read<T>(&self, read: impl FnOnce(&Cache<K>) -> T) -> T {
        read(&self.data.read().unwrap_or_else(PoisonError::into_inner).cache)
    }

    /// Applies changes to the cache and its indexes, then passes them to the observers.
    fn update(&self, apply: impl FnOnce(&mut Cache<K>) -> Vec<Change<K>>) {
        let mut observers = lock(&self.observers);
        let changes = {
            let mut data = self.data.write().unwrap_or_else(PoisonError::into_inner);
            let data = &mut *data;
            let changes = apply(&mut data.cache);
            for change in &changes {
                index::update(&mut data.indexes, change);
            }
            changes
        };
        if changes.is_empty() {
            return;
        }
        observers.retain(|observer| {
            let Some(observer) = observer.upgrade() else { return false };
            let pass = || changes.iter().for_each(|change| observer(change));
            if catch_unwind(AssertUnwindSafe(pass)).is_err() {
                self.observer_panicked.send_replace(true);
            }
            true
        });
    }

    async fn listed_since(&self, request: u64) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.listed.subscribe().wait_for(|served| *served >= request).await;
    }
}
