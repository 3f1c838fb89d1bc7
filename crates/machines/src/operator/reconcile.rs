//! The one reconcile of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::clock::SharedClock;
use api::crd::machine::{Machine, MachineSet};
use controller::{
    Action, Backoff, Controller, EventRecorder, FieldManager, Informer, Informers, Object, ObjectKey,
    Precondition,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ClusterResourceScope, DynamicObject};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::OperatorSettings;
use super::configuration::{Configuration, ConfigurationSources, RolloutConfiguration, configuration};
use super::desired::{self, CONTROLLERS, TERMINATION_HANDLER};
use super::keep::Keeper;
use super::metrics::{OperatorMetrics, Source};
use super::rollout::{Rollout, of_daemon_set, of_deployment};
use super::sources::{CLUSTER_OPERATOR, Sources};
use super::status::{self, Outcome};
use crate::context::CONFLICT_REQUEUE;
use crate::error::ReconcileError;
use crate::selector::Selector;
use crate::webhooks::WebhookEndpoint;
use crate::webhooks::registration::{self, WebhookRole};

/// The name under which everything is written.
const MANAGER: FieldManager = FieldManager::new("machine-api-operator");
/// Delays after failures, as OpenShift's operator.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_secs(82) };
/// Machines that must run before the operator is available for the first time, if as many are wanted.
const RUNNING_MIN: usize = 2;

/// The operator while the same definitions are served.
pub(super) struct Operator {
    settings: OperatorSettings,
    clock: SharedClock,
    events: EventRecorder,
    sources: Sources,
    keeper: Keeper,
    /// The certificates in the webhook configurations, by webhook, so that they survive a deletion.
    bundles: Mutex<BTreeMap<String, Value>>,
    /// The status, where there is no ClusterOperator to keep it.
    status: Mutex<Value>,
}

/// What a pass has found, and when to look again.
struct Pass {
    outcome: Outcome,
    again: Action,
}

impl Operator {
    pub(super) fn new(
        informers: &Informers,
        served: BTreeSet<&'static str>,
        settings: OperatorSettings,
        clock: SharedClock,
        events: EventRecorder,
    ) -> Operator {
        let sources = Sources::new(informers, served, &settings.namespace);
        Operator {
            settings,
            clock,
            events,
            sources,
            keeper: Keeper::new(MANAGER),
            bundles: Mutex::default(),
            status: Mutex::new(json!({})),
        }
    }

    /// Runs until `shutdown`.
    pub(super) async fn run(self, metrics: OperatorMetrics, shutdown: CancellationToken) {
        metrics.read_from(match (&self.sources.machines, &self.sources.machine_sets) {
            (Some(machines), Some(sets)) => Source::Caches(machines.clone(), sets.clone()),
            _ => Source::NotServed,
        });
        self.reconcile_until(shutdown).await;
        metrics.read_from(Source::Standby);
    }

    async fn reconcile_until(self, shutdown: CancellationToken) {
        let key = ObjectKey::cluster(CLUSTER_OPERATOR);
        let sources = &self.sources;
        let mut controller = Controller::new("machine-api-operator", sources.images.clone())
            .backoff(BACKOFF)
            .only(|_| false)
            .at_start(key.clone());
        controller = wakes(controller, &key, Some(&sources.images));
        controller = wakes(controller, &key, Some(&sources.deployments));
        controller = wakes(controller, &key, Some(&sources.daemon_sets));
        controller = wakes(controller, &key, Some(&sources.mutating));
        controller = wakes(controller, &key, Some(&sources.validating));
        controller = wakes(controller, &key, sources.health_checks.as_ref());
        for source in
            [&sources.cluster_operator, &sources.infrastructure, &sources.proxy, &sources.feature_gate]
        {
            controller = wakes(controller, &key, source.informer.as_ref());
        }
        let this = Arc::new(self);
        let synced = {
            let this = this.clone();
            async move {
                let sources = &this.sources;
                sources.pods.synced().await;
                if let (Some(machines), Some(sets)) = (&sources.machines, &sources.machine_sets) {
                    tokio::join!(machines.synced(), sets.synced());
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = synced => {}
        }
        let reconcile = move |_| {
            let this = this.clone();
            async move { this.reconcile().await }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        if self.sources.cluster_operator.informer.is_some() && self.sources.cluster_operator.get().is_none() {
            self.create_cluster_operator().await?;
        }
        let configured = self.configuration();
        if matches!(configured, Ok(Configuration::RollOut(_))) {
            // That an upgrade is in progress is known before anything changes.
            self.report(&Outcome::Syncing).await?;
        }
        let (outcome, again, failed) = match configured {
            Err(problems) => (Outcome::Failed(problems), Action::After(self.settings.poll), None),
            Ok(Configuration::NoOp(why)) => {
                tracing::debug!("Nothing is rolled out: {why}");
                (Outcome::NoOp, Action::Done, None)
            }
            Ok(Configuration::RollOut(configuration)) => {
                let errors = self.apply(&configuration).await;
                if errors.iter().any(ReconcileError::is_conflict) {
                    // Something changed since it was read, which is no failure.
                    return Ok(Action::After(CONFLICT_REQUEUE));
                }
                if errors.is_empty() {
                    let pass = self.look(&configuration);
                    (pass.outcome, pass.again, None)
                } else {
                    let problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    let joined = problems.join("; ");
                    (Outcome::Failed(problems), Action::Done, Some(ReconcileError::Failed(joined)))
                }
            }
        };
        self.report(&outcome).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(again),
        }
    }

    fn configuration(&self) -> Result<Configuration, Vec<String>> {
        let sources = &self.sources;
        let missing = sources.missing_definitions();
        if !missing.is_empty() {
            return Err(missing);
        }
        let (infrastructure, proxy) = (sources.infrastructure.data(), sources.proxy.data());
        let feature_gate = sources.feature_gate.data();
        let images = sources
            .images
            .get(&ObjectKey::namespaced(&self.settings.namespace, super::configuration::IMAGES));
        configuration(&ConfigurationSources {
            namespace: &self.settings.namespace,
            platform: self.settings.platform.as_deref(),
            version: &self.settings.version,
            has_infrastructure_kind: sources.infrastructure.informer.is_some(),
            infrastructure: infrastructure.as_ref(),
            proxy: proxy.as_ref(),
            feature_gate: feature_gate.as_ref(),
            images: images.as_deref(),
        })
    }

    /// Writes what differs; every error, so that one object does not hold up the others.
    async fn apply(&self, configuration: &RolloutConfiguration) -> Vec<ReconcileError> {
        let namespace = &self.settings.namespace;
        let (sources, keeper) = (&self.sources, &self.keeper);
        let mut results = vec![
            self.apply_webhooks(&sources.mutating, WebhookRole::Mutating).await,
            self.apply_webhooks(&sources.validating, WebhookRole::Validating).await,
        ];
        let deployment = desired::deployment(configuration, namespace);
        results.push(keeper.keep(&sources.deployments, &deployment).await.map_err(Into::into));
        if let Some(daemon_set) = desired::daemon_set(configuration, namespace) {
            results.push(keeper.keep(&sources.daemon_sets, &daemon_set).await.map_err(Into::into));
        }
        if let (Some(check), Some(informer)) =
            (desired::health_check(configuration, namespace), &sources.health_checks)
        {
            results.push(keeper.keep(informer, &check).await.map_err(Into::into));
        }
        results.into_iter().filter_map(Result::err).collect()
    }

    /// Registers the webhooks. Their certificates are the affair of the process that serves them.
    async fn apply_webhooks<K>(&self, informer: &Informer<K>, role: WebhookRole) -> Result<(), ReconcileError>
    where
        K: Object
            + Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + fmt::Debug,
    {
        let failed = |error| {
            ReconcileError::request(
                "read",
                format!("{} {}", K::kind(&()), registration::NAME),
                kube::Error::SerdeError(error),
            )
        };
        let found = informer.get(&ObjectKey::cluster(registration::NAME));
        let found = found.as_deref().map(serde_json::to_value).transpose().map_err(failed)?;
        let endpoint = WebhookEndpoint::of_service(&self.settings.namespace);
        let wanted = {
            let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
            bundles.extend(registration::bundles(found.as_ref()));
            registration::owned(role, &endpoint, found.as_ref(), &bundles)
        };
        if let Some(wanted) = wanted {
            let wanted: K = serde_json::from_value(wanted).map_err(failed)?;
            MANAGER.apply(informer, &wanted).await?;
            tracing::info!("Applied {} {}", K::kind(&()), registration::NAME);
        }
        Ok(())
    }

    /// Looks whether everything is rolled out.
    fn look(&self, configuration: &RolloutConfiguration) -> Pass {
        let (sources, settings) = (&self.sources, &self.settings);
        let key = |name: &str| ObjectKey::namespaced(&settings.namespace, name);
        let (deployment, pods) = (sources.deployments.get(&key(CONTROLLERS)), sources.pods.list());
        let pods: Vec<_> = pods.iter().map(AsRef::as_ref).collect();
        let now = self.clock.now();
        let mut rollouts =
            vec![of_deployment(CONTROLLERS, deployment.as_deref(), &pods, settings.available_min, now)];
        if configuration.provider.has_termination_handler {
            let daemon_set = sources.daemon_sets.get(&key(TERMINATION_HANDLER));
            rollouts.push(of_daemon_set(TERMINATION_HANDLER, daemon_set.as_deref()));
        }
        let failed: Vec<String> = rollouts
            .iter()
            .filter_map(|it| match it {
                Rollout::Failed(why) => Some(why.clone()),
                Rollout::Complete | Rollout::Waiting(_) => None,
            })
            .collect();
        if !failed.is_empty() {
            return Pass { outcome: Outcome::Failed(failed), again: Action::After(settings.poll) };
        }
        let waiting = rollouts.iter().filter_map(|it| match it {
            Rollout::Waiting(rest) => Some(rest.unwrap_or(settings.poll)),
            Rollout::Complete | Rollout::Failed(_) => None,
        });
        if let Some(rest) = waiting.max() {
            return Pass { outcome: Outcome::Syncing, again: Action::After(rest) };
        }
        if status::is_initializing(&self.status()) {
            let problems = self.missing_machines();
            if !problems.is_empty() {
                return Pass { outcome: Outcome::Failed(problems), again: Action::After(settings.poll) };
            }
        }
        Pass { outcome: Outcome::Available, again: Action::Done }
    }

    /// What is missing for a cluster to count as installed.
    fn missing_machines(&self) -> Vec<String> {
        let machines = self.sources.machines.as_ref().map(|it| it.list()).unwrap_or_default();
        let sets = self.sources.machine_sets.as_ref().map(|it| it.list()).unwrap_or_default();
        missing_machines(&sets, &machines)
    }

    /// The status that is reported now.
    fn status(&self) -> Value {
        match self.sources.cluster_operator.get() {
            Some(object) => object.data.get("status").cloned().unwrap_or_else(|| json!({})),
            None => self.status.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Writes the status, if it changes, with its events.
    async fn report(&self, outcome: &Outcome) -> Result<(), ReconcileError> {
        let (settings, before) = (&self.settings, self.status());
        let change = status::next(&before, outcome, &settings.version, &settings.namespace, self.clock.now());
        let Some(change) = change else { return Ok(()) };
        let source = &self.sources.cluster_operator;
        let reference = match (&source.informer, source.get()) {
            (Some(informer), Some(object)) => {
                let mut wanted = DynamicObject::clone(&object);
                wanted.data["status"] = change.status;
                MANAGER.patch_status(informer, &*object, &wanted, Precondition::Unchanged).await?;
                object.object_ref(&source.resource)
            }
            _ => {
                *self.status.lock().unwrap_or_else(PoisonError::into_inner) = change.status;
                ObjectReference {
                    api_version: Some("apps/v1".to_owned()),
                    kind: Some("Deployment".to_owned()),
                    name: Some("machine-api-operator".to_owned()),
                    namespace: Some(settings.namespace.clone()),
                    ..ObjectReference::default()
                }
            }
        };
        for event in change.events {
            tracing::info!("{}: {}", event.reason, event.message);
            self.events.record_of(reference.clone(), event);
        }
        Ok(())
    }

    async fn create_cluster_operator(&self) -> Result<(), ReconcileError> {
        let source = &self.sources.cluster_operator;
        if let Some(informer) = &source.informer {
            let object = DynamicObject::new(CLUSTER_OPERATOR, &source.resource).data(json!({"spec": {}}));
            MANAGER.create(informer, &object).await?;
        }
        Ok(())
    }
}

/// Lets every change of these objects wake the operator.
fn wakes<K: Object, W: Object>(
    controller: Controller<K>,
    key: &ObjectKey,
    informer: Option<&Arc<Informer<W>>>,
) -> Controller<K> {
    match informer {
        Some(informer) => {
            let key = key.clone();
            controller.watches(informer.clone(), move |_| vec![key.clone()])
        }
        None => controller,
    }
}

/// What is missing until every MachineSet has its Machines, and two of them run.
pub(super) fn missing_machines(sets: &[Arc<MachineSet>], machines: &[Arc<Machine>]) -> Vec<String> {
    let (mut problems, mut wanted, mut running, mut waiting) = (Vec::new(), 0, 0, Vec::new());
    for set in sets {
        let replicas = usize::try_from(set.spec.replicas.unwrap_or_default()).unwrap_or_default();
        wanted += replicas;
        let selector = Selector::parse(&set.spec.selector);
        let is_of_set = |machine: &&Arc<Machine>| {
            selector.as_ref().is_ok_and(|selector| selector.matches(machine.labels()))
        };
        let of_set: Vec<&Arc<Machine>> = machines.iter().filter(is_of_set).collect();
        if of_set.len() != replicas {
            let (name, found) = (set.name_any(), of_set.len());
            problems.push(format!(
                "replicas not satisfied for MachineSet {name}: expected {replicas}, got {found}"
            ));
        }
        for machine in of_set {
            let phase = machine.status.as_ref().and_then(|status| status.phase.as_ref());
            match phase.is_some_and(|phase| phase.as_str() == "Running") {
                true => running += 1,
                false => waiting.push(machine.name_any()),
            }
        }
    }
    if problems.is_empty() && wanted > 1 && running < RUNNING_MIN {
        problems.push(format!(
            "minimum worker replica count ({RUNNING_MIN}) not yet met: current running replicas {running}, waiting for {waiting:?}"
        ));
    }
    problems
}
