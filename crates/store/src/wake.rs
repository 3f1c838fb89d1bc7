//! Wake-ups say "look"; they carry nothing and may be lost. Truth comes from the query, and a slow poll is the
//! safety net.

use std::sync::Arc;

use api::work::WorkKind;
use tokio::sync::watch;

/// What there may be something new to see of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The change feed, and so the audit log.
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

/// The topics that one transaction has something new for.
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

/// Wakes the waiters of this process.
#[derive(Debug, Clone)]
pub(crate) struct Bells {
    bells: Arc<[watch::Sender<u64>; 3]>,
}

impl Default for Bells {
    fn default() -> Bells {
        Bells { bells: Arc::new(std::array::from_fn(|_| watch::Sender::new(0))) }
    }
}

impl Bells {
    pub(crate) fn ring(&self, topics: Topics) {
        for topic in topics.iter() {
            self.bells[topic.index()].send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    pub(crate) fn waiter(&self, topic: Topic) -> Wakeups {
        Wakeups { bell: self.bells[topic.index()].subscribe() }
    }
}

/// Waits for wake-ups of one topic.
#[derive(Debug, Clone)]
pub struct Wakeups {
    bell: watch::Receiver<u64>,
}

impl Wakeups {
    /// Returns at once if there was a wake-up since the last call, else when the next one comes. After the store is
    /// closed it waits for ever; callers wait for their shutdown and a poll interval beside it.
    pub async fn next(&mut self) {
        if self.bell.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
