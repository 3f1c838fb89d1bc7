//! The follower of the change feed: a listing and the changes after it are everything, whatever fails in between.

use std::collections::BTreeMap;
use std::time::Duration;

use api::doc::Document as _;
use store::{
    FeedBatch, FeedError, FeedFollower, NewWork, Retention, SAFETY_POLL, Store, StoreError, Subject,
};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on};
use crate::feed::run_housekeeping_until;
use crate::fixture::{Folder, Note, close, context, eventually, written};
use crate::raw::{self, RawDatabase};

/// A cache of notes, as a service keeps one.
struct Cache {
    feed: FeedFollower,
    texts: BTreeMap<Uuid, String>,
    listings: usize,
}

impl Cache {
    fn new(store: &Store) -> Cache {
        Cache { feed: store.follow_feed([Note::KIND]), texts: BTreeMap::new(), listings: 0 }
    }

    /// Handles one batch.
    async fn update(&mut self, store: &Store) -> Result<(), StoreError> {
        match self.feed.read().await? {
            FeedBatch::StartOver => {
                self.listings += 1;
                self.texts.clear();
                let notes = store.documents::<Note>();
                notes.for_each(|it| drop(self.texts.insert(it.uuid, it.document.text))).await?;
            }
            FeedBatch::Changes(changes) => {
                for change in changes {
                    match store.documents::<Note>().get(change.uuid).await? {
                        Some(it) => drop(self.texts.insert(it.uuid, it.document.text)),
                        None => drop(self.texts.remove(&change.uuid)),
                    }
                }
            }
        }
        self.feed.acknowledge();
        Ok(())
    }

    /// Follows until the cache holds these texts.
    async fn holds(&mut self, store: &Store, expected: &[(Uuid, &str)]) {
        let expected: BTreeMap<Uuid, String> =
            expected.iter().map(|(uuid, text)| (*uuid, (*text).to_owned())).collect();
        let start = Instant::now();
        while self.texts != expected {
            assert!(start.elapsed() < crate::fixture::SOON, "{:?} is not {expected:?}", self.texts);
            self.update(store).await.unwrap();
            self.feed.wait(Duration::from_millis(50)).await;
        }
    }
}

on_both_engines! {
    async fn a_follower_lists_once_and_then_sees_creations_changes_and_deletions(env: &TestEnvironment) {
        let store = &env.store;
        let old = written(store, &Note::fresh().saying("old")).await;
        let mut cache = Cache::new(store);
        cache.holds(store, &[(old.uuid, "old")]).await;
        let new = written(store, &Note::fresh().saying("new")).await;
        store.collection().update(&old, &old.document.saying("changed"), &context()).await.unwrap();
        cache.holds(store, &[(old.uuid, "changed"), (new.uuid, "new")]).await;
        store.collection().delete(&new, &context()).await.unwrap();
        cache.holds(store, &[(old.uuid, "changed")]).await;
        assert_eq!(cache.listings, 1);
    }
}

on_both_engines! {
    async fn a_change_during_the_listing_is_read_afterwards(env: &TestEnvironment) {
        let store = &env.store;
        let mut follower = store.follow_feed([Note::KIND]);
        assert_eq!(follower.read().await.unwrap(), FeedBatch::StartOver);
        let note = written(store, &Note::fresh()).await;
        follower.acknowledge();
        eventually("the change is read", async || match follower.read().await.unwrap() {
            FeedBatch::Changes(changes) => changes.iter().any(|it| it.uuid == note.uuid).then_some(()),
            FeedBatch::StartOver => panic!("nothing was missed"),
        }).await;
    }
}

on_both_engines! {
    async fn a_batch_is_read_again_until_it_is_acknowledged(env: &TestEnvironment) {
        let store = &env.store;
        let mut follower = store.follow_feed([Note::KIND]);
        // A failed listing is requested again.
        for _ in 0..2 {
            assert_eq!(follower.read().await.unwrap(), FeedBatch::StartOver);
            assert_eq!(follower.position(), None);
        }
        follower.acknowledge();
        let note = written(store, &Note::fresh()).await;
        let first = eventually("the change is read", async || match follower.read().await.unwrap() {
            FeedBatch::Changes(changes) => (!changes.is_empty()).then_some(changes),
            FeedBatch::StartOver => panic!("nothing was missed"),
        }).await;
        assert_eq!(first.iter().map(|it| it.uuid).collect::<Vec<_>>(), [note.uuid]);
        assert_eq!(follower.read().await.unwrap(), FeedBatch::Changes(first));
        follower.acknowledge();
        assert_eq!(follower.read().await.unwrap(), FeedBatch::Changes(Vec::new()));
        assert!(follower.is_caught_up());
        follower.start_over();
        assert_eq!(follower.read().await.unwrap(), FeedBatch::StartOver);
    }
}

on_both_engines! {
    async fn only_changes_of_the_followed_kinds_are_read_in_bounded_batches(env: &TestEnvironment) {
        let store = &env.store;
        let start = store.feed_end().await.unwrap();
        let mut expected = Vec::new();
        for _ in 0..7 {
            expected.push(written(store, &Note::fresh()).await.uuid);
            store.enqueue(vec![NewWork::new(Uuid::now_v7(), Uuid::new_v4(), api::work::WorkKind::Operation)]).await.unwrap();
        }
        let follow = || store.follow_feed([Note::KIND]).from_position(start);
        eventually("all changes are visible", async || match follow().read().await.unwrap() {
            FeedBatch::Changes(changes) => (changes.len() == 7).then_some(()),
            FeedBatch::StartOver => panic!("the position was taken a moment ago"),
        }).await;
        let (mut follower, mut read, mut batches) = (follow().batch_max(2), Vec::new(), 0);
        loop {
            let FeedBatch::Changes(changes) = follower.read().await.unwrap() else { panic!("nothing was missed") };
            assert!(changes.len() < 4, "{changes:?}");
            assert!(changes.iter().all(|it| matches!(it.subject, Subject::Document { deleted: false, .. })));
            read.extend(changes.iter().map(|it| it.uuid));
            batches += 1;
            follower.acknowledge();
            // More can be read at once, without waiting for a notification.
            if follower.is_caught_up() {
                break;
            }
            timeout(Duration::from_secs(5), follower.wait(Duration::from_secs(60))).await.expect("it waited");
        }
        assert_eq!(read, expected);
        assert!(batches >= 3, "{batches} batches");
        // A follower that continues elsewhere starts behind what was acknowledged.
        let mut other = follow().from_position(follower.position().unwrap());
        assert_eq!(other.read().await.unwrap(), FeedBatch::Changes(Vec::new()));
    }
}

on_both_engines! {
    async fn a_follower_whose_position_has_left_the_feed_starts_over(env: &TestEnvironment) {
        let store = &env.store;
        let mut cache = Cache::new(store);
        cache.update(store).await.unwrap();
        let position = cache.feed.position().unwrap();
        let (kept, lost) = (written(store, &Note::fresh().saying("kept")).await, written(store, &Note::fresh()).await);
        store.collection().delete(&lost, &context()).await.unwrap();
        let retention = Retention { feed: Duration::ZERO, ..Retention::default() };
        run_housekeeping_until(store, retention, "the feed is trimmed", async || {
            matches!(store.feed_after(position, 10).await, Err(FeedError::Gone { .. })).then_some(())
        }).await;
        cache.texts.insert(lost.uuid, "deleted while the follower was away".to_owned());
        cache.holds(store, &[(kept.uuid, "kept")]).await;
        assert_eq!(cache.listings, 2);
        let next = written(store, &Note::fresh().saying("next")).await;
        cache.holds(store, &[(kept.uuid, "kept"), (next.uuid, "next")]).await;
        assert_eq!(cache.listings, 2);
    }
}

#[test]
fn a_follower_of_another_generation_of_the_store_starts_over() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        let position = store.feed_end().await.unwrap();
        close(store).await;
        raw::open(&folder.path())
            .execute("update meta set value = '2' where key = 'generation'", [])
            .unwrap();
        let store = folder.open().await;
        let mut follower = store.follow_feed([]).from_position(position);
        assert_eq!(follower.read().await.unwrap(), FeedBatch::StartOver);
        follower.acknowledge();
        assert_eq!(follower.read().await.unwrap(), FeedBatch::Changes(Vec::new()));
    });
}

#[test]
fn a_change_committed_late_is_read_though_younger_changes_were_written_meanwhile() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, foreign) = (&env.store, RawDatabase::connect(&env).await);
        let mut cache = Cache::new(store);
        cache.update(store).await.unwrap();
        foreign.execute("create table other (n int)").await;
        foreign.execute("begin; insert into other values (1)").await;
        let held = written(store, &Note::fresh().saying("held back")).await;
        for _ in 0..3 {
            cache.update(store).await.unwrap();
            assert!(cache.texts.is_empty());
        }
        foreign.execute("commit").await;
        cache.holds(store, &[(held.uuid, "held back")]).await;
        assert_eq!(cache.listings, 1);
    });
}

on_both_engines! {
    async fn a_write_wakes_a_waiting_follower_and_the_poll_bounds_the_wait(env: &TestEnvironment) {
        let store = &env.store;
        let mut cache = Cache::new(store);
        eventually("the follower has caught up", async || {
            cache.update(store).await.unwrap();
            cache.feed.wait(Duration::from_millis(20)).await;
            cache.feed.is_caught_up().then_some(())
        }).await;
        let start = Instant::now();
        cache.feed.wait(Duration::from_millis(30)).await;
        assert!(start.elapsed() < SAFETY_POLL, "the poll did not end the wait");
        let (waiting, write_mode) = (cache.feed.wait(Duration::from_secs(600)), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            written(store, &Note::fresh().saying("seen")).await
        });
        let (_, note) = timeout(SAFETY_POLL * 4, async { tokio::join!(waiting, write_mode) }).await.expect("no wake-up");
        cache.holds(store, &[(note.uuid, "seen")]).await;
    }
}

#[test]
fn a_follower_that_could_not_read_does_not_spin() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        let mut follower = env.store.follow_feed([Note::KIND]);
        assert_eq!(follower.read().await.unwrap(), FeedBatch::StartOver);
        // Not acknowledged, as after a listing that failed.
        let start = Instant::now();
        follower.wait(Duration::from_millis(200)).await;
        assert!(start.elapsed() >= Duration::from_millis(200));
    });
}
