//! Controllers of a cluster: bootstrap of namespaces, garbage collection, termination of namespaces, workloads,
//! scheduling. Watch events put items into a queue; a controller reads the state, decides, and writes what is
//! missing.

mod bootstrap;
mod claim;
mod cluster_role;
mod context;
mod cron_job;
mod daemon_set;
mod default_roles;
mod deployment;
mod disruption;
mod garbage_collector;
mod job;
mod namespace;
mod node;
mod pods;
mod replica_set;
mod revisions;
mod scheduler;
mod signing_request;
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

/// Interval of the checks that depend on time alone.
const TICK: Duration = Duration::from_secs(10);

/// Runs the controllers until the cluster stops, and restarts them when they fail.
pub(crate) async fn supervise(cluster: Arc<ClusterInner>) {
    while !cluster.stopped.is_cancelled() {
        let mut controllers = JoinSet::new();
        controllers.spawn(run(cluster.clone()));
        if let Some(Err(error)) = controllers.join_next().await {
            tracing::error!(
                cluster.id = cluster.name,
                "Controllers of cluster {} failed and restart: {error}",
                cluster.name
            );
            // The cause may still be there.
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
    if !cluster.has_controllers {
        queue.retain(WorkItem::is_of_api_server);
    }
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
            // A clock that tests set by hand sends no wake-up, so it is read at every tick.
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

/// Processes one item. Returns the items to process again, with their times.
fn process(cluster: &Arc<ClusterInner>, item: &WorkItem) -> BTreeMap<WorkItem, Timestamp> {
    let mut context = ControllerContext::new(cluster);
    let outcome: ApiResult<()> = match item {
        WorkItem::Bootstrap(namespace) => bootstrap::namespace(&mut context, namespace),
        WorkItem::Namespace(name) => namespace::reconcile(&mut context, name),
        WorkItem::GarbageCollect(table, key) => garbage_collector::reconcile(&mut context, table, key),
        WorkItem::ClusterRoles => cluster_role::reconcile(&mut context),
        WorkItem::Node(name) => node::reconcile(&mut context, name),
        WorkItem::ReplicaSet(key) => replica_set::reconcile(&mut context, key),
        WorkItem::Deployment(key) => deployment::reconcile(&mut context, key),
        WorkItem::DaemonSet(key) => daemon_set::reconcile(&mut context, key),
        WorkItem::StatefulSet(key) => stateful_set::reconcile(&mut context, key),
        WorkItem::CronJob(key) => cron_job::reconcile(&mut context, key),
        WorkItem::Job(key) => job::reconcile(&mut context, key),
        WorkItem::SigningRequest(name) => signing_request::reconcile(&mut context, name),
        WorkItem::Claim(key) => claim::reconcile(&mut context, key),
        WorkItem::Budget(key) => disruption::reconcile(&mut context, key),
        WorkItem::Schedule => scheduler::schedule_pods(&mut context),
    };
    if let Err(failure) = outcome {
        tracing::debug!(cluster.id = cluster.name, "Failed to process {item:?}: {}", failure.message);
    }
    std::mem::take(&mut context.later).into_iter().map(|(at, item)| (item, at)).collect()
}

/// Enqueues the items that the changes since `cursor` concern.
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
        // The log no longer reaches back to the cursor: process everything.
        None => queue.extend(work_items::all_items(&state)),
    }
    if !cluster.has_controllers {
        queue.retain(WorkItem::is_of_api_server);
    }
    present
}
