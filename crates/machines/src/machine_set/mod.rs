//! Keeps the number of Machines of MachineSets (the controller `machineset_controller`).

use std::sync::Arc;

use api::crd::machine::{Machine, MachineSet};
use controller::{Action, Controller, FieldManager, Index, Informer, ObjectKey, Precondition, RequestError};
use futures_util::StreamExt;
use futures_util::stream::iter;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

pub(crate) mod decide;
pub(crate) mod priority;
#[cfg(test)]
mod tests;

use crate::context::{Context, node};
use crate::error::{ReconcileError, unless_conflict};
use crate::selector::Selector;
use decide::{Members, Scaling, controller_of};

const NAME: &str = "machineset_controller";
const MANAGER: FieldManager = FieldManager::new("shipshape-machineset-controller");

/// MachineSets that are worked on at once.
const WORKERS: usize = 4;
/// Machines that are created or deleted at once. An API server serves many more.
const WRITES_MAX: usize = 16;
/// Length of the part of a Machine's name that is random, and the characters of it, as the API server has them.
const SUFFIX_LENGTH: usize = 5;
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The controller of MachineSets.
pub(crate) struct MachineSetController {
    cx: Context,
    machine_sets: Arc<Informer<MachineSet>>,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    /// Machines by the uid of their controller; those without one by [`ORPHANS`].
    by_controller: Index<Machine>,
    /// Machines by the name of their Node.
    by_node: Arc<Index<Machine>>,
}

/// Value of Machines without a controller. No uid is empty.
const ORPHANS: &str = "";

impl MachineSetController {
    pub(crate) fn new(cx: Context) -> MachineSetController {
        let caches = &cx.caches;
        let (machine_sets, machines, nodes) = (caches.machine_sets(), caches.machines(), caches.nodes());
        let by_controller = machines.index(|machine| {
            let owner = controller_of(&machine.metadata);
            vec![owner.map_or_else(|| ORPHANS.to_owned(), |owner| owner.uid.clone())]
        });
        let by_node = Arc::new(machines.index(|machine| {
            let reference = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
            reference.and_then(|reference| reference.name.clone()).into_iter().collect()
        }));
        MachineSetController { cx, machine_sets, machines, nodes, by_controller, by_node }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        self.nodes.synced().await;
        let (sets, by_node) = (self.machine_sets.clone(), self.by_node.clone());
        let controller = Controller::new(NAME, self.machine_sets.clone())
            .workers(WORKERS)
            .watches(self.machines.clone(), |change| {
                if !decide::concerns_set(change.old.as_deref(), change.new.as_deref()) {
                    return Vec::new();
                }
                let owners = change.sides().filter_map(|machine| decide::machine_set_of(machine));
                let mut owners: Vec<ObjectKey> = owners.collect();
                owners.dedup();
                owners
            })
            .watches(self.nodes.clone(), move |change| {
                if !decide::concerns_status(change.old.as_deref(), change.new.as_deref()) {
                    return Vec::new();
                }
                let machines = by_node.get(&change.key().name);
                machines.iter().filter_map(|machine| decide::machine_set_of(machine)).collect()
            })
            .watches(self.machines.clone(), move |change| {
                // Any change: one that an adoption met is the reason to try it again.
                let orphans: Vec<&Arc<Machine>> =
                    change.sides().filter(|machine| controller_of(&machine.metadata).is_none()).collect();
                if orphans.is_empty() {
                    return Vec::new();
                }
                let selects = |set: &MachineSet| {
                    Selector::parse(&set.spec.selector).is_ok_and(|selector| {
                        orphans.iter().any(|machine| selector.matches(machine.labels()))
                    })
                };
                sets.list().iter().filter(|set| selects(set)).map(|set| ObjectKey::of(&**set)).collect()
            });
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile_or_report(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile_or_report(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let result = self.reconcile(key).await;
        if let Err(error) = &result
            && !error.is_conflict()
            && let Some(set) = self.machine_sets.get(key)
        {
            self.cx.events.warning(&*set, "ReconcileError", error.to_string());
        }
        result
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(set) = self.machine_sets.get(key) else { return Ok(Action::Done) };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        if self.cx.migration
            && let Some(status) = decide::authority(&set, self.cx.clock.now())
        {
            if let Some(status) = status {
                self.write_status(&set, status).await?;
            }
            return Ok(Action::Done);
        }
        let selector = decide::validate(&set)
            .map_err(|message| ReconcileError::Failed(format!("MachineSet {key} is invalid: {message}")))?;
        let orphans = self.members(&set, &selector).orphans;
        if !orphans.is_empty() && self.is_current(&set).await? {
            for orphan in orphans {
                self.adopt(&set, &orphan).await;
            }
        }
        let synced = self.scale(&set, &selector).await;
        // The status is written whether or not the number could be reached.
        let machines = self.members(&set, &selector).owned;
        let now = self.cx.clock.now();
        let status = decide::next_status(&set, &selector, &machines, |name| node(&self.nodes, name), now);
        let again = decide::look_again(&set, &status);
        self.write_status(&set, status).await?;
        synced?;
        Ok(again.map_or(Action::Done, Action::After))
    }

    fn members(&self, set: &MachineSet, selector: &Selector) -> Members {
        let mut machines = self.by_controller.get(set.metadata.uid.as_deref().unwrap_or_default());
        machines.extend(self.by_controller.get(ORPHANS));
        decide::members(set, selector, machines)
    }

    /// Whether the MachineSet is in the API server as it is in the cache. What follows from an older one could be wrong for good: a
    /// Machine that is deleted does not come back.
    async fn is_current(&self, set: &MachineSet) -> Result<bool, ReconcileError> {
        let name = set.name_any();
        let live = self.machine_sets.api().get_opt(&name).await;
        let live =
            live.map_err(|error| ReconcileError::request("get", format!("MachineSet {name}"), error))?;
        let Some(live) = live else { return Ok(false) };
        let current = live.metadata.uid == set.metadata.uid
            && live.metadata.generation == set.metadata.generation
            && live.metadata.deletion_timestamp.is_none();
        if !current {
            self.machine_sets.remember(live);
        }
        Ok(current)
    }

    /// Adopts a Machine. One that cannot be adopted is not counted.
    async fn adopt(&self, set: &MachineSet, orphan: &Machine) {
        let wanted = decide::adopted(set, orphan);
        let adopted = MANAGER.patch(&self.machines, orphan, &wanted, Precondition::Unchanged).await;
        if let Err(error) = adopted {
            tracing::warn!("Machine {} was not adopted: {error}", orphan.name_any());
        }
    }

    async fn scale(&self, set: &MachineSet, selector: &Selector) -> Result<(), ReconcileError> {
        let scaling = |machines: &[Arc<Machine>]| {
            decide::scaling(set, machines, self.cx.clock.now()).map_err(ReconcileError::Failed)
        };
        if scaling(&self.members(set, selector).owned)? == Scaling::None || !self.is_current(set).await? {
            return Ok(());
        }
        if matches!(scaling(&self.members(set, selector).owned)?, Scaling::Delete(_)) {
            // Others delete Machines too: if one of those were counted as present, one too many would be deleted.
            self.machines.catch_up().await;
        }
        match scaling(&self.members(set, selector).owned)? {
            Scaling::None => Ok(()),
            Scaling::Create(count) => self.create(set, count).await,
            Scaling::Delete(machines) => self.delete(&machines).await,
        }
    }

    async fn create(&self, set: &MachineSet, count: usize) -> Result<(), ReconcileError> {
        let prefix = decide::name_prefix(set);
        let names = (0..count).map(|_| random_suffix().map(|suffix| format!("{prefix}{suffix}")));
        let names = names.collect::<Result<Vec<String>, ReconcileError>>()?;
        let create = |name: String| {
            let machine = decide::new_machine(set, name);
            async move { MANAGER.create(&self.machines, &machine).await }
        };
        let created: Vec<_> = iter(names).map(create).buffer_unordered(WRITES_MAX).collect().await;
        let errors: Vec<RequestError> = created.into_iter().filter_map(Result::err).collect();
        if errors.iter().any(RequestError::is_ambiguous) {
            // Before the number is looked at again, the cache has to know whether they exist.
            self.machines.catch_up().await;
        }
        if errors.is_empty() {
            return Ok(());
        }
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err(ReconcileError::Failed(errors.join("; ")))
    }

    async fn delete(&self, machines: &[Arc<Machine>]) -> Result<(), ReconcileError> {
        let delete = |machine: &Arc<Machine>| {
            let machine = machine.clone();
            async move { MANAGER.delete(&self.machines, &*machine).await }
        };
        let deleted = iter(machines.iter().map(delete)).buffer_unordered(WRITES_MAX);
        let deleted: Vec<_> = deleted.collect().await;
        deleted.into_iter().find_map(Result::err).map_or(Ok(()), |error| Err(error.into()))
    }

    async fn write_status(
        &self,
        set: &MachineSet,
        status: api::crd::machine::MachineSetStatus,
    ) -> Result<(), ReconcileError> {
        let wanted = MachineSet { status: Some(status), ..set.clone() };
        MANAGER.patch_status(&self.machine_sets, set, &wanted, Precondition::Unchanged).await?;
        Ok(())
    }
}

fn random_suffix() -> Result<String, ReconcileError> {
    let mut bytes = [0_u8; SUFFIX_LENGTH];
    getrandom::fill(&mut bytes)
        .map_err(|error| ReconcileError::Failed(format!("there are no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| char::from(SUFFIX_CHARACTERS[usize::from(*byte) % 27])).collect())
}
