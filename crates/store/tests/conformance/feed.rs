//! The change feed: every committed change is delivered, at least once and in order; an uncommitted one never.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::work::{Ending, WorkKind};
use serde_json::json;
use store::housekeeping::{self, Metrics};
use store::{
    AuditQuery, Completion, DesiredState, Etag, FeedError, NewWork, Release, Retention, Store, StoreError,
    Subject, Transaction, VersionedDocument,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, short_or_long};
use crate::fixture::{
    Dice, Folder, Note, assert_sound, at, close, context, counter, eventually, feed_from, seed, version,
    written,
};
use crate::raw::{self, RawDatabase};

/// A change: document, version, deleted or not.
type FeedChange = (Uuid, Etag, bool);

/// One of many writers: creates, changes and deletes its own notes, alone and several together, and fails often.
async fn write_and_fail(store: Store, taken: Note, rounds: usize, mut dice: Dice) -> HashSet<FeedChange> {
    let mut committed = HashSet::new();
    let mut mine: Vec<VersionedDocument<Note>> = Vec::new();
    for round in 0..rounds {
        if dice.below(4) == 0 {
            // Sometimes delayed between two writes.
            tokio::time::sleep(Duration::from_millis(dice.below(4))).await;
        }
        let place = if mine.is_empty() {
            None
        } else {
            Some(usize::try_from(dice.below(mine.len() as u64)).unwrap())
        };
        match (dice.below(6), place) {
            // A transaction whose second half conflicts: its first half must never be delivered.
            (0, _) => {
                let failing = Transaction::new().create(Uuid::now_v7(), &Note::fresh(), &context()).unwrap();
                let failing = failing.create(Uuid::now_v7(), &taken, &context()).unwrap();
                assert!(matches!(store.commit(failing).await, Err(StoreError::Exists { .. })));
            }
            // The same, with a change and a stale version.
            (1, Some(place)) => {
                let (read, ghost) = (&mine[place], Uuid::now_v7());
                let failing = Transaction::new()
                    .update(read, &read.document.saying("undone"), DesiredState::Unchanged, &context())
                    .unwrap();
                let failing = failing.delete(ghost, read.etag);
                assert!(
                    matches!(store.commit(failing).await, Err(StoreError::Gone { uuid }) if uuid == ghost)
                );
            }
            (2, Some(place)) => {
                let read = mine.swap_remove(place);
                store.collection().delete(&read, &context()).await.unwrap();
                committed.insert((read.uuid, at(counter(read.etag) + 1), true));
            }
            (3 | 4, Some(place)) => {
                // A change and a creation, together.
                let (read, fresh) = (mine[place].clone(), Uuid::now_v7());
                let both = Transaction::new()
                    .update(
                        &read,
                        &read.document.saying(round.to_string()),
                        DesiredState::Unchanged,
                        &context(),
                    )
                    .unwrap();
                let both = both.create(fresh, &Note::fresh(), &context()).unwrap();
                let etags = store.commit(both).await.unwrap();
                committed.insert((read.uuid, etags.etag(read.uuid).unwrap(), false));
                committed.insert((fresh, etags.etag(fresh).unwrap(), false));
                mine[place] = store.documents().get(read.uuid).await.unwrap().unwrap();
                mine.push(store.documents().get(fresh).await.unwrap().unwrap());
            }
            _ => {
                let made = written(&store, &Note::fresh()).await;
                committed.insert((made.uuid, made.etag, false));
                mine.push(made);
            }
        }
    }
    committed
}

/// A reader that is restarted repeatedly, from a saved position or from a much earlier one.
async fn read_and_restart(
    store: Store,
    name: String,
    mut dice: Dice,
    done: &AtomicBool,
    expect: &Mutex<Option<HashSet<FeedChange>>>,
) -> Vec<FeedChange> {
    let start = store.saved_position(&name).await.unwrap().unwrap();
    let mut delivered: Vec<FeedChange> = Vec::new();
    let mut seen: HashSet<FeedChange> = HashSet::new();
    let mut position = start;
    // Last versions since the restart: order must hold within it.
    let mut life: HashMap<Uuid, Etag> = HashMap::new();
    loop {
        let page = store.feed_after(position, 1 + usize::try_from(dice.below(40)).unwrap()).await.unwrap();
        let mut last = position;
        for change in &page.changes {
            assert!(change.position > last, "{} came behind {last}", change.position);
            last = change.position;
            let Some(document_version) = version(change) else { continue };
            if let Some(before) = life.insert(document_version.0, document_version.1) {
                assert!(before < document_version.1, "{document_version:?} came behind {before}");
            }
            // Nothing is skipped: the previous version was delivered before.
            if counter(document_version.1) > 1 {
                let before = at(counter(document_version.1) - 1);
                assert!(
                    seen.contains(&(document_version.0, before, false)),
                    "{document_version:?} is in the feed, {before} is not"
                );
            }
            seen.insert(document_version);
            delivered.push(document_version);
        }
        assert_eq!(last, page.next);
        position = page.next;
        match dice.below(10) {
            0 => store.commit(Transaction::new().save_position(&name, position)).await.map(drop).unwrap(),
            // It restarts, with only its saved position.
            1 if !done.load(Ordering::SeqCst) => {
                position = store.saved_position(&name).await.unwrap().unwrap();
                life.clear();
            }
            _ => {}
        }
        if page.changes.is_empty() {
            let complete = expect.lock().unwrap().as_ref().is_some_and(|expect| expect.is_subset(&seen));
            if complete {
                return delivered;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

on_both_engines! {
    async fn every_committed_change_is_delivered_though_writers_fail_and_readers_restart(env: &TestEnvironment) {
        let seed = seed();
        println!("seed {seed}");
        let taken = Note::fresh();
        let taken_at = written(&env.store, &taken).await;
        let start = env.store.feed_end().await.unwrap();
        // The feed may be delayed behind this position for a moment; all readers start here.
        let mut stores = vec![env.store.clone()];
        if env.is_shared() {
            stores.extend([env.another().await, env.another().await]);
        }
        for reader in 0..3 {
            env.store.commit(Transaction::new().save_position(format!("reader-{reader}"), start)).await.unwrap();
        }
        let (done, expect) = (AtomicBool::new(false), Mutex::new(None));
        let rounds = short_or_long(60, 3000);
        let write_mode = async {
            let mut writers = JoinSet::new();
            for writer in 0..8 {
                let store = stores[writer % stores.len()].clone();
                writers.spawn(write_and_fail(store, taken.clone(), rounds, Dice::seeded(seed ^ writer as u64)));
            }
            let committed: HashSet<FeedChange> = writers.join_all().await.into_iter().flatten().collect();
            done.store(true, Ordering::SeqCst);
            *expect.lock().unwrap() = Some(committed.clone());
            committed
        };
        let read = |reader: usize| {
            let (store, name) = (stores[reader % stores.len()].clone(), format!("reader-{reader}"));
            read_and_restart(store, name, Dice::seeded(seed ^ (1000 + reader as u64)), &done, &expect)
        };
        let (committed, one, two, three) = tokio::join!(write_mode, read(0), read(1), read(2));
        for delivered in [one, two, three] {
            let mut delivered: HashSet<FeedChange> = delivered.into_iter().collect();
            // The note that everybody collides with was written just before; it may be delivered or not.
            delivered.remove(&(taken_at.uuid, taken_at.etag, false));
            assert_eq!(delivered, committed, "seed {seed}");
        }
    }
}

on_both_engines! {
    async fn every_state_change_of_work_is_in_the_feed(env: &TestEnvironment) {
        let (store, lane, me) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let mut position = store.feed_end().await.unwrap();
        let work = NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest);
        let mut expect_change = async |what: &str| {
            position = eventually(what, async || {
                let page = store.feed_after(position, 100).await.unwrap();
                let moved = page.changes.iter().any(|it| it.uuid == work.id && it.subject == Subject::Work && it.kind == "manifest");
                moved.then_some(page.next)
            }).await;
        };
        store.enqueue(vec![work.clone()]).await.unwrap();
        let claimed = store.claim(WorkKind::Manifest, 1, me).await.unwrap();
        expect_change("the claim is in the feed").await;
        store.checkpoint(claimed[0].lease, "one", json!({})).await.unwrap();
        expect_change("the checkpoint is in the feed").await;
        store.release(Release::new(claimed[0].lease, Duration::ZERO, true)).await.unwrap();
        expect_change("the yield is in the feed").await;
        let old = store.claim_for(WorkKind::Manifest, 1, me, Duration::ZERO).await.unwrap();
        expect_change("the second claim is in the feed").await;
        let lease = store.take_over(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap()[0].lease;
        assert!(lease.fence > old[0].lease.fence);
        expect_change("the take-over is in the feed").await;
        store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        expect_change("the end is in the feed").await;
    }
}

/// Runs the housekeeping until `done` returns a value.
pub(crate) async fn run_housekeeping_until(
    store: &Store,
    retention: Retention,
    what: &str,
    done: impl AsyncFnMut() -> Option<()>,
) {
    let shutdown = CancellationToken::new();
    let mut keeper = JoinSet::new();
    keeper.spawn(housekeeping::run(store.clone(), retention, Metrics::default(), shutdown.clone()));
    eventually(what, done).await;
    shutdown.cancel();
    keeper.join_all().await;
}

on_both_engines! {
    async fn a_position_past_retention_is_gone_and_a_younger_one_is_not(env: &TestEnvironment) {
        let store = &env.store;
        let old = store.feed_end().await.unwrap();
        for _ in 0..5 {
            written(store, &Note::fresh()).await;
        }
        let young = eventually("all five are in the feed", async || {
            let changes = feed_from(store, old).await.unwrap();
            (changes.len() == 5).then(|| changes[4].position)
        }).await;
        let retention = Retention { feed: Duration::ZERO, ..Retention::default() };
        run_housekeeping_until(store, retention, "the feed is trimmed", async || {
            matches!(store.feed_after(old, 10).await, Err(FeedError::Gone { .. })).then_some(())
        }).await;
        let rejection = store.feed_after(old, 10).await.unwrap_err().to_string();
        assert_eq!(rejection, format!("feed position {old} is too old; list everything and continue from a new position"));
        // The newest row stays, and with it the position of a reader that had read it.
        assert!(store.feed_after(young, 10).await.unwrap().changes.is_empty());
        let fresh = store.feed_end().await.unwrap();
        let next = written(store, &Note::fresh()).await;
        for position in [young, fresh] {
            let changes = eventually("the next change is in the feed", async || {
                let changes = feed_from(store, position).await.unwrap();
                (!changes.is_empty()).then_some(changes)
            }).await;
            assert_eq!(changes.iter().map(|it| it.uuid).collect::<Vec<_>>(), [next.uuid]);
        }
    }
}

#[test]
fn a_position_of_another_generation_is_gone_on_sqlite() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        written(&store, &Note::fresh()).await;
        let old = store.feed_end().await.unwrap();
        close(store).await;
        raw::open(&folder.path())
            .execute("update meta set value = '2' where key = 'generation'", [])
            .unwrap();
        let store = folder.open().await;
        assert!(matches!(store.feed_after(old, 10).await, Err(FeedError::Gone { .. })));
        let new = store.feed_end().await.unwrap();
        assert!(store.feed_after(new, 10).await.unwrap().changes.is_empty());
    });
}

#[test]
fn a_position_is_gone_when_postgresql_is_another_instance_or_an_older_one() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        // Restored into another instance, or to an earlier time, or promoted: all show in the store's meta values.
        for restored in [
            "update meta set value = '42' where key = 'system_identifier'",
            "update meta set value = '9000000000000000' where key = 'high_water_tx'",
            "update meta set value = '000000FF' where key = 'timeline'",
        ] {
            written(&env.store, &Note::fresh()).await;
            let old = env.store.feed_end().await.unwrap();
            assert!(env.store.feed_after(old, 10).await.is_ok());
            raw.execute(restored).await;
            let another = env.another().await;
            // A recent empty page may be trusted for a moment longer; nothing is missed.
            for store in [&env.store, &another] {
                let gone = async || {
                    matches!(store.feed_after(old, 10).await, Err(FeedError::Gone { .. })).then_some(())
                };
                eventually(restored, gone).await;
            }
            let new = another.feed_end().await.unwrap();
            assert!(env.store.feed_after(new, 10).await.is_ok());
            // Opening it again finds nothing unusual.
            let third = env.another().await;
            assert!(third.feed_after(new, 10).await.is_ok());
        }
    });
}

/// A dump of an instance with higher transaction ids than the one that it is restored into.
#[test]
fn rows_of_an_instance_with_higher_transaction_ids_precede_new_rows() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        let notes = [written(&env.store, &Note::fresh()).await, written(&env.store, &Note::fresh()).await];
        let listed = async |store: &Store| {
            let all = AuditQuery { limit: 100, ..AuditQuery::default() };
            store.audit_list(all).await.unwrap().into_iter().map(|row| row.record).collect::<Vec<_>>()
        };
        let sealed = async |store: &Store| {
            eventually("all records are sealed", async || {
                store.seal_audit(Uuid::new_v4()).await.unwrap();
                listed(store).await.iter().all(|it| it.number.is_some()).then_some(())
            })
            .await;
        };
        sealed(&env.store).await;
        // Two more, unsealed at the time of the dump.
        for note in &notes {
            env.store.collection().update(note, &note.document.saying("changed"), &context()).await.unwrap();
        }
        let before: Vec<Uuid> = listed(&env.store).await.iter().map(|it| it.id).collect();
        let old = env.store.feed_end().await.unwrap();
        env.store.close().await;
        raw.execute(
            "update feed set tx = tx + 4000000000000; update audit set tx = tx + 4000000000000;
             update meta set value = '4000000000001-1' where key = 'feed_floor';
             update meta set value = '4900000000000' where key = 'high_water_tx';
             update meta set value = '42' where key = 'system_identifier'",
        )
        .await;

        let store = env.another().await;
        assert!(matches!(store.feed_after(old, 10).await, Err(FeedError::Gone { .. })));
        // A reader lists once, and then follows.
        let position = store.feed_end().await.unwrap();
        assert_eq!(store.get_many(notes.iter().map(|it| it.uuid).collect()).await.unwrap().len(), 2);
        let new = written(&store, &Note::fresh()).await;
        let changes = eventually("the change is in the feed", async || {
            let changes = feed_from(&store, position).await.unwrap();
            (!changes.is_empty()).then_some(changes)
        })
        .await;
        assert_eq!(changes.iter().filter_map(version).collect::<Vec<_>>(), [(new.uuid, new.etag, false)]);
        // The newest record comes first, and the old ones are unchanged.
        let now: Vec<Uuid> = listed(&store).await.iter().map(|it| it.id).collect();
        assert_eq!(now[1..], before);
        // Unsealed records of the dump are sealed here, in the order of the log.
        sealed(&store).await;
        let numbers: Vec<i64> = listed(&store).await.iter().map(|it| it.number.unwrap()).collect();
        assert_eq!(numbers, [5, 4, 3, 2, 1]);
        assert_sound(&store).await;
        // Opening it again finds nothing unusual.
        let again = env.another().await;
        assert!(again.feed_after(position, 10).await.is_ok());
        assert_eq!(listed(&again).await.len(), 5);
    });
}

#[test]
fn a_transaction_left_open_anywhere_holds_the_feed_back_and_loses_nothing() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, foreign) = (&env.store, RawDatabase::connect(&env).await);
        foreign.execute("create table other (n int)").await;
        for round in 0..short_or_long(3, 50) {
            let start = store.feed_end().await.unwrap();
            foreign.execute("begin; insert into other values (1)").await;
            let held = written(store, &Note::fresh()).await;
            let meanwhile = store.feed_end().await.unwrap();
            for position in [start, meanwhile] {
                let page = store.feed_after(position, 100).await.unwrap();
                assert!(page.changes.is_empty(), "round {round}: {:?}", page.changes);
                assert_eq!(page.next, position);
            }
            foreign.execute(if round % 2 == 0 { "commit" } else { "rollback" }).await;
            for position in [start, meanwhile] {
                let changes = eventually("the change is in the feed", async || {
                    let changes = feed_from(store, position).await.unwrap();
                    (!changes.is_empty()).then_some(changes)
                })
                .await;
                assert_eq!(
                    changes.iter().filter_map(version).collect::<Vec<_>>(),
                    [(held.uuid, held.etag, false)]
                );
            }
        }
    });
}

#[test]
fn a_reading_transaction_does_not_hold_the_feed_back() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, foreign) = (&env.store, RawDatabase::connect(&env).await);
        let start = store.feed_end().await.unwrap();
        foreign.execute("begin isolation level repeatable read; select count(*) from documents").await;
        let note = written(store, &Note::fresh()).await;
        let changes = eventually("the change is in the feed", async || {
            let changes = feed_from(store, start).await.unwrap();
            (!changes.is_empty()).then_some(changes)
        })
        .await;
        assert_eq!(changes[0].uuid, note.uuid);
        foreign.execute("commit").await;
    });
}
