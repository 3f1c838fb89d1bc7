//! Which Machine a Node belongs to, and what the link changes in both. Pure.

use std::sync::Arc;

use api::crd::machine::names::MACHINE_ANNOTATION;
use api::crd::machine::{Machine, whole_seconds};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, ObjectReference};
use kube::ResourceExt;

const INTERNAL_IP: &str = "InternalIP";

/// More than one object matches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object} matches more than one {kind} by {by} {value}: {}", names.join(", "))]
pub(crate) struct Ambiguous {
    pub(crate) object: String,
    pub(crate) kind: &'static str,
    pub(crate) by: &'static str,
    pub(crate) value: String,
    pub(crate) names: Vec<String>,
}

/// The value by which a Node or Machine is found by its providerID; none if it has none.
pub(crate) fn node_provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// As [`node_provider_id`], of a Machine.
pub(crate) fn machine_provider_id(machine: &Machine) -> Option<&str> {
    machine.spec.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// The internal addresses of a Node, the first of which identifies it.
pub(crate) fn node_addresses(node: &Node) -> Vec<String> {
    internal_ips(node.status.iter().filter_map(|status| status.addresses.as_deref()).flatten())
}

/// The internal addresses of a Machine, the first of which identifies it.
pub(crate) fn machine_addresses(machine: &Machine) -> Vec<String> {
    internal_ips(machine.status.iter().flat_map(|status| &status.addresses))
}

fn internal_ips<'a>(addresses: impl Iterator<Item = &'a NodeAddress>) -> Vec<String> {
    addresses.filter(|address| address.type_ == INTERNAL_IP).map(|address| address.address.clone()).collect()
}

/// The object that belongs to another: by its providerID, and if none has that, by its first internal address.
pub(crate) fn find<K: ResourceExt>(
    object: &str,
    kind: &'static str,
    provider_id: Option<&str>,
    addresses: &[String],
    by_provider_id: impl Fn(&str) -> Vec<Arc<K>>,
    by_address: impl Fn(&str) -> Vec<Arc<K>>,
) -> Result<Option<Arc<K>>, Ambiguous> {
    let only = |by: &'static str, value: &str, mut found: Vec<Arc<K>>| match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let names = found.iter().map(|it| it.name_any()).collect();
            Err(Ambiguous { object: object.to_owned(), kind, by, value: value.to_owned(), names })
        }
    };
    if let Some(id) = provider_id
        && let Some(found) = only("providerID", id, by_provider_id(id))?
    {
        return Ok(Some(found));
    }
    match addresses.first() {
        Some(address) => only("internal address", address, by_address(address)),
        None => Ok(None),
    }
}

/// Why a Node that matches a Machine is not linked to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Contested {
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    /// Another Node is or would be the Machine's.
    #[error(
        "Node {node} matches Machine {machine}, which belongs to Node {other}; delete the Node that is not the Machine's"
    )]
    Taken { node: String, machine: String, other: String },
}

/// Whether a Node may be linked to the Machine that it matches. A kubelet writes the providerID and addresses of its own Node, so a match
/// proves little: a Node that is linked keeps its Machine while it matches, and only one Node may match a Machine that has none.
/// `linked` is the Node under the name in the nodeRef, and `found` the Node that the Machine matches.
pub(crate) fn may_link(
    machine: &Machine,
    node: &Node,
    linked: Option<&Node>,
    found: impl FnOnce() -> Result<Option<Arc<Node>>, Ambiguous>,
) -> Result<(), Contested> {
    let taken = |other: &Node| Contested::Taken {
        node: node.name_any(),
        machine: machine.name_any(),
        other: other.name_any(),
    };
    let is_this = |other: &Node| other.name_any() == node.name_any() && other.uid() == node.uid();
    let reference = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
    let uid = reference.and_then(|reference| reference.uid.clone());
    let holder = linked.filter(|linked| (uid.is_none() || linked.uid() == uid) && matches(linked, machine));
    match holder {
        Some(holder) if is_this(holder) => Ok(()),
        Some(holder) => Err(taken(holder)),
        None => match found()? {
            Some(other) if !is_this(&other) => Err(taken(&other)),
            _ => Ok(()),
        },
    }
}

/// Whether a Node matches a Machine in any way.
fn matches(node: &Node, machine: &Machine) -> bool {
    let id = node_provider_id(node);
    let by_id = id.is_some() && id == machine_provider_id(machine);
    let address = node_addresses(node).into_iter().next();
    by_id || address.is_some_and(|address| machine_addresses(machine).contains(&address))
}

/// Whether the kubelet of a Node is ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The Machine with the reference to its Node; `None` if it stays as it is. `remembered` is the readiness that was last written for this
/// Node and Machine; a flip is written, so that those who watch Machines wake.
pub(crate) fn linked_machine(
    machine: &Machine,
    node: &Node,
    remembered: Option<bool>,
    now: Timestamp,
) -> Option<Machine> {
    let reference = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(node.name_any()),
        uid: node.uid(),
        ..ObjectReference::default()
    };
    let status = machine.status.clone().unwrap_or_default();
    let same = status
        .node_ref
        .as_ref()
        .is_some_and(|found| found.name == reference.name && found.uid == reference.uid);
    let flipped = remembered.is_some_and(|remembered| remembered != is_ready(node));
    if same && !flipped {
        return None;
    }
    let mut wanted = machine.clone();
    let status = wanted.status.get_or_insert_default();
    status.node_ref = Some(reference);
    status.last_updated = Some(whole_seconds(now));
    Some(wanted)
}

/// The Node with what its Machine says about it.
pub(crate) fn linked_node(node: &Node, machine: &Machine) -> Node {
    let mut wanted = node.clone();
    let metadata = machine.spec.metadata.clone().unwrap_or_default();
    let key = format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    annotations.insert(MACHINE_ANNOTATION.to_owned(), key);
    annotations.extend(metadata.annotations);
    if !metadata.labels.is_empty() {
        wanted.metadata.labels.get_or_insert_default().extend(metadata.labels);
    }
    if !machine.spec.taints.is_empty() {
        let taints = wanted.spec.get_or_insert_default().taints.get_or_insert_default();
        for taint in &machine.spec.taints {
            if !taints.iter().any(|found| found.key == taint.key && found.effect == taint.effect) {
                taints.push(taint.clone());
            }
        }
    }
    wanted
}
