//! Order: inside a lane class, start, priority, id; among lanes the age of their heads.

use std::time::Duration;

use api::work::{Ending, WorkKind, WorkState};
use serde_json::json;
use store::{
    CLAIM_MAX, Completion, CompletionOutcome, LEASE, NewWork, PreparedCompletion, Release, RequiredState,
    StoreError, Transaction,
};
use uuid::Uuid;

use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, done, finish, future, manifest, next, operation, past, rest,
};

const HOUR: Duration = Duration::from_secs(3600);

on_both_engines! {
    async fn in_a_lane_the_earliest_start_goes_first_then_the_lowest_priority_then_the_smallest_id(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let order = [
            manifest(lane).after(past(1)).priority(9),
            manifest(lane).after(past(2)).priority(i32::MIN),
            manifest(lane).after(past(2)).priority(-1),
            manifest(lane).after(past(2)),
            manifest(lane).after(past(2)),
            manifest(lane).after(past(2)).priority(i32::MAX),
            manifest(lane).after(past(3)).priority(-5),
        ];
        let mut shuffled = order.to_vec();
        shuffled.sort_by_key(|work| work.id.as_u128().rotate_left(77) % 1009);
        store.enqueue(shuffled).await.unwrap();
        let expected: Vec<Uuid> = order.iter().map(|work| work.id).collect();
        let pending: Vec<Uuid> = store.pending(lane, 100).await.unwrap().iter().map(|work| work.id).collect();
        assert_eq!(pending, expected);
        assert_eq!(complete_all(store, WorkKind::Manifest).await, expected);
    }
}

on_both_engines! {
    async fn operations_precede_started_manifests_and_these_precede_unstarted_ones(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (started, fresh) = (manifest(lane), manifest(lane).after(past(0)).priority(-7));
        store.enqueue(vec![started.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        store.checkpoint(lease, "half", json!(1)).await.unwrap();
        let asked = operation(lane);
        store.enqueue(vec![fresh.clone(), asked.clone()]).await.unwrap();
        rest(store, lease, Duration::ZERO).await;
        assert!(next(store, WorkKind::Manifest).await.is_none());
        assert_eq!(complete_all(store, WorkKind::Operation).await, [asked.id]);
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [started.id, fresh.id]);
    }
}

on_both_engines! {
    async fn work_due_later_never_hides_work_due_now(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let due = manifest(lane).priority(1000);
        let later = manifest(lane).after(future(0)).priority(i32::MIN);
        store.enqueue(vec![later.clone()]).await.unwrap();
        assert!(store.until_due(WorkKind::Manifest).await.unwrap().unwrap() > HOUR);
        store.enqueue(vec![due.clone()]).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [due.id]);
        assert_eq!(store.work(later.id).await.unwrap().unwrap().state, WorkState::Pending);
        assert_eq!(store.lane(lane).await.unwrap().unwrap().head_at, later.run_after);
    }
}

on_both_engines! {
    async fn while_an_operation_backs_off_no_manifest_starts_on_its_lane(env: &TestEnvironment) {
        let (store, lane, elsewhere) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let (waiting, other) = (manifest(lane).after(past(0)), manifest(elsewhere));
        store.enqueue(vec![operation(lane), waiting.clone(), other.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Operation).await.unwrap().lease;
        rest(store, lease, HOUR).await;
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [other.id]);
        assert!(next(store, WorkKind::Operation).await.is_none());
        store.commit(Transaction::new().expedite(lease.work)).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Operation).await, [lease.work]);
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [waiting.id]);
    }
}

on_both_engines! {
    async fn nothing_starts_on_a_half_changed_cluster_while_its_manifest_rests(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        store.checkpoint(lease, "half", json!(null)).await.unwrap();
        rest(store, lease, HOUR).await;
        store.enqueue(vec![manifest(lane).after(past(0)).priority(i32::MIN)]).await.unwrap();
        assert!(next(store, WorkKind::Manifest).await.is_none());
        assert_eq!(store.pending(lane, 9).await.unwrap()[0].id, lease.work);
    }
}

on_both_engines! {
    async fn a_released_unstarted_manifest_does_not_block_others(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (first, second) = (manifest(lane).after(past(1)), manifest(lane).after(past(2)));
        store.enqueue(vec![first.clone(), second.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        assert_eq!(lease.work, first.id);
        rest(store, lease, HOUR).await;
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [second.id]);
        let seen = store.work(first.id).await.unwrap().unwrap();
        assert_eq!((seen.run_after, seen.attempt), (past(1), 1), "what was asked stays what was asked");
        assert!(seen.due_at > seen.run_after);
    }
}

on_both_engines! {
    async fn an_attempt_counts_only_when_it_was_spent(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        for (attempt_spent, attempt) in [(false, 1), (false, 1), (true, 1), (true, 2), (false, 3), (true, 3)] {
            let claimed = next(store, WorkKind::Manifest).await.unwrap();
            assert_eq!((claimed.attempt, claimed.taken_over), (attempt, false));
            let release = Release::new(claimed.lease, Duration::ZERO, attempt_spent);
            store.release(release.clone()).await.unwrap();
            assert!(matches!(store.release(release).await, Err(StoreError::LostLease { .. })), "given back twice");
        }
    }
}

on_both_engines! {
    async fn work_may_rest_longer_than_clocks_can_count(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lease = store.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), Duration::MAX).await.unwrap()[0].lease;
        assert_eq!(store.lane(lane).await.unwrap().unwrap().running, Some(lease.work));
        rest(store, lease, Duration::MAX).await;
        assert!(next(store, WorkKind::Manifest).await.is_none());
        assert_eq!(store.work(lease.work).await.unwrap().unwrap().state, WorkState::Pending);
        assert!(store.until_due(WorkKind::Manifest).await.unwrap().unwrap() > HOUR);
        store.commit(Transaction::new().expedite(lease.work)).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [lease.work]);
    }
}

on_both_engines! {
    async fn expedited_work_overtakes_its_lane_and_all_others(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (old, urgent) = (manifest(lane).after(past(0)), manifest(lane).after(future(0)).priority(9));
        let others: Vec<NewWork> = (0..3).map(|n| manifest(Uuid::new_v4()).after(past(n))).collect();
        store.enqueue([vec![old.clone(), urgent.clone()], others].concat()).await.unwrap();
        store.commit(Transaction::new().expedite(urgent.id)).await.unwrap();
        let first = next(store, WorkKind::Manifest).await.unwrap();
        assert_eq!(first.lease.work, urgent.id);
        let again = store.commit(Transaction::new().expedite(urgent.id)).await;
        assert!(matches!(again, Err(StoreError::WrongState { required: RequiredState::Pending, .. })), "{again:?}");
        finish(store, first.lease).await;
        let ended = store.commit(Transaction::new().expedite(urgent.id)).await;
        assert!(matches!(ended, Err(StoreError::WrongState { required: RequiredState::Pending, .. })), "{ended:?}");
        let unknown = store.commit(Transaction::new().expedite(Uuid::now_v7())).await;
        assert!(matches!(unknown, Err(StoreError::NoSuchWork { .. })), "{unknown:?}");
    }
}

on_both_engines! {
    async fn lanes_are_served_by_the_age_of_their_heads_and_give_one_piece_each(env: &TestEnvironment) {
        let store = &env.store;
        let lanes: Vec<Uuid> = (0..6).map(|_| Uuid::new_v4()).collect();
        let mut work = Vec::new();
        for (age, lane) in lanes.iter().enumerate() {
            let age = i64::try_from(age).unwrap();
            // The backlog of the first lane is older than every other lane's head.
            work.extend((0..50).map(|n| manifest(*lane).after(past(age * 100 + n))));
        }
        store.enqueue(work).await.unwrap();
        let oldest: Vec<Uuid> = claim(store, WorkKind::Manifest, 4).await.iter().map(|it| it.lease.lane).collect();
        assert_eq!(oldest, lanes[..4]);
        let rest: Vec<Uuid> = claim(store, WorkKind::Manifest, 50).await.iter().map(|it| it.lease.lane).collect();
        assert_eq!(rest, lanes[4..]);
        assert!(next(store, WorkKind::Manifest).await.is_none(), "every lane is busy");
    }
}

on_both_engines! {
    async fn among_lanes_of_the_same_age_the_lower_priority_goes_first(env: &TestEnvironment) {
        let store = &env.store;
        let of = |priority| manifest(Uuid::new_v4()).after(past(0)).priority(priority);
        let work: Vec<NewWork> = [i32::MAX, 0, i32::MIN, -1, 1].map(of).to_vec();
        store.enqueue(work.clone()).await.unwrap();
        let expected: Vec<Uuid> = [2, 3, 1, 4, 0].map(|place: usize| work[place].id).to_vec();
        assert_eq!(complete_all(store, WorkKind::Manifest).await, expected);
    }
}

on_both_engines! {
    async fn a_claim_takes_no_more_than_requested(env: &TestEnvironment) {
        let (store, me) = (&env.store, Uuid::new_v4());
        let work: Vec<NewWork> = (0..CLAIM_MAX + 10).map(|_| manifest(Uuid::new_v4())).collect();
        store.enqueue(work).await.unwrap();
        assert!(store.claim(WorkKind::Manifest, 0, me).await.unwrap().is_empty());
        assert!(store.take_over(WorkKind::Manifest, 0, me).await.unwrap().is_empty());
        assert_eq!(store.claim(WorkKind::Manifest, 3, me).await.unwrap().len(), 3);
        assert_eq!(store.claim(WorkKind::Manifest, usize::MAX, me).await.unwrap().len(), CLAIM_MAX);
        assert!(store.claim(WorkKind::Operation, 9, me).await.unwrap().is_empty());
        assert_eq!(store.claim(WorkKind::Manifest, 50, me).await.unwrap().len(), 7);
    }
}

on_both_engines! {
    async fn existing_work_is_not_enqueued_again_and_the_transaction_is_rolled_back(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let known = manifest(lane);
        store.enqueue(vec![known.clone()]).await.unwrap();
        let rejected = async |state: &str| {
            let (other, nowhere) = (manifest(lane), Uuid::new_v4());
            let elsewhere = NewWork { lane: nowhere, ..known.clone() };
            for again in [known.clone(), elsewhere] {
                let outcome = store.enqueue(vec![other.clone(), again]).await;
                assert!(matches!(&outcome, Err(StoreError::Exists { .. })), "{state}: {outcome:?}");
            }
            assert!(store.work(other.id).await.unwrap().is_none(), "{state}");
            assert!(store.lane(nowhere).await.unwrap().is_none_or(|lane| lane.head_kind.is_none()), "{state}");
        };
        rejected("pending").await;
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        rejected("running").await;
        finish(store, lease).await;
        rejected("ended").await;
        assert!(next(store, WorkKind::Manifest).await.is_none());
        let twice = manifest(lane);
        assert!(matches!(store.enqueue(vec![twice.clone(), twice]).await, Err(StoreError::Exists { .. })));
    }
}

on_both_engines! {
    async fn work_passed_twice_completes_once(env: &TestEnvironment) {
        let store = &env.store;
        store.enqueue(vec![manifest(Uuid::new_v4()), manifest(Uuid::new_v4())]).await.unwrap();
        let claimed = claim(store, WorkKind::Manifest, 2).await;
        let (one, two) = (claimed[0].lease, claimed[1].lease);
        let outcomes = store.complete(&[done(one), done(two), done(one)]).await.unwrap();
        assert_eq!(outcomes, [CompletionOutcome::Done, CompletionOutcome::Done, CompletionOutcome::Lost]);
        assert_eq!(store.complete(&[done(two)]).await.unwrap(), [CompletionOutcome::Lost]);
    }
}

on_both_engines! {
    async fn completions_and_a_claim_are_sent_together(env: &TestEnvironment) {
        let (store, me) = (&env.store, Uuid::new_v4());
        let (busy, free) = (Uuid::new_v4(), Uuid::new_v4());
        let due = |lane: Uuid, at: i64| manifest(lane).after(past(at));
        store.enqueue(vec![due(busy, 1), due(busy, 2), due(free, 3)]).await.unwrap();
        let first = store.claim(WorkKind::Manifest, 1, me).await.unwrap()[0].lease;
        assert_eq!(first.lane, busy);
        let end = PreparedCompletion::new(&done(first)).unwrap();
        let turn = store.complete_and_claim(&[end.clone(), end], WorkKind::Manifest, 9, me, LEASE).await;
        assert_eq!(turn.completed.unwrap(), [CompletionOutcome::Done, CompletionOutcome::Lost]);
        let mut claimed = turn.claimed.unwrap();
        // The lane freed by the completion may be among them, and is free in any case.
        claimed.extend(store.claim(WorkKind::Manifest, 9, me).await.unwrap());
        let mut lanes: Vec<Uuid> = claimed.iter().map(|it| it.lease.lane).collect();
        lanes.sort_unstable();
        let mut expected = [busy, free];
        expected.sort_unstable();
        assert_eq!(lanes, expected);
        assert!(claimed.iter().all(|it| it.lease.work != first.work));
    }
}

on_both_engines! {
    async fn a_turn_may_only_end_or_only_claim(env: &TestEnvironment) {
        let (store, me) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(Uuid::new_v4()), manifest(Uuid::new_v4())]).await.unwrap();
        let turn = store.complete_and_claim(&[], WorkKind::Manifest, 1, me, LEASE).await;
        assert!(turn.completed.unwrap().is_empty());
        let held = turn.claimed.unwrap().remove(0).lease;
        let turn = store.complete_and_claim(&[PreparedCompletion::new(&done(held)).unwrap()], WorkKind::Manifest, 0, me, LEASE).await;
        assert_eq!((turn.completed.unwrap(), turn.claimed.unwrap().len()), (vec![CompletionOutcome::Done], 0));
    }
}

on_both_engines! {
    async fn a_completion_that_cannot_be_stored_is_rejected_before_it_is_queued(env: &TestEnvironment) {
        let store = &env.store;
        store.enqueue(vec![manifest(Uuid::new_v4())]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let rejected = PreparedCompletion::new(&Completion::new(lease, Ending::Completed, json!({"message": "a\0b"})));
        assert!(matches!(rejected, Err(StoreError::Invalid { .. })), "{rejected:?}");
        assert_eq!(store.complete(&[done(lease)]).await.unwrap(), [CompletionOutcome::Done]);
    }
}

on_both_engines! {
    async fn the_end_of_one_piece_of_work_and_its_successor_are_one_change(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let successor = manifest(lane).after(past(0));
        store.commit(Transaction::new().enqueue(successor.clone()).complete(done(lease))).await.unwrap();
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert_eq!((claimed.lease.work, claimed.lease.fence), (successor.id, lease.fence + 1));
        // A lost lease adds nothing either.
        let unwanted = manifest(lane);
        let late = store.commit(Transaction::new().enqueue(unwanted.clone()).complete(done(lease))).await;
        assert!(matches!(late, Err(StoreError::LostLease { work }) if work == lease.work), "{late:?}");
        assert!(store.work(unwanted.id).await.unwrap().is_none());
    }
}

on_both_engines! {
    async fn work_that_was_due_before_1970_is_taken_up_as_any_other(env: &TestEnvironment) {
        let store = &env.store;
        let long_ago = jiff::Timestamp::from_second(-1_000_000).unwrap();
        let work = NewWork { run_after: Some(long_ago), ..manifest(Uuid::new_v4()) };
        store.enqueue(vec![work.clone()]).await.unwrap();
        assert_eq!(store.until_due(WorkKind::Manifest).await.unwrap(), Some(std::time::Duration::ZERO));
        let held = claim(store, WorkKind::Manifest, 2).await;
        assert_eq!(held.iter().map(|it| (it.lease.work, it.run_after)).collect::<Vec<_>>(), [(work.id, long_ago)]);
    }
}
