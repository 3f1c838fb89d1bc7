//! Clocks: PostgreSQL uses its own, whatever the hosts' clocks show; SQLite uses the clock that it was opened with.

use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock as _, ManualClock, SkewedClock, SystemClock};
use api::work::{WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::{CompletionOutcome, LEASE, Location, Options, Store, StoreError};
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, options};
use crate::queue_fixture::{
    SOON, WorkProperties as _, done, eventually, expired, finish, manifest, next, rest,
};

const MANIFEST: WorkKind = WorkKind::Manifest;
const TEN_MINUTES: SignedDuration = SignedDuration::from_mins(10);

/// A host whose clock is wrong by that much.
async fn host(env: &TestEnvironment, ahead: SignedDuration) -> Store {
    let clock = Arc::new(SkewedClock { truth: Arc::new(SystemClock), ahead });
    Store::open(Options { clock, ..env.options.clone() }).await.unwrap()
}

#[test]
fn a_wrong_host_clock_changes_no_lease_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (fast, slow) = (host(&env, TEN_MINUTES).await, host(&env, -TEN_MINUTES).await);
        for (holder, others) in
            [(&fast, [&slow, &env.store]), (&slow, [&fast, &env.store]), (&env.store, [&fast, &slow])]
        {
            holder.enqueue(vec![manifest(Uuid::new_v4())]).await.unwrap();
            let owner = Uuid::new_v4();
            let lease = holder.claim(MANIFEST, 1, owner).await.unwrap()[0].lease;
            for other in others {
                assert!(
                    other.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap().is_empty(),
                    "the lease is fresh"
                );
                let until = other.lane(lease.lane).await.unwrap().unwrap().lease_until.unwrap();
                let left = until.duration_since(SystemClock.now());
                assert!(
                    left > SignedDuration::from_secs(30) && left <= SignedDuration::try_from(LEASE).unwrap(),
                    "{left:?}"
                );
            }
            // A short lease expires for all of them at the same time.
            assert_eq!(
                holder.renew_for(owner, vec![lease.lane], Duration::from_millis(300)).await.unwrap().len(),
                1
            );
            let other = others[0];
            let taken = eventually("the lease has run out", SOON, async || {
                other.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap().pop()
            })
            .await;
            assert_eq!(taken.lease.work, lease.work);
            assert!(matches!(
                holder.checkpoint(lease, "late", json!(1)).await,
                Err(StoreError::LostLease { .. })
            ));
            finish(other, taken.lease).await;
        }
        env.assert_sound().await;
    });
}

#[test]
fn a_wrong_host_clock_makes_nothing_due_sooner_or_later_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (fast, slow) = (host(&env, TEN_MINUTES).await, host(&env, -TEN_MINUTES).await);
        let five = Duration::from_mins(5);
        let soon =
            manifest(Uuid::new_v4()).after(SystemClock.now() + five).before(SystemClock.now() + 2 * five);
        slow.enqueue(vec![soon.clone()]).await.unwrap();
        assert!(
            next(&fast, MANIFEST).await.is_none(),
            "by the fast host's clock it has been due for five minutes"
        );
        assert_eq!(expired(&fast).await, 0);
        let left = fast.until_due(MANIFEST).await.unwrap().unwrap();
        assert!(left > five / 2 && left <= five, "{left:?}");
        // Work that a fast host enqueues for now is due now, and a release without delay does not wait for minutes.
        fast.enqueue(vec![manifest(Uuid::new_v4())]).await.unwrap();
        let lease = next(&slow, MANIFEST).await.unwrap().lease;
        rest(&fast, lease, Duration::ZERO).await;
        let lease = next(&slow, MANIFEST).await.unwrap().lease;
        finish(&slow, lease).await;
        let seen = env.store.work(lease.work).await.unwrap().unwrap();
        let off = seen.finished.unwrap().duration_since(SystemClock.now()).abs();
        assert!(off < SignedDuration::from_mins(1), "{off:?}");
        env.assert_sound().await;
    });
}

/// A SQLite store whose clock stands still until the test moves it.
struct Timed {
    store: Store,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

impl Timed {
    async fn new() -> Timed {
        let clock = ManualClock::at("2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let options = options(Location::Sqlite(directory.path().join("store.db")));
        let store = Store::open(Options { clock: clock.clone(), ..options }).await.unwrap();
        Timed { store, clock, _directory: directory }
    }

    async fn assert_sound(&self) {
        let broken: Vec<_> =
            self.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

#[test]
fn leases_starts_and_last_moments_follow_the_clock_that_sqlite_was_handed() {
    block_on(async {
        let env = Timed::new().await;
        let (store, clock) = (&env.store, &env.clock);
        let start = clock.now();
        let hour = SignedDuration::from_hours(1);
        let lane = Uuid::new_v4();
        let (due, late) = (
            manifest(lane).after(start + hour),
            manifest(lane).after(start + hour).before(start + hour + hour).priority(1),
        );
        store.enqueue(vec![due.clone(), late.clone()]).await.unwrap();
        assert_eq!(store.until_due(MANIFEST).await.unwrap(), Some(Duration::from_hours(1)));
        clock.advance(hour - SignedDuration::from_micros(1));
        assert!(next(store, MANIFEST).await.is_none());
        clock.advance(SignedDuration::from_micros(1));
        let lease = next(store, MANIFEST).await.unwrap().lease;
        assert_eq!(lease.work, due.id);
        let lease = SignedDuration::try_from(LEASE).unwrap();
        assert_eq!(store.lane(lane).await.unwrap().unwrap().lease_until, Some(clock.now() + lease));
        clock.advance(lease);
        assert!(
            store.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap().is_empty(),
            "it has not passed yet"
        );
        clock.advance(SignedDuration::from_micros(1));
        let taken = store.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap()[0].lease;
        rest(store, taken, Duration::from_hours(2)).await;
        clock.advance(hour);
        assert_eq!(expired(store).await, 1);
        assert_eq!(store.work(late.id).await.unwrap().unwrap().state, WorkState::TimedOut);
        clock.advance(hour);
        assert_eq!(next(store, MANIFEST).await.unwrap().attempt, 3);
        env.assert_sound().await;
    });
}

#[test]
fn a_clock_that_is_set_back_breaks_nothing_on_sqlite() {
    block_on(async {
        let env = Timed::new().await;
        let (store, clock) = (&env.store, &env.clock);
        let (lane, day) = (Uuid::new_v4(), SignedDuration::from_hours(24));
        store.enqueue(vec![manifest(lane), manifest(lane)]).await.unwrap();
        let first = next(store, MANIFEST).await.unwrap();
        clock.advance(-day);
        // No other process gets the lane, its holder continues, and delayed work stays delayed.
        assert!(store.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap().is_empty());
        assert_eq!(store.renew(first.lease.owner, vec![lane]).await.unwrap().len(), 1);
        store.checkpoint(first.lease, "step", json!(1)).await.unwrap();
        env.assert_sound().await;
        clock.advance(SignedDuration::try_from(LEASE).unwrap() + SignedDuration::from_secs(1));
        let taken = store.take_over(MANIFEST, 9, Uuid::new_v4()).await.unwrap();
        assert_eq!(
            (taken.len(), taken[0].step.as_deref()),
            (1, Some("step")),
            "leases count from the renewal"
        );
        assert!(taken[0].lease.fence > first.lease.fence);
        assert_eq!(store.complete(&[done(first.lease)]).await.unwrap(), [CompletionOutcome::Lost]);
        finish(store, taken[0].lease).await;
        assert!(next(store, MANIFEST).await.is_none(), "the second was asked for tomorrow's now");
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let now = next(store, MANIFEST).await.unwrap();
        assert!(now.lease.fence > taken[0].lease.fence);
        finish(store, now.lease).await;
        clock.advance(day);
        finish(store, next(store, MANIFEST).await.unwrap().lease).await;
        env.assert_sound().await;
    });
}
