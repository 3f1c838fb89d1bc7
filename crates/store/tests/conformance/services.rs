//! Requests of the frontend and the backend beside documents: deleted subscriptions, operations that are requested to
//! cancel, and billing under a lease.

use api::admin::EntryEvent;
use api::doc::{Document as _, Subscription, SubscriptionState, Verb};
use api::work::{Ending, WorkKind, WorkState};
use jiff::Timestamp;
use serde_json::json;
use store::{Completion, Release, Secrets, Store, StoreError, WorkLease};
use uuid::Uuid;

use crate::fixture::{billing, cluster, context, counter, operation};

fn subscription(state: SubscriptionState) -> Subscription {
    Subscription {
        subscription_id: "11111111-2222-3333-4444-555555555555".to_owned(),
        state,
        tenant_id: None,
        registered_features: Vec::new(),
        body: json!({ "state": format!("{state:?}"), "unknown": [1] }),
    }
}

/// Claims the only operation.
async fn claim(store: &Store) -> WorkLease {
    let mut claimed = store.claim(WorkKind::Operation, 10, Uuid::new_v4()).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0).lease
}

on_both_engines! {
    async fn repeated_puts_of_a_deleted_subscription_enqueue_its_removal_once(env: &TestEnvironment) {
        use SubscriptionState::{Deleted, Registered, Warned};
        let store = &env.store;
        let subscriptions = store.subscriptions();
        let (uuid, first, new) = subscriptions.put(&subscription(Registered), None, &context()).await.unwrap();
        assert!(new && counter(first) == 1);
        let (same, second, new) = subscriptions.put(&subscription(Warned), None, &context()).await.unwrap();
        assert_eq!((same, counter(second), new), (uuid, 2, false));
        let stale = subscriptions.put(&subscription(Registered), Some(first), &context()).await;
        assert!(matches!(stale, Err(StoreError::Changed { .. })), "{stale:?}");
        subscriptions.put(&subscription(Registered), Some(second), &context()).await.unwrap();
        assert_eq!(store.queue(WorkKind::Operation).await.unwrap().pending, 0);

        // Setting Deleted twice is one removal; its lane is the subscription itself.
        for _ in 0..2 {
            subscriptions.put(&subscription(Deleted), None, &context()).await.unwrap();
        }
        assert_eq!(store.queue(WorkKind::Operation).await.unwrap().pending, 1);
        let lease = claim(store).await;
        assert_eq!(lease.lane, uuid);
        let read = subscriptions.find(&subscription(Deleted).path()).await.unwrap().unwrap();
        assert_eq!((read.uuid, read.document), (uuid, subscription(Deleted)));
    }
}

on_both_engines! {
    async fn of_two_concurrent_puts_of_a_subscription_one_creates_it(env: &TestEnvironment) {
        let store = &env.store;
        let put = async || store.subscriptions().put(&subscription(SubscriptionState::Deleted), None, &context()).await.unwrap();
        let (one, other, third) = tokio::join!(put(), put(), put());
        let new = [one.2, other.2, third.2].into_iter().filter(|new| *new).count();
        assert_eq!((new, one.0 == other.0 && other.0 == third.0), (1, true));
        assert_eq!(store.queue(WorkKind::Operation).await.unwrap().pending, 1);
        let absent = store.subscriptions().put(
            &Subscription { subscription_id: "nobody".to_owned(), ..subscription(SubscriptionState::Warned) },
            Some(one.1),
            &context(),
        ).await;
        assert!(matches!(absent, Err(StoreError::Gone { .. })), "{absent:?}");
    }
}

on_both_engines! {
    async fn no_cluster_is_created_in_a_subscription_that_changed_since_it_was_read(env: &TestEnvironment) {
        let (store, path) = (&env.store, subscription(SubscriptionState::Registered).path());
        store.subscriptions().create(&subscription(SubscriptionState::Registered), &context()).await.unwrap();
        let again = store.subscriptions().create(&subscription(SubscriptionState::Registered), &context()).await;
        assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
        let read = store.subscriptions().find(&path).await.unwrap().unwrap();
        let make = async |name: &str| {
            let create = operation(Uuid::now_v7(), Verb::Create);
            store.clusters().start_create_in(&read, &cluster(name), &create, &Secrets::new(), &context()).await
        };
        make("one").await.unwrap();
        store.subscriptions().put(&subscription(SubscriptionState::Deleted), Some(read.etag), &context()).await.unwrap();
        let late = make("two").await;
        assert!(matches!(late, Err(StoreError::Changed { uuid, expected, .. }) if uuid == read.uuid && expected == read.etag), "{late:?}");
        assert!(store.clusters().find(&cluster("two").path()).await.unwrap().is_none());
        assert_eq!(store.queue(WorkKind::Operation).await.unwrap().pending, 2);
    }
}

on_both_engines! {
    async fn a_reader_that_sees_a_subscription_deleted_sees_all_its_clusters(env: &TestEnvironment) {
        let (store, path) = (&env.store, subscription(SubscriptionState::Registered).path());
        for round in 0..20 {
            store.subscriptions().create(&subscription(SubscriptionState::Registered), &context()).await.unwrap();
            let read = store.subscriptions().find(&path).await.unwrap().unwrap();
            let (create, wanted) = (operation(Uuid::now_v7(), Verb::Create), cluster(&format!("c-{round}")));
            let make = async {
                store.clusters().start_create_in(&read, &wanted, &create, &Secrets::new(), &context()).await
            };
            let go = async { store.subscriptions().put(&subscription(SubscriptionState::Deleted), None, &context()).await };
            let look = async {
                while store.subscriptions().find(&path).await.unwrap().unwrap().etag == read.etag {
                    tokio::task::yield_now().await;
                }
                store.clusters().find(&wanted.path()).await.unwrap().is_some()
            };
            let (made, gone, seen) = tokio::join!(make, go, look);
            gone.unwrap();
            match made {
                Ok(_) => assert!(seen, "round {round}"),
                Err(StoreError::Changed { .. }) => assert!(!seen, "round {round}"),
                Err(other) => panic!("round {round}: {other}"),
            }
            let read = store.subscriptions().find(&path).await.unwrap().unwrap();
            store.subscriptions().delete(&read, &context()).await.unwrap();
        }
    }
}

on_both_engines! {
    async fn an_operation_is_requested_to_cancel_whether_running_or_pending(env: &TestEnvironment) {
        let store = &env.store;
        let lane = Uuid::now_v7();
        let asked = operation(lane, Verb::Create);
        store.clusters().start_create(&cluster("one"), &asked, &Secrets::new(), &context()).await.unwrap();
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let cancel_requests = async || {
            let log = store.entries(asked.id, None, 100).await.unwrap();
            log.into_iter().filter(|(_, it)| it.event == EntryEvent::CancelRequested).map(|(_, it)| (it.actor, it.message)).collect::<Vec<_>>()
        };

        // A delayed one is due at once, and its history states why.
        let lease = claim(store).await;
        let rest = std::time::Duration::from_secs(3600);
        store.release(Release::new(lease, rest, false)).await.unwrap();
        assert!(store.claim(WorkKind::Operation, 1, Uuid::new_v4()).await.unwrap().is_empty());
        store.operations().request_cancel(asked.id, at, &context()).await.unwrap();
        assert_eq!(cancel_requests().await, [("tester".to_owned(), Some("a test".to_owned()))]);

        // A running one gets the signal with its next checkpoint.
        let lease = claim(store).await;
        assert!(!store.checkpoint(lease, "s", json!({})).await.unwrap().cancel);
        store.operations().request_cancel(asked.id, at, &context()).await.unwrap();
        assert!(store.checkpoint(lease, "s", json!({})).await.unwrap().cancel);

        // A finished one, and an unknown one, are left alone.
        store.complete(&[Completion::new(lease, Ending::Cancelled, json!({}))]).await.unwrap();
        let before = cancel_requests().await;
        store.operations().request_cancel(asked.id, at, &context()).await.unwrap();
        store.operations().request_cancel(Uuid::now_v7(), at, &context()).await.unwrap();
        assert_eq!(cancel_requests().await, before);
        assert_eq!(store.work(asked.id).await.unwrap().unwrap().state, WorkState::Cancelled);
    }
}

on_both_engines! {
    async fn billing_under_a_lease_is_written_by_its_holder_only(env: &TestEnvironment) {
        let store = &env.store;
        let lane = Uuid::now_v7();
        store.clusters().start_create(&cluster("one"), &operation(lane, Verb::Create), &Secrets::new(), &context()).await.unwrap();
        let lease = claim(store).await;
        let stale = WorkLease { fence: lease.fence - 1, ..lease };
        let (record, at) = (billing(lane, 10), Timestamp::from_second(30).unwrap());
        let open = async |lease| store.billing().with_lease(lease).ensure_open(&record, &context()).await;
        let close = async |lease| store.billing().with_lease(lease).ensure_closed(&record, at, &context()).await;
        let is_lost = |written: Result<(), StoreError>| matches!(written, Err(StoreError::LostLease { .. }));
        let found = async || store.billing().find(&record.path()).await.unwrap().map(|it| it.document.deletion_time);

        assert!(is_lost(open(stale).await) && found().await.is_none());
        open(lease).await.unwrap();
        open(lease).await.unwrap();
        assert_eq!(found().await, Some(None));
        assert!(is_lost(close(stale).await));
        assert_eq!(found().await, Some(None), "a worker that lost its lease closes nothing");
        close(lease).await.unwrap();
        close(lease).await.unwrap();
        assert_eq!(found().await, Some(Some(at)));

        store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        let other = billing(Uuid::now_v7(), 10);
        assert!(is_lost(store.billing().with_lease(lease).ensure_open(&other, &context()).await), "work that has ended holds nothing");
    }
}
