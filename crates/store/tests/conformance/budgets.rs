//! Limits on concurrent work: never exceeded, never leaked, and waiting work resumes.

use std::time::Duration;

use api::work::{WorkKind, WorkState};
use serde_json::json;
use store::{Budget, ClaimedWork, NewWork, Release, Store, StoreError, Transaction, WorkLease};
use uuid::Uuid;

use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, finish, future, manifest, next, operation, past, repaired, rest,
};

const MANIFEST: WorkKind = WorkKind::Manifest;

/// Manifests, each in a lane of its own, the first the oldest.
fn manifests(count: i64, budgets: &[&str]) -> Vec<NewWork> {
    (0..count).map(|n| manifest(Uuid::new_v4()).after(past(n)).counted(budgets)).collect()
}

async fn budget(store: &Store, key: &str) -> Budget {
    store.budgets().await.unwrap().into_iter().find(|it| it.key == key).unwrap()
}

async fn used(store: &Store, key: &str) -> u32 {
    budget(store, key).await.used
}

async fn finish_all(store: &Store, claimed: &[ClaimedWork]) {
    for claimed in claimed {
        finish(store, claimed.lease).await;
    }
}

on_both_engines! {
    async fn no_more_work_runs_than_a_limit_allows_and_each_completion_starts_the_next(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(3), None).await.unwrap();
        let work = manifests(10, &["fleet"]);
        store.enqueue(work.clone()).await.unwrap();
        let mut running = claim(store, MANIFEST, 50).await;
        let ids: Vec<Uuid> = running.iter().map(|it| it.lease.work).collect();
        assert_eq!(ids, [work[0].id, work[1].id, work[2].id], "the oldest come first");
        assert_eq!(budget(store, "fleet").await, Budget { key: "fleet".to_owned(), limit: 3, used: 3, parked: 7 });
        for next in &work[3..] {
            finish(store, running.remove(0).lease).await;
            running.extend(claim(store, MANIFEST, 50).await);
            assert_eq!((running.len(), running[2].lease.work), (3, next.id));
        }
        finish_all(store, &running).await;
        assert_eq!(budget(store, "fleet").await, Budget { key: "fleet".to_owned(), limit: 3, used: 0, parked: 0 });
    }
}

on_both_engines! {
    async fn work_counts_in_every_budget_that_is_configured_and_only_in_these(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("region/north", Some(2), None).await.unwrap();
        store.set_budget("task/upgrade", Some(3), None).await.unwrap();
        let north = manifests(3, &["fleet", "region/north", "task/upgrade"]);
        let younger = |n: i64| manifest(Uuid::new_v4()).after(past(10 + n)).counted(&["fleet", "region/south", "task/upgrade"]);
        let south: Vec<NewWork> = (0..3).map(younger).collect();
        store.enqueue([north, south, vec![manifest(Uuid::new_v4())]].concat()).await.unwrap();
        let running = claim(store, MANIFEST, 50).await;
        assert_eq!(running.len(), 4, "two in the north, one in the south, one that nothing counts");
        assert_eq!((used(store, "region/north").await, used(store, "task/upgrade").await), (2, 3));
        finish_all(store, &running).await;
        assert_eq!(complete_all(store, MANIFEST).await.len(), 3);
        assert_eq!((used(store, "region/north").await, used(store, "task/upgrade").await), (0, 0));
    }
}

on_both_engines! {
    async fn a_limit_of_none_stops_new_starts_until_it_is_raised(env: &TestEnvironment) {
        let store = &env.store;
        let work = manifests(4, &["fleet"]);
        store.enqueue(work).await.unwrap();
        let before = next(store, MANIFEST).await.unwrap().lease;
        store.set_budget("fleet", Some(0), None).await.unwrap();
        assert_eq!(used(store, "fleet").await, 1, "what runs already counts");
        assert!(next(store, MANIFEST).await.is_none());
        store.checkpoint(before, "still mine", json!(null)).await.unwrap();
        finish(store, before).await;
        assert!(next(store, MANIFEST).await.is_none());
        assert_eq!(store.until_due(MANIFEST).await.unwrap(), None, "what is parked is not due");
        store.set_budget("fleet", Some(2), None).await.unwrap();
        let running = claim(store, MANIFEST, 50).await;
        assert_eq!(running.len(), 2);
        finish_all(store, &running).await;
        assert_eq!(complete_all(store, MANIFEST).await.len(), 1);
    }
}

on_both_engines! {
    async fn a_limit_may_be_lowered_under_what_runs_and_then_holds(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(4), None).await.unwrap();
        store.enqueue(manifests(8, &["fleet"])).await.unwrap();
        let running = claim(store, MANIFEST, 50).await;
        assert_eq!(running.len(), 4);
        store.set_budget("fleet", Some(2), None).await.unwrap();
        env.assert_sound().await;
        for (ended, left) in [(0, 3), (1, 2)] {
            finish(store, running[ended].lease).await;
            assert!(next(store, MANIFEST).await.is_none());
            assert_eq!(used(store, "fleet").await, left);
        }
        finish(store, running[2].lease).await;
        assert_eq!(claim(store, MANIFEST, 50).await.len(), 1);
    }
}

on_both_engines! {
    async fn work_that_waits_for_a_removed_budget_resumes(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        store.enqueue(manifests(5, &["fleet"])).await.unwrap();
        let first = next(store, MANIFEST).await.unwrap().lease;
        assert!(next(store, MANIFEST).await.is_none());
        store.set_budget("fleet", None, None).await.unwrap();
        assert_eq!(store.budgets().await.unwrap(), []);
        let running = claim(store, MANIFEST, 50).await;
        assert_eq!(running.len(), 4);
        // Created again, it counts work that started before it existed.
        store.set_budget("fleet", Some(4), None).await.unwrap();
        assert_eq!(used(store, "fleet").await, 5);
        finish(store, first).await;
        assert_eq!(used(store, "fleet").await, 4);
        store.set_budget("fleet", None, None).await.unwrap();
        store.set_budget("fleet", None, None).await.unwrap();
        finish_all(store, &running).await;
    }
}

on_both_engines! {
    async fn capacity_that_one_lane_cannot_use_goes_to_another(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("one", Some(1), None).await.unwrap();
        store.set_budget("two", Some(1), None).await.unwrap();
        let first = manifest(Uuid::new_v4()).after(past(0)).counted(&["one"]);
        store.enqueue(vec![first]).await.unwrap();
        let one = next(store, MANIFEST).await.unwrap().lease;
        // Both wait for the first budget; the older one will then find the second full.
        let needs_both = manifest(Uuid::new_v4()).after(past(1)).counted(&["one", "two"]);
        let needs_one = manifest(Uuid::new_v4()).after(past(2)).counted(&["one"]);
        store.enqueue(vec![needs_both.clone(), needs_one.clone()]).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        store.enqueue(vec![manifest(Uuid::new_v4()).after(past(3)).counted(&["two"])]).await.unwrap();
        let two = next(store, MANIFEST).await.unwrap().lease;
        finish(store, one).await;
        let one = next(store, MANIFEST).await.expect("the younger lane has the room").lease;
        assert_eq!(one.work, needs_one.id);
        finish(store, two).await;
        assert!(next(store, MANIFEST).await.is_none());
        finish(store, one).await;
        assert_eq!(complete_all(store, MANIFEST).await, [needs_both.id]);
    }
}

on_both_engines! {
    async fn capacity_meant_for_withdrawn_work_goes_to_another(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let work = manifests(4, &["fleet"]);
        store.enqueue(work.clone()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        assert!(next(store, MANIFEST).await.is_none());
        finish(store, lease).await;
        // The second lane was un-parked for the capacity of the first; now it does not need it any more. Nor does the
        // third.
        store.commit(Transaction::new().withdraw(work[1].id, json!({}))).await.unwrap();
        store.commit(Transaction::new().withdraw_lane(work[2].lane, json!({}))).await.unwrap();
        let lease = next(store, MANIFEST).await.expect("the fourth lane has the room").lease;
        assert_eq!(lease.work, work[3].id);
        finish(store, lease).await;
    }
}

on_both_engines! {
    async fn unused_capacity_is_found_by_the_repair(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let first = manifest(Uuid::new_v4()).after(past(0)).counted(&["fleet"]);
        let second = manifest(Uuid::new_v4()).after(past(1)).counted(&["fleet"]);
        let third = manifest(Uuid::new_v4()).after(past(2)).counted(&["fleet"]);
        store.enqueue(vec![first, second.clone(), third.clone()]).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        assert!(next(store, MANIFEST).await.is_none());
        finish(store, lease).await;
        // The capacity was meant for the second lane, but there an operation came first, which is not due for long.
        store.enqueue(vec![operation(second.lane).after(future(0))]).await.unwrap();
        assert_eq!(repaired(store).await, 0, "it is no error");
        assert_eq!(complete_all(store, MANIFEST).await, [third.id]);
    }
}

on_both_engines! {
    async fn capacity_meant_for_late_work_goes_to_another(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let lane = Uuid::new_v4();
        let work = [
            manifest(Uuid::new_v4()).after(past(0)).counted(&["fleet"]),
            manifest(lane).after(past(1)).counted(&["fleet"]),
            manifest(Uuid::new_v4()).after(past(2)).counted(&["fleet"]),
        ];
        store.enqueue(work.to_vec()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        assert!(next(store, MANIFEST).await.is_none());
        finish(store, lease).await;
        // The second lane has only late work, which the next claim times out.
        let swap = Transaction::new()
            .withdraw(work[1].id, json!({}))
            .enqueue(manifest(lane).after(past(1)).before(past(9)).counted(&["fleet"]));
        store.commit(swap).await.unwrap();
        let ended = complete_all(store, MANIFEST).await;
        assert_eq!(ended, [work[2].id]);
        assert_eq!(store.work(work[2].id).await.unwrap().unwrap().state, WorkState::Completed);
    }
}

on_both_engines! {
    async fn a_budget_named_twice_counts_once(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(2), None).await.unwrap();
        store.enqueue(manifests(3, &["fleet", "fleet"])).await.unwrap();
        let running = claim(store, MANIFEST, 50).await;
        assert_eq!((running.len(), used(store, "fleet").await), (2, 2));
        env.assert_sound().await;
        finish_all(store, &running).await;
        assert_eq!(used(store, "fleet").await, 0);
        assert_eq!(complete_all(store, MANIFEST).await.len(), 1);
    }
}

on_both_engines! {
    async fn a_release_frees_the_budget_and_a_takeover_keeps_it(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let work = manifests(2, &["fleet"]);
        store.enqueue(work.clone()).await.unwrap();
        let lost = store.claim_for(MANIFEST, 1, Uuid::new_v4(), Duration::ZERO).await.unwrap()[0].lease;
        let lease = store.take_over(MANIFEST, 1, Uuid::new_v4()).await.unwrap()[0].lease;
        assert_eq!((lease.work, used(store, "fleet").await), (lost.work, 1));
        assert!(next(store, MANIFEST).await.is_none());
        rest(store, lease, Duration::from_secs(3600)).await;
        assert_eq!(used(store, "fleet").await, 0);
        let other = next(store, MANIFEST).await.unwrap().lease;
        assert_eq!((other.work, used(store, "fleet").await), (work[1].id, 1));
    }
}

/// Releases started work for a long time.
fn half_done(lease: WorkLease, unless_cancelled: bool) -> Release {
    let rest = if unless_cancelled { Duration::from_secs(3600) } else { Duration::ZERO };
    Release { started: true, unless_cancelled, ..Release::new(lease, rest, false) }
}

on_both_engines! {
    async fn started_work_that_is_cancelled_passes_a_full_budget_and_counts_in_it(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let work = manifests(3, &["fleet"]);
        store.enqueue(work.clone()).await.unwrap();
        let started = next(store, MANIFEST).await.unwrap().lease;
        store.release(half_done(started, true)).await.unwrap();
        let other = next(store, MANIFEST).await.unwrap().lease;
        store.set_budget("fleet", Some(0), None).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        store.commit(Transaction::new().request_cancel(work[0].id)).await.unwrap();
        let ending = next(store, MANIFEST).await.expect("no budget holds it up").lease;
        assert_eq!((ending.work, used(store, "fleet").await), (work[0].id, 2));
        env.assert_sound().await;
        // The process that undoes it shuts down; the next one continues.
        store.release(half_done(ending, false)).await.unwrap();
        assert!(store.work(work[0].id).await.unwrap().unwrap().ending);
        let ending = next(store, MANIFEST).await.expect("no budget holds it up").lease;
        assert_eq!(ending.work, work[0].id);
        finish(store, ending).await;
        finish(store, other).await;
        assert_eq!(used(store, "fleet").await, 0);
        assert!(next(store, MANIFEST).await.is_none(), "what has not begun does not begin");
        store.set_budget("fleet", Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, [work[2].id]);
    }
}

on_both_engines! {
    async fn started_work_that_is_not_cancelled_waits_for_a_budget_like_any_other(env: &TestEnvironment) {
        let store = &env.store;
        let work = manifests(1, &["fleet"]);
        store.enqueue(work.clone()).await.unwrap();
        let started = next(store, MANIFEST).await.unwrap().lease;
        let back = Release { delay: Duration::ZERO, ..half_done(started, true) };
        store.set_budget("fleet", Some(0), None).await.unwrap();
        store.release(back).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        assert!(!store.work(work[0].id).await.unwrap().unwrap().ending);
        store.set_budget("fleet", Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, [work[0].id]);
    }
}

on_both_engines! {
    async fn an_operation_does_not_wait_behind_a_parked_manifest(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(0), None).await.unwrap();
        let waiting = manifest(Uuid::new_v4()).counted(&["fleet"]);
        store.enqueue(vec![waiting.clone()]).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        assert_eq!(store.lane(waiting.lane).await.unwrap().unwrap().parked_on.as_deref(), Some("fleet"));
        let asked = operation(waiting.lane);
        store.enqueue(vec![asked.clone()]).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Operation).await, [asked.id]);
        assert!(next(store, MANIFEST).await.is_none());
    }
}

on_both_engines! {
    async fn invalid_budgets_are_rejected(env: &TestEnvironment) {
        let store = &env.store;
        let long = "x".repeat(201);
        for key in ["", "a\0b", &long] {
            let outcome = store.set_budget(key, Some(1), None).await;
            assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "{key:?}: {outcome:?}");
            let outcome = store.enqueue(manifests(1, &[key])).await;
            assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "{key:?}: {outcome:?}");
        }
        assert!(matches!(store.set_budget("fleet", Some(u32::MAX), None).await, Err(StoreError::Invalid { .. })));
        store.set_budget("fleet", Some(i32::MAX.unsigned_abs()), None).await.unwrap();
        store.enqueue(manifests(2, &["fleet"])).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await.len(), 2);
    }
}
