//! Links Nodes and Machines (the controller `nodelink`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::crd::machine::Machine;
use controller::{Action, Controller, FieldManager, Index, Informer, ObjectKey, Precondition};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

pub(crate) mod decide;
#[cfg(test)]
mod tests;

use crate::context::{Context, node};
use crate::error::{ReconcileError, unless_conflict};

const NAME: &str = "nodelink";
const MANAGER: FieldManager = FieldManager::new("shipshape-nodelink-controller");

/// Nodes that are worked on at once.
const WORKERS: usize = 4;

/// The controller of links.
pub(crate) struct NodeLinkController {
    cx: Context,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    machine_indexes: Lookup<Machine>,
    node_indexes: Arc<Lookup<Node>>,
    /// The readiness that was last written, by Node, with the uids of Node and Machine.
    readiness: Mutex<HashMap<ObjectKey, Remembered>>,
}

/// Objects by their providerID and by all of their internal addresses.
struct Lookup<K: controller::Object> {
    by_provider_id: Index<K>,
    by_address: Index<K>,
}

#[derive(Debug, Clone, PartialEq)]
struct Remembered {
    uids: (Option<String>, Option<String>),
    ready: bool,
}

impl NodeLinkController {
    pub(crate) fn new(cx: Context) -> NodeLinkController {
        let (machines, nodes) = (cx.caches.machines(), cx.caches.nodes());
        let machine_indexes = Lookup {
            by_provider_id: machines.index(|machine| {
                decide::machine_provider_id(machine).map(str::to_owned).into_iter().collect()
            }),
            by_address: machines.index(decide::machine_addresses),
        };
        let node_indexes = Lookup {
            by_provider_id: nodes
                .index(|node| decide::node_provider_id(node).map(str::to_owned).into_iter().collect()),
            by_address: nodes.index(decide::node_addresses),
        };
        NodeLinkController {
            cx,
            machines,
            nodes,
            machine_indexes,
            node_indexes: Arc::new(node_indexes),
            readiness: Mutex::default(),
        }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let node_indexes = self.node_indexes.clone();
        let controller = Controller::new(NAME, self.nodes.clone()).workers(WORKERS).watches(
            self.machines.clone(),
            move |change| {
                let machine = change.new.as_ref().filter(|it| it.metadata.deletion_timestamp.is_none());
                machine.and_then(|machine| node_of(&node_indexes, machine)).into_iter().collect()
            },
        );
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let found = node(&self.nodes, &key.name);
        let Some(node) = found.filter(|node| node.metadata.deletion_timestamp.is_none()) else {
            self.readiness(|memory| memory.remove(key));
            return Ok(Action::Done);
        };
        let machine = decide::find(
            &format!("Node {key}"),
            "Machine",
            decide::node_provider_id(&node),
            &decide::node_addresses(&node),
            |id| self.machine_indexes.by_provider_id.get(id),
            |address| self.machine_indexes.by_address.get(address),
        );
        let machine = machine.map_err(|error| ReconcileError::Failed(error.to_string()))?;
        let Some(machine) = machine else { return Ok(Action::Done) };
        let reference = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
        let linked =
            reference.and_then(|reference| crate::context::node(&self.nodes, reference.name.as_deref()?));
        decide::may_link(&machine, &node, linked.as_deref(), || find_node(&self.node_indexes, &machine))
            .map_err(|error| ReconcileError::Failed(error.to_string()))?;
        let now = Remembered { uids: (node.uid(), machine.uid()), ready: decide::is_ready(&node) };
        let known = self.readiness(|memory| memory.get(key).cloned()).filter(|known| known.uids == now.uids);
        let linked = decide::linked_machine(&machine, &node, known.map(|it| it.ready), self.cx.clock.now());
        if let Some(wanted) = linked {
            MANAGER.patch_status(&self.machines, &machine, &wanted, Precondition::Unchanged).await?;
        }
        // Only what is written is remembered.
        self.readiness(|memory| memory.insert(key.clone(), now));
        let wanted = decide::linked_node(&node, &machine);
        MANAGER.patch(&self.nodes, &node, &wanted, Precondition::Unchanged).await?;
        Ok(Action::Done)
    }

    fn readiness<T>(&self, change: impl FnOnce(&mut HashMap<ObjectKey, Remembered>) -> T) -> T {
        change(&mut self.readiness.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The Node that a Machine matches.
fn find_node(nodes: &Lookup<Node>, machine: &Machine) -> Result<Option<Arc<Node>>, decide::Ambiguous> {
    decide::find(
        &format!("Machine {}", machine.name_any()),
        "Node",
        decide::machine_provider_id(machine),
        &decide::machine_addresses(machine),
        |id| nodes.by_provider_id.get(id),
        |address| nodes.by_address.get(address),
    )
}

/// The key of the Node that a Machine belongs to.
fn node_of(nodes: &Lookup<Node>, machine: &Machine) -> Option<ObjectKey> {
    match find_node(nodes, machine) {
        Ok(node) => node.map(|node| ObjectKey::of(&*node)),
        Err(error) => {
            tracing::warn!("{error}");
            None
        }
    }
}
