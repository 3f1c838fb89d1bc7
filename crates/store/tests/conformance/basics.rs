//! Each operation once, in the simplest case.

use std::time::Duration;

use api::work::{Ending, WorkKind, WorkState};
use serde_json::json;
use store::{Completion, CompletionOutcome, NewWork, Release, StoreError, Transaction};
use uuid::Uuid;

on_both_engines! {
    async fn work_is_claimed_checkpointed_and_completed(env: &TestEnvironment) {
        let (store, lane, me) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let work = NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest);
        store.enqueue(vec![work.clone()]).await.unwrap();
        assert!(store.claim(WorkKind::Operation, 10, me).await.unwrap().is_empty());
        let claimed = store.claim(WorkKind::Manifest, 10, me).await.unwrap();
        assert_eq!(claimed.len(), 1);
        let lease = claimed[0].lease;
        assert_eq!((lease.work, lease.lane, claimed[0].attempt), (work.id, lane, 1));
        let signals = store.checkpoint(lease, "first", json!({ "n": 1 })).await.unwrap();
        assert!(!signals.preempt && !signals.cancel);
        let outcomes = store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        assert_eq!(outcomes, [CompletionOutcome::Done]);
        let seen = store.work(work.id).await.unwrap().unwrap();
        assert_eq!((seen.state, seen.step.as_deref()), (WorkState::Completed, Some("first")));
        assert_eq!(store.lane(lane).await.unwrap().unwrap().owner, None);
    }
}

on_both_engines! {
    async fn an_operation_pre_empts_a_manifest_at_its_next_checkpoint(env: &TestEnvironment) {
        let (store, lane, me) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let manifest = NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest);
        let fresh = NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest);
        let operation = NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation);
        store.enqueue(vec![manifest.clone(), fresh.clone()]).await.unwrap();
        let lease = store.claim(WorkKind::Manifest, 1, me).await.unwrap()[0].lease;
        assert_eq!(lease.work, manifest.id);
        store.enqueue(vec![operation.clone()]).await.unwrap();
        assert!(store.checkpoint(lease, "safe", json!(null)).await.unwrap().preempt);
        store.release(Release::new(lease, Duration::ZERO, false)).await.unwrap();
        assert!(store.claim(WorkKind::Manifest, 9, me).await.unwrap().is_empty());
        let lease = store.claim(WorkKind::Operation, 9, me).await.unwrap()[0].lease;
        assert_eq!(lease.work, operation.id);
        store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        // Started work continues before unstarted work, and its attempt was not counted.
        let next = store.claim(WorkKind::Manifest, 9, me).await.unwrap();
        assert_eq!((next[0].lease.work, next[0].attempt, next[0].step.as_deref()), (manifest.id, 1, Some("safe")));
    }
}

on_both_engines! {
    async fn a_stale_holder_can_write_nothing(env: &TestEnvironment) {
        let (store, lane, me, other) = (&env.store, Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
        store.enqueue(vec![NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest)]).await.unwrap();
        let old = store.claim_for(WorkKind::Manifest, 1, me, Duration::ZERO).await.unwrap()[0].lease;
        let taken = store.take_over(WorkKind::Manifest, 10, other).await.unwrap();
        assert_eq!((taken.len(), taken[0].attempt, taken[0].taken_over), (1, 2, true));
        assert!(matches!(store.checkpoint(old, "late", json!(1)).await, Err(StoreError::LostLease { .. })));
        let late = Completion::new(old, Ending::Completed, json!({}));
        assert_eq!(store.complete(std::slice::from_ref(&late)).await.unwrap(), [CompletionOutcome::Lost]);
        assert!(matches!(store.commit(Transaction::new().complete(late)).await, Err(StoreError::LostLease { .. })));
        assert!(store.renew(me, vec![lane]).await.unwrap().is_empty());
        assert_eq!(store.renew(other, vec![lane]).await.unwrap().len(), 1);
    }
}
