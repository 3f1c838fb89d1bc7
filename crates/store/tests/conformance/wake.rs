//! Wake-ups reach every process, and losing one loses nothing: the next poll, or the reconnected listener, sees all.

use std::time::Duration;

use api::work::WorkKind;
use store::{NewWork, Notifications, SAFETY_POLL, Store, Topic, Transaction};
use tokio::time::timeout;
use uuid::Uuid;

use crate::bed::{Bed, block_on};
use crate::fixture::{Note, eventually, written};
use crate::raw::Raw;

/// Takes what has rung so far.
async fn hush(wakeups: &mut Notifications) {
    while timeout(Duration::from_millis(20), wakeups.next()).await.is_ok() {}
}

fn work(kind: WorkKind) -> NewWork {
    NewWork::new(Uuid::now_v7(), Uuid::now_v7(), kind)
}

/// Waits for a wake-up, and says how long it took.
async fn woken(wakeups: &mut Notifications) -> Duration {
    let start = tokio::time::Instant::now();
    timeout(SAFETY_POLL * 4, wakeups.next()).await.expect("no wake-up came");
    start.elapsed()
}

/// Each topic is rung by what `writer` writes of it, for whoever waits at `hearer`.
async fn each_topic_rings(writer: &Store, hearer: &Store) {
    let mut feed = hearer.wakeups(Topic::Feed);
    let mut operations = hearer.wakeups(Topic::Work(WorkKind::Operation));
    let mut manifests = hearer.wakeups(Topic::Work(WorkKind::Manifest));
    for bell in [&mut feed, &mut operations, &mut manifests] {
        hush(bell).await;
    }
    writer.enqueue(vec![work(WorkKind::Operation)]).await.unwrap();
    woken(&mut operations).await;
    writer.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
    woken(&mut manifests).await;
    written(writer, &Note::fresh()).await;
    woken(&mut feed).await;
}

on_both_engines! {
    async fn a_write_wakes_those_who_wait_for_its_topic(bed: &Bed) {
        each_topic_rings(&bed.store, &bed.store).await;
    }
}

#[test]
fn within_a_process_nobody_is_woken_for_nothing() {
    block_on(async {
        let bed = Bed::sqlite().await;
        let mut operations = bed.store.wakeups(Topic::Work(WorkKind::Operation));
        let mut feed = bed.store.wakeups(Topic::Feed);
        bed.store.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
        let refused = bed.store.commit(Transaction::new().expedite(Uuid::new_v4())).await;
        assert!(refused.is_err());
        written(&bed.store, &Note::fresh()).await;
        woken(&mut feed).await;
        assert!(timeout(Duration::ZERO, operations.next()).await.is_err(), "a bell rang without reason");
    });
}

#[test]
fn a_write_wakes_those_who_wait_in_another_process() {
    block_on(async {
        let Some(bed) = Bed::postgres().await else { return };
        let another = bed.another().await;
        eventually("the other process listens", async || {
            let sql = "select count(*) from pg_stat_activity where datname = current_database() and query like 'listen%'";
            (Raw::of(&bed).await.one(sql).await == "2").then_some(())
        }).await;
        each_topic_rings(&bed.store, &another).await;
        each_topic_rings(&another, &bed.store).await;
    });
}

/// Ends every connection that listens on this database; how many there were.
async fn cut_listeners(raw: &Raw) -> usize {
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()
                 and (query like 'listen%' or query like 'notify%' or query like '%;notify%')";
    raw.rows(sql).await.len()
}

#[test]
fn a_listener_that_was_cut_off_hears_again_and_work_is_still_picked_up_within_the_poll_interval() {
    block_on(async {
        let Some(bed) = Bed::postgres().await else { return };
        let (raw, another) = (Raw::of(&bed).await, bed.another().await);
        let mut bell = another.wakeups(Topic::Work(WorkKind::Manifest));
        for round in 0..3 {
            eventually("a listener is cut off", async || (cut_listeners(&raw).await > 0).then_some(())).await;
            // As a worker does: claim; if nothing is there, wait for a wake-up, at most for the poll interval.
            let written_at = tokio::time::Instant::now();
            let asked = work(WorkKind::Manifest);
            bed.store.enqueue(vec![asked.clone()]).await.unwrap();
            let claimed = loop {
                let claimed = another.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap();
                if !claimed.is_empty() {
                    break claimed;
                }
                let _ = timeout(SAFETY_POLL, bell.next()).await;
            };
            assert_eq!(claimed[0].hold.work, asked.id, "round {round}");
            assert!(written_at.elapsed() <= SAFETY_POLL + Duration::from_secs(1), "round {round}");
        }
        // Listeners come back by themselves, and then wake-ups are quick again.
        eventually("a wake-up crosses again", async || {
            hush(&mut bell).await;
            bed.store.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
            timeout(Duration::from_millis(500), bell.next()).await.ok()
        })
        .await;
        each_topic_rings(&bed.store, &another).await;
    });
}

#[test]
fn a_listener_that_comes_back_rings_once_for_what_it_may_have_missed() {
    block_on(async {
        let Some(bed) = Bed::postgres().await else { return };
        let raw = Raw::of(&bed).await;
        let mut bells: Vec<Notifications> =
            Topic::ALL.into_iter().map(|topic| bed.store.wakeups(topic)).collect();
        eventually("the listener is cut off", async || (cut_listeners(&raw).await > 0).then_some(())).await;
        for bell in &mut bells {
            woken(bell).await;
        }
    });
}
