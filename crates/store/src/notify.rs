//! Notifications that something was written. They carry no data and may be lost: readers query the store, and poll
//! slowly as a safety net.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::work::WorkKind;
use tokio::sync::Notify;

/// Subject of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The change feed, and with it the audit log.
    Feed,
    /// The queue of that kind, and signals to holders of its work.
    Work(WorkKind),
}

impl Topic {
    /// All topics.
    pub const ALL: [Topic; 3] =
        [Topic::Feed, Topic::Work(WorkKind::Operation), Topic::Work(WorkKind::Manifest)];

    pub(crate) fn index(self) -> usize {
        match self {
            Topic::Feed => 0,
            Topic::Work(WorkKind::Operation) => 1,
            Topic::Work(WorkKind::Manifest) => 2,
        }
    }
}

/// Set of topics that one transaction has written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Topics(u8);

impl Topics {
    pub(crate) fn add(&mut self, topic: Topic) {
        self.0 |= 1 << topic.index();
    }

    pub(crate) fn merge(&mut self, other: Topics) {
        self.0 |= other.0;
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Topic> {
        Topic::ALL.into_iter().filter(move |topic| self.0 & (1 << topic.index()) != 0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Notifies the waiters of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notifier {
    notifiers: Arc<[Arc<TopicNotifier>; 3]>,
}

/// Notifies the waiters of one topic in the order in which they started to wait (tokio's `watch` does not), so that a
/// simulation can be replayed.
#[derive(Debug, Default)]
struct TopicNotifier {
    count: AtomicU64,
    notify: Notify,
}

impl Notifier {
    pub(crate) fn notify(&self, topics: Topics) {
        for topic in topics.iter() {
            let notifier = &self.notifiers[topic.index()];
            notifier.count.fetch_add(1, Ordering::SeqCst);
            notifier.notify.notify_waiters();
        }
    }

    pub(crate) fn subscribe(&self, topic: Topic) -> Notifications {
        let notifier = self.notifiers[topic.index()].clone();
        Notifications { seen: notifier.count.load(Ordering::SeqCst), notifier }
    }
}

/// Receives the notifications of one topic.
#[derive(Debug, Clone)]
pub struct Notifications {
    notifier: Arc<TopicNotifier>,
    seen: u64,
}

impl Notifications {
    /// Returns at once if there was a notification since the last call, else at the next one. After the store is
    /// closed it waits for ever; callers also wait for their shutdown and a poll interval.
    pub async fn next(&mut self) {
        loop {
            let mut notify = pin!(self.notifier.notify.notified());
            // From here on no notification is missed; an earlier one shows in the count.
            notify.as_mut().enable();
            let count = self.notifier.count.load(Ordering::SeqCst);
            if count != self.seen {
                self.seen = count;
                return;
            }
            notify.await;
        }
    }
}
