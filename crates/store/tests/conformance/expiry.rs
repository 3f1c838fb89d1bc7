//! Work that did not start in time. `run_before` limits the first start only.

use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use api::work::{WorkKind, WorkState};
use serde_json::json;
use store::{NewWork, Store};
use uuid::Uuid;

use crate::queue_fixture::{
    SOON, WorkProperties as _, claim, complete_all, eventually, expired, finish, future, manifest, next,
    operation, past, rest,
};

async fn states(store: &Store, work: &[NewWork]) -> Vec<WorkState> {
    let mut states = Vec::new();
    for work in work {
        states.push(store.work(work.id).await.unwrap().unwrap().state);
    }
    states
}

on_both_engines! {
    async fn a_manifest_past_its_time_is_closed_unstarted_when_its_lane_is_touched(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (late, good) = (manifest(lane).after(past(0)).before(past(9)), manifest(lane).before(future(0)));
        store.enqueue(vec![late.clone(), good.clone()]).await.unwrap();
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert_eq!(claimed.lease.work, good.id);
        let seen = store.work(late.id).await.unwrap().unwrap();
        assert_eq!((seen.state, seen.started, seen.attempt), (WorkState::TimedOut, None, 0));
        assert!(seen.finished.is_some() && seen.result.is_some());
    }
}

on_both_engines! {
    async fn the_sweep_closes_what_no_claim_touches(env: &TestEnvironment) {
        let (store, busy, quiet) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        store.enqueue(vec![manifest(busy)]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let late = [
            manifest(busy).before(past(0)),
            manifest(quiet).after(future(0)).before(past(0)),
            manifest(quiet).before(past(0)),
        ];
        let good = [manifest(busy), manifest(quiet).before(future(0)), operation(busy).before(past(0))];
        store.enqueue([late.to_vec(), good.to_vec()].concat()).await.unwrap();
        assert_eq!(expired(store).await, late.len());
        assert_eq!(states(store, &late).await, [WorkState::TimedOut; 3]);
        assert_eq!(states(store, &good).await, [WorkState::Pending; 3]);
        assert_eq!(expired(store).await, 0);
        finish(store, lease).await;
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [good[1].id]);
        assert_eq!(complete_all(store, WorkKind::Operation).await, [good[2].id], "an operation has no last moment");
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [good[0].id]);
    }
}

on_both_engines! {
    async fn a_sweep_in_small_blocks_sees_everything_once(env: &TestEnvironment) {
        let store = &env.store;
        let late: Vec<NewWork> = (0..23).map(|_| manifest(Uuid::new_v4()).before(past(0))).collect();
        let good: Vec<NewWork> = (0..7).map(|_| manifest(Uuid::new_v4())).collect();
        store.enqueue([late.clone(), good].concat()).await.unwrap();
        let (mut after, mut changed, mut blocks) = (None, 0, 0);
        loop {
            let walk = store.expire(after, 4).await.unwrap();
            assert!(walk.changed <= 4);
            changed += walk.changed;
            blocks += 1;
            match walk.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(changed, late.len());
        assert!((8..=9).contains(&blocks), "30 rows in blocks of 4 took {blocks}");
    }
}

on_both_engines! {
    async fn the_sweep_counts_what_it_closes_in_passing(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let late: Vec<NewWork> = (0..20).map(|n| manifest(lane).after(past(n)).before(past(1000))).collect();
        store.enqueue(late.clone()).await.unwrap();
        // Three are checked; those behind them in the lane are timed out with them.
        let walk = store.expire(None, 3).await.unwrap();
        assert_eq!(states(store, &late).await, [WorkState::TimedOut; 20]);
        assert_eq!(walk.changed, late.len());
    }
}

on_both_engines! {
    async fn a_lane_full_of_late_work_still_comes_to_the_good_piece_behind_it(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        // More than one access times out.
        let late: Vec<NewWork> = (0..350).map(|n| manifest(lane).after(past(n)).before(past(1000))).collect();
        let good = manifest(lane);
        store.enqueue([late.clone(), vec![good.clone()]].concat()).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [good.id]);
        assert_eq!(states(store, &late).await, vec![WorkState::TimedOut; 350]);
        let lane = store.lane(lane).await.unwrap().unwrap();
        assert_eq!((lane.head_kind, lane.owner), (None, None));
    }
}

on_both_engines! {
    async fn a_lane_full_of_late_work_is_freed_when_its_holder_ends(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let first = manifest(lane).after(past(0));
        store.enqueue(vec![first]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let late: Vec<NewWork> = (0..250).map(|n| manifest(lane).after(past(n)).before(past(1000))).collect();
        store.enqueue(late.clone()).await.unwrap();
        finish(store, lease).await;
        assert!(next(store, WorkKind::Manifest).await.is_none());
        assert_eq!(states(store, &late).await, vec![WorkState::TimedOut; 250]);
    }
}

on_both_engines! {
    async fn started_work_is_resumed_after_its_latest_start(env: &TestEnvironment) {
        let store = &env.store;
        // The shortest time in which a busy machine certainly makes the two claims below.
        let limit = SystemClock.now() + Duration::from_secs(3);
        let (claimed_once, checkpointed) = (manifest(Uuid::new_v4()).before(limit), manifest(Uuid::new_v4()).before(limit));
        let unstarted = manifest(Uuid::new_v4()).after(future(0)).before(limit);
        store.enqueue(vec![claimed_once.clone(), checkpointed.clone(), unstarted.clone()]).await.unwrap();
        let mut claimed = claim(store, WorkKind::Manifest, 2).await;
        claimed.sort_by_key(|it| it.lease.work == checkpointed.id);
        store.checkpoint(claimed[1].lease, "half", json!(null)).await.unwrap();
        for claimed in &claimed {
            rest(store, claimed.lease, Duration::ZERO).await;
        }
        // Work due at that moment shows when the store's own clock has reached it.
        store.enqueue(vec![operation(Uuid::new_v4()).after(limit)]).await.unwrap();
        eventually("the last moment has passed", SOON, async || next(store, WorkKind::Operation).await).await;
        assert_eq!(expired(store).await, 1);
        assert_eq!(store.work(unstarted.id).await.unwrap().unwrap().state, WorkState::TimedOut);
        let mut resumed = complete_all(store, WorkKind::Manifest).await;
        resumed.sort();
        let mut expected = [claimed_once.id, checkpointed.id];
        expected.sort();
        assert_eq!(resumed, expected);
    }
}
