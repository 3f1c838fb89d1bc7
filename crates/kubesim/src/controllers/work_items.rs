//! What has to be looked at, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::garbage_collector;
use crate::objects::{EventType, Object, WatchEvent};
use crate::state::State;

/// Something to look at. The order is the order of work: what ends goes before what begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkItem {
    /// A namespace may lack what every namespace has.
    Bootstrap(Arc<str>),
    /// A namespace may be ending.
    Namespace(Arc<str>),
    /// An object may have lost its owners, or wait for its dependents.
    GarbageCollect(Arc<str>, Arc<str>),
    /// A node's taints may not say what its conditions say.
    Node(Arc<str>),
    /// A deployment.
    Deployment(Arc<str>),
    /// A replica set.
    ReplicaSet(Arc<str>),
    /// A daemon set.
    DaemonSet(Arc<str>),
    /// A stateful set.
    StatefulSet(Arc<str>),
    /// A job.
    Job(Arc<str>),
    /// Pods may wait for a node.
    Schedule,
    /// A disruption budget.
    Budget(Arc<str>),
}

/// A table of workloads, their kind, and how one of them is looked at.
type Workload = (&'static str, &'static str, fn(Arc<str>) -> WorkItem);

const WORKLOADS: [Workload; 5] = [
    ("apps/deployments", "Deployment", WorkItem::Deployment),
    ("apps/replicasets", "ReplicaSet", WorkItem::ReplicaSet),
    ("apps/daemonsets", "DaemonSet", WorkItem::DaemonSet),
    ("apps/statefulsets", "StatefulSet", WorkItem::StatefulSet),
    ("batch/jobs", "Job", WorkItem::Job),
];

/// Everything there is.
pub(super) fn all_items(state: &State) -> BTreeSet<WorkItem> {
    let mut queue = BTreeSet::from([WorkItem::Schedule]);
    for (name, _) in state.objects.range("/namespaces", "", "") {
        queue.extend([WorkItem::Bootstrap(name.clone()), WorkItem::Namespace(name.clone())]);
    }
    queue.extend(state.objects.range("/nodes", "", "").map(|(name, _)| WorkItem::Node(name.clone())));
    for (table, _, item) in WORKLOADS {
        queue.extend(state.objects.range(table, "", "").map(|(key, _)| item(key.clone())));
    }
    queue.extend(budgets(state, ""));
    for kind in state.kinds.all() {
        for (key, object) in state.objects.range(kind.table(), "", "") {
            if !object.owners().is_empty() || object.summary().is_terminating {
                queue.insert(WorkItem::GarbageCollect(kind.table().clone(), key.clone()));
            }
        }
    }
    queue
}

/// What has to be looked at after an event.
pub(super) fn items_after(state: &State, event: &WatchEvent, queue: &mut BTreeSet<WorkItem>) {
    let key = &event.key;
    let gone = event.kind == EventType::Deleted;
    if gone {
        let dependents = state.objects.dependents(event.object.uid());
        queue.extend(dependents.into_iter().map(|(table, key)| WorkItem::GarbageCollect(table, key)));
    }
    match &*event.table {
        "/namespaces" => queue.extend([WorkItem::Bootstrap(key.clone()), WorkItem::Namespace(key.clone())]),
        "/nodes" => {
            queue.extend([WorkItem::Node(key.clone()), WorkItem::Schedule]);
            queue.extend(
                state
                    .objects
                    .range("apps/daemonsets", "", "")
                    .map(|(key, _)| WorkItem::DaemonSet(key.clone())),
            );
        }
        "/pods" => {
            let prefix = format!("{}/", event.object.namespace());
            queue.extend(budgets(state, &prefix));
            if gone || event.previous.is_none() {
                queue.insert(WorkItem::Schedule);
            }
        }
        "/serviceaccounts" | "/configmaps" if gone => {
            queue.insert(WorkItem::Bootstrap(event.object.namespace().into()));
        }
        "policy/poddisruptionbudgets" => {
            queue.insert(WorkItem::Budget(key.clone()));
        }
        table => {
            let own = WORKLOADS.iter().find(|(name, ..)| *name == table);
            queue.extend(own.map(|(_, _, item)| item(key.clone())));
        }
    }
    // Workloads are made of these and look at nothing else; a lease changes too often to be asked for its owners.
    let is_part = matches!(&*event.table, "/pods" | "apps/replicasets");
    if is_part && !event.object.owners().is_empty() {
        enqueue_owners(&event.object, queue);
    }
    let is_marked = event.object.summary().is_terminating;
    if !gone && (is_marked || (event.previous.is_none() && !event.object.owners().is_empty())) {
        queue.insert(WorkItem::GarbageCollect(event.table.clone(), key.clone()));
    }
    if gone {
        // The last of its contents lets a namespace go, the last of its dependents an owner.
        let namespace = event.object.namespace();
        if state.objects.get("/namespaces", namespace).is_some_and(|one| one.summary().is_terminating) {
            queue.insert(WorkItem::Namespace(namespace.into()));
        }
        queue.extend(
            garbage_collector::owners_of(state, &event.object.value())
                .into_iter()
                .map(|(table, key)| WorkItem::GarbageCollect(table, key)),
        );
    }
}

fn budgets<'a>(state: &'a State, prefix: &'a str) -> impl Iterator<Item = WorkItem> + 'a {
    state
        .objects
        .range("policy/poddisruptionbudgets", prefix, "")
        .map(|(key, _)| WorkItem::Budget(key.clone()))
}

/// The workloads that an object belongs to.
fn enqueue_owners(object: &Object, queue: &mut BTreeSet<WorkItem>) {
    let value = object.value();
    for owner in value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let kind = owner["kind"].as_str().unwrap_or_default();
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|version| version.split_once('/'))
            .map_or("", |(group, _)| group);
        let name = owner["name"].as_str().unwrap_or_default();
        let wanted = |(table, one, _): &&Workload| {
            *one == kind && table.split_once('/').is_some_and(|(own, _)| own == group)
        };
        if let Some((_, _, item)) = WORKLOADS.iter().find(wanted) {
            queue.insert(item(format!("{}/{name}", object.namespace()).into()));
        }
    }
}
