//! The ends that no holder writes: manifests that came too late, were withdrawn, or were cancelled before they began. They are
//! closed by whoever touches their lane, so they are counted here, from the feed, by one actuator for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::work::{WorkKind, WorkState};
use store::{FEED_PAGE_MAX, FeedError, Position, StoreError, Subject, Transaction, WorkView};
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

/// Counts again and again, while nobody else does.
pub(super) async fn count<T: Tasks>(crew: Arc<Crew<T>>, over: CancellationToken) {
    // Where it begins in a store in which nobody has counted before.
    let first = crew.store.feed_now().await.ok();
    let mut place = None;
    loop {
        if over.run_until_cancelled(sleep(EVERY)).await.is_none() {
            let _ = crew.store.release_lease(NAME, crew.hands.owner()).await;
            return;
        }
        place = match round(&crew, place, first).await {
            Ok(place) => place,
            Err(FeedError::Gone { .. }) => crew.store.feed_now().await.ok(),
            Err(FeedError::Store(error)) => {
                tracing::debug!(error = %error, "The ends of manifests are counted later");
                place
            }
        };
    }
}

/// Counts what ended behind `place`; where to go on, or nothing while another counts.
async fn round<T: Tasks>(
    crew: &Crew<T>,
    place: Option<Position>,
    first: Option<Position>,
) -> Result<Option<Position>, FeedError> {
    if crew.store.take_lease(NAME, crew.hands.owner(), LEASE).await?.is_none() {
        return Ok(None);
    }
    // Whoever takes this up from another goes on where that one was.
    let from = match place {
        Some(place) => Some(place),
        None => crew.store.position(NAME).await?.or(first),
    };
    let Some(from) = from else { return Ok(Some(crew.store.feed_now().await?)) };
    let mut place = from;
    let mut moved = BTreeSet::new();
    loop {
        let page = crew.store.feed_after(place, FEED_PAGE_MAX).await?;
        let full = page.changes.len() == FEED_PAGE_MAX;
        let works = page.changes.iter().filter(|it| it.kind == WorkKind::Manifest.as_str());
        moved.extend(works.filter(|it| it.subject == Subject::Work).map(|it| it.uuid));
        place = page.next;
        if !full || moved.len() >= FEED_PAGE_MAX {
            break;
        }
    }
    if place == from {
        return Ok(Some(place));
    }
    let ended = unheld(crew, moved).await?;
    // Said before it is counted: what is counted twice would be an alarm about nothing.
    crew.store.commit(Transaction::new().save_position(NAME, place)).await?;
    for ((task, state), count) in ended {
        let name = crew.tasks.name(task).await.unwrap_or_else(|| "unknown".to_owned());
        crew.metrics.ended_unheld(&name, state, count);
    }
    Ok(Some(place))
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
        WorkState::Cancelled => work.result.as_ref().is_none_or(|result| result.get("undone").is_none()),
        WorkState::Pending
        | WorkState::InProgress
        | WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded => false,
    }
}
