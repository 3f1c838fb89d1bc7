//! The actuator: claims lanes of kind manifest for its free slots, walks each manifest's plan, and leaves every outcome in
//! the store.
//!
//! It is woken by the store; polling is only the safety net. One heartbeat renews all its lanes, and what could not be
//! renewed in time is stopped before anybody else can have it. It never starts what it cannot write about.

mod breaker;
mod catalog;
mod config;
mod crew;
mod durations;
mod metrics;
mod queue_metrics;
mod reachability;
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

use crew::Crew;

/// What every actuator's named lease begins with; its owner follows.
pub const LEASE_PREFIX: &str = "actuator/";

/// What an actuator is made of.
#[derive(Debug)]
pub struct Deps<T> {
    /// Where the work is.
    pub store: Store,
    /// What the work consists of.
    pub tasks: Arc<T>,
    /// The clock by which entries are dated.
    pub clock: SharedClock,
    /// What is counted.
    pub metrics: Metrics,
    /// The settings.
    pub config: Config,
    /// This process, to the store; fresh at every start.
    pub owner: Uuid,
}

/// Why an actuator ended unasked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its parts ended by itself.
    #[error("the actuator's {part} ended unasked")]
    Ended {
        /// Which.
        part: &'static str,
        /// The panic, if it was one.
        #[source]
        source: Option<tokio::task::JoinError>,
    },
}

/// Works manifests until it is told to stop; then hands back what it holds at the next safe point, within 30 s.
///
/// Dropping the future is as a crash: everything stops at once and the leases run out.
pub async fn run<T: Tasks>(deps: Deps<T>, shutdown: CancellationToken) -> Result<(), Error> {
    let slots = deps.config.slots;
    let (crew, ends) = Crew::new(deps);
    let crew = Arc::new(crew);
    let owner = crew.pool.owner();
    // The parts that must outlive the last hand-back.
    let over = CancellationToken::new();
    let parts: Vec<BackgroundTask> = vec![
        ("scout", reachability::watch(crew.clone(), over.clone()).boxed()),
        ("survey", queue_metrics::watch(crew.clone(), over.clone()).boxed()),
        ("statistics", durations::keep(crew.clone(), over.clone()).boxed()),
        ("unheld", unheld_completions::count(crew.clone(), over.clone()).boxed()),
    ];
    tracing::info!(actuator.id = %owner, "Actuator {owner} takes up to {slots} manifests");
    serve(crew, ends, parts, over, shutdown)
        .await
        .map_err(|UnexpectedExit { part, source }| Error::Ended { part, source })?;
    tracing::info!(actuator.id = %owner, "Actuator {owner} has handed back what it held");
    Ok(())
}
