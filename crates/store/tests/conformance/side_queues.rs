//! A budget of a task blocks the task's work and nothing else: the cluster's other manifests continue, in order.

use std::time::Duration;

use api::work::{WorkKind, WorkState};
use serde_json::json;
use store::{NewWork, Release, Store, Transaction};
use uuid::Uuid;

use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, expired, finish, manifest, next, operation, past, repaired,
    rest,
};
use crate::raw::RawDatabase;

const MANIFEST: WorkKind = WorkKind::Manifest;
const STOPPED: &str = "task/bad";

/// Manifests of one lane, the first the oldest; those of a task count in the fleet's budget and in their task's.
fn lane_of(lane: Uuid, tasks: &[&str]) -> Vec<NewWork> {
    let one = |(n, task): (usize, &&str)| {
        manifest(lane).after(past(i64::try_from(n).unwrap())).counted(&["fleet", task])
    };
    tasks.iter().enumerate().map(one).collect()
}

fn ids(work: &[NewWork], places: &[usize]) -> Vec<Uuid> {
    places.iter().map(|place| work[*place].id).collect()
}

async fn parked(store: &Store, key: &str) -> u32 {
    store.budgets().await.unwrap().into_iter().find(|it| it.key == key).unwrap().parked
}

on_both_engines! {
    async fn a_stopped_task_blocks_only_its_own_manifests_and_they_continue_when_it_is_resumed(env: &TestEnvironment) {
        let store = &env.store;
        let lane = Uuid::new_v4();
        let work = lane_of(lane, &[STOPPED, "task/a", STOPPED, "task/b", "task/a"]);
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        store.enqueue(work.clone()).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[1, 3, 4]), "the others go on, in order");
        assert_eq!(store.until_due(MANIFEST).await.unwrap(), None, "what is set aside is not due");
        assert_eq!(parked(store, STOPPED).await, 1, "one lane waits for it");
        let shown = store.lane(lane).await.unwrap().unwrap();
        assert_eq!((shown.head_at, shown.parked_on.as_deref()), (Some(past(0)), Some(STOPPED)));
        let waiting: Vec<Uuid> = store.pending(lane, 9).await.unwrap().iter().map(|it| it.id).collect();
        assert_eq!(waiting, ids(&work, &[0, 2]));
        env.assert_sound().await;
        assert_eq!(repaired(store).await, 0);
        store.set_budget(STOPPED, Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[0, 2]));
    }
}

on_both_engines! {
    async fn work_in_a_side_queue_keeps_its_place_before_younger_work(env: &TestEnvironment) {
        let store = &env.store;
        let work = lane_of(Uuid::new_v4(), &[STOPPED, "task/a", "task/a", STOPPED, "task/a"]);
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        store.enqueue(work.clone()).await.unwrap();
        let first = next(store, MANIFEST).await.unwrap().lease;
        assert_eq!(first.work, work[1].id);
        // It is un-parked while the lane is busy; releasing the lane sees it.
        store.set_budget(STOPPED, Some(1), None).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none(), "a lane runs one piece at a time");
        finish(store, first).await;
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[0, 2, 3, 4]));
    }
}

on_both_engines! {
    async fn a_removed_budget_releases_all_work_that_it_blocked(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        let lanes = [Uuid::new_v4(), Uuid::new_v4()];
        let work: Vec<Vec<NewWork>> = lanes.iter().map(|lane| lane_of(*lane, &[STOPPED, STOPPED])).collect();
        store.enqueue(work.concat()).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        assert_eq!(parked(store, STOPPED).await, 2);
        store.set_budget(STOPPED, None, None).await.unwrap();
        env.assert_sound().await;
        assert_eq!(claim(store, MANIFEST, 9).await.len(), 2);
    }
}

on_both_engines! {
    async fn each_completion_starts_the_longest_waiting_work_of_the_task_in_any_lane(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("task/a", Some(1), None).await.unwrap();
        let work: Vec<NewWork> =
            (0..4).map(|n| manifest(Uuid::new_v4()).after(past(n)).counted(&["task/a"])).collect();
        let others: Vec<NewWork> = work.iter().map(|it| manifest(it.lane).after(past(50)).counted(&["task/b"])).collect();
        store.enqueue([work.clone(), others.clone()].concat()).await.unwrap();
        let running = claim(store, MANIFEST, 9).await;
        let mut started: Vec<Uuid> = running.iter().map(|it| it.lease.work).collect();
        started.sort();
        let mut expected = vec![work[0].id, others[1].id, others[2].id, others[3].id];
        expected.sort();
        assert_eq!(started, expected);
        for held in &running[1..] {
            finish(store, held.lease).await;
        }
        assert!(next(store, MANIFEST).await.is_none());
        finish(store, running[0].lease).await;
        let order = complete_all(store, MANIFEST).await;
        let of_task: Vec<Uuid> = order.into_iter().filter(|id| *id != others[0].id).collect();
        assert_eq!(of_task, ids(&work, &[1, 2, 3]));
    }
}

on_both_engines! {
    async fn a_budget_of_the_fleet_still_holds_the_lane(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("fleet", Some(0), None).await.unwrap();
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        let lane = Uuid::new_v4();
        let work = lane_of(lane, &[STOPPED, "task/a"]);
        store.enqueue(work.clone()).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        assert_eq!(store.lane(lane).await.unwrap().unwrap().parked_on.as_deref(), Some("fleet"));
        store.set_budget("fleet", Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[1]));
        // The first of the lane fits the task's budget and not the fleet's: the lane waits, and so does what follows.
        store.set_budget("fleet", Some(0), None).await.unwrap();
        store.set_budget(STOPPED, Some(1), None).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        store.set_budget("fleet", None, None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[0]));
    }
}

on_both_engines! {
    async fn started_work_of_a_full_task_keeps_its_place_and_passes_when_it_is_cancelled(env: &TestEnvironment) {
        let store = &env.store;
        let work = lane_of(Uuid::new_v4(), &[STOPPED, "task/a"]);
        store.enqueue(work.clone()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        let back = Release { started: true, unless_cancelled: true, ..Release::new(lease, Duration::ZERO, false) };
        store.release(back).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none(), "nothing else starts on a half-changed cluster");
        store.commit(Transaction::new().request_cancel(work[0].id)).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[0, 1]));
    }
}

on_both_engines! {
    async fn work_in_a_side_queue_can_be_withdrawn_expedited_and_timed_out(env: &TestEnvironment) {
        let store = &env.store;
        let lane = Uuid::new_v4();
        let stopped = |n| manifest(lane).after(past(n)).counted(&[STOPPED]);
        let work = [stopped(0), stopped(1), stopped(2), stopped(3).before(past(100)), stopped(4)];
        store.enqueue(work.to_vec()).await.unwrap();
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        assert!(next(store, MANIFEST).await.is_none());
        env.assert_sound().await;
        store.commit(Transaction::new().withdraw(work[0].id, json!({}))).await.unwrap();
        store.commit(Transaction::new().expedite(work[2].id)).await.unwrap();
        store.commit(Transaction::new().withdraw(work[4].id, json!({}))).await.unwrap();
        env.assert_sound().await;
        assert!(next(store, MANIFEST).await.is_none());
        assert_eq!(expired(store).await, 1);
        assert_eq!(store.work(work[3].id).await.unwrap().unwrap().state, WorkState::TimedOut);
        env.assert_sound().await;
        assert!(next(store, MANIFEST).await.is_none());
        let asked = operation(lane);
        store.enqueue(vec![asked.clone()]).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Operation).await, [asked.id]);
        store.set_budget(STOPPED, Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, [work[2].id, work[1].id]);
        store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
    }
}

on_both_engines! {
    async fn capacity_that_a_busy_lane_cannot_use_goes_to_another(env: &TestEnvironment) {
        let store = &env.store;
        store.set_budget("task/a", Some(1), None).await.unwrap();
        let [one, two, three] = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
        let first = manifest(one).after(past(0)).counted(&["task/a"]);
        let second = manifest(two).after(past(1)).counted(&["task/a"]);
        let third = manifest(three).after(past(2)).counted(&["task/a"]);
        store.enqueue(vec![first, second, third.clone()]).await.unwrap();
        let running = claim(store, MANIFEST, 9).await;
        assert_eq!(running.len(), 1);
        // The second lane waited longest for the capacity; an operation takes the lane before the capacity is there.
        store.enqueue(vec![operation(two)]).await.unwrap();
        let busy = next(store, WorkKind::Operation).await.unwrap().lease;
        finish(store, running[0].lease).await;
        assert_eq!(next(store, MANIFEST).await.expect("the third lane has the room").lease.work, third.id);
        finish(store, busy).await;
    }
}

on_both_engines! {
    async fn work_that_rests_is_not_set_aside_before_it_is_due(env: &TestEnvironment) {
        let store = &env.store;
        let work = lane_of(Uuid::new_v4(), &[STOPPED, "task/a"]);
        store.enqueue(work.clone()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        rest(store, lease, Duration::from_secs(3600)).await;
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[1]));
        assert!(store.until_due(MANIFEST).await.unwrap().is_some_and(|it| it > Duration::ZERO));
    }
}

on_both_engines! {
    async fn several_stopped_tasks_in_one_lane_are_all_passed_over(env: &TestEnvironment) {
        let store = &env.store;
        let tasks: Vec<String> = (0..30).map(|n| format!("task/{n}")).collect();
        for task in &tasks {
            store.set_budget(task, Some(0), None).await.unwrap();
        }
        let mut named: Vec<&str> = tasks.iter().map(String::as_str).collect();
        named.push("task/free");
        let work = lane_of(Uuid::new_v4(), &named);
        store.enqueue(work.clone()).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[30]));
        store.set_budget("task/7", Some(1), None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, ids(&work, &[7]));
    }
}

on_both_engines! {
    async fn a_long_backlog_of_a_stopped_task_is_set_aside_block_by_block(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        store.set_budget(STOPPED, Some(0), None).await.unwrap();
        let mut tasks = vec![STOPPED; 250];
        tasks.push("task/a");
        let work = lane_of(Uuid::new_v4(), &tasks);
        store.enqueue(work.clone()).await.unwrap();
        for aside in ["100", "200"] {
            assert!(store.claim(MANIFEST, 9, Uuid::new_v4()).await.unwrap().is_empty());
            assert_eq!(raw.one("select count(*) from work where class = 3").await, aside);
            env.assert_sound().await;
        }
        let found = store.claim(MANIFEST, 9, Uuid::new_v4()).await.unwrap();
        assert_eq!(found[0].lease.work, work[250].id);
        finish(store, found[0].lease).await;
        store.set_budget(STOPPED, None, None).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, work[..250].iter().map(|it| it.id).collect::<Vec<_>>());
    }
}
