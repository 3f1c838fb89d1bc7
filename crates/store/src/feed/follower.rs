//! A follower of the change feed, for services that keep a cache current or count changes.
//!
//! A follower starts without a position, and its first batch is [`FeedBatch::StartOver`]: the caller lists everything
//! that it needs, then acknowledges. The follower took its position before the listing, so no change falls in between.
//! Later batches hold the changes since the last acknowledged one, deletions included. When the position has left the
//! feed (retention, a restored or imported store), the next batch is `StartOver` again.
//!
//! Delivery is at least once: a batch that was not acknowledged is read again. So an error or a cancelled future
//! between reading and acknowledging loses nothing, and handling a change must be safe to repeat.
//!
//! ```no_run
//! # async fn list_clusters() {}
//! # async fn update_clusters(_: Vec<store::Change>) {}
//! # async fn follow(reader: &store::Reader) -> Result<(), store::StoreError> {
//! let mut follower = reader.follow_feed(["cluster"]);
//! loop {
//!     match follower.read().await? {
//!         store::FeedBatch::StartOver => list_clusters().await,
//!         store::FeedBatch::Changes(changes) => update_clusters(changes).await,
//!     }
//!     follower.acknowledge();
//!     follower.wait(store::SAFETY_POLL).await;
//! }
//! # }
//! ```

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Change, FEED_PAGE_MAX, FeedError, Position};
use crate::notify::{Notifications, Topic};
use crate::{Reader, StoreError};

/// Reads the change feed batch by batch; created by [`Reader::follow_feed`].
#[derive(Debug)]
pub struct FeedFollower {
    reader: Reader,
    notifications: Notifications,
    /// Kinds of document and work to report; empty for all.
    kinds: Vec<&'static str>,
    /// Start of the next batch; none when everything has to be listed first.
    position: Option<Position>,
    /// End of the last batch; becomes the position when it is acknowledged.
    read_to: Option<Position>,
    /// Whether the last batch reached the end of the feed.
    is_caught_up: bool,
    /// Whether another batch can be read without waiting.
    is_ready: bool,
    page_max: usize,
    batch_max: usize,
    debounce: Duration,
}

/// Next changes for a follower to handle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a start-over or a change that is not handled leaves the caller's state stale"]
pub enum FeedBatch {
    /// Changes may have been missed: discard what was derived from earlier ones and list everything again.
    StartOver,
    /// Changes of the followed kinds, in feed order; empty when there are none.
    Changes(Vec<Change>),
}

impl Reader {
    /// Follows changes of documents and work of these kinds, or of all kinds when none is named.
    pub fn follow_feed(&self, kinds: impl IntoIterator<Item = &'static str>) -> FeedFollower {
        FeedFollower {
            reader: self.clone(),
            notifications: self.notifications(Topic::Feed),
            kinds: kinds.into_iter().collect(),
            position: None,
            read_to: None,
            is_caught_up: false,
            is_ready: true,
            page_max: FEED_PAGE_MAX,
            batch_max: FEED_PAGE_MAX,
            debounce: Duration::ZERO,
        }
    }
}

impl FeedFollower {
    /// Continues behind a position that an earlier follower acknowledged, without listing.
    #[must_use]
    pub fn from_position(mut self, position: Position) -> FeedFollower {
        self.position = Some(position);
        self
    }

    /// Ends a batch once it holds this many changes. The last page read for it is never cut, so it may hold up to one
    /// page more.
    #[must_use]
    pub fn batch_max(mut self, changes: usize) -> FeedFollower {
        self.batch_max = changes.max(1);
        self.page_max = self.batch_max.min(FEED_PAGE_MAX);
        self
    }

    /// Makes [`wait`](FeedFollower::wait) collect notifications for this long, so that a burst of writes costs one read.
    #[must_use]
    pub fn debounce(mut self, duration: Duration) -> FeedFollower {
        self.debounce = duration;
        self
    }

    /// The position behind the last acknowledged batch; none before the first listing, or when the next batch is
    /// [`FeedBatch::StartOver`]. Saved by a caller that continues after a restart.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Whether the last batch reached the end of the feed; if not, it was cut at its bound or is a start-over.
    pub fn is_caught_up(&self) -> bool {
        self.is_caught_up
    }

    /// Reads the next batch without waiting for one. The same batch is read again, with later changes, until it is
    /// [acknowledged](FeedFollower::acknowledge).
    pub async fn read(&mut self) -> Result<FeedBatch, StoreError> {
        (self.is_caught_up, self.is_ready, self.read_to) = (false, false, None);
        let Some(start) = self.position else { return self.start_over_from_now().await };
        let (mut changes, mut end) = (Vec::new(), start);
        loop {
            let page = match self.reader.feed_after(end, self.page_max).await {
                Ok(page) => page,
                Err(FeedError::Gone { .. }) => return self.start_over_from_now().await,
                Err(FeedError::Store(error)) => return Err(error),
            };
            let is_last = page.changes.len() < self.page_max;
            end = page.next;
            changes.extend(page.changes.into_iter().filter(|change| is_followed(&self.kinds, change)));
            if changes.is_empty() {
                // Nothing to handle up to here: a failure of the next page need not bring it back.
                self.position = Some(end);
            }
            if is_last || changes.len() >= self.batch_max {
                self.read_to = Some(end);
                self.is_caught_up = is_last;
                return Ok(FeedBatch::Changes(changes));
            }
        }
    }

    async fn start_over_from_now(&mut self) -> Result<FeedBatch, StoreError> {
        self.position = None;
        // Taken before the caller lists, so that a change during the listing is read afterwards.
        self.read_to = Some(self.reader.feed_end().await?);
        Ok(FeedBatch::StartOver)
    }

    /// Marks the batch that was read last as handled; the next one starts behind it.
    pub fn acknowledge(&mut self) {
        if let Some(read_to) = self.read_to.take() {
            self.position = Some(read_to);
            self.is_ready = !self.is_caught_up;
        }
    }

    /// Makes the next batch [`FeedBatch::StartOver`], for a caller whose state is no longer current.
    pub fn start_over(&mut self) {
        self.position = None;
        self.read_to = None;
    }

    /// Waits for a notification that something was written, at most for `poll`: notifications can be lost, and can
    /// arrive before the change is visible. Returns at once while an acknowledged batch has a successor. After an
    /// error, or without acknowledgement, it does wait, so that a loop around it does not spin.
    pub async fn wait(&mut self, poll: Duration) {
        if self.is_ready {
            return;
        }
        if timeout(poll, self.notifications.next()).await.is_ok() && !self.debounce.is_zero() {
            sleep(self.debounce).await;
        }
    }
}

fn is_followed(kinds: &[&str], change: &Change) -> bool {
    kinds.is_empty() || kinds.contains(&change.kind.as_str())
}
