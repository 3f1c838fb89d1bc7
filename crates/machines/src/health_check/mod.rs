//! Remediates unhealthy Machines (the controller `machinehealthcheck`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::crd::machine::{Machine, MachineHealthCheck, names, set_condition};
use controller::{Action, Change, Controller, FieldManager, Index, Informer, ObjectKey, Precondition};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

mod act;
pub(crate) mod decide;
pub(crate) mod external;
#[cfg(test)]
mod tests;

use crate::context::{Context, node};
use crate::error::{ReconcileError, unless_conflict};
use crate::selector::Selector;
use decide::{Evaluation, NodeState, Policy, Remediation, Target, Verdict};

const NAME: &str = "machinehealthcheck";
const MANAGER: FieldManager = FieldManager::new("shipshape-machine-healthcheck-controller");

/// MachineHealthChecks that are worked on at once.
const WORKERS: usize = 4;
/// Time after which the event about a restriction is repeated.
const EVENT_EVERY: Duration = Duration::from_secs(600);

/// The controller of MachineHealthChecks.
pub(crate) struct HealthCheckController {
    cx: Context,
    checks: Arc<Informer<MachineHealthCheck>>,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    /// Machines by the name of their Node.
    by_node: Arc<Index<Machine>>,
    memory: Mutex<HashMap<ObjectKey, Memory>>,
}

/// What events were recorded about a MachineHealthCheck. Forgotten with the process, which repeats an event at most.
#[derive(Debug, Default)]
struct Memory {
    restricted: Option<tokio::time::Instant>,
    /// The uids of the Machines that were found unhealthy.
    unhealthy: std::collections::HashSet<String>,
}

impl HealthCheckController {
    pub(crate) fn new(cx: Context) -> HealthCheckController {
        let caches = &cx.caches;
        let (checks, machines, nodes) = (caches.health_checks(), caches.machines(), caches.nodes());
        let by_node =
            Arc::new(machines.index(|machine| node_name(machine).map(str::to_owned).into_iter().collect()));
        HealthCheckController { cx, checks, machines, nodes, by_node, memory: Mutex::default() }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let (for_machines, for_nodes, by_node) =
            (self.checks.clone(), self.checks.clone(), self.by_node.clone());
        let controller = Controller::new(NAME, self.checks.clone())
            .workers(WORKERS)
            .watches(self.machines.clone(), move |change| {
                if !decide::concerns_health(change.old.as_deref(), change.new.as_deref()) {
                    return Vec::new();
                }
                checks_of(&for_machines, change.sides().map(|machine| &**machine))
            })
            .watches(self.nodes.clone(), move |change| {
                if !concerns_health(change) {
                    return Vec::new();
                }
                match by_node.get(&change.key().name).as_slice() {
                    [machine] => checks_of(&for_nodes, std::iter::once(&**machine)),
                    _ => Vec::new(),
                }
            });
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(check) = self.checks.get(key) else {
            self.cx.metrics.check_gone(key);
            self.memory(|memory| memory.remove(key));
            return Ok(Action::Done);
        };
        if decide::is_paused(&check) {
            return Ok(Action::Done);
        }
        let invalid = |message: String| {
            self.cx.events.warning(&*check, "ReconcileError", message.clone());
            ReconcileError::Failed(format!("MachineHealthCheck {key} is invalid: {message}"))
        };
        let selector = Selector::parse(&check.spec.selector).map_err(invalid)?;
        let policy = decide::policy(&check).map_err(invalid)?;
        let targets = self.targets(key, &selector);
        let now = self.cx.clock.now();
        let evaluation = Evaluation::new(&check, &policy, &targets, now);
        let allowed = evaluation.allowed();
        self.cx.metrics.checked(key, targets.len(), allowed.is_err());
        self.report_unhealthy(key, &targets, &evaluation);
        let mut wanted = MachineHealthCheck::clone(&check);
        wanted.status = Some(evaluation.status(&check, now));
        let written = MANAGER.patch_status(&self.checks, &check, &wanted, Precondition::Unchanged).await?;
        let check = written.unwrap_or(check);
        self.report_restriction(key, &check, allowed.as_ref().err());
        if allowed.is_ok() {
            self.remediate(key, &check, &policy, &targets, &evaluation).await?;
        }
        Ok(evaluation.look_again().map_or(Action::Done, Action::After))
    }

    fn targets(&self, key: &ObjectKey, selector: &Selector) -> Vec<Target> {
        let machines = self.machines.in_namespace(key.namespace()).into_iter();
        let selected = machines.filter(|machine| selector.matches(machine.labels()));
        selected.map(|machine| Target { node: self.node_state(&machine), machine }).collect()
    }

    fn node_state(&self, machine: &Machine) -> NodeState {
        match node_name(machine) {
            None => NodeState::None,
            Some(name) => node(&self.nodes, name).map_or(NodeState::Missing, NodeState::Found),
        }
    }

    /// Remediates every target that needs it, and withdraws the requests for those that are healthy.
    async fn remediate(
        &self,
        key: &ObjectKey,
        check: &MachineHealthCheck,
        policy: &Policy,
        targets: &[Target],
        evaluation: &Evaluation,
    ) -> Result<(), ReconcileError> {
        let mut conditions = Vec::new();
        let mut errors: Vec<String> = Vec::new();
        let external = match &check.spec.remediation_template {
            None => None,
            Some(reference) => {
                Some(act::External::resolve(&self.cx.client, key.namespace(), reference).await)
            }
        };
        for (target, verdict) in targets.iter().zip(&evaluation.verdicts) {
            let machine = &target.machine;
            let result = match (verdict, &external) {
                (Verdict::Remediate, Some(Ok(external))) => match self.live_target(policy, machine).await {
                    Ok(Some(live)) => external.request(&live, &mut conditions).await,
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                },
                (Verdict::Remediate, Some(Err(error))) => Err(error.clone()),
                (Verdict::Remediate, None) => self.remediate_one(key, check, policy, machine).await,
                (Verdict::Healthy, Some(Ok(external))) => external.withdraw(machine).await,
                _ => Ok(()),
            };
            errors.extend(result.err());
        }
        if let Some(Err(error)) = &external {
            conditions.push(crate::conditions::remediation_template_missing(error.clone()));
        }
        self.write_conditions(key, check, conditions).await?;
        errors.dedup();
        if errors.is_empty() { Ok(()) } else { Err(ReconcileError::Failed(errors.join("; "))) }
    }

    /// Remediates a Machine, if it needs it by what the API server has now.
    async fn remediate_one(
        &self,
        key: &ObjectKey,
        check: &MachineHealthCheck,
        policy: &Policy,
        seen: &Machine,
    ) -> Result<(), String> {
        let name = seen.name_any();
        match decide::remediation(check, seen) {
            // Requests are made by the caller.
            Remediation::Request(_) => Ok(()),
            Remediation::SkipWithoutController => {
                let message = format!("Machine {name} has no controller owner that would replace it");
                self.cx.events.normal(seen, "SkippedNoController", message);
                Ok(())
            }
            Remediation::Annotate { present: true } => Ok(()),
            Remediation::Annotate { present: false } => {
                let Some(live) = self.live_target(policy, seen).await? else { return Ok(()) };
                let mut wanted = Machine::clone(&live);
                wanted.annotations_mut().insert(names::EXTERNAL_REMEDIATION.to_owned(), String::new());
                match MANAGER.patch(&self.machines, &*live, &wanted, Precondition::Unchanged).await {
                    Ok(_) => {
                        let message = "Requested external remediation";
                        self.cx.events.normal(seen, "ExternalAnnotationAdded", message);
                        Ok(())
                    }
                    Err(error) => {
                        self.cx.events.warning(seen, "ExternalAnnotationFailed", error.to_string());
                        Err(error.to_string())
                    }
                }
            }
            Remediation::Delete => self.delete(key, policy, seen).await,
        }
    }

    /// The Machine in the API server, if that and its Node there still need remediation: both may have recovered since they were cached.
    async fn live_target(&self, policy: &Policy, seen: &Machine) -> Result<Option<Arc<Machine>>, String> {
        let name = seen.name_any();
        let failed = |error: kube::Error| format!("failed to get Machine {name}: {error}");
        let Some(live) = self.machines.api().get_opt(&name).await.map_err(failed)? else { return Ok(None) };
        if live.metadata.uid != seen.metadata.uid || live.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let node = match node_name(&live) {
            None => NodeState::None,
            Some(node) => {
                let nodes: Api<Node> = Api::all(self.cx.client.clone());
                let found = nodes.get_opt(node).await;
                let found = found.map_err(|error| format!("failed to get Node {node}: {error}"))?;
                found.map_or(NodeState::Missing, |node| NodeState::Found(Arc::new(node)))
            }
        };
        let target = Target { machine: Arc::new(live), node };
        let remediate = decide::verdict(&target, policy, self.cx.clock.now()) == Verdict::Remediate;
        Ok(remediate.then_some(target.machine))
    }

    async fn delete(&self, key: &ObjectKey, policy: &Policy, seen: &Machine) -> Result<(), String> {
        let Some(live) = self.live_target(policy, seen).await? else { return Ok(()) };
        let name = live.name_any();
        match MANAGER.delete(&self.machines, &*live).await {
            Ok(()) => {
                self.cx.events.normal(seen, "MachineDeleted", format!("Deleted unhealthy Machine {name}"));
                self.cx.metrics.remediated(key);
                Ok(())
            }
            Err(error) => {
                self.cx.events.warning(seen, "MachineDeletionFailed", error.to_string());
                Err(error.to_string())
            }
        }
    }

    async fn write_conditions(
        &self,
        key: &ObjectKey,
        check: &MachineHealthCheck,
        conditions: Vec<api::crd::machine::Condition>,
    ) -> Result<(), ReconcileError> {
        let mut wanted = check.clone();
        let status = wanted.status.get_or_insert_default();
        let now = self.cx.clock.now();
        for condition in conditions {
            set_condition(&mut status.conditions, condition, now);
        }
        let read = self.checks.get(key).filter(|read| read.metadata.uid == check.metadata.uid);
        if read.is_some() {
            MANAGER.patch_status(&self.checks, check, &wanted, Precondition::Unchanged).await?;
        }
        Ok(())
    }

    /// Records an event when a Machine is found unhealthy, once for each time that it becomes so.
    fn report_unhealthy(&self, key: &ObjectKey, targets: &[Target], evaluation: &Evaluation) {
        let is_unhealthy = |verdict: &Verdict| matches!(verdict, Verdict::CheckAfter(_) | Verdict::Remediate);
        let unhealthy = targets.iter().zip(&evaluation.verdicts).filter(|(_, verdict)| is_unhealthy(verdict));
        let unhealthy: HashMap<String, &Target> =
            unhealthy.map(|(target, _)| (target.machine.uid().unwrap_or_default(), target)).collect();
        let known = self.memory(|memory| {
            let memory = memory.entry(key.clone()).or_default();
            std::mem::replace(&mut memory.unhealthy, unhealthy.keys().cloned().collect())
        });
        for (uid, target) in unhealthy {
            if !known.contains(&uid) {
                let name = target.machine.name_any();
                let message = format!(
                    "Machine {name} has unhealthy node {}",
                    node_name(&target.machine).unwrap_or_default()
                );
                self.cx.events.normal(&*target.machine, "DetectedUnhealthy", message);
            }
        }
    }

    /// Records an event when remediation becomes restricted, and every ten minutes while it is.
    fn report_restriction(&self, key: &ObjectKey, check: &MachineHealthCheck, message: Option<&String>) {
        let due = self.memory(|memory| {
            let memory = memory.entry(key.clone()).or_default();
            if message.is_none() {
                memory.restricted = None;
                return false;
            }
            let due = memory.restricted.is_none_or(|at| at.elapsed() >= EVENT_EVERY);
            if due {
                memory.restricted = Some(tokio::time::Instant::now());
            }
            due
        });
        if let Some(message) = message.filter(|_| due) {
            self.cx.events.warning(check, "RemediationRestricted", message.clone());
        }
    }

    fn memory<T>(&self, change: impl FnOnce(&mut HashMap<ObjectKey, Memory>) -> T) -> T {
        change(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn node_name(machine: &Machine) -> Option<&str> {
    let reference = machine.status.as_ref()?.node_ref.as_ref()?;
    reference.name.as_deref().filter(|name| !name.is_empty())
}

/// The MachineHealthChecks that select one of these Machines.
fn checks_of<'a>(
    checks: &Informer<MachineHealthCheck>,
    machines: impl Iterator<Item = &'a Machine>,
) -> Vec<ObjectKey> {
    let machines: Vec<&Machine> = machines.collect();
    let selects = |check: &MachineHealthCheck| {
        Selector::parse(&check.spec.selector)
            .is_ok_and(|selector| machines.iter().any(|machine| selector.matches(machine.labels())))
    };
    checks.list().iter().filter(|check| selects(check)).map(|check| ObjectKey::of(&**check)).collect()
}

/// Whether a change of a Node can change a verdict. Kubelets write their Nodes every few minutes only to show that they live.
fn concerns_health(change: &Change<Node>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let conditions = |node: &Node| -> Vec<(String, String)> {
        let list = node.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
        list.into_iter().map(|it| (it.type_.clone(), it.status.clone())).collect()
    };
    old.metadata.uid != new.metadata.uid || conditions(old) != conditions(new)
}
