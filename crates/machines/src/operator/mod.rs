//! Rolls out the controllers and webhooks of machines in a cluster, keeps them, and reports their state in the ClusterOperator
//! `machine-api` (`shipshape machines operator`).
//!
//! One reconcile does everything: it looks at the caches, decides by pure functions and writes what differs.
//!
//! | Module | Decides |
//! |---|---|
//! | `configuration` | what to roll out, by the objects that configure the cluster |
//! | `platform` | which platforms have controllers |
//! | `desired` | the objects |
//! | `keep` | what to write of an object |
//! | `rollout` | whether a roll-out is complete |
//! | `status` | what is reported |

pub(crate) mod configuration;
pub(crate) mod desired;
pub(crate) mod keep;
mod metrics;
pub(crate) mod platform;
mod reconcile;
pub(crate) mod rollout;
mod sources;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use api::clock::SharedClock;
use controller::{EventRecorder, Informers, LeaderElection, LeaseDurations, Observability};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::run::RunError;
pub use metrics::OperatorMetrics;
use reconcile::Operator;
use sources::DEFINITIONS;

/// The lease of the operator.
const LEASE: &str = "machine-api-operator";
/// The name under which events are recorded.
const COMPONENT: &str = "machine-api-operator";

/// What the operator needs to know besides the cluster.
#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// The namespace of everything that it rolls out.
    pub namespace: String,
    /// The name of this process in lease and events, such as its pod's.
    pub process: String,
    /// The version that it reports.
    pub version: String,
    /// The platform, in place of the one that the Infrastructure names.
    pub platform: Option<String>,
    /// Durations of the lease; `None` for a process that is certain to be the only one.
    pub lease: Option<LeaseDurations>,
    /// How long the controllers must have been available.
    pub available_min: Duration,
    /// Time between two looks at a roll-out.
    pub poll: Duration,
}

impl OperatorSettings {
    /// The settings of OpenShift's operator.
    pub fn new(namespace: &str, process: &str, version: &str) -> OperatorSettings {
        OperatorSettings {
            namespace: namespace.to_owned(),
            process: process.to_owned(),
            version: version.to_owned(),
            platform: None,
            lease: Some(LeaseDurations::OPENSHIFT),
            available_min: Duration::from_secs(180),
            poll: Duration::from_secs(5),
        }
    }
}

/// Runs the operator until `shutdown`, while it holds its lease.
pub async fn run(
    client: Client,
    settings: OperatorSettings,
    clock: SharedClock,
    observability: Observability,
    metrics: OperatorMetrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let Some(durations) = settings.lease else {
        return Box::pin(lead(client, settings, clock, observability, metrics, shutdown)).await;
    };
    let election = LeaderElection::new(
        client.clone(),
        &settings.namespace,
        LEASE,
        &settings.process,
        durations,
        clock.clone(),
        observability.clone(),
    );
    let term = |token: CancellationToken| {
        let (client, settings, clock) = (client.clone(), settings.clone(), clock.clone());
        Box::pin(lead(client, settings, clock, observability.clone(), metrics.clone(), token))
    };
    match election.run_as_leader(shutdown.clone(), term).await {
        // A term that was over returns too.
        Some(Ok(())) if !shutdown.is_cancelled() => {
            Err(RunError::Controller("the operator returned before it was asked to stop".to_owned()))
        }
        Some(ended) => ended,
        None => Ok(()),
    }
}

/// One term of leadership: informers of its own, which list after the lease was taken.
async fn lead(
    client: Client,
    settings: OperatorSettings,
    clock: SharedClock,
    observability: Observability,
    metrics: OperatorMetrics,
    term: CancellationToken,
) -> Result<(), RunError> {
    let informers = Informers::new(client.clone(), observability.clone());
    let (events, writer) =
        EventRecorder::new(client, COMPONENT, &settings.process, clock.clone(), observability);
    let watches = CancellationToken::new();
    let watching = informers.run(watches.clone());
    let _end_of_watches = watches.drop_guard();
    let working =
        informers.run_with_served(&DEFINITIONS, term.clone(), |served: BTreeSet<&'static str>, cancel| {
            let operator = Operator::new(&informers, served, settings.clone(), clock.clone(), events.clone());
            operator.run(metrics.clone(), cancel)
        });
    let writing = writer.run(term.clone());
    let working = async { tokio::join!(working, writing).0 };
    tokio::select! {
        watching = watching => watching.map_err(Into::into),
        _ = working => Ok(()),
    }
}
