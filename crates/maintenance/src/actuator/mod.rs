//! The actuator: claims lanes of kind manifest for its free slots, walks each manifest's plan, and leaves every outcome in
//! the store.
//!
//! It is woken by the store; polling is only the safety net. One heartbeat renews all its lanes, and what could not be
//! renewed in time is stopped before anybody else can have it. It never starts what it cannot write about.

mod breaker;
mod claim;
mod config;
mod crew;
mod ends;
mod fleet;
mod held;
mod metrics;
mod pace;
mod pulse;
mod scout;
mod stats;
mod survey;
mod tasks;
mod work;

use std::sync::Arc;

use api::clock::SharedClock;
use store::Store;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use config::{Config, Timing};
pub use fleet::Fleet;
pub use metrics::Metrics;
pub use tasks::{Contact, Errand, Ready, Tasks};

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
    let (crew, ends) = Crew::new(deps);
    let crew = Arc::new(crew);
    // The parts that must outlive the last hand-back.
    let over = CancellationToken::new();
    let mut parts: JoinSet<&'static str> = JoinSet::new();
    parts.spawn(named("heartbeat", pulse::beat(crew.clone(), over.clone())));
    parts.spawn(named("self-stop", pulse::self_stop(crew.clone(), over.clone())));
    parts.spawn(named("signals", pulse::listen(crew.clone(), over.clone())));
    parts.spawn(named("ends", ends::write(crew.clone(), ends, over.clone())));
    parts.spawn(named("scout", scout::watch(crew.clone(), over.clone())));
    parts.spawn(named("survey", survey::watch(crew.clone(), over.clone())));
    parts.spawn(named("statistics", stats::keep(crew.clone(), over.clone())));
    tracing::info!(actuator.id = %crew.owner, "Actuator {} takes up to {} manifests", crew.owner, crew.config.slots);
    let ended = tokio::select! {
        biased;
        () = claim::work(&crew, &shutdown) => None,
        ended = parts.join_next() => ended,
    };
    match ended {
        None => {}
        Some(Ok(part)) => return Err(Error::Ended { part, source: None }),
        Some(Err(error)) => return Err(Error::Ended { part: "part", source: Some(error) }),
    }
    over.cancel();
    while parts.join_next().await.is_some() {}
    // Whoever asks whether an actuator is there need not wait for the lease to run out.
    let _ = crew.store.release_lease(&crew.lease_name(), crew.owner).await;
    tracing::info!(actuator.id = %crew.owner, "Actuator {} has handed back what it held", crew.owner);
    Ok(())
}

async fn named(part: &'static str, body: impl Future<Output = ()>) -> &'static str {
    body.await;
    part
}
