//! Counts completions that no lease holder writes: manifests that timed out, were withdrawn, or were cancelled before they
//! started. Any process that touches the lane closes them, so one actuator counts them for all, from the change feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::work::{WorkKind, WorkState};
use store::{FEED_PAGE_MAX, FeedBatch, FeedFollower, Position, StoreError, Subject, Transaction, WorkView};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Tasks;
use super::service::Actuator;

/// Name of the lease of the counting actuator, and of its saved feed position.
const LEASE_NAME: &str = "manifest-ends";
/// Interval between two rounds: about the scrape interval of metrics. Several changes of a manifest are read once.
const INTERVAL: Duration = Duration::from_secs(15);
/// Duration of the lease; another actuator takes over afterwards.
const LEASE_DURATION: Duration = Duration::from_secs(60);

/// Most changes that one round reads.
const CHANGES_MAX: usize = 10 * FEED_PAGE_MAX;

/// Counts periodically while holding the lease.
pub(super) async fn count_periodically<T: Tasks>(actuator: Arc<Actuator<T>>, stopped: CancellationToken) {
    // Start position in a store without a saved position.
    let first = actuator.store.feed_end().await.ok();
    let mut feed = None;
    loop {
        if stopped.run_until_cancelled(sleep(INTERVAL)).await.is_none() {
            let _ = actuator.store.release_lease(LEASE_NAME, actuator.pool.owner()).await;
            return;
        }
        if let Err(error) = round(&actuator, &mut feed, first).await {
            // Nothing after the saved position was counted: the next round continues there.
            feed = None;
            tracing::debug!(error = %error, "Cannot count the completions of manifests; counting them later");
        }
    }
}

/// Counts the completions since the last round, unless another actuator holds the lease.
async fn round<T: Tasks>(
    actuator: &Actuator<T>,
    feed: &mut Option<FeedFollower>,
    first: Option<Position>,
) -> Result<(), StoreError> {
    if actuator.store.take_lease(LEASE_NAME, actuator.pool.owner(), LEASE_DURATION).await?.is_none() {
        *feed = None;
        return Ok(());
    }
    let feed = match feed {
        Some(feed) => feed,
        None => feed.insert(open(actuator, first).await?),
    };
    let from = feed.position();
    let completions = match feed.read().await? {
        // The feed no longer has the position: completions since then cannot be distinguished from counted ones.
        FeedBatch::StartOver => BTreeMap::new(),
        FeedBatch::Changes(changes) => {
            let changed = changes.iter().filter(|it| it.subject == Subject::Work);
            unheld(actuator, changed.map(|it| it.uuid).collect()).await?
        }
    };
    feed.acknowledge();
    if let Some(position) = feed.position().filter(|position| Some(*position) != from) {
        // Saved before counting: a crash between the two loses counts, while the reverse order would raise false alarms.
        actuator.store.commit(Transaction::new().save_position(LEASE_NAME, position)).await?;
    }
    for ((task, state), count) in completions {
        let name = actuator.tasks.name(task).await.unwrap_or_else(|| "unknown".to_owned());
        actuator.metrics.completed_unheld(&name, state, count);
    }
    Ok(())
}

/// Follows the feed from the saved position.
async fn open<T>(actuator: &Actuator<T>, first: Option<Position>) -> Result<FeedFollower, StoreError> {
    let feed = actuator.store.follow_feed([WorkKind::Manifest.as_str()]).batch_max(CHANGES_MAX);
    Ok(match actuator.store.saved_position(LEASE_NAME).await?.or(first) {
        Some(position) => feed.from_position(position),
        None => feed,
    })
}

/// Number of manifests that completed without a lease holder, by task and outcome.
async fn unheld<T>(
    actuator: &Actuator<T>,
    changed: BTreeSet<Uuid>,
) -> Result<BTreeMap<(Uuid, WorkState), u64>, StoreError> {
    let changed: Vec<Uuid> = changed.into_iter().collect();
    let mut counts = BTreeMap::new();
    for block in changed.chunks(FEED_PAGE_MAX) {
        for work in actuator.store.works(block.to_vec()).await?.iter().filter(|it| is_unheld(it)) {
            // The task is known from the budget keys.
            let task = work.budgets.iter().find_map(|key| key.strip_prefix("task/")?.parse().ok());
            *counts.entry((task.unwrap_or_default(), work.state)).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Whether no lease holder wrote the completion: a holder always records `undone`, even if empty.
fn is_unheld(work: &WorkView) -> bool {
    match work.state {
        WorkState::TimedOut => true,
        WorkState::Cancelled => work.result.as_ref().is_none_or(|result| result.undone.is_none()),
        WorkState::Pending
        | WorkState::InProgress
        | WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded => false,
    }
}
