//! What has to be looked at, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::collect;
use crate::objects::{Event, EventType, Object};
use crate::state::State;

/// Something to look at. The order is the order of work: what ends goes before what begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// A namespace may lack what every namespace has.
    Furnish(Arc<str>),
    /// A namespace may be ending.
    Namespace(Arc<str>),
    /// An object may have lost its owners, or wait for its dependents.
    Collect(Arc<str>, Arc<str>),
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
type Workload = (&'static str, &'static str, fn(Arc<str>) -> Task);

const WORKLOADS: [Workload; 5] = [
    ("apps/deployments", "Deployment", Task::Deployment),
    ("apps/replicasets", "ReplicaSet", Task::ReplicaSet),
    ("apps/daemonsets", "DaemonSet", Task::DaemonSet),
    ("apps/statefulsets", "StatefulSet", Task::StatefulSet),
    ("batch/jobs", "Job", Task::Job),
];

/// Everything there is.
pub(super) fn everything(state: &State) -> BTreeSet<Task> {
    let mut queue = BTreeSet::from([Task::Schedule]);
    for (name, _) in state.objects.range("/namespaces", "", "") {
        queue.extend([Task::Furnish(name.clone()), Task::Namespace(name.clone())]);
    }
    queue.extend(state.objects.range("/nodes", "", "").map(|(name, _)| Task::Node(name.clone())));
    for (table, _, task) in WORKLOADS {
        queue.extend(state.objects.range(table, "", "").map(|(key, _)| task(key.clone())));
    }
    queue.extend(budgets(state, ""));
    for kind in state.kinds.all() {
        for (key, object) in state.objects.range(kind.table(), "", "") {
            if !object.owners().is_empty() || object.facts().is_ending {
                queue.insert(Task::Collect(kind.table().clone(), key.clone()));
            }
        }
    }
    queue
}

/// What has to be looked at after an event.
pub(super) fn after(state: &State, event: &Event, queue: &mut BTreeSet<Task>) {
    let key = &event.key;
    let gone = event.kind == EventType::Deleted;
    if gone {
        let dependents = state.objects.dependents(event.object.uid());
        queue.extend(dependents.into_iter().map(|(table, key)| Task::Collect(table, key)));
    }
    match &*event.table {
        "/namespaces" => queue.extend([Task::Furnish(key.clone()), Task::Namespace(key.clone())]),
        "/nodes" => {
            queue.extend([Task::Node(key.clone()), Task::Schedule]);
            queue.extend(
                state.objects.range("apps/daemonsets", "", "").map(|(key, _)| Task::DaemonSet(key.clone())),
            );
        }
        "/pods" => {
            let prefix = format!("{}/", event.object.namespace());
            queue.extend(budgets(state, &prefix));
            if gone || event.previous.is_none() {
                queue.insert(Task::Schedule);
            }
        }
        "/serviceaccounts" | "/configmaps" if gone => {
            queue.insert(Task::Furnish(event.object.namespace().into()));
        }
        "policy/poddisruptionbudgets" => {
            queue.insert(Task::Budget(key.clone()));
        }
        table => {
            let own = WORKLOADS.iter().find(|(name, ..)| *name == table);
            queue.extend(own.map(|(_, _, task)| task(key.clone())));
        }
    }
    // Workloads are made of these and look at nothing else; a lease changes too often to be asked for its owners.
    let is_part = matches!(&*event.table, "/pods" | "apps/replicasets");
    if is_part && !event.object.owners().is_empty() {
        wake_owners(&event.object, queue);
    }
    let is_marked = event.object.facts().is_ending;
    if !gone && (is_marked || (event.previous.is_none() && !event.object.owners().is_empty())) {
        queue.insert(Task::Collect(event.table.clone(), key.clone()));
    }
    if gone {
        // The last of its contents lets a namespace go, the last of its dependents an owner.
        let namespace = event.object.namespace();
        if state.objects.get("/namespaces", namespace).is_some_and(|one| one.facts().is_ending) {
            queue.insert(Task::Namespace(namespace.into()));
        }
        queue.extend(
            collect::owners_of(state, &event.object.value())
                .into_iter()
                .map(|(table, key)| Task::Collect(table, key)),
        );
    }
}

fn budgets<'a>(state: &'a State, prefix: &'a str) -> impl Iterator<Item = Task> + 'a {
    state.objects.range("policy/poddisruptionbudgets", prefix, "").map(|(key, _)| Task::Budget(key.clone()))
}

/// The workloads that an object belongs to.
fn wake_owners(object: &Object, queue: &mut BTreeSet<Task>) {
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
        if let Some((_, _, task)) = WORKLOADS.iter().find(wanted) {
            queue.insert(task(format!("{}/{name}", object.namespace()).into()));
        }
    }
}
