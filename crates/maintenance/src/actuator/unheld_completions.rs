//! The ends that no holder writes: manifests that came too late, were withdrawn, or were cancelled before they began. They are
//! closed by whoever touches their lane, so they are counted here, from the feed, by one actuator for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::work::{WorkKind, WorkState};
use store::{FEED_PAGE_MAX, FeedBatch, FeedFollower, Position, StoreError, Subject, Transaction, WorkView};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Tasks;
use super::crew::Crew;

/// Who counts holds this lease, and leaves under this name how far it has come.
const NAME: &str = "manifest-ends";
/// Between two rounds: about as often as somebody reads the metrics. What changes often meanwhile is looked at once.
const EVERY: Duration = Duration::from_secs(15);
/// So long whoever counts may be silent before another does.
const LEASE: Duration = Duration::from_secs(60);

/// Changes of manifests counted in one round; the rest in the next.
const CHANGES_MAX: usize = 10 * FEED_PAGE_MAX;

/// Counts again and again, while nobody else does.
pub(super) async fn count<T: Tasks>(crew: Arc<Crew<T>>, over: CancellationToken) {
    // Where it begins in a store in which nobody has counted before.
    let first = crew.store.feed_end().await.ok();
    let mut feed = None;
    loop {
        if over.run_until_cancelled(sleep(EVERY)).await.is_none() {
            let _ = crew.store.release_lease(NAME, crew.pool.owner()).await;
            return;
        }
        if let Err(error) = round(&crew, &mut feed, first).await {
            // Nothing was counted behind the saved position: the next round goes on from there.
            feed = None;
            tracing::debug!(error = %error, "The ends of manifests are counted later");
        }
    }
}

/// Counts what ended since the last round, unless another actuator counts.
async fn round<T: Tasks>(
    crew: &Crew<T>,
    feed: &mut Option<FeedFollower>,
    first: Option<Position>,
) -> Result<(), StoreError> {
    if crew.store.take_lease(NAME, crew.pool.owner(), LEASE).await?.is_none() {
        *feed = None;
        return Ok(());
    }
    let feed = match feed {
        Some(feed) => feed,
        None => feed.insert(open(crew, first).await?),
    };
    let from = feed.position();
    let ended = match feed.read().await? {
        // What ended behind a position that is gone cannot be told from what was counted before it.
        FeedBatch::StartOver => BTreeMap::new(),
        FeedBatch::Changes(changes) => {
            let moved = changes.iter().filter(|it| it.subject == Subject::Work);
            unheld(crew, moved.map(|it| it.uuid).collect()).await?
        }
    };
    feed.acknowledge();
    if let Some(place) = feed.position().filter(|place| Some(*place) != from) {
        // Said before it is counted: what is counted twice would be an alarm about nothing.
        crew.store.commit(Transaction::new().save_position(NAME, place)).await?;
    }
    for ((task, state), count) in ended {
        let name = crew.tasks.name(task).await.unwrap_or_else(|| "unknown".to_owned());
        crew.metrics.ended_unheld(&name, state, count);
    }
    Ok(())
}

/// Goes on where the actuator was that counted last.
async fn open<T>(crew: &Crew<T>, first: Option<Position>) -> Result<FeedFollower, StoreError> {
    let feed = crew.store.follow_feed([WorkKind::Manifest.as_str()]).batch_max(CHANGES_MAX);
    Ok(match crew.store.saved_position(NAME).await?.or(first) {
        Some(place) => feed.from_position(place),
        None => feed,
    })
}

/// How many of these ended without a holder, by task and outcome.
async fn unheld<T>(
    crew: &Crew<T>,
    moved: BTreeSet<Uuid>,
) -> Result<BTreeMap<(Uuid, WorkState), u64>, StoreError> {
    let moved: Vec<Uuid> = moved.into_iter().collect();
    let mut ended = BTreeMap::new();
    for block in moved.chunks(FEED_PAGE_MAX) {
        for work in crew.store.works(block.to_vec()).await?.iter().filter(|it| is_unheld(it)) {
            // The budgets of a manifest name its task.
            let task = work.budgets.iter().find_map(|key| key.strip_prefix("task/")?.parse().ok());
            *ended.entry((task.unwrap_or_default(), work.state)).or_default() += 1;
        }
    }
    Ok(ended)
}

/// Whether no holder wrote its end: one that did says what was undone, if only that it was nothing.
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
