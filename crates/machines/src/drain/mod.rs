//! Drains the Nodes of Machines that are being deleted (the controller `machine-drain-controller`).

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{Condition, Machine, set_condition, whole_seconds};
use controller::{
    Action, Backoff, Controller, FieldManager, Index, Informer, ObjectKey, Precondition, RetryRate,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use kubelink::ProgressSink;
use kubelink::cordon::{cordon, uncordon};
use kubelink::drain::drain;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) mod decide;
#[cfg(test)]
mod tests;

use crate::conditions;
use crate::context::Context;
use crate::error::{ReconcileError, unless_conflict};
use decide::{CORDON_REQUEUE, Step};

const NAME: &str = "machine-drain-controller";
const MANAGER: FieldManager = FieldManager::new("shipshape-machine-drain-controller");

/// Nodes that are drained at once. Those of the control plane take turns in any case.
const WORKERS: usize = 10;
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(1000) };
const RETRIES: RetryRate = RetryRate { per_second: 10.0, burst: 100 };

/// The controller of drains.
pub(crate) struct DrainController {
    cx: Context,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    /// Nodes by the Machine for whose drain they are cordoned.
    cordoned: Index<Node>,
    /// Held while one Node of the control plane is checked and cordoned.
    control_plane: Mutex<()>,
}

impl DrainController {
    pub(crate) fn new(cx: Context) -> DrainController {
        let (machines, nodes) = (cx.caches.machines(), cx.caches.nodes());
        let cordoned = nodes
            .index(|node| decide::cordoned_for(node).map(|(key, _)| key.to_string()).into_iter().collect());
        DrainController { cx, machines, nodes, cordoned, control_plane: Mutex::default() }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let namespace = self.cx.caches.namespace().to_owned();
        let controller = Controller::new(NAME, self.machines.clone())
            .workers(WORKERS)
            .backoff(BACKOFF)
            .retry_rate(RETRIES)
            .watches(self.nodes.clone(), move |change| {
                let cordoned = change.new.as_ref().and_then(|node| decide::cordoned_for(node));
                let machine = cordoned.map(|(key, _)| key).filter(|key| key.namespace() == namespace);
                machine.into_iter().collect()
            });
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let machine = self.machines.get(key);
        self.release(key, machine.as_deref()).await?;
        let Some(machine) = machine else { return Ok(Action::Done) };
        match decide::step(&machine) {
            Step::Rest(_) => Ok(Action::Done),
            Step::Skip => {
                self.cx.events.normal(&*machine, "DrainSkipped", "Node drain skipped");
                self.record(&machine, conditions::drained("Node drain skipped")).await?;
                Ok(Action::Done)
            }
            Step::Blocked(hooks) => {
                self.cx.events.normal(&*machine, "DrainBlocked", decide::blocked_message(hooks));
                Ok(Action::Done)
            }
            Step::Drain { node, uid } => self.drain(&machine, node, uid).await,
        }
    }

    async fn drain(
        &self,
        machine: &Machine,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Action, ReconcileError> {
        let nodes: Api<Node> = Api::all(self.cx.client.clone());
        let found = nodes.get_opt(name).await;
        let found = found.map_err(|error| ReconcileError::request("get", format!("Node {name}"), error))?;
        // A Node of the same name that belongs to another instance is not drained for this Machine.
        let found = found.filter(|node| uid.is_none() || node.metadata.uid.as_deref() == uid);
        let Some(node) = found else { return self.succeed(machine, name).await };
        match decide::deadline(machine) {
            Ok(Some(deadline)) if deadline <= self.cx.clock.now() => {
                let message = format!("The drain of node {name} was given up at its deadline");
                self.cx.events.warning(machine, "DrainDeadlineExceeded", message.clone());
                self.record(machine, conditions::drained(&message)).await?;
                return Ok(Action::Done);
            }
            Ok(_) => {}
            Err(message) => self.cx.events.warning(machine, "InvalidDrainDeadline", message),
        }
        let options = decide::options(machine, &node);
        self.cx.events.normal(machine, "DrainProceeds", format!("Node drain proceeds on node {name}"));
        if let Err(refused) = self.cordon(&node, &options.holder).await {
            self.report_requeue(machine, &refused);
            self.record(machine, conditions::drain_error(refused)).await?;
            return Ok(Action::After(CORDON_REQUEUE));
        }
        let (progress, cancel) = (ProgressSink::disabled(), CancellationToken::new());
        match drain(&self.cx.link(), name, &options, &progress, &cancel).await {
            Ok(_) => self.succeed(machine, name).await,
            Err(error) => {
                let message = decide::error_message(&error);
                self.report_requeue(machine, &message);
                self.record(machine, conditions::drain_error(message.clone())).await?;
                Err(ReconcileError::Failed(message))
            }
        }
    }

    fn report_requeue(&self, machine: &Machine, error: &str) {
        self.cx.events.normal(machine, "DrainRequeued", format!("Node drain requeued: {error}"));
    }

    /// Cordons the Node, if it is its turn.
    async fn cordon(&self, node: &Node, holder: &kubelink::cordon::Holder) -> Result<(), String> {
        let turn = match decide::is_control_plane(node) {
            true => Some(self.control_plane.lock().await),
            false => None,
        };
        if turn.is_some() {
            self.nodes.catch_up().await;
            decide::may_cordon(node, &self.nodes.list())?;
        }
        let cordoned = cordon(&self.cx.link(), &node.name_any(), holder).await;
        drop(turn);
        cordoned.map(drop).map_err(|error| error.to_string())
    }

    async fn succeed(&self, machine: &Machine, node: &str) -> Result<Action, ReconcileError> {
        self.cx.events.normal(machine, "DrainSucceeded", "Node drain succeeded");
        self.cx.events.normal(machine, "Deleted", format!("Node {node:?} drained"));
        self.record(machine, conditions::drained("Drain finished successfully")).await?;
        Ok(Action::Done)
    }

    /// Sets the condition in the Machine as it is now: a drain takes a while.
    async fn record(&self, seen: &Machine, condition: Condition) -> Result<(), ReconcileError> {
        let machine = self.machines.get(&ObjectKey::of(seen));
        let Some(machine) = machine.filter(|machine| machine.metadata.uid == seen.metadata.uid) else {
            return Ok(());
        };
        let now = self.cx.clock.now();
        let mut wanted = Machine::clone(&machine);
        let status = wanted.status.get_or_insert_default();
        if set_condition(&mut status.conditions, condition, now) {
            status.last_updated = Some(whole_seconds(now));
            MANAGER.patch_status(&self.machines, &machine, &wanted, Precondition::Unchanged).await?;
        }
        Ok(())
    }

    /// Uncordons Nodes that were cordoned for a Machine of this name that is gone, such as one whose finalizer was removed by hand.
    async fn release(&self, key: &ObjectKey, machine: Option<&Machine>) -> Result<(), ReconcileError> {
        for node in self.cordoned.get(&key.to_string()) {
            let Some((_, uid)) = decide::cordoned_for(&node) else { continue };
            if machine.is_some_and(|machine| machine.metadata.uid.as_deref() == Some(uid)) {
                continue;
            }
            let uncordoned = uncordon(&self.cx.link(), &node.name_any(), &decide::holder_id(key, uid)).await;
            match uncordoned {
                Ok(_) => {}
                Err(error) if matches!(error.failure, kubelink::Failure::NotFound { .. }) => {}
                Err(error) => return Err(ReconcileError::Failed(error.to_string())),
            }
        }
        Ok(())
    }
}
