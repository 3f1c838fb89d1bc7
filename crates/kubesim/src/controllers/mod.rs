//! What keeps a cluster in order: it furnishes namespaces, collects what lost its owner, ends what was deleted, and turns
//! workloads into pods. Events say where to look; each controller looks at the state, decides, and writes what is missing.

mod bootstrap;
mod context;
mod daemon_set;
mod deployment;
mod disruption;
mod garbage_collector;
mod job;
mod namespace;
mod node;
mod pods;
mod replica_set;
mod scheduler;
mod stateful_set;
mod work_items;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::cluster::ClusterInner;
use crate::objects::EventType;
use crate::status::ApiResult;

use context::ControllerContext;
use work_items::WorkItem;

pub(crate) use bootstrap::bootstrap;

/// What depends on time alone is looked at this often.
const TICK: Duration = Duration::from_secs(10);

/// Keeps the cluster in order until it ends, whatever goes wrong on the way.
pub(crate) async fn supervise(cluster: Arc<ClusterInner>) {
    while !cluster.stopped.is_cancelled() {
        let mut controllers = JoinSet::new();
        controllers.spawn(run(cluster.clone()));
        if let Some(Err(error)) = controllers.join_next().await {
            tracing::error!(
                cluster.id = cluster.name,
                "The controllers of {} fell and start anew: {error}",
                cluster.name
            );
            // What made them fall may still be there.
            tokio::select! {
                () = cluster.stopped.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }
}

async fn run(cluster: Arc<ClusterInner>) {
    let mut changed = cluster.read().objects.watch_all();
    let mut queue = work_items::all_items(&cluster.read());
    let mut cursor = cluster.read().objects.revision();
    let mut tick = tokio::time::interval(TICK);
    let mut later: BTreeMap<WorkItem, Timestamp> = BTreeMap::new();
    loop {
        changed.mark_unchanged();
        while let Some(item) = queue.pop_first() {
            if cluster.stopped.is_cancelled() {
                return;
            }
            later.remove(&item);
            later.extend(process(&cluster, &item));
            cursor = enqueue_changes(&cluster, cursor, &mut queue);
            tokio::task::yield_now().await;
        }
        cursor = enqueue_changes(&cluster, cursor, &mut queue);
        if !queue.is_empty() {
            continue;
        }
        let now = cluster.clock.now();
        let next = later.values().min().map_or(TICK, |at| {
            // A clock that is set by hand tells nobody, so it is looked at with each tick.
            Duration::try_from(at.duration_since(now)).unwrap_or_default().min(TICK)
        });
        tokio::select! {
            () = cluster.stopped.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
            _ = tick.tick() => node::check_by_time(&cluster),
            () = tokio::time::sleep(next), if !later.is_empty() => {}
        }
        let now = cluster.clock.now();
        queue.extend(later.iter().filter(|(_, at)| **at <= now).map(|(item, _)| item.clone()));
    }
}

/// Looks at one thing, and says what is to be looked at again, and when.
fn process(cluster: &Arc<ClusterInner>, item: &WorkItem) -> BTreeMap<WorkItem, Timestamp> {
    let mut context = ControllerContext::new(cluster);
    let outcome: ApiResult<()> = match item {
        WorkItem::Bootstrap(namespace) => bootstrap::namespace(&mut context, namespace),
        WorkItem::Namespace(name) => namespace::reconcile(&mut context, name),
        WorkItem::GarbageCollect(table, key) => garbage_collector::reconcile(&mut context, table, key),
        WorkItem::Node(name) => node::reconcile(&mut context, name),
        WorkItem::ReplicaSet(key) => replica_set::reconcile(&mut context, key),
        WorkItem::Deployment(key) => deployment::reconcile(&mut context, key),
        WorkItem::DaemonSet(key) => daemon_set::reconcile(&mut context, key),
        WorkItem::StatefulSet(key) => stateful_set::reconcile(&mut context, key),
        WorkItem::Job(key) => job::reconcile(&mut context, key),
        WorkItem::Budget(key) => disruption::reconcile(&mut context, key),
        WorkItem::Schedule => scheduler::schedule_pods(&mut context),
    };
    if let Err(failure) = outcome {
        tracing::debug!(cluster.id = cluster.name, "{item:?} was refused: {}", failure.message);
    }
    std::mem::take(&mut context.later).into_iter().map(|(at, item)| (item, at)).collect()
}

/// Notes what has to be looked at after the changes since `cursor`.
fn enqueue_changes(cluster: &ClusterInner, cursor: u64, queue: &mut BTreeSet<WorkItem>) -> u64 {
    let state = cluster.read();
    let present = state.objects.revision();
    if present == cursor {
        return cursor;
    }
    match state.objects.events_since(cursor) {
        Some(events) => {
            for event in events {
                if event.kind == EventType::Deleted && &*event.table == "/pods" {
                    cluster.logs.forget(event.object.uid());
                }
                work_items::items_after(&state, event, queue);
            }
        }
        // More has changed than the log remembers: look at all_items.
        None => queue.extend(work_items::all_items(&state)),
    }
    present
}
