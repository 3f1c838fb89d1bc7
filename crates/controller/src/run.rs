//! A controller: which objects it reconciles, what wakes it, and its workers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ClusterResourceScope;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::change::{Change, Object};
use crate::error::error_chain;
use crate::informer::Informer;
use crate::informers::Observability;
use crate::key::ObjectKey;
use crate::metrics::Outcome;
use crate::pause::Pause;
use crate::queue::{Action, Backoff, Finished, Next, Queue, RetryRate};

#[cfg(test)]
mod tests;

/// Interval of the heartbeat of the loop, and the time without one after which it hangs.
const BEAT: Duration = Duration::from_secs(5);
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A reconcile that takes longer hangs, unless the controller sets another limit.
const RECONCILE_HANGS_AFTER: Duration = Duration::from_secs(600);

/// A guard that ends an observation when it is dropped.
type Guard = Box<dyn Any + Send + Sync>;

/// A future that is ready when an informer has listed everything once.
type Synced = futures_util::future::BoxFuture<'static, ()>;

/// Registers an observer that adds keys to the queue.
type Watch = Box<dyn FnOnce(&Arc<Queue>) -> (Guard, Synced) + Send>;

type Predicate<K> = Box<dyn Fn(&Change<K>) -> bool + Send + Sync>;

/// Reconciles the objects of one kind.
///
/// An object is reconciled when it changes, when something changes that a mapping connects with it, when its last reconcile asked for
/// it, and after a failure with a delay that doubles. At most one reconcile of an object runs at a time. A reconcile receives a key and
/// looks at the caches itself: why it was woken does not matter. It can be dropped at any await.
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K: Object> {
    name: &'static str,
    objects: Arc<Informer<K>>,
    watches: Vec<Watch>,
    relevant: Predicate<K>,
    workers: usize,
    backoff: Backoff,
    retry_rate: Option<RetryRate>,
    pause: Pause,
    reconcile_limit: Duration,
    observability: Observability,
}

impl<K: Object> Controller<K> {
    /// A controller of the objects of `objects`. The name is a label of its metrics.
    pub fn new(name: &'static str, objects: Arc<Informer<K>>) -> Controller<K> {
        let observability = objects.observability().clone();
        Controller {
            name,
            objects,
            watches: Vec::new(),
            relevant: Box::new(|_| true),
            workers: 1,
            backoff: Backoff::default(),
            retry_rate: None,
            pause: Pause::default(),
            reconcile_limit: RECONCILE_HANGS_AFTER,
            observability,
        }
    }

    /// Also reconciles the keys that `keys` maps a change of another kind to. `keys` must be quick; it may read caches and indexes, and
    /// must neither write to them nor block.
    pub fn watches<W: Object>(
        mut self,
        informer: Arc<Informer<W>>,
        keys: impl Fn(&Change<W>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Controller<K> {
        self.watches.push(Box::new(move |queue| {
            let queue = queue.clone();
            let observation = informer.observe(move |change| {
                for key in keys(change) {
                    queue.add(key);
                }
            });
            let synced = Box::pin(async move { informer.synced().await });
            (Box::new(observation) as Guard, synced as Synced)
        }));
        self
    }

    /// Reconciles this key when the controller starts, whether there is an object of that name or not.
    pub fn at_start(mut self, key: ObjectKey) -> Controller<K> {
        self.watches.push(Box::new(move |queue| {
            queue.add(key);
            (Box::new(()) as Guard, Box::pin(std::future::ready(())) as Synced)
        }));
        self
    }

    /// Only changes of its own objects for which this holds wake the controller, such as those of a generation. What other watches, delays
    /// and retries ask for is reconciled in any case.
    pub fn only(mut self, relevant: impl Fn(&Change<K>) -> bool + Send + Sync + 'static) -> Controller<K> {
        self.relevant = Box::new(relevant);
        self
    }

    /// The number of objects that are reconciled at once; 1 if not set.
    pub fn workers(mut self, workers: usize) -> Controller<K> {
        self.workers = workers.max(1);
        self
    }

    /// The delays of an object that fails.
    pub fn backoff(mut self, backoff: Backoff) -> Controller<K> {
        self.backoff = backoff;
        self
    }

    /// Limits the retries of all objects together.
    pub fn retry_rate(mut self, rate: RetryRate) -> Controller<K> {
        self.retry_rate = Some(rate);
        self
    }

    /// Lets `pause` stop and continue this controller.
    pub fn pause(mut self, pause: &Pause) -> Controller<K> {
        self.pause = pause.clone();
        self
    }

    /// A reconcile that takes longer makes the process unhealthy; 10 minutes if not set.
    pub fn reconcile_limit(mut self, limit: Duration) -> Controller<K> {
        self.reconcile_limit = limit;
        self
    }

    /// Runs until `shutdown`, which also drops the reconciles in progress. Nothing is reconciled before every informer has listed its
    /// objects. A reconcile that fails or panics is logged, counted and retried.
    pub async fn run<R, F, E>(mut self, reconcile: R, shutdown: CancellationToken)
    where
        R: Fn(ObjectKey) -> F + Send,
        F: Future<Output = Result<Action, E>> + Send + 'static,
        E: StdError + Send + 'static,
    {
        let queue = Arc::new(Queue::new(self.backoff, self.retry_rate));
        let mut synced = Vec::new();
        let mut guards = Vec::new();
        for watch in self.watches.drain(..) {
            let (guard, is_synced) = watch(&queue);
            guards.push(guard);
            synced.push(is_synced);
        }
        let (own, relevant) = (queue.clone(), self.relevant);
        let _own = self.objects.observe(move |change| {
            if relevant(change) {
                own.add(change.key());
            }
        });
        let informers = async {
            self.objects.synced().await;
            futures_util::future::join_all(synced).await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = informers => {}
        }
        let workers = Workers {
            name: self.name,
            queue,
            observability: self.observability,
            limit: self.reconcile_limit,
            tasks: JoinSet::new(),
            running: HashMap::new(),
        };
        workers.run(self.workers, &self.pause, reconcile, shutdown).await;
    }
}

impl<K: Object + Resource<DynamicType: Default>> Controller<K> {
    /// Also reconciles the controlling owner, if it is of this controller's kind, of each object that changes: the one before the change
    /// and the one after it.
    pub fn owns<W: Object>(self, informer: Arc<Informer<W>>) -> Controller<K> {
        self.watches(informer, |change| {
            let mut keys: Vec<ObjectKey> = change.sides().filter_map(|child| owner::<K, W>(child)).collect();
            keys.dedup();
            keys
        })
    }
}

/// The key of the controlling owner of `child`, if it is a `K`.
fn owner<K, W>(child: &W) -> Option<ObjectKey>
where
    K: Object + Resource<DynamicType: Default>,
    W: Object,
{
    let kind = K::DynamicType::default();
    let is_owner = |owner: &&OwnerReference| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.controller == Some(true) && owner.kind == K::kind(&kind) && group == K::group(&kind)
    };
    let owner = child.meta().owner_references.iter().flatten().find(is_owner)?;
    let is_cluster_scoped = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
    let namespace = child.meta().namespace.as_deref().filter(|_| !is_cluster_scoped);
    Some(ObjectKey { namespace: namespace.map(Into::into), name: owner.name.as_str().into() })
}

struct Workers<E> {
    name: &'static str,
    queue: Arc<Queue>,
    observability: Observability,
    limit: Duration,
    tasks: JoinSet<Result<Action, E>>,
    running: HashMap<Id, (ObjectKey, Instant)>,
}

impl<E: StdError + Send + 'static> Workers<E> {
    async fn run<R, F>(mut self, count: usize, pause: &Pause, reconcile: R, shutdown: CancellationToken)
    where
        R: Fn(ObjectKey) -> F,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let beat = self.observability.health.heartbeat(&format!("controller {}", self.name), HANGS_AFTER);
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut paused = pause.subscribe();
        let queue = self.queue.clone();
        loop {
            let mut next_due = None;
            while self.running.len() < count && !*paused.borrow_and_update() {
                match queue.take() {
                    Next::Key(key) => self.start(key, &reconcile),
                    Next::Until(time) => {
                        next_due = Some(time);
                        break;
                    }
                    Next::None => break,
                }
            }
            self.observability.metrics.queue(self.name, queue.depth(), self.running.len());
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(ended) = self.tasks.join_next_with_id() => self.finish(ended),
                () = queue.added() => {}
                () = sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {}
                // The sender is in `pause`, so this cannot fail.
                _ = paused.changed() => {}
                _ = beats.tick() => beat.beat(),
            }
        }
    }

    fn start<R, F>(&mut self, key: ObjectKey, reconcile: &R)
    where
        R: Fn(ObjectKey) -> F,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let span = tracing::info_span!("reconcile", controller = self.name, object = %key);
        let work = format!("controller {}: reconcile of {key}", self.name);
        let limit = self.observability.health.heartbeat(&work, self.limit);
        let future = self.queue.reconcile(key.clone(), reconcile(key.clone()));
        let task = tracing::Instrument::instrument(
            async move {
                let _limit = limit;
                future.await
            },
            span,
        );
        let id = self.tasks.spawn(task).id();
        self.running.insert(id, (key, Instant::now()));
    }

    fn finish(&mut self, ended: Result<(Id, Result<Action, E>), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some((key, started)) = self.running.remove(&id) else { return };
        let controller = self.name;
        let (outcome, finished) = match result {
            Ok(Ok(Action::Done)) => (Outcome::Done, Finished::Ok(Action::Done)),
            Ok(Ok(action)) => (Outcome::Later, Finished::Ok(action)),
            Ok(Err(error)) => {
                tracing::warn!(controller, object = %key, "Reconcile of {key} failed: {}", error_chain(&error));
                (Outcome::Failed, Finished::Failed)
            }
            // One object that makes the code panic must not end the work for the others, nor the process again and again.
            Err(error) => {
                tracing::error!(controller, object = %key, "Reconcile of {key} panicked: {error}");
                (Outcome::Panicked, Finished::Failed)
            }
        };
        self.queue.finish(&key, finished);
        self.observability.metrics.reconciled(controller, outcome, started.elapsed());
    }
}
