//! Notifications reach every process, and losing one loses nothing: the next poll, or the reconnected listener, sees
//! all.

use std::time::Duration;

use api::work::WorkKind;
use store::{NewWork, Notifications, SAFETY_POLL, Store, Topic, Transaction};
use tokio::time::timeout;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on};
use crate::fixture::{Note, eventually, written};
use crate::raw::RawDatabase;

/// Consumes earlier notifications.
async fn drain(notifications: &mut Notifications) {
    while timeout(Duration::from_millis(20), notifications.next()).await.is_ok() {}
}

fn work(kind: WorkKind) -> NewWork {
    NewWork::new(Uuid::now_v7(), Uuid::now_v7(), kind)
}

/// Waits for a notification; returns how long it took.
async fn notified(notifications: &mut Notifications) -> Duration {
    let start = tokio::time::Instant::now();
    timeout(SAFETY_POLL * 4, notifications.next()).await.expect("no wake-up came");
    start.elapsed()
}

/// Writes of `writer` to each topic notify the waiters at `listener`.
async fn each_topic_notifies(writer: &Store, listener: &Store) {
    let mut feed = listener.notifications(Topic::Feed);
    let mut operations = listener.notifications(Topic::Work(WorkKind::Operation));
    let mut manifests = listener.notifications(Topic::Work(WorkKind::Manifest));
    for notifications in [&mut feed, &mut operations, &mut manifests] {
        drain(notifications).await;
    }
    writer.enqueue(vec![work(WorkKind::Operation)]).await.unwrap();
    notified(&mut operations).await;
    writer.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
    notified(&mut manifests).await;
    written(writer, &Note::fresh()).await;
    notified(&mut feed).await;
}

on_both_engines! {
    async fn a_write_notifies_subscribers_of_its_topic(env: &TestEnvironment) {
        each_topic_notifies(&env.store, &env.store).await;
    }
}

#[test]
fn within_a_process_nobody_is_notified_without_a_write() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        let mut operations = env.store.notifications(Topic::Work(WorkKind::Operation));
        let mut feed = env.store.notifications(Topic::Feed);
        env.store.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
        let rejected = env.store.commit(Transaction::new().expedite(Uuid::new_v4())).await;
        assert!(rejected.is_err());
        written(&env.store, &Note::fresh()).await;
        notified(&mut feed).await;
        assert!(timeout(Duration::ZERO, operations.next()).await.is_err(), "a bell rang without reason");
    });
}

#[test]
fn a_write_notifies_subscribers_in_another_process() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let another = env.another().await;
        eventually("the other process listens", async || {
            let sql = "select count(*) from pg_stat_activity where datname = current_database() and query like 'listen%'";
            (RawDatabase::connect(&env).await.one(sql).await == "2").then_some(())
        }).await;
        each_topic_notifies(&env.store, &another).await;
        each_topic_notifies(&another, &env.store).await;
    });
}

/// Terminates every listening connection on this database; returns how many.
async fn cut_listeners(raw: &RawDatabase) -> usize {
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()
                 and (query like 'listen%' or query like 'notify%' or query like '%;notify%')";
    raw.rows(sql).await.len()
}

#[test]
fn a_listener_that_was_cut_off_hears_again_and_work_is_still_picked_up_within_the_poll_interval() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (raw, another) = (RawDatabase::connect(&env).await, env.another().await);
        let mut notifications = another.notifications(Topic::Work(WorkKind::Manifest));
        for round in 0..3 {
            eventually("a listener is cut off", async || (cut_listeners(&raw).await > 0).then_some(())).await;
            // As a worker does: claim; if nothing is due, wait for a notification, at most for the poll interval.
            let written_at = tokio::time::Instant::now();
            let asked = work(WorkKind::Manifest);
            env.store.enqueue(vec![asked.clone()]).await.unwrap();
            let claimed = loop {
                let claimed = another.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap();
                if !claimed.is_empty() {
                    break claimed;
                }
                let _ = timeout(SAFETY_POLL, notifications.next()).await;
            };
            assert_eq!(claimed[0].lease.work, asked.id, "round {round}");
            assert!(written_at.elapsed() <= SAFETY_POLL + Duration::from_secs(1), "round {round}");
        }
        // Listeners reconnect by themselves, and then notifications are quick again.
        eventually("a wake-up crosses again", async || {
            drain(&mut notifications).await;
            env.store.enqueue(vec![work(WorkKind::Manifest)]).await.unwrap();
            timeout(Duration::from_millis(500), notifications.next()).await.ok()
        })
        .await;
        each_topic_notifies(&env.store, &another).await;
    });
}

#[test]
fn a_reconnected_listener_notifies_once_for_missed_notifications() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        let mut all_notifications: Vec<Notifications> =
            Topic::ALL.into_iter().map(|topic| env.store.notifications(topic)).collect();
        eventually("the listener is cut off", async || (cut_listeners(&raw).await > 0).then_some(())).await;
        for notifications in &mut all_notifications {
            notified(notifications).await;
        }
    });
}
