//! The work queue of the controllers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::garbage_collector;
use crate::objects::{EventType, Object, WatchEvent};
use crate::state::State;

/// Something to reconcile. The order is the order of processing: deletion comes before creation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkItem {
    /// A namespace may lack the objects that every namespace has.
    Bootstrap(Arc<str>),
    /// A namespace may be terminating.
    Namespace(Arc<str>),
    /// An object may have lost its owners, or wait for its dependents.
    GarbageCollect(Arc<str>, Arc<str>),
    /// Aggregated cluster roles may lack rules.
    ClusterRoles,
    /// A node's taints may not match its conditions.
    Node(Arc<str>),
    /// A deployment.
    Deployment(Arc<str>),
    /// A replica set.
    ReplicaSet(Arc<str>),
    /// A daemon set.
    DaemonSet(Arc<str>),
    /// A stateful set.
    StatefulSet(Arc<str>),
    /// A cron job.
    CronJob(Arc<str>),
    /// A job.
    Job(Arc<str>),
    /// A claim may wait for the last pod that uses it.
    Claim(Arc<str>),
    /// An approved signing request may lack its certificate.
    SigningRequest(Arc<str>),
    /// Pods may be unscheduled.
    Schedule,
    /// A disruption budget.
    Budget(Arc<str>),
}

/// The table of certificate signing requests.
const SIGNING_REQUESTS: &str = "certificates.k8s.io/certificatesigningrequests";

impl WorkItem {
    /// Whether it is processed in a cluster without controllers too: what requests need to succeed.
    pub(super) fn is_of_api_server(&self) -> bool {
        matches!(self, WorkItem::Bootstrap(_) | WorkItem::ClusterRoles)
    }
}

/// A table of workloads, their kind, and the item that reconciles one of them.
type Workload = (&'static str, &'static str, fn(Arc<str>) -> WorkItem);

const WORKLOADS: [Workload; 6] = [
    ("apps/deployments", "Deployment", WorkItem::Deployment),
    ("apps/replicasets", "ReplicaSet", WorkItem::ReplicaSet),
    ("apps/daemonsets", "DaemonSet", WorkItem::DaemonSet),
    ("apps/statefulsets", "StatefulSet", WorkItem::StatefulSet),
    ("batch/cronjobs", "CronJob", WorkItem::CronJob),
    ("batch/jobs", "Job", WorkItem::Job),
];

/// Items for the whole state.
pub(super) fn all_items(state: &State) -> BTreeSet<WorkItem> {
    let mut queue = BTreeSet::from([WorkItem::Schedule, WorkItem::ClusterRoles]);
    for (name, _) in state.objects.range("/namespaces", "", "") {
        queue.extend([WorkItem::Bootstrap(name.clone()), WorkItem::Namespace(name.clone())]);
    }
    queue.extend(state.objects.range("/nodes", "", "").map(|(name, _)| WorkItem::Node(name.clone())));
    for (table, _, item) in WORKLOADS {
        queue.extend(state.objects.range(table, "", "").map(|(key, _)| item(key.clone())));
    }
    queue.extend(budgets(state, ""));
    queue.extend(terminating_claims(state, ""));
    let requests = state.objects.range(SIGNING_REQUESTS, "", "");
    queue.extend(requests.map(|(name, _)| WorkItem::SigningRequest(name.clone())));
    for kind in state.kinds.all() {
        for (key, object) in state.objects.range(kind.table(), "", "") {
            if !object.owners().is_empty() || object.summary().is_terminating {
                queue.insert(WorkItem::GarbageCollect(kind.table().clone(), key.clone()));
            }
        }
    }
    queue
}

/// Enqueues the items that an event concerns.
pub(super) fn items_after(state: &State, event: &WatchEvent, queue: &mut BTreeSet<WorkItem>) {
    let key = &event.key;
    let is_deleted = event.kind == EventType::Deleted;
    if is_deleted {
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
            if is_deleted || event.previous.is_none() {
                queue.insert(WorkItem::Schedule);
            }
            if is_deleted {
                queue.extend(terminating_claims(state, &prefix));
            }
        }
        SIGNING_REQUESTS if !is_deleted => {
            queue.insert(WorkItem::SigningRequest(key.clone()));
        }
        "/persistentvolumeclaims" if !is_deleted && event.object.summary().is_terminating => {
            queue.insert(WorkItem::Claim(key.clone()));
        }
        "/serviceaccounts" | "/configmaps" if is_deleted => {
            queue.insert(WorkItem::Bootstrap(event.object.namespace().into()));
        }
        "rbac.authorization.k8s.io/clusterroles" => {
            queue.insert(WorkItem::ClusterRoles);
        }
        "policy/poddisruptionbudgets" => {
            queue.insert(WorkItem::Budget(key.clone()));
        }
        table => {
            let workload = WORKLOADS.iter().find(|(name, ..)| *name == table);
            queue.extend(workload.map(|(_, _, item)| item(key.clone())));
        }
    }
    // Workloads depend on these only. Leases change too often to search for their owners each time.
    let is_part = matches!(&*event.table, "/pods" | "apps/replicasets" | "batch/jobs");
    if is_part && !event.object.owners().is_empty() {
        enqueue_owners(&event.object, queue);
    }
    let is_marked = event.object.summary().is_terminating;
    if !is_deleted && (is_marked || (event.previous.is_none() && !event.object.owners().is_empty())) {
        queue.insert(WorkItem::GarbageCollect(event.table.clone(), key.clone()));
    }
    if is_deleted {
        // A namespace waits for the last of its contents, an owner for the last of its dependents.
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

fn terminating_claims<'a>(state: &'a State, prefix: &'a str) -> impl Iterator<Item = WorkItem> + 'a {
    state
        .objects
        .range("/persistentvolumeclaims", prefix, "")
        .filter(|(_, claim)| claim.summary().is_terminating)
        .map(|(key, _)| WorkItem::Claim(key.clone()))
}

/// Enqueues the workloads that own an object.
fn enqueue_owners(object: &Object, queue: &mut BTreeSet<WorkItem>) {
    let value = object.value();
    for owner in value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let kind = owner["kind"].as_str().unwrap_or_default();
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|version| version.split_once('/'))
            .map_or("", |(group, _)| group);
        let name = owner["name"].as_str().unwrap_or_default();
        let matches_owner = |(table, one, _): &&Workload| {
            *one == kind && table.split_once('/').is_some_and(|(workload, _)| workload == group)
        };
        if let Some((_, _, item)) = WORKLOADS.iter().find(matches_owner) {
            queue.insert(item(format!("{}/{name}", object.namespace()).into()));
        }
    }
}
