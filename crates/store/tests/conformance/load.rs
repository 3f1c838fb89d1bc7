//! Writers that record which writes were acknowledged, while everything around them fails; and the final comparison.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use store::{DesiredState, Etag, FeedError, Position, Store, StoreError, Transaction};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::fixture::{Note, assert_sound, context, eventually, version};

/// Records of the writers.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Newest acknowledged version of each document.
    answered: HashMap<Uuid, Etag>,
    /// Documents with an unacknowledged write: it may have happened or not.
    doubtful: HashSet<Uuid>,
    /// Acknowledged and failed writes so far, by writer.
    pub(crate) successes: usize,
    pub(crate) failures: Vec<(StoreError, Duration)>,
    longest: Duration,
}

/// Running writers.
pub(crate) struct Load {
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    start: Position,
}

impl Load {
    /// Starts some writers; each note has that many bytes.
    pub(crate) async fn start(store: &Store, writers: usize, bytes: usize) -> Load {
        let start = store.feed_end().await.unwrap();
        let (ledger, stop, mut tasks) =
            (Arc::<Mutex<Ledger>>::default(), CancellationToken::new(), JoinSet::new());
        for _ in 0..writers {
            tasks.spawn(write(store.clone(), ledger.clone(), stop.clone(), bytes));
        }
        Load { ledger, stop, tasks, start }
    }

    fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.ledger.lock().unwrap())
    }

    /// Waits until that many more writes were acknowledged.
    pub(crate) async fn answers(&self, more: usize) {
        let before = self.read(|it| it.successes);
        eventually("writes are answered", async || {
            self.read(|it| it.successes >= before + more).then_some(())
        })
        .await;
    }

    /// Waits until that many more writes failed.
    pub(crate) async fn refusals(&self, more: usize) {
        let before = self.read(|it| it.failures.len());
        eventually("writes are rejected", async || {
            self.read(|it| it.failures.len() >= before + more).then_some(())
        })
        .await;
    }

    /// Stops the writers, and compares: every acknowledged write is in the store and in the feed, in order, and
    /// nothing else is there but what may have happened. No call took longer than `bound`.
    pub(crate) async fn settle(mut self, store: &Store, bound: Duration) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let ledger = std::mem::take(&mut *self.ledger.lock().unwrap());
        assert!(ledger.longest < bound, "a call took {:?}", ledger.longest);
        let mut newest: HashMap<Uuid, Etag> = HashMap::new();
        let mut position = self.start;
        eventually("the feed has everything", async || {
            loop {
                let page = match store.feed_after(position, 1000).await {
                    Ok(page) => page,
                    Err(FeedError::Gone { position }) => panic!("position {position} is gone"),
                    Err(FeedError::Store(error)) => panic!("{error}"),
                };
                for (uuid, etag, _) in page.changes.iter().filter_map(version) {
                    assert!(
                        newest.insert(uuid, etag).is_none_or(|before| before < etag),
                        "{uuid} went back to {etag}"
                    );
                }
                position = page.next;
                if page.changes.is_empty() {
                    return ledger
                        .answered
                        .iter()
                        .all(|(uuid, etag)| newest.get(uuid) >= Some(etag))
                        .then_some(());
                }
            }
        })
        .await;
        for (uuid, etag) in &ledger.answered {
            let found =
                store.get(*uuid).await.unwrap().unwrap_or_else(|| panic!("{uuid} was answered and is lost"));
            assert!(found.etag >= *etag, "{uuid} was at {etag} and is at {}", found.etag);
            assert!(found.etag == *etag || ledger.doubtful.contains(uuid), "{uuid} was written by nobody");
        }
        for uuid in newest.keys() {
            assert!(
                ledger.answered.contains_key(uuid) || ledger.doubtful.contains(uuid),
                "{uuid} was written by nobody"
            );
        }
        assert_sound(store).await;
    }
}

/// Creates a note and changes it repeatedly; after a failure it starts with another one.
async fn write(store: Store, ledger: Arc<Mutex<Ledger>>, stop: CancellationToken, bytes: usize) {
    while !stop.is_cancelled() {
        let (uuid, mut note) = (Uuid::now_v7(), Note::fresh().saying(incompressible(bytes)));
        let create = Transaction::new().create(uuid, &note, &context()).unwrap();
        let mut alive = attempt(&store, &ledger, uuid, create).await;
        for turn in 0..2 {
            if !alive || stop.is_cancelled() {
                break;
            }
            let Ok(Some(read)) = store.documents::<Note>().get(uuid).await else { break };
            note.text = format!("{turn} {}", &note.text[2..]);
            let update =
                Transaction::new().update(&read, &note, DesiredState::Unchanged, &context()).unwrap();
            alive = attempt(&store, &ledger, uuid, update).await;
        }
        if !alive {
            // Pause after a failure, as in every service; a moment suffices here.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn attempt(store: &Store, ledger: &Mutex<Ledger>, uuid: Uuid, transaction: Transaction) -> bool {
    let started = Instant::now();
    let outcome = store.commit(transaction).await;
    let mut ledger = ledger.lock().unwrap();
    ledger.longest = ledger.longest.max(started.elapsed());
    match outcome {
        Ok(committed) => {
            ledger.answered.insert(uuid, committed.etag(uuid).unwrap());
            ledger.successes += 1;
            true
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::DiskFull)) => {
            ledger.doubtful.insert(uuid);
            ledger.failures.push((error, started.elapsed()));
            false
        }
        Err(other) => panic!("{uuid} was rejected as neither the disk nor the server could: {other:?}"),
    }
}

/// A text that no database compresses.
fn incompressible(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        text += &Uuid::new_v4().simple().to_string();
    }
    text
}
