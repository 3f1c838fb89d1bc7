//! Runs all controllers, each while it holds its lease.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use cloud::InstanceProvider;
use controller::{EventRecorder, Informers, InformersError, LeaderElection, LeaseDurations, Observability};
use futures_util::future::join_all;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::certificates::{CertificateController, UnexplainedRequests};
use crate::context::{Caches, Context};
use crate::drain::DrainController;
use crate::health_check::HealthCheckController;
use crate::machine::MachineController;
use crate::machine_set::MachineSetController;
use crate::metrics::Metrics;
use crate::node_link::NodeLinkController;

/// The definitions without which no controller runs.
const DEFINITIONS: [&str; 3] = [
    "machines.machine.openshift.io",
    "machinesets.machine.openshift.io",
    "machinehealthchecks.machine.openshift.io",
];

/// What the controllers need to know besides the cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of Machines, MachineSets, MachineHealthChecks and leases.
    pub namespace: String,
    /// The name of this process in leases and events, such as its pod's.
    pub process: String,
    /// The name of the provider in the name of its lease, such as `azure`.
    pub provider: String,
    /// Whether objects say which API is authoritative for them (the feature gate MachineAPIMigration).
    pub migration: bool,
    /// About how often a Machine at rest is compared with its instance.
    pub resync: Duration,
    /// Durations of the leases; `None` for a process that is certain to be the only one.
    pub lease: Option<LeaseDurations>,
    /// What happens to certificate requests that no Machine explains.
    pub unexplained_requests: UnexplainedRequests,
}

impl Settings {
    /// The settings of OpenShift's controllers.
    pub fn new(namespace: &str, process: &str, provider: &str) -> Settings {
        Settings {
            namespace: namespace.to_owned(),
            process: process.to_owned(),
            provider: provider.to_owned(),
            migration: false,
            resync: Duration::from_secs(600),
            lease: Some(LeaseDurations::MACHINE_CONTROLLERS),
            unexplained_requests: UnexplainedRequests::Leave,
        }
    }
}

/// Why the controllers ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The watches ended.
    #[error(transparent)]
    Informers(#[from] InformersError),
    /// A controller returned without being asked to, or panicked outside of a reconcile.
    #[error("a controller ended: {0}")]
    Controller(String),
}

/// Waits for all controllers. One that ends before `shutdown` ends them all: nobody would do its work.
async fn all_until(mut running: JoinSet<&'static str>, shutdown: &CancellationToken) -> Result<(), RunError> {
    let mut result = Ok(());
    while let Some(ended) = running.join_next().await {
        let error = match ended {
            Ok(_) if shutdown.is_cancelled() => continue,
            Ok(component) => format!("{component} returned before it was asked to stop"),
            // Those that are ended because of another have no cause of their own.
            Err(error) if error.is_cancelled() && result.is_err() => continue,
            Err(error) => error.to_string(),
        };
        if result.is_ok() {
            result = Err(RunError::Controller(error));
        }
        running.abort_all();
    }
    result
}

/// Everything that a term of leadership needs.
#[derive(Clone)]
struct Parts {
    client: Client,
    provider: Arc<dyn InstanceProvider>,
    settings: Settings,
    clock: SharedClock,
    observability: Observability,
    metrics: Metrics,
    informers: Arc<Informers>,
}

/// Runs the controllers until `shutdown`, while their definitions are served.
pub async fn run(
    client: Client,
    provider: Arc<dyn InstanceProvider>,
    settings: Settings,
    clock: SharedClock,
    observability: Observability,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let informers = Informers::new(client.clone(), observability.clone());
    let parts = Parts { client, provider, settings, clock, observability, metrics, informers };
    // The watches end after the controllers, which release their leases at the end.
    let watches = CancellationToken::new();
    let watching = parts.informers.run(watches.clone());
    let _end_of_watches = watches.drop_guard();
    let working = parts.informers.run_while_served(&DEFINITIONS, shutdown.clone(), |served| {
        let parts = parts.clone();
        async move { parts.run_leaders(served).await }
    });
    tokio::select! {
        watching = watching => watching.map_err(Into::into),
        ended = working => ended.unwrap_or(Ok(())),
    }
}

impl Parts {
    /// Runs every controller as a candidate for its lease. The first one that ends unasked ends them all.
    async fn run_leaders(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let provider_lease = format!("cluster-api-provider-{}-leader", self.settings.provider);
        let mut running = JoinSet::new();
        self.spawn(
            &mut running,
            &shutdown,
            provider_lease,
            "machine-controller",
            |parts, cx, token| async move {
                let machines =
                    MachineController::new(cx.clone(), parts.provider.clone(), parts.settings.resync);
                let drains = DrainController::new(cx);
                tokio::join!(machines.run(token.clone()), drains.run(token));
            },
        );
        let lease = "cluster-api-provider-machineset-leader".to_owned();
        self.spawn(&mut running, &shutdown, lease, "machineset-controller", |_, cx, token| async move {
            MachineSetController::new(cx).run(token).await;
        });
        let lease = "cluster-api-provider-healthcheck-leader".to_owned();
        self.spawn(
            &mut running,
            &shutdown,
            lease,
            "machine-healthcheck-controller",
            |_, cx, token| async move {
                HealthCheckController::new(cx).run(token).await;
            },
        );
        let lease = "cluster-api-provider-nodelink-leader".to_owned();
        self.spawn(&mut running, &shutdown, lease, "nodelink-controller", |_, cx, token| async move {
            NodeLinkController::new(cx).run(token).await;
        });
        let lease = "cluster-machine-approver-leader".to_owned();
        self.spawn(&mut running, &shutdown, lease, "machine-approver", |parts, cx, token| async move {
            CertificateController::new(cx, parts.settings.unexplained_requests).run(token).await;
        });
        all_until(running, &shutdown).await
    }

    /// Runs `work` in a task of its own whenever this process holds the lease.
    fn spawn<W, F>(
        &self,
        running: &mut JoinSet<&'static str>,
        shutdown: &CancellationToken,
        lease: String,
        component: &'static str,
        work: W,
    ) where
        W: Fn(Parts, Context, CancellationToken) -> F + Send + Sync + Copy + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (parts, shutdown) = (self.clone(), shutdown.clone());
        running.spawn(async move {
            let settings = &parts.settings;
            let Some(durations) = settings.lease else {
                parts.clone().lead(component, shutdown, work).await;
                return component;
            };
            let election = LeaderElection::new(
                parts.client.clone(),
                &settings.namespace,
                &lease,
                &settings.process,
                durations,
                parts.clock.clone(),
                parts.observability.clone(),
            );
            let lead = |term: CancellationToken| {
                let parts = parts.clone();
                async move { parts.lead(component, term, work).await }
            };
            let _ = election.run_as_leader(shutdown, lead).await;
            component
        });
    }

    /// One term of a controller: its caches are as new as the lease, and its events are written.
    async fn lead<W, F>(self, component: &'static str, term: CancellationToken, work: W)
    where
        W: Fn(Parts, Context, CancellationToken) -> F,
        F: Future<Output = ()>,
    {
        let caches = Caches::new(self.informers.clone(), &self.settings.namespace);
        let (events, writer) = EventRecorder::new(
            self.client.clone(),
            component,
            &self.settings.process,
            self.clock.clone(),
            self.observability.clone(),
        );
        let cx = Context {
            client: self.client.clone(),
            clock: self.clock.clone(),
            events,
            metrics: self.metrics.clone(),
            migration: self.settings.migration,
            caches: caches.clone(),
        };
        let writing = writer.run(term.clone());
        let working = async {
            let (machines, nodes, sets) = (caches.machines(), caches.nodes(), caches.machine_sets());
            // Another controller of this process may have filled them before this lease was taken.
            let caught_up = join_all([
                Box::pin(machines.catch_up()) as std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
                Box::pin(nodes.catch_up()),
                Box::pin(sets.catch_up()),
            ]);
            tokio::select! {
                () = term.cancelled() => return,
                _ = caught_up => {}
            }
            work(self.clone(), cx, term.clone()).await;
        };
        tokio::join!(writing, working);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_controller_that_returns_unasked_ends_the_others() {
        let mut running = JoinSet::new();
        running.spawn(async { "machine-controller" });
        running.spawn(std::future::pending());
        let error = all_until(running, &CancellationToken::new()).await.unwrap_err().to_string();
        assert_eq!(error, "a controller ended: machine-controller returned before it was asked to stop");
    }

    #[tokio::test]
    async fn controllers_that_return_after_shutdown_are_no_error() {
        let (mut running, shutdown) = (JoinSet::new(), CancellationToken::new());
        for component in ["a", "b"] {
            let shutdown = shutdown.clone();
            running.spawn(async move {
                shutdown.cancelled().await;
                component
            });
        }
        shutdown.cancel();
        assert!(all_until(running, &shutdown).await.is_ok());
    }
}
