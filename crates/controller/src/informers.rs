//! The informers of a process: one per kind and selection, shared by all controllers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use kube::core::{ApiResource, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::change::Object;
use crate::health::Health;
use crate::informer::{Informer, ObserverPanicked, Selection, Watch, run};
use crate::lock;
use crate::metrics::Metrics;

/// Where everything of this crate reports to.
#[derive(Debug, Clone, Default)]
pub struct Observability {
    /// The health of loops and workers.
    pub health: Health,
    /// The metrics.
    pub metrics: Metrics,
}

/// Why the informers of a process ended.
#[derive(Debug, thiserror::Error)]
pub enum InformersError {
    /// A mapping of a controller panicked, so changes may be lost.
    #[error(transparent)]
    Observer(#[from] ObserverPanicked),
    /// A watch panicked.
    #[error("a watch panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// It is running already.
    #[error("the informers run already")]
    RunsAlready,
}

type WatchTask = BoxFuture<'static, Result<(), ObserverPanicked>>;

/// Starts each informer once. Nothing is watched before [`Informers::run`] runs.
pub struct Informers {
    client: Client,
    observability: Observability,
    known: Mutex<HashMap<InformerId, KnownInformer>>,
    started: mpsc::UnboundedSender<WatchTask>,
    to_start: Mutex<Option<mpsc::UnboundedReceiver<WatchTask>>>,
}

#[derive(PartialEq, Eq, Hash)]
struct InformerId {
    kind: TypeId,
    url: String,
    selection: Selection,
}

/// An informer that was made, without its type.
struct KnownInformer {
    /// `Weak<Informer<K>>`.
    informer: Box<dyn Any + Send + Sync>,
    /// A future of its [`Informer::catch_up`]; `None` if it was dropped.
    catch_up: Box<dyn Fn() -> Option<BoxFuture<'static, ()>> + Send + Sync>,
}

impl KnownInformer {
    fn new<K: Object>(informer: &Arc<Informer<K>>) -> KnownInformer {
        let weak = Arc::downgrade(informer);
        let catch_up = move || {
            let informer = weak.upgrade()?;
            Some(async move { informer.catch_up().await }.boxed())
        };
        KnownInformer { informer: Box::new(Arc::downgrade(informer)), catch_up: Box::new(catch_up) }
    }
}

impl Informers {
    /// Informers of the cluster of `client`.
    pub fn new(client: Client, observability: Observability) -> Arc<Informers> {
        // Bounded by the informers that the code asks for.
        let (started, to_start) = mpsc::unbounded_channel();
        Arc::new(Informers {
            client,
            observability,
            known: Mutex::default(),
            started,
            to_start: Mutex::new(Some(to_start)),
        })
    }

    /// The client that the informers use.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where the informers report to.
    pub fn observability(&self) -> &Observability {
        &self.observability
    }

    /// All objects of a kind, in all namespaces.
    pub fn all<K>(&self) -> Arc<Informer<K>>
    where
        K: Object + Resource<DynamicType: Default>,
    {
        self.select(Api::all(self.client.clone()), Selection::all())
    }

    /// All objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Arc<Informer<K>>
    where
        K: Object + Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        self.select(Api::namespaced(self.client.clone(), namespace), Selection::all())
    }

    /// The objects of `api` that match `selection`. An informer that exists is shared.
    pub fn select<K>(&self, api: Api<K>, selection: Selection) -> Arc<Informer<K>>
    where
        K: Object + Resource<DynamicType: Default>,
    {
        let resource = ApiResource::erase::<K>(&K::DynamicType::default());
        self.select_dynamic(api, &resource, selection)
    }

    /// As [`Informers::select`], for a kind that is known at run time only.
    pub fn select_dynamic<K: Object>(
        &self,
        api: Api<K>,
        resource: &ApiResource,
        selection: Selection,
    ) -> Arc<Informer<K>> {
        let id = InformerId {
            kind: TypeId::of::<K>(),
            url: api.resource_url().to_owned(),
            selection: selection.clone(),
        };
        let mut known = lock(&self.known);
        let found = known.get(&id).and_then(|found| found.informer.downcast_ref::<Weak<Informer<K>>>());
        if let Some(informer) = found.and_then(Weak::upgrade) {
            return informer;
        }
        let (informer, end) = Informer::new(api.clone(), resource.clone(), self.observability.clone());
        let informer = Arc::new(informer);
        let watch = Watch {
            shared: informer.shared.clone(),
            api,
            selection,
            kind: resource.kind.clone(),
            observability: self.observability.clone(),
            end,
        };
        // After the end of `run` nothing is watched any more, which is what a process that stops needs.
        let _ = self.started.send(run(watch).boxed());
        known.insert(id, KnownInformer::new(&informer));
        informer
    }

    /// Lists everything again, and returns when all caches are at least as new as this call.
    pub async fn catch_up(&self) {
        let all: Vec<_> = lock(&self.known).values().filter_map(|known| (known.catch_up)()).collect();
        join_all(all).await;
    }

    /// Runs the watches until `shutdown`. A watch that panics ends them all, because nobody would notice that a cache stands still.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), InformersError> {
        let Some(mut to_start) = lock(&self.to_start).take() else { return Err(InformersError::RunsAlready) };
        let mut watches: JoinSet<Result<(), ObserverPanicked>> = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                Some(watch) = to_start.recv() => {
                    watches.spawn(watch);
                }
                Some(ended) = watches.join_next() => ended.map_err(InformersError::Panicked)??,
            }
        }
    }
}
