//! What the MachineSet controller does with a MachineSet. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{AuthoritativeApi, Machine, MachineSet, MachineSetStatus, set_condition};
use controller::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::priority;
use crate::conditions;
use crate::node_link::decide::is_ready;
use crate::selector::Selector;

/// What the authority over a MachineSet demands; `None` if these controllers have it. As for a Machine.
pub(crate) fn authority(set: &MachineSet, now: Timestamp) -> Option<Option<MachineSetStatus>> {
    let status = set.status.clone().unwrap_or_default();
    let paused = |paused| {
        let mut status = status.clone();
        set_condition(&mut status.conditions, conditions::paused(paused), now).then_some(status)
    };
    match status.authoritative_api.clone() {
        None => Some(set.spec.authoritative_api.clone().map(|api| MachineSetStatus {
            authoritative_api: Some(AuthoritativeApi::from(api)),
            ..status.clone()
        })),
        Some(AuthoritativeApi::ClusterApi | AuthoritativeApi::Migrating) => Some(paused(true)),
        Some(AuthoritativeApi::MachineApi) => paused(false).map(Some),
        Some(AuthoritativeApi::Unrecognized(_)) => Some(None),
    }
}

/// The selector of a MachineSet, if it is valid, not empty and matches the template.
pub(crate) fn validate(set: &MachineSet) -> Result<Selector, String> {
    let selector = Selector::parse(&set.spec.selector)?;
    if selector.is_empty() {
        return Err("spec.selector: must not be empty".to_owned());
    }
    let labels = template_labels(set);
    if !selector.matches(&labels) {
        return Err(format!("spec.template.metadata.labels: must match spec.selector ({selector})"));
    }
    match set.spec.replicas {
        None => Err("spec.replicas: Required value".to_owned()),
        Some(replicas) if replicas < 0 => Err(format!("spec.replicas: {replicas} must not be negative")),
        Some(_) => Ok(selector),
    }
}

fn template_labels(set: &MachineSet) -> BTreeMap<String, String> {
    set.spec.template.metadata.as_ref().map(|metadata| metadata.labels.clone()).unwrap_or_default()
}

/// The Machines of a MachineSet.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Those that it controls, by name.
    pub(crate) owned: Vec<Arc<Machine>>,
    /// Those without a controller that match.
    pub(crate) orphans: Vec<Arc<Machine>>,
}

/// Sorts the Machines of a namespace. Those of another controller, those that are being deleted and those that do not match count for
/// nothing.
pub(crate) fn members(set: &MachineSet, selector: &Selector, machines: Vec<Arc<Machine>>) -> Members {
    let mut members = Members::default();
    for machine in machines {
        let matches = !selector.is_empty() && selector.matches(machine.labels());
        if !matches || machine.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match controller_of(&machine.metadata) {
            None => members.orphans.push(machine),
            Some(owner) if Some(owner.uid.as_str()) == set.metadata.uid.as_deref() => {
                members.owned.push(machine);
            }
            Some(_) => {}
        }
    }
    members.owned.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    members
}

/// The owner that controls an object.
pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The reference of a MachineSet in its Machines.
fn owner_reference(set: &MachineSet) -> OwnerReference {
    OwnerReference {
        api_version: MachineSet::api_version(&()).into_owned(),
        kind: MachineSet::kind(&()).into_owned(),
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// An orphan with the MachineSet as its controller.
pub(crate) fn adopted(set: &MachineSet, orphan: &Machine) -> Machine {
    let mut machine = orphan.clone();
    machine.metadata.owner_references.get_or_insert_default().push(owner_reference(set));
    machine
}

/// How the number of Machines changes.
#[derive(Debug, PartialEq)]
pub(crate) enum Scaling {
    None,
    Create(usize),
    Delete(Vec<Arc<Machine>>),
}

/// The change from the Machines that are there to the wanted number.
pub(crate) fn scaling(
    set: &MachineSet,
    machines: &[Arc<Machine>],
    now: Timestamp,
) -> Result<Scaling, String> {
    let wanted = usize::try_from(set.spec.replicas.unwrap_or_default()).unwrap_or_default();
    match machines.len().checked_sub(wanted) {
        Some(0) => Ok(Scaling::None),
        Some(excess) => {
            priority::select(machines, excess, set.spec.delete_policy.as_ref(), now).map(Scaling::Delete)
        }
        None => Ok(Scaling::Create(wanted - machines.len())),
    }
}

/// A new Machine of the template under this name.
pub(crate) fn new_machine(set: &MachineSet, name: String) -> Machine {
    let template = &set.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    Machine {
        metadata: ObjectMeta {
            name: Some(name),
            generate_name: Some(name_prefix(set)),
            namespace: set.namespace(),
            labels: (!metadata.labels.is_empty()).then_some(metadata.labels),
            annotations: (!metadata.annotations.is_empty()).then_some(metadata.annotations),
            owner_references: Some(vec![owner_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone().unwrap_or_default(),
        status: None,
    }
}

/// Longest part of a MachineSet's name in those of its Machines, as the API server has it for generated names.
const PREFIX_LENGTH_MAX: usize = 58;

/// The beginning of the names of a MachineSet's Machines.
pub(crate) fn name_prefix(set: &MachineSet) -> String {
    let mut prefix = format!("{}-", set.name_any());
    prefix.truncate(PREFIX_LENGTH_MAX);
    prefix
}

/// The status for these Machines. `node` looks up a Node by its name.
pub(crate) fn next_status(
    set: &MachineSet,
    selector: &Selector,
    machines: &[Arc<Machine>],
    node: impl Fn(&str) -> Option<Arc<Node>>,
    now: Timestamp,
) -> MachineSetStatus {
    let labels = template_labels(set);
    let min_ready = min_ready(set);
    let (mut labeled, mut ready, mut available) = (0, 0, 0);
    for machine in machines {
        let carried = machine.labels();
        labeled += i32::from(labels.iter().all(|(key, value)| carried.get(key) == Some(value)));
        let Some(since) = ready_since(machine, &node) else { continue };
        ready += 1;
        available += i32::from(is_available(since, min_ready, now));
    }
    MachineSetStatus {
        replicas: Some(i32::try_from(machines.len()).unwrap_or(i32::MAX)),
        fully_labeled_replicas: Some(labeled),
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        observed_generation: set.metadata.generation,
        label_selector: Some(selector.to_string()),
        ..set.status.clone().unwrap_or_default()
    }
}

fn min_ready(set: &MachineSet) -> SignedDuration {
    SignedDuration::from_secs(i64::from(set.spec.min_ready_seconds.unwrap_or_default().max(0)))
}

/// Since when the Node of a Machine has been ready.
fn ready_since(machine: &Machine, node: impl Fn(&str) -> Option<Arc<Node>>) -> Option<Timestamp> {
    let reference = machine.status.as_ref()?.node_ref.as_ref()?;
    let node = node(reference.name.as_deref()?)?;
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let since = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    (ready.status == "True").then_some(since)
}

fn is_available(since: Timestamp, min_ready: SignedDuration, now: Timestamp) -> bool {
    min_ready.is_zero() || since.checked_add(min_ready).is_ok_and(|from| from < now)
}

/// When the status changes only because time passes.
pub(crate) fn look_again(set: &MachineSet, status: &MachineSetStatus) -> Option<Duration> {
    // One that never becomes ready must not hold up the others.
    let waits = status.available_replicas < status.ready_replicas;
    (!min_ready(set).is_zero() && waits).then(|| min_ready(set).unsigned_abs())
}

/// Whether a change of a Machine can change the number or the status of its MachineSet. Most changes of a new Machine cannot.
pub(crate) fn concerns_set(old: Option<&Machine>, new: Option<&Machine>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let (before, after) = (&old.metadata, &new.metadata);
    before.uid != after.uid
        || before.labels != after.labels
        || before.owner_references != after.owner_references
        || before.deletion_timestamp != after.deletion_timestamp
        || node_ref(old) != node_ref(new)
}

fn node_ref(machine: &Machine) -> Option<&ObjectReference> {
    machine.status.as_ref()?.node_ref.as_ref()
}

/// Whether a change of a Node can change the status of a MachineSet.
pub(crate) fn concerns_status(old: Option<&Node>, new: Option<&Node>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.metadata.uid != new.metadata.uid || is_ready(old) != is_ready(new),
        _ => true,
    }
}

/// The MachineSet that controls a Machine.
pub(crate) fn machine_set_of(machine: &Machine) -> Option<ObjectKey> {
    let owner = controller_of(&machine.metadata).filter(|owner| owner.kind == MachineSet::kind(&()))?;
    Some(ObjectKey::namespaced(&machine.namespace()?, &owner.name))
}
