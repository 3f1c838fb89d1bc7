//! Retention: the feed by time and never by its slowest reader, tombstones behind their feed rows, finished work with
//! its documents, the audit log from its start. Young rows, and the last of their kind, stay.

use std::sync::Arc;
use std::time::Duration;

use api::clock::ManualClock;
use api::doc::{Manifest, Verb};
use api::work::{Ending, WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::housekeeping::{self, Metrics};
use store::{
    AuditQuery, Completion, DesiredState, FeedError, HealthSample, NewWork, Options, Retention, Store,
    StoreError, Subject, Transaction, VersionedDocument,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on};
use crate::fixture::{
    Folder, Note, assert_sound, cluster, context, counter, eventually, feed_from, manifest, operation,
    written,
};
use crate::raw::RawDatabase;

/// One whole round of housekeeping: it is under way once the lease is taken, and a shutdown finishes it first.
pub(crate) async fn keep_house(store: &Store, raw: &RawDatabase, retention: Retention) {
    let (stop, mut keeper) = (CancellationToken::new(), JoinSet::new());
    keeper.spawn(housekeeping::run(store.clone(), retention, Metrics::default(), stop.clone()));
    eventually("the round has begun", async || {
        let held = "select count(*) from leases where name = 'housekeeper' and owner is not null";
        (raw.one(held).await == "1").then_some(())
    })
    .await;
    stop.cancel();
    keeper.join_all().await;
}

async fn count(raw: &RawDatabase, of: &str) -> usize {
    raw.one(&format!("select count(*) from {of}")).await.parse().unwrap()
}

async fn finish(store: &Store, kind: WorkKind) {
    let claimed = store.claim(kind, 50, Uuid::new_v4()).await.unwrap();
    assert!(!claimed.is_empty());
    let ended = |lease| Completion::new(lease, Ending::Completed, json!({}));
    store.complete(&claimed.iter().map(|it| ended(it.lease)).collect::<Vec<_>>()).await.unwrap();
}

#[test]
fn each_kind_of_data_is_kept_for_its_retention_and_then_removed() {
    block_on(async {
        let clock = ManualClock::at(Timestamp::from_second(1_800_000_000).unwrap());
        let folder = Folder::new();
        let options =
            Options { clock: Arc::clone(&clock) as api::clock::SharedClock, ..folder.options.clone() };
        let (store, raw) =
            (Store::open(options.clone()).await.unwrap(), RawDatabase::to(&options.location).await);
        let pass = |hours: i64| clock.advance(SignedDuration::from_hours(hours));
        let keep = Retention::default();

        let start = store.feed_end().await.unwrap();
        let living = written(&store, &Note::fresh()).await;
        let dead = written(&store, &Note::fresh()).await;
        store.collection().delete(&dead, &context()).await.unwrap();
        let create = operation(Uuid::now_v7(), Verb::Create);
        store.clusters().start_create(&cluster("c"), &create, &Default::default(), &context()).await.unwrap();
        finish(&store, WorkKind::Operation).await;
        let order = manifest(create.cluster);
        store.manifests().create(&[(order.clone(), vec![])], &context()).await.unwrap();
        finish(&store, WorkKind::Manifest).await;
        pass(1);
        written(&store, &Note::fresh()).await;
        let last = feed_from(&store, start).await.unwrap().last().unwrap().position;

        // Six days later nothing is removed.
        pass(6 * 24);
        keep_house(&store, &raw, keep).await;
        assert!(store.feed_after(start, 10).await.is_ok());
        assert_eq!(count(&raw, "documents where deleted_at is not null").await, 1);
        assert_eq!(count(&raw, "history").await, 2);
        assert_eq!(store.entries(order.id, None, 9).await.unwrap().len(), 1);

        // After eight days the feed is, except for its newest row; then the tombstone; and the finished operation.
        pass(2 * 24);
        keep_house(&store, &raw, keep).await;
        assert!(matches!(store.feed_after(start, 10).await, Err(FeedError::Gone { .. })));
        let changes = feed_from(&store, last).await.unwrap();
        assert_eq!(
            changes.iter().map(|it| it.uuid).collect::<Vec<_>>(),
            [create.id],
            "the operation's document left, and the feed has its deletion"
        );
        assert!(matches!(changes[0].subject, Subject::Document { deleted: true, .. }));
        assert_eq!(
            raw.one(&format!("select count(*) from documents where uuid = {}", raw.uuid(dead.uuid))).await,
            "0"
        );
        assert!(store.operations().get(create.id).await.unwrap().is_none());
        assert!(store.work(create.id).await.unwrap().is_none());
        assert!(store.documents::<Note>().get(living.uuid).await.unwrap().is_some());
        assert_eq!(
            store.manifests().view(order.id).await.unwrap().unwrap().work.unwrap().state,
            WorkState::Completed
        );
        // The operation's tombstone stays as long as its feed row.
        assert_eq!(count(&raw, "documents where deleted_at is not null").await, 1);
        pass(1);
        written(&store, &Note::fresh()).await;
        pass(8 * 24);
        keep_house(&store, &raw, keep).await;
        assert_eq!(count(&raw, "documents where deleted_at is not null").await, 0);
        assert_eq!(count(&raw, "feed").await, 1);

        // Manifests and their work are removed after ninety days, the audit log after four hundred.
        let audited =
            store.audit_list(AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap().len();
        pass(90 * 24);
        keep_house(&store, &raw, keep).await;
        assert!(store.manifests().view(order.id).await.unwrap().is_none());
        assert_eq!((count(&raw, "history").await, count(&raw, "entries").await), (0, 0));
        assert_eq!(count(&raw, "audit").await, audited);
        pass(400 * 24);
        keep_house(&store, &raw, keep).await;
        assert_eq!(count(&raw, "audit").await, 1);
        assert_eq!(store.verify_audit(None).await.unwrap().faults, Vec::<String>::new());

        // Sequence numbers are never reused, however empty the feed is.
        let before: i64 = raw.one("select max(seq) from feed").await.parse().unwrap();
        written(&store, &Note::fresh()).await;
        assert!(raw.one("select max(seq) from feed").await.parse::<i64>().unwrap() > before);
        assert_sound(&store).await;
    });
}

#[test]
fn old_work_is_found_among_more_young_work_than_one_round_checks() {
    block_on(async {
        let clock = ManualClock::at(Timestamp::from_second(1_800_000_000).unwrap());
        let folder = Folder::new();
        let options =
            Options { clock: Arc::clone(&clock) as api::clock::SharedClock, ..folder.options.clone() };
        let (store, raw) =
            (Store::open(options.clone()).await.unwrap(), RawDatabase::to(&options.location).await);
        // Spread over the whole range of ids, like those of real work.
        let at = |number: u128| Uuid::from_u128(number * (u128::MAX / 100_000));
        let ended = async |ids: std::ops::Range<u128>| {
            let lane = Uuid::new_v4();
            let ids: Vec<u128> = ids.collect();
            for block in ids.chunks(1000) {
                let work = |id: &u128| NewWork::new(at(*id), lane, WorkKind::Manifest);
                store.enqueue(block.iter().map(work).collect()).await.unwrap();
                store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
            }
        };
        ended(90_000..90_010).await;
        clock.advance(SignedDuration::from_hours(91 * 24));
        ended(1..6001).await;
        eventually("the old ones have left", async || {
            keep_house(&store, &raw, Retention::default()).await;
            (count(&raw, "history").await == 6000).then_some(())
        })
        .await;
        assert!(store.work(at(90_000)).await.unwrap().is_none());
        assert!(store.work(at(1)).await.unwrap().is_some());
        assert_sound(&store).await;
    });
}

on_both_engines! {
    async fn a_schedules_slot_is_remembered_until_its_time_has_passed(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let order = manifest(Uuid::now_v7());
        let slot = Manifest { created_by_schedule: Some("weekly".to_owned()), ..manifest(Uuid::now_v7()) };
        for one in [&order, &slot] {
            store.manifests().create(&[(one.clone(), Vec::new())], &context()).await.unwrap();
            store.commit(Transaction::new().withdraw(one.id, json!({}))).await.unwrap();
        }
        let short = Retention { manifests: Duration::ZERO, ..Retention::default() };
        eventually("what may leave has left", async || {
            keep_house(store, &raw, short).await;
            store.work(order.id).await.unwrap().is_none().then_some(())
        })
        .await;
        assert!(store.work(slot.id).await.unwrap().is_some(), "its time is still to come");
    }
}

on_both_engines! {
    async fn everything_that_may_leave_does(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let none = Retention { manifests: Duration::ZERO, feed: Duration::ZERO, operations: Duration::ZERO, audit: Duration::ZERO, health: Duration::ZERO };
        let start = store.feed_end().await.unwrap();
        let living = written(store, &Note::fresh().holding("kept")).await;
        let mut dead = Vec::new();
        // More than one block of everything.
        for _ in 0..6 {
            let lane = Uuid::now_v7();
            let orders: Vec<_> = (0..100).map(|_| (manifest(lane), vec![])).collect();
            store.manifests().create(&orders, &context()).await.unwrap();
            store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
            dead.extend(orders.into_iter().map(|it| it.0.id));
        }
        let pending = NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest);
        store.enqueue(vec![pending.clone()]).await.unwrap();
        let gone = written(store, &Note::fresh().holding("freed")).await;
        store.collection().delete(&gone, &context()).await.unwrap();
        let mut round = 0_u32;
        eventually("everything has left", async || {
            keep_house(store, &raw, none).await;
            // The newest row of the feed stays, and with it its tombstone, until something else is written. On PostgreSQL open
            // transactions of other tests keep what was written since they began: with a write in each round, rounds that are
            // shorter than those transactions would never end. So writes become rarer.
            round += 1;
            if round.is_power_of_two() {
                written(store, &Note::fresh()).await;
            }
            let left = (count(&raw, "history").await, count(&raw, "documents where deleted_at is not null").await);
            let is_gone = matches!(store.feed_after(start, 1).await, Err(FeedError::Gone { .. }));
            (left == (0, 0) && is_gone && count(&raw, "feed").await <= 3).then_some(())
        }).await;
        assert!(store.get_many(dead).await.unwrap().is_empty());
        assert_eq!(count(&raw, "entries").await, 0);
        // Live data stays: documents, their keys, pending work; and the log verifies.
        assert!(store.get(living.uuid).await.unwrap().is_some());
        assert!(store.collection().create(&Note::fresh().holding("kept"), &context()).await.is_err());
        assert_eq!(store.work(pending.id).await.unwrap().unwrap().state, WorkState::Pending);
        assert_eq!(store.verify_audit(None).await.unwrap().faults, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_failed_duty_does_not_stop_the_others(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let start = store.feed_end().await.unwrap();
        // The log's head was tampered with, so that it cannot be sealed; and late work waits.
        let head = raw.one("select value from meta where key = 'audit_head'").await;
        raw.execute("update meta set value = 'x' where key = 'audit_head'").await;
        let note = written(store, &Note::fresh()).await;
        store.collection().delete(&note, &context()).await.unwrap();
        let late = NewWork { run_before: Some(Timestamp::UNIX_EPOCH), ..NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest) };
        store.enqueue(vec![late.clone()]).await.unwrap();
        let none = Retention { manifests: Duration::ZERO, feed: Duration::ZERO, operations: Duration::ZERO, audit: Duration::ZERO, health: Duration::ZERO };
        let metrics = Metrics::default();
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        let (stop, mut keeper) = (CancellationToken::new(), JoinSet::new());
        keeper.spawn(housekeeping::run(store.clone(), none, metrics, stop.clone()));
        eventually("the feed was trimmed and late work closed", async || {
            written(store, &Note::fresh()).await;
            let is_gone = matches!(store.feed_after(start, 1).await, Err(FeedError::Gone { .. }));
            let closed = store.work(late.id).await.unwrap().is_none_or(|it| it.state == WorkState::TimedOut);
            (is_gone && closed).then_some(())
        }).await;
        stop.cancel();
        keeper.join_all().await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("housekeeping_failures_total") && !text.contains("housekeeping_failures_total 0"), "{text}");
        raw.execute(&format!("update meta set value = '{head}' where key = 'audit_head'")).await;
    }
}

on_both_engines! {
    async fn leases_of_processes_and_health_of_clusters_that_are_gone_leave(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let hour = Duration::from_secs(3600);
        let (me, other) = (Uuid::new_v4(), Uuid::new_v4());
        let dead = store.take_lease("actuator/dead", me, hour).await.unwrap().unwrap();
        store.take_lease("actuator/resting", me, hour).await.unwrap().unwrap();
        store.take_lease("actuator/living", me, hour).await.unwrap().unwrap();
        raw.execute("update leases set lease_until = lease_until - 172800000000 where name = 'actuator/dead'").await;
        raw.execute("update leases set lease_until = lease_until - 7200000000 where name = 'actuator/resting'").await;
        let (living, gone, unknown) = (written(store, &Note::fresh()).await, written(store, &Note::fresh()).await, Uuid::new_v4());
        let sample = |cluster| HealthSample { cluster, at: Timestamp::MIN, reachable: true, since: Timestamp::MIN, details: json!({}).into() };
        store.health_writer().put([living.uuid, gone.uuid, unknown].map(sample).to_vec()).await.unwrap();
        store.collection().delete(&gone, &context()).await.unwrap();

        keep_house(store, &raw, Retention::default()).await;
        let left = raw.rows("select name from leases where name like 'actuator/%' order by name").await;
        assert_eq!(left, [["actuator/living"], ["actuator/resting"]]);
        let left = store.health(vec![living.uuid, gone.uuid, unknown]).await.unwrap();
        assert_eq!(left.iter().map(|it| it.cluster).collect::<Vec<_>>(), [living.uuid]);
        // A lease whose name was removed gets a fence that nobody had before.
        assert!(store.take_lease("actuator/dead", other, hour).await.unwrap().unwrap() > dead);
    }
}

/// While a block of finished work is removed, a transaction that started later changes one of its documents. The
/// removal's own transaction is the older one; still its feed row must come last.
#[test]
fn the_removal_of_a_document_is_its_last_change_in_the_feed() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, raw, other) =
            (&env.store, RawDatabase::connect(&env).await, RawDatabase::connect(&env).await);
        let lane = Uuid::now_v7();
        let mut orders: Vec<_> = (0..3).map(|_| (manifest(lane), vec![])).collect();
        orders.sort_by_key(|it| it.0.id);
        store.manifests().create(&orders, &context()).await.unwrap();
        store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
        let start = eventually("the feed has caught up", async || {
            let end = store.feed_end().await.unwrap();
            feed_from(store, end).await.unwrap().is_empty().then_some(end)
        })
        .await;
        let [first, middle, last] = [0, 1, 2].map(|at| orders[at].0.id);
        let read: VersionedDocument<api::doc::Manifest> = store.manifests().get(last).await.unwrap().unwrap();

        // Another transaction holds the middle one, so that the removal waits between the first and the last.
        other
            .execute(&format!(
                "begin; select 1 from documents where uuid = {} for update",
                other.uuid(middle)
            ))
            .await;
        let none = Retention { manifests: Duration::ZERO, ..Retention::default() };
        let (stop, mut keeper) = (CancellationToken::new(), JoinSet::new());
        keeper.spawn(housekeeping::run(store.clone(), none, Metrics::default(), stop.clone()));
        eventually("the removal waits, or passes over what is held", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            (raw.one(waiting).await != "0" || count(&raw, "history").await < 3).then_some(())
        })
        .await;
        let changed = api::doc::Manifest { priority: 7, ..read.document.clone() };
        let change = Transaction::new().update(&read, &changed, DesiredState::Unchanged, &context()).unwrap();
        let is_changed = match store.commit(change).await {
            Ok(_) => true,
            Err(StoreError::Gone { .. }) => false,
            Err(other) => panic!("{other}"),
        };
        other.execute("commit").await;
        stop.cancel();
        keeper.join_all().await;

        // It may have been left for the next round; when it is removed, that is its last feed row.
        let second_round = async || keep_house(store, &raw, none).await;
        second_round().await;
        assert!(store.get(last).await.unwrap().is_none() && store.get(first).await.unwrap().is_none());
        let changes = eventually("its removal is in the feed", async || {
            let changes = feed_from(store, start).await.unwrap();
            let versions: Vec<i64> = changes
                .iter()
                .filter(|it| it.uuid == last)
                .filter_map(|it| match it.subject {
                    Subject::Document { etag, .. } => Some(counter(etag)),
                    Subject::Work => None,
                })
                .filter(|it| *it > 1)
                .collect();
            (versions.len() > usize::from(is_changed)).then_some(versions)
        })
        .await;
        assert_eq!(changes, if is_changed { &[2, 3][..] } else { &[2] });
    });
}
