//! What the machine controller does with a Machine, from what was read. Pure.

use std::time::Duration;

use api::crd::machine::{AuthoritativeApi, Machine, MachinePhase, MachineStatus, names};
use cloud::{Instance, InstanceError};
use jiff::Timestamp;
use serde_json::Value;

use super::status::{
    MachineFailure, StatusChange, failure_of, has_provider_id, hooks, is_provisioned, next_status,
    with_instance, with_unknown_instance,
};
use crate::conditions::{self, ConditionType};

/// Time until a Machine that is on its way is looked at again.
pub(crate) const REQUEUE: Duration = Duration::from_secs(30);

/// What the controller does before it asks the provider.
#[derive(Debug, PartialEq)]
pub(crate) enum Start {
    /// Nothing, for this reason.
    Rest(&'static str),
    /// Write the status; the event of the write continues.
    WriteStatus(Box<MachineStatus>),
    /// Report that the Machine is invalid, and try again with backoff.
    Invalid(String),
    AddFinalizer,
    /// Continue with [`deletion`].
    Delete,
    /// Find the instance and continue with [`after_find`].
    Find,
}

/// What a call of the provider leads to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The Machine with its new metadata and spec, written first.
    pub(crate) object: Option<Box<Machine>>,
    pub(crate) status: Option<Box<MachineStatus>>,
    pub(crate) next: Next,
}

/// What follows.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum Next {
    /// Nothing until the Machine changes, or the resync.
    #[default]
    Done,
    After(Duration),
    /// Continue after this time; failures before it still count.
    Wait(Duration),
    /// Try again with backoff.
    Retry(String),
    Update(Box<Instance>),
    Create,
}

/// What the controller does with a Machine that is being deleted.
#[derive(Debug, PartialEq)]
pub(crate) enum Deletion {
    WriteStatus(Box<MachineStatus>),
    /// Nothing, for this reason.
    Rest(&'static str),
    /// Delete the instance and continue with [`after_delete`].
    DeleteInstance,
}

/// What follows the request to delete an instance.
#[derive(Debug, PartialEq)]
pub(crate) enum AfterDelete {
    /// Find out whether the instance is gone.
    Find,
    After(Duration),
    Retry(String),
}

/// What follows the look for a deleted instance.
#[derive(Debug, PartialEq)]
pub(crate) enum Removal {
    After(Duration),
    Retry(String),
    /// Delete the Node, if there is one, and remove the finalizer.
    Remove,
}

/// Steps 2 to 6 of a reconcile.
pub(crate) fn start(machine: &Machine, migration: bool, now: Timestamp) -> Start {
    if migration && let Some(start) = authority(machine, now) {
        return start;
    }
    if let Err(message) = validate(machine) {
        return Start::Invalid(message);
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return Start::Delete;
    }
    if !has_finalizer(machine) {
        return Start::AddFinalizer;
    }
    if phase(machine) == Some(&MachinePhase::Failed) {
        return Start::Rest("the Machine is Failed");
    }
    Start::Find
}

/// What the authority over a Machine demands; `None` if these controllers have it.
fn authority(machine: &Machine, now: Timestamp) -> Option<Start> {
    let status = machine.status.clone().unwrap_or_default();
    let set_paused = |paused| {
        let change = StatusChange { conditions: vec![conditions::paused(paused)], ..StatusChange::default() };
        next_status(machine, &change, now).map(|status| Start::WriteStatus(Box::new(status)))
    };
    match status.authoritative_api {
        None => Some(match machine.spec.authoritative_api.clone() {
            None => Start::Rest("no API is authoritative"),
            Some(api) => Start::WriteStatus(Box::new(MachineStatus {
                authoritative_api: Some(AuthoritativeApi::from(api)),
                ..status
            })),
        }),
        Some(AuthoritativeApi::ClusterApi | AuthoritativeApi::Migrating) => {
            Some(set_paused(true).unwrap_or(Start::Rest("another API is authoritative")))
        }
        Some(AuthoritativeApi::MachineApi) => {
            let paused = ConditionType::Paused.as_str();
            let found = status
                .conditions
                .iter()
                .any(|condition| condition.type_ == paused && *condition.status.as_str() == *"False");
            if found { None } else { set_paused(false) }
        }
        Some(AuthoritativeApi::Unrecognized(_)) => Some(Start::Rest("the authoritative API is unknown")),
    }
}

fn validate(machine: &Machine) -> Result<(), String> {
    let label = machine.metadata.labels.as_ref().and_then(|labels| labels.get(names::CLUSTER_LABEL));
    if label.is_none_or(String::is_empty) {
        return Err(format!("metadata.labels: label {} is required", names::CLUSTER_LABEL));
    }
    match provider_spec(machine) {
        Some(_) => Ok(()),
        None => Err("spec.providerSpec.value: Required value".to_owned()),
    }
}

/// The provider's configuration of a Machine.
pub(crate) fn provider_spec(machine: &Machine) -> Option<&Value> {
    machine.spec.provider_spec.as_ref().and_then(|spec| spec.value.as_ref())
}

/// Whether the Machine waits for this controller when it is deleted.
pub(crate) fn has_finalizer(machine: &Machine) -> bool {
    let finalizers = machine.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|it| it == names::MACHINE_FINALIZER)
}

/// The phase; others also store an empty one before the first.
fn phase(machine: &Machine) -> Option<&MachinePhase> {
    let phase = machine.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.filter(|phase| !phase.as_str().is_empty())
}

/// Steps 7 to 10 of a reconcile, up to the next call of the provider.
pub(crate) fn after_find(
    machine: &Machine,
    found: Result<Option<Instance>, InstanceError>,
    now: Timestamp,
) -> Outcome {
    let write = |change: StatusChange, next| {
        let status = next_status(machine, &change, now).map(Box::new);
        Outcome { object: None, status, next }
    };
    match found {
        Err(InstanceError::RequeueAfter(after, _)) => {
            Outcome { next: Next::Wait(after), ..Outcome::default() }
        }
        Err(error) => {
            let condition = conditions::instance_unknown(&error.to_string());
            let change = StatusChange { conditions: vec![condition], ..StatusChange::default() };
            write(change, Next::Retry(error.to_string()))
        }
        Ok(Some(instance)) => Outcome { next: Next::Update(Box::new(instance)), ..Outcome::default() },
        Ok(None) if is_provisioned(machine) => {
            let message = "can't find created instance".to_owned();
            let change = StatusChange {
                phase: Some(MachinePhase::Failed),
                failure: Some(MachineFailure { reason: None, message }),
                conditions: vec![conditions::instance_missing()],
                ..StatusChange::default()
            };
            Outcome { object: Some(Box::new(with_unknown_instance(machine))), ..write(change, Next::Done) }
        }
        // Creation follows only when the phase is stored, so that what a crash leaves is a Machine that says what it is about to be.
        Ok(None) if phase(machine).is_none() => {
            let change = StatusChange {
                phase: Some(MachinePhase::Provisioning),
                conditions: vec![conditions::instance_not_created(None)],
                ..StatusChange::default()
            };
            write(change, Next::Done)
        }
        Ok(None) => Outcome { next: Next::Create, ..Outcome::default() },
    }
}

/// Step 8: what the refresh of an instance leads to.
pub(crate) fn after_update(
    machine: &Machine,
    updated: Result<Instance, InstanceError>,
    now: Timestamp,
) -> Outcome {
    let instance = match updated {
        Ok(instance) => instance,
        Err(error) => {
            let status = next_status(machine, &StatusChange::default(), now).map(Box::new);
            let next = Next::After(error.requeue_after().unwrap_or(REQUEUE));
            return Outcome { object: None, status, next };
        }
    };
    let object = with_instance(machine, &instance);
    let provisioned = has_provider_id(&object) || !instance.addresses.is_empty();
    let linked = machine.status.as_ref().is_some_and(|status| status.node_ref.is_some());
    let (phase, next) = match (provisioned, linked) {
        (false, _) => (None, Next::After(REQUEUE)),
        (true, false) => (Some(MachinePhase::Provisioned), Next::After(REQUEUE)),
        (true, true) => (Some(MachinePhase::Running), Next::Done),
    };
    let change = StatusChange {
        phase,
        conditions: vec![ConditionType::InstanceExists.holds()],
        instance: Some(instance),
        ..StatusChange::default()
    };
    let status = next_status(machine, &change, now).map(Box::new);
    Outcome { object: Some(Box::new(object)), status, next }
}

/// Step 10: what a creation leads to.
pub(crate) fn after_create(
    machine: &Machine,
    created: Result<Instance, InstanceError>,
    now: Timestamp,
) -> Outcome {
    let error = match created {
        Ok(instance) => {
            let object = Some(Box::new(with_instance(machine, &instance)));
            let change = StatusChange {
                conditions: vec![conditions::instance_not_created(None)],
                instance: Some(instance),
                creation: Some(Ok(())),
                ..StatusChange::default()
            };
            let status = next_status(machine, &change, now).map(Box::new);
            return Outcome { object, status, next: Next::After(REQUEUE) };
        }
        Err(InstanceError::RequeueAfter(after, _)) => {
            return Outcome { next: Next::Wait(after), ..Outcome::default() };
        }
        Err(error) => error,
    };
    let terminal = matches!(error, InstanceError::InvalidConfiguration(_));
    let text = error.to_string();
    let change = StatusChange {
        phase: terminal.then_some(MachinePhase::Failed),
        failure: terminal.then(|| failure_of(&error)),
        conditions: vec![conditions::instance_not_created(Some(&text))],
        creation: Some(Err(text.clone())),
        ..StatusChange::default()
    };
    let status = next_status(machine, &change, now).map(Box::new);
    let object = terminal.then(|| Box::new(with_unknown_instance(machine)));
    Outcome { object, status, next: if terminal { Next::Done } else { Next::Retry(text) } }
}

/// Steps 1 to 4 of a deletion.
pub(crate) fn deletion(machine: &Machine, now: Timestamp) -> Deletion {
    let change = StatusChange { phase: Some(MachinePhase::Deleting), ..StatusChange::default() };
    if let Some(status) = next_status(machine, &change, now) {
        return Deletion::WriteStatus(Box::new(status));
    }
    if !has_finalizer(machine) {
        return Deletion::Rest("the finalizer is removed");
    }
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if !api::crd::machine::is_condition_true(conditions, ConditionType::Drained.as_str()) {
        return Deletion::Rest("the Node is not drained");
    }
    let (_, pre_terminate) = hooks(machine);
    if !pre_terminate.is_empty() {
        return Deletion::Rest("preTerminate hooks are present");
    }
    Deletion::DeleteInstance
}

/// Step 5 of a deletion. A Machine whose configuration was invalid from the beginning has no instance to delete.
pub(crate) fn after_delete(machine: &Machine, deleted: Result<(), InstanceError>) -> AfterDelete {
    match deleted {
        Ok(()) => AfterDelete::Find,
        Err(InstanceError::InvalidConfiguration(_)) if !is_provisioned(machine) => AfterDelete::Find,
        Err(InstanceError::RequeueAfter(after, _)) => AfterDelete::After(after),
        Err(error) => AfterDelete::Retry(error.to_string()),
    }
}

/// Step 6 of a deletion.
pub(crate) fn after_deleted_find(
    machine: &Machine,
    found: Result<Option<Instance>, InstanceError>,
) -> Removal {
    match found {
        Ok(None) => Removal::Remove,
        Ok(Some(_)) => Removal::After(REQUEUE),
        Err(InstanceError::InvalidConfiguration(_)) if !is_provisioned(machine) => Removal::Remove,
        Err(InstanceError::RequeueAfter(after, _)) => Removal::After(after),
        Err(error) => Removal::Retry(error.to_string()),
    }
}

/// Whether a refresh changed what is stored about the instance, apart from the state that the controller derives from it.
pub(crate) fn is_refreshed(machine: &Machine, outcome: &Outcome) -> bool {
    let reported = |status: &MachineStatus| (status.addresses.clone(), status.provider_status.clone());
    let before = machine.status.as_ref().map(reported).unwrap_or_default();
    outcome.object.as_deref().is_some_and(|object| {
        (&object.metadata, &object.spec) != (&machine.metadata, &machine.spec)
            || outcome.status.as_deref().is_some_and(|status| reported(status) != before)
    })
}

/// Whether an instance may be created for `live`, the Machine as the API server has it now, on behalf of `seen`, which was read from a
/// cache. A Machine that is deleted meanwhile, or lost its finalizer, could leave an instance behind that nobody deletes.
pub(crate) fn may_create(seen: &Machine, live: Option<&Machine>) -> bool {
    live.is_some_and(|live| {
        live.metadata.uid == seen.metadata.uid
            && live.metadata.deletion_timestamp.is_none()
            && has_finalizer(live)
            && !is_provisioned(live)
            && phase(live) == Some(&MachinePhase::Provisioning)
    })
}
