//! What tasks about machines read of a cluster, and what a MachineSet lacks until it has its machines.

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{Machine, MachinePhase, MachineSet, find_condition};
use api::duration::TimeSpan;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use steps::ClusterContext;
use steps::engine::{Body, PollStatus, Step, StepContext, StepError};

/// Interval between two looks at machines. Each is two or three requests to one cluster.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Most names in one message.
const NAMES_MAX: usize = 5;

/// A MachineSet with the machines that it controls.
#[derive(Debug)]
pub(super) struct ObservedSet {
    pub(super) set: MachineSet,
    pub(super) machines: Vec<Machine>,
}

/// A step that polls until machines are as they shall be.
pub(super) fn waiting_for_machines<F>(
    name: &'static str,
    limit: TimeSpan,
    poll: impl Fn(Arc<ClusterContext>, StepContext) -> F + Send + Sync + 'static,
) -> Step<ClusterContext>
where
    F: Future<Output = Result<PollStatus, StepError>> + Send + 'static,
{
    let mut step = Step::wait(name, limit.duration(), poll);
    if let Body::Wait { interval, .. } = &mut step.body {
        *interval = POLL_INTERVAL;
    }
    step
}

/// The MachineSet of this name, if there is one.
pub(super) async fn find_set(
    cx: &ClusterContext,
    namespace: &str,
    name: &str,
) -> Result<Option<MachineSet>, StepError> {
    let sets: Api<MachineSet> = Api::namespaced(cx.link.client(), namespace);
    let label = format!("MachineSet {namespace}/{name}");
    Ok(sets.get_opt(name).await.map_err(|error| cx.link.failed("read", label, error))?)
}

/// The Machine of this name, if there is one.
pub(super) async fn find_machine(
    cx: &ClusterContext,
    namespace: &str,
    name: &str,
) -> Result<Option<Machine>, StepError> {
    let machines: Api<Machine> = Api::namespaced(cx.link.client(), namespace);
    let label = format!("Machine {namespace}/{name}");
    Ok(machines.get_opt(name).await.map_err(|error| cx.link.failed("read", label, error))?)
}

/// The MachineSet of this name and its machines.
pub(super) async fn observe_set(
    cx: &ClusterContext,
    namespace: &str,
    name: &str,
) -> Result<Option<ObservedSet>, StepError> {
    let Some(set) = find_set(cx, namespace, name).await? else { return Ok(None) };
    let api: Api<Machine> = Api::namespaced(cx.link.client(), namespace);
    let selector = set.status.as_ref().and_then(|it| it.label_selector.clone()).unwrap_or_default();
    let found = api.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|error| cx.link.failed("list", format!("machines of {namespace}"), error))?;
    let uid = set.uid();
    let is_owned = |machine: &Machine| {
        machine
            .owner_references()
            .iter()
            .any(|it| it.controller == Some(true) && Some(&it.uid) == uid.as_ref())
    };
    let machines = found.items.into_iter().filter(is_owned).collect();
    Ok(Some(ObservedSet { set, machines }))
}

/// What a MachineSet lacks until exactly `replicas` machines exist and are ready, as a sentence.
pub(super) fn missing(observed: &ObservedSet, replicas: i32) -> Option<String> {
    let (deleting, live): (Vec<&Machine>, Vec<&Machine>) =
        observed.machines.iter().partition(|it| it.metadata.deletion_timestamp.is_some());
    let name = observed.set.name_any();
    let status = observed.set.status.clone().unwrap_or_default();
    if status.observed_generation < observed.set.metadata.generation {
        return Some(format!("MachineSet {name} has not been reconciled yet"));
    }
    if !deleting.is_empty() {
        return Some(list(&deleting));
    }
    let count = i32::try_from(live.len()).unwrap_or(i32::MAX);
    if count != replicas {
        return Some(format!("{count} of {replicas} machines of MachineSet {name} exist"));
    }
    let ready = status.ready_replicas.unwrap_or(0);
    if ready >= replicas {
        return None;
    }
    let is_pending = |machine: &&&Machine| phase(machine) != Some(MachinePhase::Running);
    let pending: Vec<&Machine> = live.iter().filter(is_pending).copied().collect();
    let of_these = if pending.is_empty() { String::new() } else { format!("; {}", list(&pending)) };
    Some(format!("{ready} of {}{of_these}", all_ready(replicas, &name)))
}

/// That all machines of a MachineSet are ready, as a sentence.
pub(super) fn all_ready(replicas: i32, set: &str) -> String {
    match replicas {
        1 => format!("1 machine of MachineSet {set} is ready"),
        _ => format!("{replicas} machines of MachineSet {set} are ready"),
    }
}

fn list(machines: &[&Machine]) -> String {
    let described: Vec<String> = machines.iter().take(NAMES_MAX).map(|it| describe(it)).collect();
    match machines.len().saturating_sub(NAMES_MAX) {
        0 => described.join("; "),
        more => format!("{}; and {more} more", described.join("; ")),
    }
}

fn phase(machine: &Machine) -> Option<MachinePhase> {
    machine.status.as_ref().and_then(|it| it.phase.clone())
}

/// A machine with its phase and what holds it up.
pub(super) fn describe(machine: &Machine) -> String {
    let name = machine.name_any();
    let status = machine.status.clone().unwrap_or_default();
    let phase = match (&status.phase, machine.metadata.deletion_timestamp.is_some()) {
        (_, true) => MachinePhase::Deleting,
        (Some(phase), false) => phase.clone(),
        (None, false) => return format!("Machine {name} has no phase yet"),
    };
    let condition = match phase {
        MachinePhase::Deleting => ["Drainable", "Drained", "Terminable"]
            .iter()
            .filter_map(|it| find_condition(&status.conditions, it))
            .find(|it| it.status.as_str() == "False")
            .and_then(|it| it.message.clone()),
        _ => None,
    };
    match status.error_message.or(condition).filter(|it| !it.is_empty()) {
        Some(why) => format!("Machine {name} is {phase}: {why}"),
        None => format!("Machine {name} is {phase}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(name: &str, status: Value, deleting: bool) -> Machine {
        let mut machine: Machine =
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap();
        if deleting {
            machine.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        machine
    }

    fn observed(generation: i64, ready: i32, machines: Vec<Machine>) -> ObservedSet {
        let set = serde_json::from_value(json!({
            "metadata": { "name": "workers", "generation": 2 },
            "status": { "observedGeneration": generation, "readyReplicas": ready }
        }))
        .unwrap();
        ObservedSet { set, machines }
    }

    #[test]
    fn a_set_has_what_it_needs_when_all_are_ready_and_none_is_being_deleted() {
        let running = |name: &str| machine(name, json!({ "phase": "Running" }), false);
        let two = || vec![running("a"), running("b")];
        assert_eq!(missing(&observed(2, 2, two()), 2), None);
        assert_eq!(missing(&observed(2, 0, Vec::new()), 0), None);
        let check = |observed: &ObservedSet, replicas, expected: &str| {
            assert_eq!(missing(observed, replicas).as_deref(), Some(expected));
        };
        check(&observed(1, 2, two()), 2, "MachineSet workers has not been reconciled yet");
        check(&observed(2, 2, two()), 3, "2 of 3 machines of MachineSet workers exist");
        check(&observed(2, 1, two()), 2, "1 of 2 machines of MachineSet workers are ready");
        let booting = vec![running("a"), machine("b", json!({ "phase": "Provisioned" }), false)];
        check(
            &observed(2, 1, booting),
            2,
            "1 of 2 machines of MachineSet workers are ready; Machine b is Provisioned",
        );
        let failed = json!({ "phase": "Failed", "errorMessage": "no such size" });
        check(
            &observed(2, 0, vec![machine("a", failed, false)]),
            1,
            "0 of 1 machine of MachineSet workers is ready; Machine a is Failed: no such size",
        );
    }

    #[test]
    fn a_machine_that_is_being_deleted_is_described_by_what_blocks_it() {
        let status = json!({ "phase": "Deleting", "conditions": [
            { "type": "Drained", "status": "False", "reason": "DrainError", "message": "pod shop/web-1 is blocked", "lastTransitionTime": "2026-01-01T00:00:00Z" }
        ] });
        let blocked = observed(2, 1, vec![machine("a", status, true)]);
        assert_eq!(missing(&blocked, 0).as_deref(), Some("Machine a is Deleting: pod shop/web-1 is blocked"));
        assert_eq!(describe(&machine("b", json!({}), false)), "Machine b has no phase yet");
    }

    #[test]
    fn a_long_list_is_cut() {
        let many = (0..7).map(|number| machine(&format!("m{number}"), json!({}), true)).collect();
        let text = missing(&observed(2, 0, many), 0).unwrap();
        assert!(text.ends_with("; and 2 more"), "{text}");
    }
}
