//! What keeps a cluster in order: it furnishes namespaces, collects what lost its owner, ends what was deleted, and turns
//! workloads into pods. Events say where to look; each controller looks at the state, decides, and writes what is missing.

mod collect;
mod daemon_set;
mod deployment;
mod desk;
mod disruption;
mod furnish;
mod job;
mod namespace;
mod node;
mod pods;
mod replica_set;
mod schedule;
mod stateful_set;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::cluster::Shared;
use crate::objects::EventType;
use crate::status::Outcome;

use desk::Desk;
use tasks::Task;

pub(crate) use furnish::furnish;

/// What depends on time alone is looked at this often.
const TICK: Duration = Duration::from_secs(10);

/// Keeps the cluster in order until it ends, whatever goes wrong on the way.
pub(crate) async fn supervise(cluster: Arc<Shared>) {
    while !cluster.ended.is_cancelled() {
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
                () = cluster.ended.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }
}

async fn run(cluster: Arc<Shared>) {
    let mut changed = cluster.read().objects.watch_all();
    let mut queue = tasks::everything(&cluster.read());
    let mut cursor = cluster.read().objects.revision();
    let mut tick = tokio::time::interval(TICK);
    let mut later: BTreeMap<Task, Timestamp> = BTreeMap::new();
    loop {
        changed.mark_unchanged();
        while let Some(task) = queue.pop_first() {
            if cluster.ended.is_cancelled() {
                return;
            }
            later.remove(&task);
            later.extend(work(&cluster, &task));
            cursor = note(&cluster, cursor, &mut queue);
            tokio::task::yield_now().await;
        }
        cursor = note(&cluster, cursor, &mut queue);
        if !queue.is_empty() {
            continue;
        }
        let now = cluster.clock.now();
        let next = later.values().min().map_or(TICK, |at| {
            // A clock that is set by hand tells nobody, so it is looked at with each tick.
            Duration::try_from(at.duration_since(now)).unwrap_or_default().min(TICK)
        });
        tokio::select! {
            () = cluster.ended.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
            _ = tick.tick() => node::watch_over(&cluster),
            () = tokio::time::sleep(next), if !later.is_empty() => {}
        }
        let now = cluster.clock.now();
        queue.extend(later.iter().filter(|(_, at)| **at <= now).map(|(task, _)| task.clone()));
    }
}

/// Looks at one thing, and says what is to be looked at again, and when.
fn work(cluster: &Arc<Shared>, task: &Task) -> BTreeMap<Task, Timestamp> {
    let mut desk = Desk::of(cluster);
    let outcome: Outcome<()> = match task {
        Task::Furnish(namespace) => furnish::namespace(&mut desk, namespace),
        Task::Namespace(name) => namespace::reconcile(&mut desk, name),
        Task::Collect(table, key) => collect::reconcile(&mut desk, table, key),
        Task::Node(name) => node::reconcile(&mut desk, name),
        Task::ReplicaSet(key) => replica_set::reconcile(&mut desk, key),
        Task::Deployment(key) => deployment::reconcile(&mut desk, key),
        Task::DaemonSet(key) => daemon_set::reconcile(&mut desk, key),
        Task::StatefulSet(key) => stateful_set::reconcile(&mut desk, key),
        Task::Job(key) => job::reconcile(&mut desk, key),
        Task::Budget(key) => disruption::reconcile(&mut desk, key),
        Task::Schedule => schedule::round(&mut desk),
    };
    if let Err(failure) = outcome {
        tracing::debug!(cluster.id = cluster.name, "{task:?} was refused: {}", failure.message);
    }
    std::mem::take(&mut desk.later).into_iter().map(|(at, task)| (task, at)).collect()
}

/// Notes what has to be looked at after the changes since `cursor`.
fn note(cluster: &Shared, cursor: u64, queue: &mut BTreeSet<Task>) -> u64 {
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
                tasks::after(&state, event, queue);
            }
        }
        // More has changed than the log remembers: look at everything.
        None => queue.extend(tasks::everything(&state)),
    }
    present
}
