//! `replace-machine`: deletes a machine and waits until its MachineSet has replaced it.
//!
//! The machine is deleted by its uid, which the check records: a machine that took its name meanwhile stays.

use std::sync::Arc;

use api::crd::machine::{Machine, MachineSet};
use kube::ResourceExt;
use kubelink::Target;
use kubelink::delete::{DeleteOptions, DeleteResult, delete};
use planner::task::TaskProblem;
use planner::task::builtin::replace_machine::{ReplaceMachineParameters, STEPS, TIME_LIMIT};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use steps::ClusterContext;
use steps::engine::{PollStatus, Step, StepContext, StepError, StepOutcome};

use super::machines::{
    all_ready, describe, find_machine, find_set, missing, observe_set, waiting_for_machines,
};

/// What the check records for the later steps.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckedMachine {
    uid: String,
    machine_set: String,
}

/// One run of the task.
#[derive(Debug)]
struct Replacement {
    parameters: ReplaceMachineParameters,
}

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let run = Arc::new(Replacement { parameters: ReplaceMachineParameters::read(parameters)? });
    let (checking, deleting, waiting) = (run.clone(), run.clone(), run);
    Ok(vec![
        Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
            let run = checking.clone();
            async move { run.check(&cx).await }
        }),
        Step::action(STEPS[1], move |cx: Arc<ClusterContext>, step: StepContext| {
            let run = deleting.clone();
            async move { run.delete(&cx, &step).await }
        }),
        waiting_for_machines(STEPS[2], TIME_LIMIT, move |cx, step| {
            let run = waiting.clone();
            async move { run.poll(&cx, &step).await }
        }),
    ])
}

/// The name of the MachineSet that controls a machine.
fn controller(machine: &Machine) -> Option<&str> {
    let owner = machine.owner_references().iter().find(|it| it.controller == Some(true))?;
    (owner.kind == "MachineSet").then_some(owner.name.as_str())
}

/// Decides whether the MachineSet would replace the machine.
fn check_replacement(machine: &Machine, set: Option<&MachineSet>) -> Result<CheckedMachine, StepError> {
    let name = machine.name_any();
    let Some(set_name) = controller(machine) else {
        let message = format!("Machine {name} belongs to no MachineSet: nothing would replace it");
        return Err(StepError::terminal("NoMachineSet", message));
    };
    let Some(set) = set else {
        let message = format!("MachineSet {set_name} of machine {name} not found: nothing would replace it");
        return Err(StepError::terminal("NoMachineSet", message));
    };
    if set.metadata.deletion_timestamp.is_some() {
        let message =
            format!("MachineSet {set_name} of machine {name} is being deleted: nothing would replace it");
        return Err(StepError::terminal("NoMachineSet", message));
    }
    let status = set.status.clone().unwrap_or_default();
    let (wanted, found) = (set.spec.replicas.unwrap_or(1), status.replicas.unwrap_or(0));
    if wanted < found {
        let message = format!(
            "MachineSet {set_name} has {found} machines and shall have {wanted}: it would not replace machine {name}"
        );
        return Err(StepError::terminal("ScalingDown", message));
    }
    Ok(CheckedMachine { uid: machine.uid().unwrap_or_default(), machine_set: set_name.to_owned() })
}

impl Replacement {
    async fn check(&self, cx: &ClusterContext) -> Result<StepOutcome, StepError> {
        let ReplaceMachineParameters { namespace, machine: name } = &self.parameters;
        let Some(machine) = find_machine(cx, namespace, name).await? else {
            return Err(StepError::terminal("NotFound", format!("Machine {namespace}/{name} not found")));
        };
        let set = match controller(&machine) {
            Some(set) => find_set(cx, namespace, set).await?,
            None => None,
        };
        let checked = check_replacement(&machine, set.as_ref())?;
        let message = format!("MachineSet {} will replace machine {name}", checked.machine_set);
        Ok(StepOutcome::with_message(message).with_memory(&checked))
    }

    async fn delete(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let name = &self.parameters.machine;
        let target = Target::typed::<Machine>(Some(&self.parameters.namespace), name);
        let uid = Some(checked(step)?.uid);
        let options = DeleteOptions { uid, wait: None, ..DeleteOptions::default() };
        let message = match delete(&cx.link, &target, &options, &cx.progress(step)).await? {
            DeleteResult::Started => format!("deletion of machine {name} has begun"),
            DeleteResult::Gone | DeleteResult::Absent => format!("machine {name} is gone"),
        };
        Ok(StepOutcome::with_message(message))
    }

    async fn poll(&self, cx: &ClusterContext, step: &StepContext) -> Result<PollStatus, StepError> {
        let ReplaceMachineParameters { namespace, machine: name } = &self.parameters;
        let CheckedMachine { uid, machine_set } = checked(step)?;
        let old = find_machine(cx, namespace, name).await?.filter(|it| it.uid().as_ref() == Some(&uid));
        if let Some(old) = old {
            return Ok(PollStatus::Waiting(describe(&old)));
        }
        let Some(observed) = observe_set(cx, namespace, &machine_set).await? else {
            let message = format!("MachineSet {machine_set} was deleted after machine {name}");
            return Err(StepError::terminal("NoMachineSet", message));
        };
        let replicas = observed.set.spec.replicas.unwrap_or(1);
        Ok(match missing(&observed, replicas) {
            Some(waiting) => PollStatus::Waiting(waiting),
            None => {
                let ready = all_ready(replicas, &machine_set);
                PollStatus::Done(StepOutcome::with_message(format!("machine {name} is replaced: {ready}")))
            }
        })
    }
}

fn checked(step: &StepContext) -> Result<CheckedMachine, StepError> {
    step.memory_of(STEPS[0])
        .ok_or_else(|| StepError::terminal("NotChecked", "the record of the checked machine is missing"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(kind: &str) -> Machine {
        let owner =
            json!([{ "apiVersion": "v1", "kind": kind, "name": "workers", "uid": "s", "controller": true }]);
        serde_json::from_value(json!({ "metadata": { "name": "m", "uid": "u", "ownerReferences": owner } }))
            .unwrap()
    }

    fn set(replicas: i32, found: i32) -> MachineSet {
        let set = json!({ "metadata": { "name": "workers" }, "spec": { "replicas": replicas }, "status": { "replicas": found } });
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn only_a_machine_that_its_set_would_replace_is_deleted() {
        let check = |machine: &Machine, set: Option<&MachineSet>, expected: &str| {
            let error = check_replacement(machine, set).err().map(|it| it.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        };
        assert_eq!(check_replacement(&owned("MachineSet"), Some(&set(2, 2))).unwrap().uid, "u");
        check(&owned("ControlPlaneMachineSet"), None, "Machine m belongs to no MachineSet");
        check(&owned("MachineSet"), None, "MachineSet workers of machine m not found");
        check(&owned("MachineSet"), Some(&set(1, 2)), "has 2 machines and shall have 1");
        let mut ending = set(2, 2);
        ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        check(&owned("MachineSet"), Some(&ending), "is being deleted");
    }
}
