//! Each verb once, on a real server; the guarantees under load are the conformance suite's.

use std::sync::Arc;
use std::time::Duration;

use api::audit::AuditEntry;
use api::clock::SystemClock;
use api::work::{Ending, WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testbed::postgres::Database;
use uuid::Uuid;

use super::Postgres;
use crate::engine::{AuditListing, Sealing, Stale};
use crate::feed::{FeedError, Subject};
use crate::keyring::Keyring;
use crate::open::{Migrate, OpenError, Options};
use crate::transaction::{DocumentUpdate, NewDocument, Transaction, Write};
use crate::wake::Topic;
use crate::work::{Claimed, Completion, Fate, NewWork, Signals, Yielding};
use crate::{Etag, LEASE, Listing, StoreError};

/// A store in a database of its own.
struct Bed {
    store: Postgres,
    database: Database,
}

async fn bed() -> Option<Bed> {
    let Some(server) = testbed::postgres::shared() else {
        testbed::parts::skip(testbed::parts::POSTGRESQL, "no server for tests");
        return None;
    };
    let database = server.database().unwrap();
    let store = Postgres::open(&options(database.url())).await.unwrap();
    Some(Bed { store, database })
}

fn options(url: &str) -> Options {
    Options::new(url.parse().unwrap(), Keyring::ephemeral().unwrap(), Arc::new(SystemClock))
}

macro_rules! bed {
    () => {
        match bed().await {
            Some(bed) => bed,
            None => return,
        }
    };
}

impl Bed {
    /// Lets the server's clock, as the store sees it, be so much ahead.
    fn shift(&self, ahead: Duration) {
        let sql = format!("alter database {} set shipshape.clock_offset_us = {}", self.database.name(), ahead.as_micros());
        self.database.psql(&sql).unwrap();
        self.store.shared.pool.retain(|_, _| false);
    }

    async fn enqueue(&self, lane: Uuid, kind: WorkKind) -> Uuid {
        let id = Uuid::new_v4();
        self.commit(Transaction::new().enqueue(NewWork::new(id, lane, kind))).await;
        id
    }

    async fn commit(&self, transaction: Transaction) -> crate::Committed {
        self.store.commit(transaction).await.unwrap()
    }

    async fn refused(&self, transaction: Transaction) -> StoreError {
        self.store.commit(transaction).await.unwrap_err()
    }

    async fn claim(&self, kind: WorkKind) -> Vec<Claimed> {
        self.store.claim(kind, 50, Uuid::new_v4(), LEASE).await.unwrap()
    }

    async fn state(&self, work: Uuid) -> WorkState {
        self.store.works(vec![work]).await.unwrap()[0].state
    }

    async fn sound(&self) {
        let walk = self.store.repair(None, 10_000).await.unwrap();
        assert_eq!(walk.changed, 0, "heads must need no repair");
        let queries = [
            "select key from budgets b where used <> (select count(*) from work w where b.key = any (w.held))",
            "select lane::text from lanes where (owner is null) <> (running is null)",
            "select w.id::text from work w left join lanes l on l.running = w.id where w.state = 'InProgress' and l.fence is distinct from w.fence",
        ];
        let faults = self.store.violations(queries.map(str::to_owned).to_vec(), 10).await.unwrap();
        assert!(faults.iter().all(Vec::is_empty), "{faults:?}");
        assert!(self.store.soundness().await.unwrap().is_empty());
    }
}

fn document(id: &str) -> NewDocument {
    NewDocument {
        uuid: Uuid::new_v4(),
        id: id.to_owned(),
        kind: "cluster".to_owned(),
        parent: "/s".to_owned(),
        body: json!({"name": id, "n": 1.5}),
        unique_keys: Vec::new(),
    }
}

fn create(document: NewDocument) -> Transaction {
    Transaction::new().with(Write::Create(document))
}

fn update(uuid: Uuid, etag: Etag) -> Transaction {
    let update = DocumentUpdate { uuid, etag, body: json!({"n": 2}), desired: true, unique_keys: None };
    Transaction::new().with(Write::Update(update))
}

fn ended(claimed: &Claimed) -> Completion {
    Completion { hold: claimed.hold, ending: Ending::Completed, result: json!({"message": "done"}) }
}

#[tokio::test]
async fn documents_are_created_read_changed_listed_and_deleted() {
    let bed = bed!();
    let first = document("/s/a");
    let uuid = first.uuid;
    bed.commit(create(first.clone())).await;
    let again = NewDocument { uuid: Uuid::new_v4(), ..first.clone() };
    assert!(matches!(bed.refused(create(again.clone())).await, StoreError::Exists { kind, id } if kind == "cluster" && id == "/s/a"));
    let both = create(again).audit(entry());
    assert!(matches!(bed.refused(both).await, StoreError::Exists { kind, id } if kind == "cluster" && id == "/s/a"));

    let stored = bed.store.get(uuid).await.unwrap().unwrap();
    assert_eq!((stored.etag, stored.generation, &stored.body), (Etag(1), 1, &json!({"name": "/s/a", "n": 1.5})));
    let committed = bed.commit(update(uuid, Etag(1))).await;
    assert_eq!(committed.etag(uuid), Some(Etag(2)));
    for stale in [update(uuid, Etag(1)), update(uuid, Etag(1)).audit(entry())] {
        let error = bed.refused(stale).await;
        assert!(matches!(error, StoreError::Changed { expected: Etag(1), found: Etag(2), .. }), "{error:?}");
    }
    assert_eq!(bed.store.find("/s/a").await.unwrap().unwrap().generation, 2);

    for id in ["/s/b", "/s/c"] {
        bed.commit(create(document(id))).await;
    }
    let listing = Listing { kind: "cluster".to_owned(), parent: Some("/s".to_owned()), limit: 2, ..Listing::default() };
    let page = bed.store.list(listing.clone()).await.unwrap();
    assert_eq!(page.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["/s/a", "/s/b"]);
    let rest = bed.store.list(Listing { after: Some(("/s".to_owned(), "/s/b".to_owned())), parent: None, ..listing.clone() }).await.unwrap();
    assert_eq!(rest.len(), 1);
    let narrow = bed.store.list(Listing { prefix: Some("/s/c".to_owned()), ..listing }).await.unwrap();
    assert_eq!(narrow[0].id, "/s/c");

    let heir = document("/s/a");
    bed.commit(create(heir.clone()).delete(uuid, Etag(2))).await;
    assert!(matches!(bed.refused(update(uuid, Etag(3))).await, StoreError::Gone { .. }));
    assert_eq!(bed.store.find("/s/a").await.unwrap().unwrap().uuid, heir.uuid);
    assert_eq!(bed.store.get_many(vec![uuid, heir.uuid]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_unique_key_has_one_living_owner() {
    let bed = bed!();
    let keyed = |id: &str| NewDocument { unique_keys: vec!["group/x".to_owned()], ..document(id) };
    let first = keyed("/s/a");
    bed.commit(create(first.clone())).await;
    assert!(matches!(bed.refused(create(keyed("/s/b"))).await, StoreError::KeyTaken { key } if key == "group/x"));
    let freed = DocumentUpdate { uuid: first.uuid, etag: Etag(1), body: json!({}), desired: false, unique_keys: Some(vec![]) };
    let moved = create(keyed("/s/b")).with(Write::Update(freed));
    bed.commit(moved).await;
    assert!(matches!(bed.refused(create(keyed("/s/c"))).await, StoreError::KeyTaken { .. }));
}

#[tokio::test]
async fn secrets_are_sealed_with_the_stores_key_and_go_with_their_owner() {
    let bed = bed!();
    let owner = document("/s/a");
    let sealed = |bytes: &[u8], key_id: &str| crate::Sealed {
        owner: owner.uuid,
        name: "kubeconfig".to_owned(),
        key_id: key_id.to_owned(),
        bytes: bytes.to_vec(),
    };
    bed.store.set_meta(vec![("key_id".to_owned(), "k1".to_owned())]).await.unwrap();
    bed.commit(create(owner.clone()).put_secret(sealed(b"1", "k1")).put_secret(sealed(b"2", "k1"))).await;
    let stale = bed.refused(Transaction::new().put_secret(sealed(b"3", "k0"))).await;
    assert!(matches!(stale, StoreError::StaleKey { current, used } if current == "k1" && used == "k0"));
    assert_eq!(bed.store.secret(owner.uuid, "kubeconfig").await.unwrap().unwrap(), sealed(b"2", "k1"));
    assert!(bed.store.reseal(sealed(b"2", "k1"), sealed(b"9", "k2")).await.unwrap());
    assert!(!bed.store.reseal(sealed(b"2", "k1"), sealed(b"8", "k2")).await.unwrap());
    assert_eq!(bed.store.secrets(Some("k1".to_owned()), None, 10).await.unwrap().len(), 1);
    bed.commit(Transaction::new().delete(owner.uuid, Etag(1))).await;
    assert!(bed.store.secrets(None, None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn work_is_claimed_checkpointed_given_back_and_ended() {
    let bed = bed!();
    let lane = Uuid::new_v4();
    let work = bed.enqueue(lane, WorkKind::Manifest).await;
    let error = bed.refused(Transaction::new().enqueue(NewWork::new(work, lane, WorkKind::Manifest))).await;
    assert!(matches!(&error, StoreError::Exists { kind, id } if kind == "work" && *id == work.to_string()), "{error:?}");
    assert!(bed.claim(WorkKind::Operation).await.is_empty());
    assert_eq!(bed.store.until_due(WorkKind::Manifest).await.unwrap(), Some(Duration::ZERO));
    let claimed = bed.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!((claimed.hold.work, claimed.hold.fence, claimed.attempt), (work, 1, 1));
    assert!(bed.claim(WorkKind::Manifest).await.is_empty());
    assert_eq!(bed.store.until_due(WorkKind::Manifest).await.unwrap(), None);

    // An operation pre-empts the manifest and goes before it.
    let operation = bed.enqueue(lane, WorkKind::Operation).await;
    let committed = bed.commit(Transaction::new().checkpoint(claimed.hold, "one", json!({"n": 1})).guard(claimed.hold)).await;
    assert_eq!(committed.signals(work), Signals { preempt: true, cancel: false });
    let renewed = bed.store.renew(claimed.hold.owner, vec![lane, Uuid::new_v4()], LEASE).await.unwrap();
    assert_eq!(renewed.len(), 1);
    assert!(renewed[0].signals.preempt);
    bed.commit(Transaction::new().hand_back(Yielding { hold: claimed.hold, rest: Duration::ZERO, attempt_spent: false })).await;
    assert!(matches!(bed.refused(Transaction::new().guard(claimed.hold)).await, StoreError::LostLease { work: lost } if lost == work));
    assert!(bed.claim(WorkKind::Manifest).await.is_empty());
    let first = bed.claim(WorkKind::Operation).await.remove(0);
    assert_eq!((first.hold.work, first.hold.fence), (operation, 2));
    assert_eq!(bed.store.pending(lane, 10).await.unwrap()[0].id, work);

    // The end of the one and the beginning of the next, in one transaction with a document.
    let next = Uuid::new_v4();
    let end = Transaction::new().complete(ended(&first)).enqueue(NewWork::new(next, lane, WorkKind::Operation));
    bed.commit(end.with(Write::Create(document("/s/x"))).audit(entry())).await;
    assert_eq!(bed.state(operation).await, WorkState::Completed);
    let second = bed.claim(WorkKind::Operation).await.remove(0);
    let fates = bed.store.complete(vec![ended(&first), ended(&second), ended(&second)]).await.unwrap();
    assert_eq!(fates, [Fate::Lost, Fate::Done, Fate::Lost]);
    let error = bed.refused(Transaction::new().complete(ended(&second))).await;
    assert!(matches!(error, StoreError::LostLease { work: lost } if lost == next));

    let resumed = bed.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!((resumed.attempt, resumed.step.as_deref(), resumed.checkpoint.clone()), (1, Some("one"), Some(json!({"n": 1}))));
    bed.store.complete(vec![ended(&resumed)]).await.unwrap();
    let view = bed.store.works(vec![work, next, Uuid::new_v4()]).await.unwrap();
    assert_eq!(view.len(), 2);
    assert!(view.iter().all(|it| it.finished == Some(it.due_at) && it.result.is_some()));
    let error = bed.refused(Transaction::new().enqueue(NewWork::new(work, lane, WorkKind::Manifest))).await;
    assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    bed.sound().await;
}

#[tokio::test]
async fn pending_work_is_withdrawn_and_expedited_and_running_work_is_asked_to_cancel() {
    let bed = bed!();
    let lane = Uuid::new_v4();
    let later = NewWork { run_after: Some(Timestamp::MAX - SignedDuration::from_hours(1)), ..NewWork::new(Uuid::new_v4(), lane, WorkKind::Manifest) };
    bed.commit(Transaction::new().enqueue(later.clone())).await;
    assert!(bed.claim(WorkKind::Manifest).await.is_empty());
    assert!(bed.store.until_due(WorkKind::Manifest).await.unwrap().unwrap() > LEASE);
    bed.commit(Transaction::new().expedite(later.id)).await;
    let claimed = bed.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!(claimed.run_after, Timestamp::UNIX_EPOCH);
    for refused in [Transaction::new().expedite(later.id), Transaction::new().withdraw(later.id, json!({}))] {
        let error = bed.refused(refused).await;
        assert!(matches!(&error, StoreError::WrongState { state, wanted: "Pending", .. } if state == "InProgress"), "{error:?}");
    }
    bed.commit(Transaction::new().request_cancel(later.id)).await;
    assert!(bed.commit(Transaction::new().guard(claimed.hold)).await.signals(later.id).cancel);
    let pending = bed.enqueue(lane, WorkKind::Manifest).await;
    let error = bed.refused(Transaction::new().request_cancel(pending)).await;
    assert!(matches!(&error, StoreError::WrongState { state, wanted: "InProgress", .. } if state == "Pending"), "{error:?}");
    bed.commit(Transaction::new().withdraw(pending, json!({"message": "no"}))).await;
    assert_eq!(bed.state(pending).await, WorkState::Cancelled);
    let more = [bed.enqueue(lane, WorkKind::Manifest).await, bed.enqueue(lane, WorkKind::Operation).await];
    bed.commit(Transaction::new().withdraw_lane(lane, json!({"message": "no"}))).await;
    for work in more {
        assert_eq!(bed.state(work).await, WorkState::Cancelled);
    }
    let unknown = Uuid::new_v4();
    assert!(matches!(bed.refused(Transaction::new().withdraw(unknown, json!({}))).await, StoreError::NoSuchWork { work } if work == unknown));
    bed.store.complete(vec![ended(&claimed)]).await.unwrap();
    assert_eq!(bed.store.lane(lane).await.unwrap().unwrap().head_kind, None);
    bed.sound().await;
}

#[tokio::test]
async fn a_lost_holder_is_replaced_and_late_work_is_closed() {
    let bed = bed!();
    let (lane, late_lane) = (Uuid::new_v4(), Uuid::new_v4());
    let work = bed.enqueue(lane, WorkKind::Manifest).await;
    let claimed = bed.claim(WorkKind::Manifest).await.remove(0);
    bed.commit(Transaction::new().checkpoint(claimed.hold, "one", json!(1))).await;
    let soon = bed.store.works(vec![work]).await.unwrap()[0].created + SignedDuration::from_secs(30);
    let late = |lane| NewWork { run_before: Some(soon), ..NewWork::new(Uuid::new_v4(), lane, WorkKind::Manifest) };
    let (first, second, third) = (late(late_lane), late(late_lane), late(lane));
    let good = NewWork::new(Uuid::new_v4(), late_lane, WorkKind::Manifest);
    for work in [&first, &second, &third, &good] {
        bed.commit(Transaction::new().enqueue((*work).clone())).await;
    }
    assert!(bed.store.take_over(WorkKind::Manifest, 10, Uuid::new_v4(), LEASE).await.unwrap().is_empty());

    bed.shift(Duration::from_secs(61));
    assert!(bed.store.take_over(WorkKind::Operation, 10, Uuid::new_v4(), LEASE).await.unwrap().is_empty());
    let taken = bed.store.take_over(WorkKind::Manifest, 10, Uuid::new_v4(), LEASE).await.unwrap().remove(0);
    assert!(taken.taken_over);
    assert_eq!((taken.attempt, taken.hold.fence, taken.step.as_deref()), (2, 2, Some("one")));
    assert!(matches!(bed.refused(Transaction::new().checkpoint(claimed.hold, "two", json!(2))).await, StoreError::LostLease { .. }));
    assert_eq!(bed.store.complete(vec![ended(&claimed)]).await.unwrap(), [Fate::Lost]);

    // A claim closes what is in front of it; the sweep finds the rest.
    assert_eq!(bed.claim(WorkKind::Manifest).await[0].hold.work, good.id);
    assert_eq!(bed.state(first.id).await, WorkState::TimedOut);
    assert_eq!(bed.state(second.id).await, WorkState::TimedOut);
    assert_eq!(bed.state(third.id).await, WorkState::Pending);
    let walk = bed.store.expire(None, 100).await.unwrap();
    assert_eq!((walk.changed, walk.next), (1, None));
    assert_eq!(bed.state(third.id).await, WorkState::TimedOut);
    bed.sound().await;
}

#[tokio::test]
async fn budgets_park_lanes_and_let_them_go_on() {
    let bed = bed!();
    let budgeted = |keys: &[&str]| NewWork {
        budgets: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..NewWork::new(Uuid::new_v4(), Uuid::new_v4(), WorkKind::Manifest)
    };
    let early = budgeted(&["fleet", "region/a"]);
    bed.commit(Transaction::new().enqueue(early.clone())).await;
    let running = bed.claim(WorkKind::Manifest).await.remove(0);
    // What runs already counts.
    bed.store.set_budget("fleet".to_owned(), Some(2), Some(entry())).await.unwrap();
    bed.store.set_budget("region/a".to_owned(), Some(1), None).await.unwrap();
    for keys in [&["fleet", "region/a"][..], &["fleet", "region/b"], &["fleet"], &[]] {
        bed.commit(Transaction::new().enqueue(budgeted(keys))).await;
    }
    let claimed = bed.claim(WorkKind::Manifest).await;
    assert_eq!(claimed.len(), 2, "one more of the fleet, and one that no budget counts");
    let budgets = bed.store.budgets().await.unwrap();
    assert_eq!(budgets.iter().map(|it| (it.limit, it.used, it.parked)).collect::<Vec<_>>(), [(2, 2, 1), (1, 1, 1)]);
    bed.sound().await;
    bed.store.complete(vec![ended(&running)]).await.unwrap();
    let claimed = bed.claim(WorkKind::Manifest).await;
    assert_eq!(claimed.len(), 1);
    bed.store.set_budget("fleet".to_owned(), None, None).await.unwrap();
    assert!(bed.claim(WorkKind::Manifest).await.len() <= 1);
    bed.sound().await;
    bed.store.set_budget("region/a".to_owned(), Some(0), None).await.unwrap();
    bed.commit(Transaction::new().hand_back(Yielding { hold: claimed[0].hold, rest: Duration::ZERO, attempt_spent: true })).await;
    bed.sound().await;
    bed.store.set_budget("region/a".to_owned(), Some(9), None).await.unwrap();
    assert!(!bed.claim(WorkKind::Manifest).await.is_empty());
    bed.sound().await;
}

#[tokio::test]
async fn the_feed_tells_every_change_once_and_forgets_with_age() {
    let bed = bed!();
    let start = bed.store.feed_now().await.unwrap();
    assert!(bed.store.feed_after(start, 10).await.unwrap().changes.is_empty());
    let cluster = document("/s/a");
    bed.commit(create(cluster.clone())).await;
    bed.commit(update(cluster.uuid, Etag(1))).await;
    bed.enqueue(cluster.uuid, WorkKind::Operation).await;
    let claimed = bed.claim(WorkKind::Operation).await.remove(0);
    bed.store.complete(vec![ended(&claimed)]).await.unwrap();
    bed.commit(Transaction::new().delete(cluster.uuid, Etag(2)).save_position("reader", start)).await;
    assert_eq!(bed.store.position("reader").await.unwrap(), Some(start));
    let page = bed.store.feed_after(start, 3).await.unwrap();
    let rest = bed.store.feed_after(page.next, 100).await.unwrap();
    let told: Vec<Subject> = page.changes.iter().chain(&rest.changes).map(|it| it.subject).collect();
    let changed = |etag, deleted| Subject::Document { etag: Etag(etag), deleted };
    assert_eq!(told, [changed(1, false), changed(2, false), Subject::Work, Subject::Work, changed(3, true)]);
    assert_eq!(bed.store.feed_after(rest.next, 5).await.unwrap().next, rest.next);

    assert_eq!(bed.store.trim(Stale::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(), 0);
    bed.shift(Duration::from_secs(3600));
    assert_eq!(bed.store.trim(Stale::Feed, Duration::from_secs(60), 2, vec![]).await.unwrap(), 2);
    assert!(matches!(bed.store.feed_after(start, 5).await, Err(FeedError::Gone { .. })));
    assert_eq!(bed.store.trim(Stale::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(), 2, "the newest stays");
    assert!(bed.store.feed_after(rest.next, 5).await.unwrap().changes.is_empty());
    // The tombstone stays with its feed row.
    assert_eq!(bed.store.trim(Stale::Tombstones, Duration::from_secs(60), 500, vec![]).await.unwrap(), 0);
    let operation = NewDocument { uuid: claimed.hold.work, ..document("/s/op") };
    bed.commit(create(operation.clone())).await;
    assert_eq!(bed.store.trim(Stale::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(), 1);
    assert_eq!(bed.store.trim(Stale::Tombstones, Duration::from_secs(60), 500, vec![]).await.unwrap(), 1);
    assert_eq!(bed.store.trim(Stale::History(WorkKind::Manifest), Duration::from_secs(60), 500, vec![]).await.unwrap(), 0);
    assert_eq!(bed.store.trim(Stale::History(WorkKind::Operation), Duration::from_secs(60), 500, vec![]).await.unwrap(), 1);
    assert!(bed.store.get(operation.uuid).await.unwrap().is_none());
    let other = crate::Position { generation: start.generation + 1, ..rest.next };
    assert!(matches!(bed.store.feed_after(other, 5).await, Err(FeedError::Gone { .. })));
    let ahead = crate::Position { tx: rest.next.tx + 1_000_000, ..rest.next };
    assert!(matches!(bed.store.feed_after(ahead, 5).await, Err(FeedError::Gone { .. })));
}

fn entry() -> AuditEntry {
    AuditEntry {
        actor: "me".to_owned(),
        action: "cluster.create".to_owned(),
        target: "/s/a".to_owned(),
        reason: "a test".to_owned(),
        correlation_id: Some(Uuid::new_v4()),
        before: None,
        after: Some("x".to_owned()),
    }
}

#[tokio::test]
async fn audit_entries_are_sealed_by_the_one_who_holds_the_lease() {
    let bed = bed!();
    for _ in 0..3 {
        bed.commit(Transaction::new().audit(entry())).await;
    }
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let fence = bed.store.take_lease("sealer", one, LEASE).await.unwrap().unwrap();
    assert_eq!(bed.store.take_lease("sealer", one, LEASE).await.unwrap(), Some(fence));
    assert_eq!(bed.store.take_lease("sealer", other, LEASE).await.unwrap(), None);
    let unsealed = bed.store.audit_unsealed(2).await.unwrap();
    assert_eq!(unsealed.len(), 2);
    let seal = |number: i64, row: &crate::engine::AuditRow| Sealing { place: row.place, number, seal: format!("s{number}") };
    let sealings = vec![seal(1, &unsealed[0]), seal(2, &unsealed[1])];
    let meta = vec![("audit_head".to_owned(), "2 s2".to_owned())];
    bed.store.seal_audit("sealer", fence, sealings, meta.clone()).await.unwrap();
    assert_eq!(bed.store.meta("audit_head").await.unwrap().as_deref(), Some("2 s2"));
    bed.store.release_lease("sealer", one).await.unwrap();
    assert_eq!(bed.store.take_lease("sealer", other, LEASE).await.unwrap(), Some(fence + 1));
    let last = bed.store.audit_unsealed(10).await.unwrap();
    let late = bed.store.seal_audit("sealer", fence, vec![seal(3, &last[0])], meta).await.unwrap_err();
    assert!(matches!(late, StoreError::LostNamedLease { name } if name == "sealer"));
    let listing = AuditListing { action: Some("cluster".to_owned()), limit: 2, ..AuditListing::default() };
    let newest = bed.store.audit_list(listing.clone()).await.unwrap();
    assert_eq!(newest[0].record.id, last[0].record.id);
    let rest = bed.store.audit_list(AuditListing { before: Some(newest[1].place), ..listing }).await.unwrap();
    assert_eq!(rest[0].record.id, unsealed[0].record.id);
    assert_eq!(bed.store.audit_sealed(2, 10).await.unwrap()[0].record.seal.as_deref(), Some("s2"));
    bed.shift(Duration::from_secs(3600));
    assert_eq!(bed.store.audit_older(LEASE, 10).await.unwrap().len(), 2);
    assert_eq!(bed.store.trim(Stale::Audit { up_to: 2 }, LEASE, 10, vec![]).await.unwrap(), 1);
}

#[tokio::test]
async fn health_keeps_since_when() {
    let bed = bed!();
    let cluster = Uuid::new_v4();
    let sample = |reachable| crate::HealthSample { cluster, at: Timestamp::MIN, reachable, since: Timestamp::MIN, sample: json!({"n": 1}) };
    bed.store.put_health(vec![sample(false), sample(true)]).await.unwrap();
    let first = bed.store.health(vec![cluster]).await.unwrap().remove(0);
    assert!(first.reachable);
    bed.store.put_health(vec![sample(true)]).await.unwrap();
    let second = bed.store.health(vec![cluster]).await.unwrap().remove(0);
    assert!(second.since == first.since && second.at > first.at);
    bed.store.put_health(vec![sample(false)]).await.unwrap();
    let third = bed.store.health(vec![cluster]).await.unwrap().remove(0);
    assert_eq!(third.since, third.at);
}

#[tokio::test]
async fn a_store_moves_whole_into_an_empty_one() {
    let (from, to) = (bed!(), bed!());
    from.store.set_meta(vec![("key_id".to_owned(), "k1".to_owned())]).await.unwrap();
    let cluster = NewDocument { unique_keys: vec!["k".to_owned()], ..document("/s/a") };
    let sealed = crate::Sealed { owner: cluster.uuid, name: "n".to_owned(), key_id: "k1".to_owned(), bytes: (0..200).collect() };
    from.commit(create(cluster.clone()).put_secret(sealed.clone()).audit(entry())).await;
    from.store.set_budget("fleet".to_owned(), Some(1), None).await.unwrap();
    let work = NewWork { budgets: vec!["fleet".to_owned()], ..NewWork::new(Uuid::new_v4(), cluster.uuid, WorkKind::Manifest) };
    from.commit(Transaction::new().enqueue(work.clone())).await;
    let claimed = from.claim(WorkKind::Manifest).await.remove(0);
    from.commit(Transaction::new().checkpoint(claimed.hold, "one", json!({"a": [1]}))).await;
    let done = from.enqueue(Uuid::new_v4(), WorkKind::Operation).await;
    from.store.complete(vec![ended(&from.claim(WorkKind::Operation).await[0])]).await.unwrap();
    let record = from.store.audit_unsealed(1).await.unwrap().remove(0);
    let fence = from.store.take_lease("sealer", Uuid::new_v4(), LEASE).await.unwrap().unwrap();
    let sealing = Sealing { place: record.place, number: 1, seal: "s1".to_owned() };
    from.store.seal_audit("sealer", fence, vec![sealing], vec![]).await.unwrap();
    from.store.put_health(vec![crate::HealthSample { cluster: cluster.uuid, at: Timestamp::MIN, reachable: true, since: Timestamp::MIN, sample: json!({}) }]).await.unwrap();

    let before = to.store.feed_now().await.unwrap();
    let mut import = to.store.begin_import().await.unwrap();
    for table in &crate::transfer::TABLES {
        let first = from.store.dump(table, None, 1).await.unwrap();
        assert_eq!(first.len(), 1, "{}", table.name);
        let rest = from.store.dump(table, first.last().cloned(), 10).await.unwrap();
        assert!(rest.is_empty(), "{}", table.name);
        import.rows(table, first).await.unwrap();
    }
    import.commit(vec![("key_id".to_owned(), "k1".to_owned())]).await.unwrap();
    assert!(to.store.begin_import().await.is_err());
    assert!(matches!(to.store.feed_after(before, 1).await, Err(FeedError::Gone { .. })));
    for table in &crate::transfer::TABLES {
        assert_eq!(from.store.dump(table, None, 10).await.unwrap(), to.store.dump(table, None, 10).await.unwrap());
    }
    assert_eq!(to.store.secret(cluster.uuid, "n").await.unwrap(), Some(sealed));
    assert_eq!(to.state(done).await, WorkState::Completed);
    let resumed = to.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!((resumed.hold.fence, resumed.attempt, resumed.checkpoint), (2, 2, Some(json!({"a": [1]}))));
    to.sound().await;
}

#[tokio::test]
async fn another_process_is_woken() {
    let bed = bed!();
    let other = Postgres::open(&options(bed.database.url())).await.unwrap();
    let mut wakeups = other.wakeups(Topic::Work(WorkKind::Manifest));
    // Once for having begun to listen.
    tokio::time::timeout(Duration::from_secs(10), wakeups.next()).await.unwrap();
    bed.enqueue(Uuid::new_v4(), WorkKind::Manifest).await;
    tokio::time::timeout(Duration::from_secs(10), wakeups.next()).await.unwrap();
    other.close().await;
    assert!(matches!(other.meta("generation").await, Err(StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_in_one_sentence() {
    let Some(server) = testbed::postgres::shared() else { return testbed::parts::skip(testbed::parts::POSTGRESQL, "no server for tests") };
    let database = server.database().unwrap();
    let refusal = |options: Options| async move { Postgres::open(&options).await.unwrap_err().to_string() };
    let never = Options { migrate: Migrate::Never, ..options(database.url()) };
    assert!(refusal(never).await.ends_with("its schema is 0, this release needs 1; run `shipshape store migrate`"));
    let schema = Postgres::schema(&options(database.url())).await.unwrap();
    assert_eq!((schema.found, schema.known), (0, 1));
    database.psql("create table theirs (x int)").unwrap();
    assert!(refusal(options(database.url())).await.contains("not Shipshape's"));
    database.psql("drop table theirs").unwrap();
    Postgres::open(&options(database.url())).await.unwrap().close().await;
    database.psql("update schema set checksum = 'x'").unwrap();
    assert!(matches!(Postgres::open(&options(database.url())).await, Err(OpenError::Diverged { number: 1, .. })));

    let missing = refusal(options(&server.url("no_such_database"))).await;
    assert!(missing.contains("there is no database no_such_database"), "{missing}");
    for (url, part) in [
        ("postgres://me:hunter2@127.0.0.1:1/x", "cannot be reached"),
        ("postgres://me:hunter2@no-such-host.invalid:1/x?sslmode=disable", "cannot be reached"),
        ("postgres://me:hunter2@h/x?sslmode=hunter2", "its sslmode has a value that is not known"),
        ("postgres://me:hunter2@h/x?hunter2=1", "it cannot be read"),
    ] {
        let refused = refusal(options(url)).await;
        assert!(refused.contains(part) && !refused.contains("hunter2"), "{refused}");
    }
}

#[tokio::test]
async fn a_restored_database_is_another_generation() {
    let bed = bed!();
    let before = bed.store.feed_now().await.unwrap();
    bed.database.psql("update meta set value = '1' where key = 'system_identifier'").unwrap();
    let reopened = Postgres::open(&options(bed.database.url())).await.unwrap();
    assert_eq!(reopened.feed_now().await.unwrap().generation, before.generation + 1);
    assert!(matches!(bed.store.feed_after(before, 1).await, Err(FeedError::Gone { .. })));
    let again = Postgres::open(&options(bed.database.url())).await.unwrap();
    assert_eq!(again.feed_now().await.unwrap().generation, before.generation + 1);
}

#[tokio::test]
async fn a_claim_looks_at_few_rows_however_many_wait() {
    let bed = bed!();
    for (lanes, per_lane) in [(100, 10), (200, 495)] {
        // Behind the engine's back, for speed: most lanes are due, all have a backlog.
        bed.database
            .psql(&format!(
                "insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
                 select gen_random_uuid(), md5('{per_lane}' || l)::uuid, 'manifest', 2, n, n, 0, 'Pending', 0, 0
                 from generate_series(1, {lanes}) l, generate_series(1, {per_lane}) n;
                 insert into lanes (lane, head_kind, head_class, head_at, head_priority)
                 select distinct on (lane) lane, kind, class, due_at, priority from work where state = 'Pending'
                 order by lane, class, due_at, priority, id on conflict do nothing"
            ))
            .unwrap();
        let before = counters(&bed).await;
        let claimed = bed.claim(WorkKind::Manifest).await;
        assert_eq!(claimed.len(), 50);
        let after = counters(&bed).await;
        let read: i64 = after.iter().zip(&before).map(|(after, before)| after - before).sum();
        assert!(read <= 20 * 50, "a claim of 50 read {read} rows");
        assert_eq!(bed.store.complete(claimed.iter().map(ended).collect()).await.unwrap(), [Fate::Done; 50]);
        let done = counters(&bed).await;
        let read: i64 = done.iter().zip(&after).map(|(after, before)| after - before).sum();
        assert!(read <= 20 * 50, "ending 50 read {read} rows");
    }
    bed.sound().await;
}

/// Rows that scans of the queue's tables and indexes have read so far, other than one by one through a primary key.
async fn counters(bed: &Bed) -> Vec<i64> {
    // Statistics are told by each session after a moment of idleness; ending the sessions tells them at once.
    bed.store.shared.pool.retain(|_, _| false);
    let sql = "select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where relname in ('work', 'lanes')
               union all select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where relname in ('work', 'lanes')";
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query not like '%listen%' and query not like 'notify%'";
    for _ in 0..200 {
        if bed.database.psql(others).unwrap() == "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    bed.database.psql(sql).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_claim_goes_through_the_partial_indexes() {
    let bed = bed!();
    for rows in [1_000, 100_000] {
        bed.database
            .psql(&format!(
                "truncate work, lanes;
                 insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
                 select gen_random_uuid(), md5((n % 500)::text)::uuid, 'manifest', 2, n, n, 0, 'Pending', 0, 0 from generate_series(1, {rows}) n;
                 insert into lanes (lane, head_kind, head_class, head_at, head_priority)
                 select distinct on (lane) lane, kind, class, due_at, priority from work order by lane, class, due_at, priority, id"
            ))
            .unwrap();
        let client = bed.store.shared.pool.get().await.unwrap();
        let due = "explain select lane from lanes where head_kind = 'manifest' and head_at <= statement_micros_v1()
                   and owner is null and parked_on is null order by head_at, head_priority, lane limit 50 for update skip locked";
        let first = "explain select f.id from unnest(array(select lane from lanes limit 50)) as x (lane) left join lateral (
                       select w.id from work w where w.lane = x.lane and w.state = 'Pending'
                       order by w.class, w.due_at, w.priority, w.id limit 1) f on true";
        for (sql, index) in [(due, "lanes_due"), (first, "work_pending")] {
            let plan: Vec<String> = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index) && !plan.contains("Sort"), "at {rows} rows:\n{plan}");
        }
    }
}
