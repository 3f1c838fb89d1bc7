//! The actuator: claims lanes of kind manifest for its free slots, runs the plan of each manifest, and writes every outcome to
//! the store.
//!
//! Notifications of the store wake it; polling covers lost ones. One heartbeat renews all its leases. A run whose lease could
//! not be renewed stops before another worker can claim the lane. The actuator starts nothing while the store is unavailable.

mod breaker;
mod catalog;
mod config;
mod durations;
mod metrics;
mod queue_metrics;
mod reachability;
mod service;
mod tasks;
mod unheld_completions;
mod work;

use std::sync::Arc;

use api::clock::SharedClock;
use futures_util::FutureExt as _;
use steps::worker::{BackgroundTask, UnexpectedExit, serve};
use store::Store;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use catalog::{Provider, TaskCatalog};
pub use config::{Config, Timing};
pub use metrics::Metrics;
pub use tasks::{Assignment, ClusterProbe, PreparedTask, Tasks};

use service::Actuator;

/// Prefix of the named lease of an actuator; the owner id follows.
pub const LEASE_PREFIX: &str = "actuator/";

/// Dependencies of an actuator.
#[derive(Debug)]
pub struct Deps<T> {
    /// Store of the manifests.
    pub store: Store,
    /// Catalogue of tasks.
    pub tasks: Arc<T>,
    /// Clock for the times of entries.
    pub clock: SharedClock,
    /// Metrics.
    pub metrics: Metrics,
    /// Settings.
    pub config: Config,
    /// Owner of the leases; new at every start of the process.
    pub owner: Uuid,
}

/// Unexpected end of an actuator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A background task ended by itself.
    #[error("background task {part} of the actuator ended unexpectedly")]
    UnexpectedExit {
        /// Name of the background task.
        part: &'static str,
        /// The panic, if any.
        #[source]
        source: Option<tokio::task::JoinError>,
    },
}

/// Runs manifests until `shutdown`; then releases its leases at the next safe point of each run, within 30 s.
///
/// Dropping the future is like a crash: everything stops at once and the leases expire.
pub async fn run<T: Tasks>(deps: Deps<T>, shutdown: CancellationToken) -> Result<(), Error> {
    let slots = deps.config.slots;
    let (actuator, completions) = Actuator::new(deps);
    let actuator = Arc::new(actuator);
    let owner = actuator.pool.owner();
    // Cancelled after the last lease is released, so that background tasks see all outcomes.
    let stopped = CancellationToken::new();
    let parts: Vec<BackgroundTask> = vec![
        ("reachability", reachability::watch(actuator.clone(), stopped.clone()).boxed()),
        ("queue-metrics", queue_metrics::watch(actuator.clone(), stopped.clone()).boxed()),
        ("durations", durations::write_periodically(actuator.clone(), stopped.clone()).boxed()),
        (
            "unheld-completions",
            unheld_completions::count_periodically(actuator.clone(), stopped.clone()).boxed(),
        ),
    ];
    tracing::info!(actuator.id = %owner, "Actuator {owner} started with {slots} slots");
    serve(actuator, completions, parts, stopped, shutdown)
        .await
        .map_err(|UnexpectedExit { part, source }| Error::UnexpectedExit { part, source })?;
    tracing::info!(actuator.id = %owner, "Actuator {owner} stopped and released its leases");
    Ok(())
}
