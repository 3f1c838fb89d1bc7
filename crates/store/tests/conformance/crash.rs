//! A worker is killed with `kill -9` at each point between claim, checkpoint and completion. Another continues after
//! its last checkpoint, and late writes of the dead one are rejected.

use std::time::Duration;

use api::work::{WorkKind, WorkState};
use serde_json::json;
use store::{CompletionOutcome, LEASE, Release, Store, StoreError, Transaction, WorkLease};
use tokio::time::Instant;
use uuid::Uuid;

use crate::environment::{block_on, short_or_long};
use crate::queue_fixture::{SOON, done, eventually, finish, manifest, next, operation};
use crate::worker_process::{Held, Site};

/// Lease of a worker that is killed.
const SHORT_LEASE: Duration = Duration::from_millis(500);
/// Longest time after the lease until a dead holder's work is resumed.
const GRACE: Duration = Duration::from_secs(2);

/// What the worker does before it is killed, and what must be found of it.
struct Point {
    orders: &'static [(&'static str, &'static str)],
    last_step: Option<&'static str>,
}

const POINTS: &[Point] = &[
    Point { orders: &[], last_step: None },
    Point { orders: &[("checkpoint first", "saved")], last_step: Some("first") },
    Point {
        orders: &[("checkpoint first", "saved"), ("checkpoint second", "saved")],
        last_step: Some("second"),
    },
];

async fn is_rejected(store: &Store, dead: WorkLease) {
    assert!(matches!(store.checkpoint(dead, "late", json!(0)).await, Err(StoreError::LostLease { .. })));
    assert_eq!(store.complete(&[done(dead)]).await.unwrap(), [CompletionOutcome::Lost]);
    let late = [
        Transaction::new().guard(dead),
        Transaction::new().complete(done(dead)),
        Transaction::new().release(Release::new(dead, Duration::ZERO, true)),
        Transaction::new().checkpoint(dead, "late", json!(0)).enqueue(manifest(dead.lane)),
    ];
    for late in late {
        let outcome = store.commit(late).await;
        assert!(matches!(outcome, Err(StoreError::LostLease { work }) if work == dead.work), "{outcome:?}");
    }
    assert!(store.renew(dead.owner, vec![dead.lane]).await.unwrap().is_empty());
}

async fn assert_sound(store: &Store) {
    let broken: Vec<_> =
        store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A worker holds this site's one piece of work, has done what the point states, and is killed `later`. Returns its
/// lease, its last output, and the store.
async fn killed_at(
    site: &Site,
    kind: WorkKind,
    point: &Point,
    later: Duration,
) -> (Held, Vec<String>, Store) {
    let lane = Uuid::new_v4();
    let store = site.open().await;
    let work = if kind == WorkKind::Manifest { manifest(lane) } else { operation(lane) };
    store.enqueue(vec![work]).await.unwrap();
    // SQLite is for one process: until the worker is dead the file is its own.
    store.close().await;
    drop(store);
    let mut worker = site.worker();
    let held = worker.held(&format!("claim {kind} {}", SHORT_LEASE.as_millis())).unwrap();
    assert_eq!((held.attempt, held.step.as_deref()), (1, None));
    for (order, answer) in point.orders {
        assert_eq!(worker.ask(order), *answer);
    }
    tokio::time::sleep(later).await;
    let last_words = worker.kill();
    (held, last_words, site.open().await)
}

async fn killed_anywhere(site: Site) {
    for kind in WorkKind::ALL {
        for point in POINTS {
            let (dead, last_words, store) = killed_at(&site, kind, point, Duration::ZERO).await;
            assert!(last_words.is_empty(), "{last_words:?}");
            let killed = Instant::now();
            let me = Uuid::new_v4();
            assert!(store.claim(kind, 9, me).await.unwrap().is_empty(), "its lane is still the dead one's");
            let taken = eventually("its lease has run out", SHORT_LEASE + GRACE, async || {
                store.take_over(kind, 9, me).await.unwrap().pop()
            })
            .await;
            assert!(killed.elapsed() < SHORT_LEASE + GRACE, "{:?}", killed.elapsed());
            assert_eq!(
                (taken.lease.work, taken.lease.lane, taken.kind),
                (dead.lease.work, dead.lease.lane, kind)
            );
            assert_eq!((taken.attempt, taken.taken_over), (2, true));
            assert_eq!(taken.step.as_deref(), point.last_step);
            assert_eq!(taken.checkpoint, point.last_step.map(|step| json!({ "after": step })));
            assert!(taken.lease.fence > dead.lease.fence);
            is_rejected(&store, dead.lease).await;
            store.checkpoint(taken.lease, "mine", json!(1)).await.unwrap();
            finish(&store, taken.lease).await;
            is_rejected(&store, dead.lease).await;
            assert_eq!(store.work(dead.lease.work).await.unwrap().unwrap().step.as_deref(), Some("mine"));
            assert_sound(&store).await;
            store.close().await;
        }
    }
}

/// Killed while its completion was under way: its work has finished or not, nothing in between. If the completion was
/// acknowledged, it has.
async fn killed_while_completing(site: Site) {
    let (mut ended, mut reported) = (0, 0);
    let rounds = short_or_long(6_u32, 100);
    for round in 0..rounds {
        let point = Point {
            orders: &[("checkpoint first", "saved"), ("complete", "completing")],
            last_step: Some("first"),
        };
        // A little later each time, from before it is sent until after it is acknowledged.
        let later = Duration::from_micros(u64::from(round % 12) * 400);
        let (dead, last_words, store) = killed_at(&site, WorkKind::Manifest, &point, later).await;
        // The server may still execute what the dead process had sent.
        let taken = eventually("it has ended or is taken over", SHORT_LEASE + GRACE, async || {
            match store.work(dead.lease.work).await.unwrap().unwrap().state {
                WorkState::Completed => Some(None),
                WorkState::InProgress => {
                    store.take_over(WorkKind::Manifest, 9, Uuid::new_v4()).await.unwrap().pop().map(Some)
                }
                other => panic!("round {round}: {other}"),
            }
        })
        .await;
        match taken {
            None => ended += 1,
            Some(taken) => {
                assert!(last_words.is_empty(), "round {round}: it reported {last_words:?}");
                assert_eq!((taken.lease.work, taken.attempt), (dead.lease.work, 2));
                assert_eq!(taken.step.as_deref(), point.last_step);
                finish(&store, taken.lease).await;
            }
        }
        reported += last_words.len();
        let lane = store.lane(dead.lease.lane).await.unwrap().unwrap();
        assert_eq!((lane.owner, lane.running), (None, None));
        is_rejected(&store, dead.lease).await;
        assert_sound(&store).await;
        store.close().await;
    }
    println!("{ended} of {rounds} had ended, {reported} completions were reported");
}

/// Its completion was acknowledged: so the work has finished, and the lane's next piece starts at once.
async fn killed_after_completing(site: Site) {
    let lane = Uuid::new_v4();
    let store = site.open().await;
    let (first, second) = (manifest(lane), manifest(lane));
    store.enqueue(vec![first.clone(), second.clone()]).await.unwrap();
    store.close().await;
    drop(store);
    let mut worker = site.worker();
    let dead = worker.held("claim manifest 60000").unwrap();
    assert_eq!(worker.ask("complete"), "completing");
    assert_eq!(worker.answer(), "completed");
    worker.kill();
    let store = site.open().await;
    assert_eq!(store.work(first.id).await.unwrap().unwrap().state, WorkState::Completed);
    let next = next(&store, WorkKind::Manifest).await.unwrap();
    assert_eq!((next.lease.work, next.attempt), (second.id, 1));
    is_rejected(&store, dead.lease).await;
    assert_sound(&store).await;
    store.close().await;
}

macro_rules! on_both_sites {
    ($($name:ident => $run:ident;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn on_sqlite() {
                block_on($run(Site::sqlite()));
            }

            #[test]
            fn on_postgresql() {
                block_on(async {
                    let Some(site) = Site::postgres() else { return };
                    $run(site).await;
                });
            }
        }
    )* };
}

on_both_sites! {
    a_killed_workers_work_is_resumed_after_its_last_checkpoint_within_lease_and_two_seconds => killed_anywhere;
    a_worker_killed_while_completing_has_completed_or_is_succeeded => killed_while_completing;
    completions_reported_to_a_killed_worker_stay_complete => killed_after_completing;
}

#[test]
fn a_worker_never_outlives_the_test_that_started_it() {
    block_on(async {
        let site = Site::sqlite();
        let store = site.open().await;
        store.close().await;
        drop(store);
        let mut worker = site.worker();
        assert_eq!(worker.ask(&format!("work {} 2 60000", site.witnesses().display())), "working");
        // All that a killed test can do for it.
        worker.child.close_input();
        assert!(worker.child.wait(SOON).unwrap().success());
    });
}

#[test]
fn a_worker_that_hung_cannot_write_when_it_resumes_on_postgresql() {
    block_on(async {
        let Some(site) = Site::postgres() else { return };
        assert!(site.is_shared());
        let store = site.open().await;
        store.enqueue(vec![manifest(Uuid::new_v4())]).await.unwrap();
        let mut worker = site.worker();
        let hung = worker.held("claim manifest 500").unwrap();
        assert_eq!(worker.ask("checkpoint first"), "saved");
        worker.child.pause().unwrap();
        let taken = eventually("its lease has run out", SHORT_LEASE + GRACE, async || {
            store.take_over(WorkKind::Manifest, 9, Uuid::new_v4()).await.unwrap().pop()
        })
        .await;
        assert_eq!((taken.lease.work, taken.step.as_deref()), (hung.lease.work, Some("first")));
        worker.child.resume().unwrap();
        assert_eq!(worker.ask("checkpoint second"), "lost");
        assert_eq!(worker.ask("complete"), "completing");
        assert_eq!(worker.answer(), "lost");
        assert_eq!(store.work(hung.lease.work).await.unwrap().unwrap().step.as_deref(), Some("first"));
        finish(&store, taken.lease).await;
        assert_sound(&store).await;
    });
}

on_both_engines! {
    async fn of_a_thousand_writes_under_a_stale_fence_none_is_accepted(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let first = store.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), Duration::ZERO).await.unwrap();
        let mut holds = vec![first[0].lease];
        // Each of seven writes under each of 150 past fences.
        for n in 2..=151 {
            let taken = store.take_over_for(WorkKind::Manifest, 1, Uuid::new_v4(), Duration::ZERO).await.unwrap();
            assert_eq!((taken[0].attempt, taken[0].lease.work), (n, holds[0].work));
            assert!(taken[0].lease.fence > holds.last().unwrap().fence);
            holds.push(taken[0].lease);
        }
        let present = holds.pop().unwrap();
        for stale in holds {
            is_rejected(store, stale).await;
            // Neither the right fence with the wrong owner nor the right owner with the wrong fence is accepted.
            let mixed = WorkLease { owner: present.owner, ..stale };
            assert_eq!(store.complete(&[done(mixed)]).await.unwrap(), [CompletionOutcome::Lost]);
            let mixed = WorkLease { fence: present.fence, ..stale };
            assert_eq!(store.complete(&[done(mixed)]).await.unwrap(), [CompletionOutcome::Lost]);
        }
        assert_eq!(store.renew_for(present.owner, vec![lane], LEASE).await.unwrap().len(), 1);
        assert_eq!(store.work(present.work).await.unwrap().unwrap().step, None);
        finish(store, present).await;
    }
}
