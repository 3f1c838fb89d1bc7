//! Creates and deletes the instances of Machines (the controller `machine-controller`).

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{Machine, MachinePhase, MachineStatus, names};
use cloud::{Instance, InstanceError, InstanceProvider, InstanceRequest};
use controller::{Action, Backoff, Controller, FieldManager, Informer, ObjectKey, Precondition};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

mod act;
pub(crate) mod decide;
mod request;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use crate::context::{Context, node};
use crate::error::{ReconcileError, unless_conflict};
use crate::metrics::InstanceCall;
use decide::{AfterDelete, Deletion, Next, Outcome, Removal, Start};
use request::ClusterTags;

const NAME: &str = "machine-controller";
const MANAGER: FieldManager = FieldManager::new("shipshape-machine-controller");

/// Instances that are worked on at once.
const WORKERS: usize = 16;
/// Longest time that a provider may take for one call, which itself waits for nothing.
const CALL_MAX: Duration = Duration::from_secs(120);

/// The controller of Machines.
#[derive(Clone)]
pub(crate) struct MachineController {
    cx: Context,
    provider: Arc<dyn InstanceProvider>,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    secrets: Arc<Informer<Secret>>,
    tags: Arc<ClusterTags>,
    resync: Duration,
}

impl MachineController {
    pub(crate) fn new(
        cx: Context,
        provider: Arc<dyn InstanceProvider>,
        resync: Duration,
    ) -> MachineController {
        let caches = &cx.caches;
        let (machines, nodes, secrets) = (caches.machines(), caches.nodes(), caches.secrets());
        let tags = Arc::new(ClusterTags::default());
        MachineController { cx, provider, machines, nodes, secrets, tags, resync }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::join!(self.machines.synced(), self.nodes.synced(), self.secrets.synced());
        let backoff = Backoff::default();
        let controller = Controller::new(NAME, self.machines.clone()).workers(WORKERS).backoff(backoff);
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(machine) = self.machines.get(key) else { return Ok(Action::Done) };
        match decide::start(&machine, self.cx.migration, self.cx.clock.now()) {
            Start::Rest(why) => {
                tracing::debug!("Nothing to do: {why}");
                Ok(Action::Done)
            }
            Start::WriteStatus(status) => self.write_status(&machine, *status).await.map(|_| Action::Done),
            Start::Invalid(message) => {
                self.cx.events.warning(&*machine, "FailedValidate", message.clone());
                Err(ReconcileError::Failed(format!("Machine {key} is invalid: {message}")))
            }
            Start::AddFinalizer => {
                let mut wanted = Machine::clone(&machine);
                wanted.finalizers_mut().push(names::MACHINE_FINALIZER.to_owned());
                MANAGER.patch(&self.machines, &machine, &wanted, Precondition::Unchanged).await?;
                Ok(Action::Done)
            }
            Start::Find => self.provision(&machine).await,
            Start::Delete => self.delete(&machine).await,
        }
    }

    /// Finds, refreshes or creates the instance.
    async fn provision(&self, machine: &Machine) -> Result<Action, ReconcileError> {
        let request = self.request(machine).await;
        let found = match &request {
            Ok(request) => act::bounded(CALL_MAX, self.provider.find(request)).await,
            Err(error) => Err(error.clone()),
        };
        let mut outcome = decide::after_find(machine, found, self.cx.clock.now());
        let mut refreshed = false;
        match std::mem::take(&mut outcome.next) {
            Next::Update(found) => {
                let updated = match &request {
                    Ok(request) => act::bounded(CALL_MAX, self.provider.update(request, &found)).await,
                    Err(error) => Err(error.clone()),
                };
                self.report(InstanceCall::Update, machine, updated.as_ref().err());
                outcome = decide::after_update(machine, updated, self.cx.clock.now());
                refreshed = decide::is_refreshed(machine, &outcome);
            }
            Next::Create => {
                let Some(created) = self.create(machine, request).await? else { return Ok(Action::Done) };
                self.report(InstanceCall::Create, machine, created.as_ref().err());
                if let Ok(instance) = &created {
                    let message = format!("Created instance {}", instance.provider_id);
                    self.cx.events.normal(machine, "Create", message);
                }
                outcome = decide::after_create(machine, created, self.cx.clock.now());
            }
            next => outcome.next = next,
        }
        let written = self.write(machine, outcome).await?;
        if refreshed {
            self.cx.events.normal(machine, "Update", "Updated the Machine from its instance");
        }
        Ok(written)
    }

    /// Creates the instance; `None` if the Machine is no longer as it was seen.
    async fn create(
        &self,
        machine: &Machine,
        request: Result<InstanceRequest, InstanceError>,
    ) -> Result<Option<Result<Instance, InstanceError>>, ReconcileError> {
        let name = machine.name_any();
        let live = self.machines.api().get_opt(&name).await;
        let live = live.map_err(|error| ReconcileError::request("get", format!("Machine {name}"), error))?;
        if !decide::may_create(machine, live.as_ref()) {
            return Ok(None);
        }
        let request = match request {
            Ok(request) => self.with_user_data(machine, request).await,
            Err(error) => Err(error),
        };
        Ok(Some(match request {
            Ok(request) => act::bounded(CALL_MAX, self.provider.create(&request)).await,
            Err(error) => Err(error),
        }))
    }

    async fn delete(&self, machine: &Machine) -> Result<Action, ReconcileError> {
        match decide::deletion(machine, self.cx.clock.now()) {
            Deletion::WriteStatus(status) => {
                return self.write_status(machine, *status).await.map(|_| Action::Done);
            }
            Deletion::Rest(why) => {
                tracing::debug!("The deletion waits: {why}");
                return Ok(Action::Done);
            }
            Deletion::DeleteInstance => {}
        }
        let request = self.request(machine).await;
        let deleted = match &request {
            Ok(request) => act::bounded(CALL_MAX, self.provider.delete(request)).await,
            Err(error) => Err(error.clone()),
        };
        self.report(InstanceCall::Delete, machine, deleted.as_ref().err());
        if deleted.is_ok() {
            self.cx.events.normal(machine, "Delete", "Requested the deletion of the instance");
        }
        match decide::after_delete(machine, deleted) {
            AfterDelete::After(after) => return Ok(Action::After(after)),
            AfterDelete::Retry(error) => return Err(ReconcileError::Failed(error)),
            AfterDelete::Find => {}
        }
        let found = match &request {
            Ok(request) => act::bounded(CALL_MAX, self.provider.find(request)).await,
            Err(error) => Err(error.clone()),
        };
        match decide::after_deleted_find(machine, found) {
            Removal::After(after) => Ok(Action::After(after)),
            Removal::Retry(error) => Err(ReconcileError::Failed(error)),
            Removal::Remove => {
                self.delete_node(machine).await?;
                let mut wanted = machine.clone();
                let finalizers = wanted.metadata.finalizers.take().unwrap_or_default();
                let kept: Vec<String> =
                    finalizers.into_iter().filter(|it| it != names::MACHINE_FINALIZER).collect();
                wanted.metadata.finalizers = (!kept.is_empty()).then_some(kept);
                match MANAGER.patch(&self.machines, machine, &wanted, Precondition::Unchanged).await {
                    Err(error) if error.is_not_found() => Ok(Action::Done),
                    other => other.map(|_| Action::Done).map_err(Into::into),
                }
            }
        }
    }

    /// Deletes the Node of the Machine, unless another Node has its name by now.
    async fn delete_node(&self, machine: &Machine) -> Result<(), ReconcileError> {
        let reference = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
        let Some(reference) = reference else { return Ok(()) };
        let Some(found) = node(&self.nodes, reference.name.as_deref().unwrap_or_default()) else {
            return Ok(());
        };
        if reference.uid.is_none() || reference.uid == found.metadata.uid {
            MANAGER.delete(&self.nodes, &*found).await?;
        }
        Ok(())
    }

    /// Writes an outcome: metadata and spec first, then the status.
    async fn write(&self, machine: &Machine, outcome: Outcome) -> Result<Action, ReconcileError> {
        let mut read = Arc::new(machine.clone());
        if let Some(wanted) = outcome.object
            && let Some(written) =
                MANAGER.patch(&self.machines, machine, &*wanted, Precondition::Unchanged).await?
        {
            read = written;
        }
        if let Some(status) = outcome.status {
            self.write_status(&read, *status).await?;
        }
        match outcome.next {
            Next::Done => Ok(Action::After(act::spread(self.resync, machine))),
            Next::After(after) => Ok(Action::After(after)),
            Next::Wait(after) => Ok(Action::Wait(after)),
            Next::Retry(error) => Err(ReconcileError::Failed(error)),
            Next::Update(_) | Next::Create => Ok(Action::After(Duration::ZERO)),
        }
    }

    async fn write_status(&self, read: &Machine, status: MachineStatus) -> Result<(), ReconcileError> {
        let before = read.status.as_ref().and_then(|status| status.phase.clone());
        let after = status.phase.clone();
        let wanted = Machine { status: Some(status), ..read.clone() };
        MANAGER.patch_status(&self.machines, read, &wanted, Precondition::Unchanged).await?;
        if let Some(phase) = after.filter(|after| before.as_ref() != Some(after))
            && phase != MachinePhase::Deleting
        {
            let created = read.creation_timestamp().map(|time| time.0);
            let age = created.map(|created| self.cx.clock.now().duration_since(created));
            let age = age.filter(jiff::SignedDuration::is_positive).unwrap_or_default();
            self.cx.metrics.phase_reached(phase.as_str(), age.unsigned_abs());
        }
        Ok(())
    }

    /// Reports a failed call of the provider.
    fn report(&self, call: InstanceCall, machine: &Machine, error: Option<&InstanceError>) {
        let Some(error) = error.filter(|error| error.requeue_after().is_none()) else { return };
        let reason = match call {
            InstanceCall::Create => "FailedCreate",
            InstanceCall::Update => "FailedUpdate",
            InstanceCall::Delete => "FailedDelete",
        };
        self.cx.events.warning(machine, reason, error.to_string());
        self.cx.metrics.call_failed(call, machine, error.reason().unwrap_or("Unavailable"));
    }
}
