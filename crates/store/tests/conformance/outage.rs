//! The database goes away and comes back: no acknowledged write is lost, no call waits for ever, and no process has
//! to be restarted.

use std::time::Duration;

use api::work::{Ending, WorkKind};
use serde_json::json;
use store::{Completion, FeedError, LEASE, NewWork, RENEWAL, SELF_STOP, Store, StoreError, Topic};
use testkit::postgres::{self, PostgresOptions, StopMode, TestPostgres};
use testkit::{prerequisites, tmpfs::SmallDisk};
use tokio::time::timeout;
use uuid::Uuid;

use crate::environment::{block_on, options, short_or_long};
use crate::fixture::{Note, assert_sound, context, eventually, written};
use crate::load::Load;

/// Longer than any call may take: the wait for a connection plus the time of a statement.
const BOUND: Duration = Duration::from_secs(20);

fn server(options: PostgresOptions) -> Option<TestPostgres> {
    let server = postgres::private(options);
    if server.is_none() {
        prerequisites::skip(prerequisites::POSTGRESQL, "no server binaries were found");
    }
    server
}

/// Runs what blocks the thread: starting or stopping a server.
async fn outside<T: Send + 'static>(work: impl FnOnce() -> T + Send) -> T {
    tokio::task::block_in_place(work)
}

#[test]
fn a_holder_knows_by_its_own_clock_before_anybody_takes_over() {
    // It renews often enough to miss one, and stops by itself with time left for the current step.
    const { assert!(RENEWAL.as_secs() * 2 <= SELF_STOP.as_secs()) };
    const { assert!(SELF_STOP.as_secs() + RENEWAL.as_secs() <= LEASE.as_secs()) };
}

#[test]
fn a_server_stopped_and_killed_under_load_loses_no_acknowledged_write() {
    block_on(async {
        let Some(server) = server(PostgresOptions::default()) else { return };
        let database = server.database().unwrap();
        let place = options(database.url().parse().unwrap());
        let store = Store::open(place.clone()).await.unwrap();
        let load = Load::start(&store, 4, 100).await;
        load.answers(100).await;

        // Work is held over the outage; its lease expires meanwhile.
        let (me, other) = (Uuid::new_v4(), Uuid::new_v4());
        let held = NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest);
        store.enqueue(vec![held.clone()]).await.unwrap();
        let duration = Duration::from_secs(1);
        let lease = store.claim_for(WorkKind::Manifest, 1, me, duration).await.unwrap()[0].lease;
        store.checkpoint(lease, "before the outage", json!({ "n": 1 })).await.unwrap();

        // Stopped for a while: each call fails in time, as a temporary error.
        outside(|| server.stop(StopMode::Fast).unwrap()).await;
        let refused =
            timeout(BOUND, store.renew_for(me, vec![lease.lane], duration)).await.expect("a renewal hangs");
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
        let refused = timeout(BOUND, store.get(lease.work)).await.expect("a read hangs");
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
        let refused = timeout(BOUND, store.ping()).await.expect("a ping hangs");
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
        let rejection =
            timeout(BOUND, Store::open(place.clone())).await.expect("opening hangs").unwrap_err().to_string();
        assert!(rejection.contains(": cannot be reached ("), "{rejection}");
        load.refusals(4).await;
        tokio::time::sleep(short_or_long(Duration::from_secs(3), Duration::from_secs(30))).await;
        outside(|| server.restart().unwrap()).await;
        load.answers(100).await;

        // Nobody trusted the lease beyond its time: another process has it, and the old lease is rejected.
        let second = Store::open(place.clone()).await.unwrap();
        let taken = eventually("the work is taken over", async || {
            second
                .take_over(WorkKind::Manifest, 10, other)
                .await
                .unwrap()
                .into_iter()
                .find(|it| it.lease.work == held.id)
        })
        .await;
        assert_eq!((taken.step.as_deref(), taken.attempt), (Some("before the outage"), 2));
        assert!(matches!(
            store.checkpoint(lease, "late", json!({})).await,
            Err(StoreError::LostLease { .. })
        ));
        assert!(store.renew(me, vec![lease.lane]).await.unwrap().is_empty());
        let done = Completion::new(taken.lease, Ending::Completed, json!({}));
        second.complete(&[done]).await.unwrap();

        // Killed, as when its host loses power, and killed again.
        for _ in 0..short_or_long(2, 10) {
            outside(|| server.kill().unwrap()).await;
            load.refusals(1).await;
            outside(|| server.restart().unwrap()).await;
            load.answers(50).await;
        }
        // Notifications arrive again too.
        let mut notifications = second.notifications(Topic::Work(WorkKind::Operation));
        eventually("a wake-up crosses again", async || {
            store
                .enqueue(vec![NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Operation)])
                .await
                .unwrap();
            timeout(Duration::from_millis(500), notifications.next()).await.ok()
        })
        .await;
        load.settle(&store, BOUND).await;
    });
}

#[test]
fn a_server_that_hangs_is_not_waited_for_without_end() {
    block_on(async {
        let Some(server) = server(PostgresOptions::default()) else { return };
        let database = server.database().unwrap();
        let store = Store::open(options(database.url().parse().unwrap())).await.unwrap();
        let note = written(&store, &Note::fresh()).await;
        // All its processes are stopped, though every connection is up: the worst kind of outage.
        let mut pids = vec![server.pid().unwrap().to_string()];
        let children = format!("/proc/{0}/task/{0}/children", pids[0]);
        pids.extend(std::fs::read_to_string(children).unwrap().split_whitespace().map(str::to_owned));
        let signal = |name: &str| {
            let status =
                std::process::Command::new("kill").arg(format!("-{name}")).args(&pids).status().unwrap();
            assert!(status.success());
        };
        signal("STOP");
        let change = async { store.collection().update(&note, &note.document.saying("x"), &context()).await };
        let (read, written_to) = tokio::join!(timeout(BOUND, store.get(note.uuid)), timeout(BOUND, change),);
        signal("CONT");
        assert!(matches!(read, Ok(Err(StoreError::Unavailable { .. }))), "{read:?}");
        assert!(matches!(written_to, Ok(Err(StoreError::Unavailable { .. }))), "{written_to:?}");
        eventually("it answers again", async || store.ping().await.ok()).await;
        assert_sound(&store).await;
    });
}

#[test]
fn a_failover_to_a_synchronous_standby_loses_no_acknowledged_write() {
    block_on(async {
        let Some(primary) = server(PostgresOptions::default()) else { return };
        let database = primary.database().unwrap();
        let standby = primary.standby().unwrap();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
        let url = format!("postgres://postgres@{hosts}/{}?target_session_attrs=read-write", database.name());
        let place = options(url.parse().unwrap());
        let store = Store::open(place.clone()).await.unwrap();
        let load = Load::start(&store, 4, 100).await;
        load.answers(100).await;
        let held = NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest);
        store.enqueue(vec![held.clone()]).await.unwrap();
        let lease = store.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap()[0].lease;
        store.checkpoint(lease, "on the primary", json!({})).await.unwrap();
        let position = store.feed_end().await.unwrap();

        outside(|| primary.kill().unwrap()).await;
        load.refusals(1).await;
        outside(|| standby.promote().unwrap()).await;
        load.answers(100).await;
        // The queue continues under the same lease; the feed has everything, in order.
        store.checkpoint(lease, "on the standby", json!({})).await.unwrap();
        store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        assert_eq!(store.work(held.id).await.unwrap().unwrap().step.as_deref(), Some("on the standby"));
        load.settle(&store, BOUND).await;
        // Another standby might have lagged behind: the next opening makes the readers start over.
        let second = Store::open(place).await.unwrap();
        assert!(matches!(second.feed_after(position, 10).await, Err(FeedError::Gone { .. })));
        drop(standby);
    });
}

#[test]
fn a_server_whose_disk_is_full_loses_no_acknowledged_write() {
    block_on(async {
        let Some(disk) = SmallDisk::new(192 << 20) else {
            return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
        };
        let small = PostgresOptions::default().in_directory(disk.path()).with("shared_buffers", "16MB");
        let Some(server) = server(small.with("max_wal_size", "64MB").with("min_wal_size", "32MB")) else {
            return;
        };
        let database = server.database().unwrap();
        let store = Store::open(options(database.url().parse().unwrap())).await.unwrap();
        let load = Load::start(&store, 4, 20_000).await;
        load.answers(50).await;
        let filler = disk.path().join("filler");
        fill(&filler);
        load.refusals(20).await;
        // The server may have stopped altogether: it needs space to record that.
        std::fs::remove_file(&filler).unwrap();
        let back = eventually("the server runs", async || {
            if server.pid().is_none() {
                let _ = tokio::task::block_in_place(|| server.restart());
            }
            store.ping().await.ok()
        });
        back.await;
        load.answers(50).await;
        load.settle(&store, Duration::from_secs(60)).await;
        drop(database);
        drop(server);
    });
}

/// Fills a disk to its last page.
pub(crate) fn fill(filler: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(filler).unwrap();
    let block = vec![7; 1 << 20];
    for bytes in [1 << 20, 4096] {
        while file.write_all(&block[..bytes]).is_ok() {}
    }
}
