//! What the drain controller does with a Machine. Pure.

use std::time::Duration;

use api::crd::machine::{LifecycleHook, Machine, MachinePhase, is_condition_true, names};
use controller::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kubelink::cordon::Holder;
use kubelink::drain::{DrainError, DrainGoal, DrainOptions, EmptyDirPolicy, UnmanagedPolicy};

use crate::conditions::{ConditionType, hook_list};
use crate::duration::parse_duration;

/// Time limit of one attempt; the next one continues.
const ATTEMPT: Duration = Duration::from_secs(20);
/// Time until a control plane Node that may not be drained yet, or could not be cordoned, is tried again.
pub(crate) const CORDON_REQUEUE: Duration = Duration::from_secs(20);
/// Grace period of pods on a Node that does not respond, and the time for which a pod there may be terminating.
const UNREACHABLE_GRACE: Duration = Duration::from_secs(1);

/// What the controller does first.
#[derive(Debug, PartialEq)]
pub(crate) enum Step<'a> {
    /// Nothing, for this reason.
    Rest(&'static str),
    /// Record that there is nothing to drain.
    Skip,
    /// Wait until these hooks are removed.
    Blocked(&'a [LifecycleHook]),
    /// Drain the Node of this name and, if it is known, uid.
    Drain { node: &'a str, uid: Option<&'a str> },
}

/// Decides by the Machine alone.
pub(crate) fn step(machine: &Machine) -> Step<'_> {
    let Some(status) = machine.status.as_ref().filter(|_| machine.metadata.deletion_timestamp.is_some())
    else {
        return Step::Rest("the Machine is not being deleted");
    };
    if status.phase != Some(MachinePhase::Deleting) {
        return Step::Rest("the phase is not Deleting");
    }
    if is_condition_true(&status.conditions, ConditionType::Drained.as_str()) {
        return Step::Rest("the Node is drained");
    }
    let node = status.node_ref.as_ref().filter(|node| node.name.as_ref().is_some_and(|it| !it.is_empty()));
    let Some(node) = node else { return Step::Skip };
    if machine.annotations().contains_key(names::EXCLUDE_NODE_DRAINING) {
        return Step::Skip;
    }
    let hooks = machine.spec.lifecycle_hooks.as_ref().map(|hooks| hooks.pre_drain.as_slice());
    match hooks.unwrap_or_default() {
        [] => Step::Drain { node: node.name.as_deref().unwrap_or_default(), uid: node.uid.as_deref() },
        hooks => Step::Blocked(hooks),
    }
}

/// The message of the event about a drain that hooks hold.
pub(crate) fn blocked_message(hooks: &[LifecycleHook]) -> String {
    format!("Drain blocked by lifecycle hooks: {}", hook_list(hooks))
}

/// Whether a Node may be cordoned. Of the control plane, one Node at a time may be unschedulable.
pub(crate) fn may_cordon(node: &Node, others: &[impl AsRef<Node>]) -> Result<(), String> {
    if is_unschedulable(node) || !is_control_plane(node) {
        return Ok(());
    }
    let others = others.iter().map(AsRef::as_ref);
    let other = others
        .filter(|other| other.name_any() != node.name_any())
        .find(|other| is_control_plane(other) && is_unschedulable(other));
    match other {
        None => Ok(()),
        Some(other) => {
            let (node, other) = (node.name_any(), other.name_any());
            Err(format!(
                "control plane node {node} waits because control plane node {other} is unschedulable"
            ))
        }
    }
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

pub(crate) fn is_control_plane(node: &Node) -> bool {
    let roles = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    roles.iter().any(|role| node.labels().contains_key(*role))
}

const HOLDER_PREFIX: &str = "machine-drain/";

/// The id of a cordon for the drain of a Machine: its namespace, name and uid.
pub(crate) fn holder_id(key: &ObjectKey, uid: &str) -> String {
    format!("{HOLDER_PREFIX}{key}/{uid}")
}

/// The Machine for whose drain a Node is cordoned, and its uid.
pub(crate) fn cordoned_for(node: &Node) -> Option<(ObjectKey, &str)> {
    let holder = node.annotations().get(kubelink::cordon::CORDONED_BY)?.strip_prefix(HOLDER_PREFIX)?;
    let mut parts = holder.splitn(3, '/');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    Some((ObjectKey::namespaced(namespace, name), uid))
}

/// How the pods of a Node are evicted.
pub(crate) fn options(machine: &Machine, node: &Node) -> DrainOptions {
    let key = ObjectKey::of(machine);
    let uid = machine.uid().unwrap_or_default();
    let holder = Holder::new(holder_id(&key, &uid), format!("Machine {key} is being deleted"));
    let unreachable = is_unreachable(node).then_some(UNREACHABLE_GRACE);
    DrainOptions {
        empty_dir: EmptyDirPolicy::Delete,
        unmanaged: UnmanagedPolicy::Delete,
        grace: unreachable,
        skip_terminating_after: unreachable,
        until: DrainGoal::Gone,
        ..DrainOptions::new(holder, ATTEMPT)
    }
}

/// Whether the kubelet of a Node no longer reports: nobody will confirm that its pods ended.
fn is_unreachable(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// What the status says of a drain that is not over.
pub(crate) fn error_message(error: &DrainError) -> String {
    error.to_string()
}

/// When the drain of a Machine has to end; `None` without a limit. The error names an annotation that cannot be read.
pub(crate) fn deadline(machine: &Machine) -> Result<Option<Timestamp>, String> {
    let (Some(text), Some(deleted)) =
        (machine.annotations().get(names::DRAIN_DEADLINE), machine.metadata.deletion_timestamp.as_ref())
    else {
        return Ok(None);
    };
    let invalid =
        || format!("annotation {} is {text:?}; it must be a duration such as 30m", names::DRAIN_DEADLINE);
    let limit = parse_duration(text).and_then(|limit| jiff::SignedDuration::try_from(limit).ok());
    Ok(deleted.0.checked_add(limit.ok_or_else(invalid)?).ok())
}
