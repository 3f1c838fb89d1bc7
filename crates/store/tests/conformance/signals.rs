//! Signals to a holder, and work that is withdrawn before it runs.

use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::work::{Cancellation, Ending, WorkKind, WorkState};
use jiff::Timestamp;
use serde_json::json;
use store::{Completion, Release, RequiredState, Signals, StoreError, Topic, Transaction};
use uuid::Uuid;

use crate::queue_fixture::{
    SOON, WorkProperties as _, complete_all, finish, future, manifest, next, operation, past,
};

on_both_engines! {
    async fn withdrawn_work_never_runs(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (first, second) = (manifest(lane).after(past(0)), manifest(lane).after(past(1)));
        store.enqueue(vec![first.clone(), second.clone()]).await.unwrap();
        store.commit(Transaction::new().withdraw(first.id, json!({ "why": "not wanted" }))).await.unwrap();
        let seen = store.work(first.id).await.unwrap().unwrap();
        assert_eq!((seen.state, seen.started), (WorkState::Cancelled, None));
        assert_eq!(seen.result, Some(json!({ "why": "not wanted" }).into()));
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [second.id]);
        assert_eq!(store.lane(lane).await.unwrap().unwrap().head_kind, None);
    }
}

on_both_engines! {
    async fn half_done_pending_work_is_not_withdrawn_but_gets_a_cancel_request_and_is_due_at_once(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (started, parked) = (manifest(lane).after(past(1)), manifest(Uuid::new_v4()).after(past(0)));
        store.enqueue(vec![started.clone(), parked.clone()]).await.unwrap();
        for (id, has_begun) in [(parked.id, false), (started.id, true)] {
            let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
            assert_eq!(lease.work, id);
            let checkpoint = Some(("step".to_owned(), json!({})));
            let rest = Duration::from_secs(3600);
            let back = Release { checkpoint, started: has_begun, ..Release::new(lease, rest, false) };
            store.release(back).await.unwrap();
        }
        let withdraw = |work| store.commit(Transaction::new().withdraw(work, json!({})));
        withdraw(parked.id).await.unwrap();
        let refused = withdraw(started.id).await;
        assert!(matches!(refused, Err(StoreError::WrongState { required: RequiredState::Fresh, .. })), "{refused:?}");
        assert!(next(store, WorkKind::Manifest).await.is_none());
        store.commit(Transaction::new().request_cancel(started.id)).await.unwrap();
        let again = next(store, WorkKind::Manifest).await.unwrap();
        assert_eq!((again.lease.work, again.first), (started.id, false));
    }
}

on_both_engines! {
    async fn work_that_is_too_late_is_not_expedited(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let late = manifest(lane).after(past(0)).before(past(9));
        store.enqueue(vec![late.clone()]).await.unwrap();
        let refused = store.commit(Transaction::new().expedite(late.id)).await;
        match refused {
            Err(StoreError::WrongState { state, required, .. }) => {
                assert_eq!((state, required), (WorkState::TimedOut, RequiredState::Pending));
            }
            other => panic!("{other:?}"),
        }
        assert!(next(store, WorkKind::Manifest).await.is_none());
        assert_eq!(store.work(late.id).await.unwrap().unwrap().state, WorkState::TimedOut);
    }
}

on_both_engines! {
    async fn only_pending_work_is_withdrawn_and_only_running_work_gets_a_cancel_request(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (running, waiting) = (manifest(lane).after(past(0)), manifest(lane));
        store.enqueue(vec![running.clone(), waiting.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let refused = |outcome: Result<_, StoreError>| match outcome {
            Err(StoreError::WrongState { state, required, .. }) => (state, required),
            other => panic!("{other:?}"),
        };
        let withdraw = |work| store.commit(Transaction::new().withdraw(work, json!({})));
        let stop = |work| store.commit(Transaction::new().request_cancel(work));
        assert_eq!(refused(withdraw(running.id).await), (WorkState::InProgress, RequiredState::Pending));
        assert_eq!(refused(stop(waiting.id).await), (WorkState::Pending, RequiredState::InProgress));
        finish(store, lease).await;
        assert_eq!(refused(withdraw(running.id).await), (WorkState::Completed, RequiredState::Pending));
        assert_eq!(refused(stop(running.id).await), (WorkState::Completed, RequiredState::InProgress));
        for outcome in [withdraw(Uuid::now_v7()).await, stop(Uuid::now_v7()).await] {
            assert!(matches!(outcome, Err(StoreError::NoSuchWork { .. })), "{outcome:?}");
        }
        // A rejected one fails the others of its transaction.
        let both = Transaction::new().withdraw(waiting.id, json!({})).withdraw(running.id, json!({}));
        refused(store.commit(both).await);
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [waiting.id]);
    }
}

on_both_engines! {
    async fn withdrawing_a_lane_cancels_pending_work_and_signals_running_work(env: &TestEnvironment) {
        let (store, lane, elsewhere) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let work = [manifest(lane).after(past(0)), manifest(lane), operation(lane), manifest(lane).after(future(0))];
        let other = manifest(elsewhere);
        store.enqueue(vec![work[0].clone(), other.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        store.enqueue(work[1..].to_vec()).await.unwrap();
        store.commit(Transaction::new().withdraw_lane(lane, json!({ "why": "deleted" }))).await.unwrap();
        for work in &work[1..] {
            assert_eq!(store.work(work.id).await.unwrap().unwrap().state, WorkState::Cancelled);
        }
        assert!(store.checkpoint(lease, "safe", json!(null)).await.unwrap().cancel);
        let ending = Completion::new(lease, Ending::Cancelled, json!({ "undone": true }));
        store.commit(Transaction::new().complete(ending)).await.unwrap();
        assert_eq!(complete_all(store, WorkKind::Manifest).await, [other.id]);
        // Later work starts without signals; withdrawing an unknown lane succeeds.
        let both = Transaction::new().withdraw_lane(lane, json!({})).withdraw_lane(Uuid::new_v4(), json!({}));
        store.commit(both).await.unwrap();
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        assert_eq!(store.checkpoint(lease, "safe", json!(null)).await.unwrap(), Signals::default());
    }
}

on_both_engines! {
    async fn checkpoint_renewal_and_guard_return_the_signals_to_a_holder(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        let mut notified = store.notifications(Topic::Work(WorkKind::Manifest));
        let asked = async |expected: Signals| {
            assert_eq!(store.checkpoint(lease, "step", json!(null)).await.unwrap(), expected);
            assert_eq!(store.renew(lease.owner, vec![lane]).await.unwrap()[0].signals, expected);
            let guarded = store.commit(Transaction::new().guard(lease)).await.unwrap();
            assert_eq!(guarded.signals(lease.work), expected);
            assert_eq!(store.lane(lane).await.unwrap().unwrap().signals, expected);
        };
        asked(Signals::default()).await;
        store.enqueue(vec![manifest(lane).after(past(0))]).await.unwrap();
        asked(Signals::default()).await;
        store.enqueue(vec![operation(lane)]).await.unwrap();
        asked(Signals { preempt: true, cancel: false }).await;
        tokio::time::timeout(SOON, notified.next()).await.expect("a holder that makes way is woken");
        store.commit(Transaction::new().request_cancel(lease.work)).await.unwrap();
        asked(Signals { preempt: true, cancel: true }).await;
        store.release(Release::new(lease, Duration::ZERO, false)).await.unwrap();
        assert_eq!(store.lane(lane).await.unwrap().unwrap().signals, Signals::default());
    }
}

on_both_engines! {
    async fn an_operation_makes_way_for_nothing(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![operation(lane)]).await.unwrap();
        let lease = next(store, WorkKind::Operation).await.unwrap().lease;
        store.enqueue(vec![operation(lane).after(past(0)).priority(i32::MIN), manifest(lane)]).await.unwrap();
        assert_eq!(store.checkpoint(lease, "step", json!(null)).await.unwrap(), Signals::default());
        assert!(next(store, WorkKind::Operation).await.is_none());
    }
}

on_both_engines! {
    async fn a_takeover_inherits_the_signals_of_the_lost_holder(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.enqueue(vec![manifest(lane)]).await.unwrap();
        let lost = store.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), Duration::ZERO).await.unwrap()[0].lease;
        store.commit(Transaction::new().request_cancel(lost.work).enqueue(operation(lane))).await.unwrap();
        let lease = store.take_over(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap()[0].lease;
        let signals = store.checkpoint(lease, "step", json!(null)).await.unwrap();
        assert_eq!(signals, Signals { preempt: true, cancel: true });
    }
}

on_both_engines! {
    async fn a_renewal_prolongs_only_the_lanes_that_the_caller_holds(env: &TestEnvironment) {
        let (store, me, other) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let lanes: Vec<Uuid> = (0..4).map(|_| Uuid::new_v4()).collect();
        store.enqueue(lanes.iter().map(|lane| manifest(*lane).after(past(0))).collect()).await.unwrap();
        let mine = store.claim_for(WorkKind::Manifest, 2, me, Duration::ZERO).await.unwrap();
        let theirs = store.claim_for(WorkKind::Manifest, 1, other, Duration::ZERO).await.unwrap();
        assert_eq!((mine.len(), theirs.len()), (2, 1));
        finish(store, mine[0].lease).await;
        let mut asked = lanes.clone();
        asked.push(Uuid::new_v4());
        let renewed = store.renew(me, asked).await.unwrap();
        assert_eq!(renewed.len(), 1);
        assert_eq!((renewed[0].lane, renewed[0].fence), (mine[1].lease.lane, mine[1].lease.fence));
        assert!(store.renew(me, Vec::new()).await.unwrap().is_empty());
        let taken = store.take_over(WorkKind::Manifest, 9, Uuid::new_v4()).await.unwrap();
        let taken: Vec<Uuid> = taken.iter().map(|it| it.lease.lane).collect();
        assert_eq!(taken, [theirs[0].lease.lane], "a renewed lease is not taken over");
    }
}

on_both_engines! {
    async fn a_release_does_not_lose_a_cancel_request(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let work = manifest(lane).after(past(0));
        store.enqueue(vec![work.clone()]).await.unwrap();
        let lease = next(store, WorkKind::Manifest).await.unwrap().lease;
        store.commit(Transaction::new().request_cancel(work.id)).await.unwrap();
        let release = Release { unless_cancelled: true, ..Release::new(lease, Duration::ZERO, false) };
        let refused = store.release(release.clone()).await;
        assert!(matches!(refused, Err(StoreError::WrongState { required: RequiredState::NotCancelled, .. })), "{refused:?}");
        assert_eq!(store.work(work.id).await.unwrap().unwrap().state, WorkState::InProgress);
        store.release(Release { unless_cancelled: false, ..release }).await.unwrap();
        assert_eq!(store.work(work.id).await.unwrap().unwrap().state, WorkState::Pending);
        finish(store, next(store, WorkKind::Manifest).await.unwrap().lease).await;
    }
}

on_both_engines! {
    async fn work_released_before_it_took_effect_may_still_time_out(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let work = manifest(lane).after(past(0));
        store.enqueue(vec![work.clone()]).await.unwrap();
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert!(claimed.first);
        store.release(Release::new(claimed.lease, Duration::ZERO, false)).await.unwrap();
        assert_eq!(store.work(work.id).await.unwrap().unwrap().started, None);
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert!(claimed.first, "nothing of it was begun");
        store.checkpoint(claimed.lease, "a", json!({})).await.unwrap();
        store.release(Release::new(claimed.lease, Duration::ZERO, false)).await.unwrap();
        assert!(store.work(work.id).await.unwrap().unwrap().started.is_some());
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert!(!claimed.first);
        finish(store, claimed.lease).await;
    }
}

on_both_engines! {
    async fn a_claim_delivers_the_last_request_to_cancel(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let work = manifest(lane);
        store.enqueue(vec![work.clone()]).await.unwrap();
        let claimed = next(store, WorkKind::Manifest).await.unwrap();
        assert_eq!(claimed.cancellation, None);
        let request = |actor: &str, reason: Option<&str>| {
            let entry = Entry::new(Timestamp::UNIX_EPOCH, EntryEvent::CancelRequested, actor, 1);
            let entry = Entry { message: reason.map(str::to_owned), ..entry };
            store.commit(Transaction::new().request_cancel(work.id).record(work.id, entry))
        };
        let expect = |found: Option<Cancellation>, actor: &str, reason: Option<&str>| {
            let found = found.unwrap();
            assert_eq!((found.requested_by.as_str(), found.reason.as_deref()), (actor, reason));
            assert!(found.requested_at > Timestamp::UNIX_EPOCH, "by the store's clock");
        };
        // The holder of running work reads the request with the work; a holder that takes over gets it with the claim.
        request("ada", Some("wrong cluster")).await.unwrap();
        expect(store.work(work.id).await.unwrap().unwrap().cancellation, "ada", Some("wrong cluster"));
        let back = Release { started: true, ..Release::new(claimed.lease, Duration::ZERO, false) };
        store.release(back).await.unwrap();
        request("bob", Some("")).await.unwrap();
        let me = Uuid::new_v4();
        let rested = store.claim_for(WorkKind::Manifest, 1, me, Duration::ZERO).await.unwrap();
        expect(rested[0].cancellation.clone(), "bob", None);
        let taken = store.take_over(WorkKind::Manifest, 1, me).await.unwrap();
        expect(taken[0].cancellation.clone(), "bob", None);
        let end = Completion::new(taken[0].lease, Ending::Cancelled, json!({}));
        store.complete(&[end]).await.unwrap();
        assert_eq!(store.work(work.id).await.unwrap().unwrap().cancellation, None);
    }
}
