//! Each operation once, on a real server; the conformance suite tests the guarantees under load.

/// A store for the test; returns early where this machine has no server.
macro_rules! env {
    () => {
        match env().await {
            Some(env) => env,
            None => return,
        }
    };
}

mod queue;
mod server;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use api::audit::AuditEntry;
use api::clock::SystemClock;
use api::work::{Ending, WorkKind, WorkState};
use jiff::Timestamp;
use serde_json::json;
use testkit::postgres::TestDatabase;
use uuid::Uuid;

use super::Postgres;
use crate::completion::PreparedCompletion;
use crate::document::{Body, RawBody};
use crate::engine::{AuditQuery, AuditSeal, RetentionTarget};
use crate::feed::{FeedError, Subject};
use crate::keyring::Keyring;
use crate::open::Options;
use crate::transaction::{DocumentUpdate, NewDocument, Transaction, Write};
use crate::work::{ClaimedWork, Completion, NewWork};
use crate::{DocumentQuery, Etag, LEASE, StoreError};

/// A store in a database of its own.
struct TestEnvironment {
    store: Postgres,
    database: TestDatabase,
}

async fn env() -> Option<TestEnvironment> {
    let Some(server) = testkit::postgres::shared() else {
        testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
        return None;
    };
    let database = server.database().unwrap();
    let store = Postgres::open(&options(database.url())).await.unwrap();
    Some(TestEnvironment { store, database })
}

fn options(url: &str) -> Options {
    Options::new(url.parse().unwrap(), Keyring::ephemeral().unwrap(), Arc::new(SystemClock))
}

impl TestEnvironment {
    /// Moves the server's clock, as the store sees it, ahead.
    fn shift(&self, ahead: Duration) {
        let sql = format!(
            "alter database {} set shipshape.clock_offset_us = {}",
            self.database.name(),
            ahead.as_micros()
        );
        self.database.psql(&sql).unwrap();
        self.store.shared.pool.retain(|_, _| false);
    }

    async fn enqueue(&self, lane: Uuid, kind: WorkKind) -> Uuid {
        let id = Uuid::new_v4();
        self.commit(Transaction::new().enqueue(NewWork::new(id, lane, kind))).await;
        id
    }

    async fn commit(&self, transaction: Transaction) -> crate::CommitResult {
        self.store.commit(transaction).await.unwrap()
    }

    async fn rejected(&self, transaction: Transaction) -> StoreError {
        self.store.commit(transaction).await.unwrap_err()
    }

    async fn claim(&self, kind: WorkKind) -> Vec<ClaimedWork> {
        self.store.claim(kind, 50, Uuid::new_v4(), LEASE).await.unwrap()
    }

    async fn state(&self, work: Uuid) -> WorkState {
        self.store.works(vec![work]).await.unwrap()[0].state
    }

    /// The feed waits for every transaction of the whole instance, and other tests write there too.
    async fn all_visible(&self) {
        let newest: i64 = self.database.psql("select pg_current_xact_id()").unwrap().parse().unwrap();
        for _ in 0..3000 {
            if self.store.feed_end().await.unwrap().tx >= newest {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a transaction has been open for half a minute");
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
        body: Body::new(&json!({"name": id, "n": 1.5})),
        unique_keys: Vec::new(),
    }
}

fn create(document: NewDocument) -> Transaction {
    Transaction::new().with(Write::Create(document))
}

fn update(uuid: Uuid, etag: Etag) -> Transaction {
    let update =
        DocumentUpdate { uuid, etag, body: Body::new(&json!({"n": 2})), desired: true, unique_keys: None };
    Transaction::new().with(Write::Update(update))
}

fn ended(claimed: &ClaimedWork) -> Completion {
    Completion::new(claimed.lease, Ending::Completed, json!({"message": "done"}))
}

fn end(claimed: &ClaimedWork) -> PreparedCompletion {
    PreparedCompletion::from_valid(&ended(claimed))
}

#[tokio::test]
async fn documents_are_created_read_changed_listed_and_deleted() {
    let env = env!();
    let first = document("/s/a");
    let uuid = first.uuid;
    env.commit(create(first.clone())).await;
    let again = NewDocument { uuid: Uuid::new_v4(), ..first.clone() };
    assert!(
        matches!(env.rejected(create(again.clone())).await, StoreError::Exists { kind, id } if kind == "cluster" && id == "/s/a")
    );
    let both = create(again).audit(entry());
    assert!(
        matches!(env.rejected(both).await, StoreError::Exists { kind, id } if kind == "cluster" && id == "/s/a")
    );

    let stored = env.store.get(uuid).await.unwrap().unwrap();
    assert_eq!(
        (stored.etag, stored.generation, &stored.body),
        (Etag(1), 1, &RawBody::Value(json!({"name": "/s/a", "n": 1.5})))
    );
    let committed = env.commit(update(uuid, Etag(1))).await;
    assert_eq!(committed.etag(uuid), Some(Etag(2)));
    for stale in [update(uuid, Etag(1)), update(uuid, Etag(1)).audit(entry())] {
        let error = env.rejected(stale).await;
        assert!(matches!(error, StoreError::Changed { expected: Etag(1), found: Etag(2), .. }), "{error:?}");
    }
    assert_eq!(env.store.find("/s/a").await.unwrap().unwrap().generation, 2);

    for id in ["/s/b", "/s/c"] {
        env.commit(create(document(id))).await;
    }
    let listing = DocumentQuery {
        kind: "cluster".to_owned(),
        parent: Some("/s".to_owned()),
        limit: 2,
        ..DocumentQuery::default()
    };
    let page = env.store.list(listing.clone()).await.unwrap();
    assert_eq!(page.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["/s/a", "/s/b"]);
    let rest = env
        .store
        .list(DocumentQuery {
            after: Some(("/s".to_owned(), "/s/b".to_owned())),
            parent: None,
            ..listing.clone()
        })
        .await
        .unwrap();
    assert_eq!(rest.len(), 1);
    let narrow = env.store.list(DocumentQuery { prefix: Some("/s/c".to_owned()), ..listing }).await.unwrap();
    assert_eq!(narrow[0].id, "/s/c");

    let heir = document("/s/a");
    env.commit(create(heir.clone()).delete(uuid, Etag(2))).await;
    assert!(matches!(env.rejected(update(uuid, Etag(3))).await, StoreError::Gone { .. }));
    assert_eq!(env.store.find("/s/a").await.unwrap().unwrap().uuid, heir.uuid);
    assert_eq!(env.store.get_many(vec![uuid, heir.uuid]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn secrets_are_sealed_with_the_stores_key_and_removed_with_their_owner() {
    let env = env!();
    let owner = document("/s/a");
    let sealed = |bytes: &[u8], key_id: &str| crate::SealedSecret {
        owner: owner.uuid,
        name: "kubeconfig".to_owned(),
        key_id: key_id.to_owned(),
        bytes: bytes.to_vec(),
    };
    env.commit(Transaction::new().with(Write::SetMeta(vec![("key_id".to_owned(), "k1".to_owned())]))).await;
    env.commit(create(owner.clone()).put_secret(sealed(b"1", "k1")).put_secret(sealed(b"2", "k1"))).await;
    let stale = env.rejected(Transaction::new().put_secret(sealed(b"3", "k0"))).await;
    assert!(matches!(stale, StoreError::StaleKey { current, used } if current == "k1" && used == "k0"));
    assert_eq!(env.store.secret(owner.uuid, "kubeconfig").await.unwrap().unwrap(), sealed(b"2", "k1"));
    // A key that is not current seals nothing anew.
    assert!(!env.store.reseal(sealed(b"2", "k1"), sealed(b"9", "k2")).await.unwrap());
    env.commit(Transaction::new().with(Write::SetMeta(vec![("key_id".to_owned(), "k2".to_owned())]))).await;
    assert!(env.store.reseal(sealed(b"2", "k1"), sealed(b"9", "k2")).await.unwrap());
    assert!(!env.store.reseal(sealed(b"2", "k1"), sealed(b"8", "k2")).await.unwrap());
    assert_eq!(env.store.secrets(Some("k1".to_owned()), None, 10).await.unwrap().len(), 1);
    env.commit(Transaction::new().delete(owner.uuid, Etag(1))).await;
    assert!(env.store.secrets(None, None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_feed_delivers_every_change_once_and_is_trimmed_by_age() {
    let env = env!();
    let start = env.store.feed_end().await.unwrap();
    assert!(env.store.feed_after(start, 10).await.unwrap().changes.is_empty());
    let cluster = document("/s/a");
    env.commit(create(cluster.clone())).await;
    env.commit(update(cluster.uuid, Etag(1))).await;
    env.enqueue(cluster.uuid, WorkKind::Operation).await;
    let claimed = env.claim(WorkKind::Operation).await.remove(0);
    env.store.complete(&[end(&claimed)]).await.unwrap();
    env.commit(Transaction::new().delete(cluster.uuid, Etag(2)).save_position("reader", start)).await;
    assert_eq!(env.store.saved_position("reader").await.unwrap(), Some(start));
    env.all_visible().await;
    let page = env.store.feed_after(start, 3).await.unwrap();
    let rest = env.store.feed_after(page.next, 100).await.unwrap();
    let subjects: Vec<Subject> = page.changes.iter().chain(&rest.changes).map(|it| it.subject).collect();
    let changed = |etag, deleted| Subject::Document { etag: Etag(etag), deleted };
    assert_eq!(
        subjects,
        [changed(1, false), changed(2, false), Subject::Work, Subject::Work, changed(3, true)]
    );
    assert_eq!(env.store.feed_after(rest.next, 5).await.unwrap().next, rest.next);

    assert_eq!(env.store.trim(RetentionTarget::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(), 0);
    env.shift(Duration::from_secs(3600));
    assert_eq!(env.store.trim(RetentionTarget::Feed, Duration::from_secs(60), 2, vec![]).await.unwrap(), 2);
    assert!(matches!(env.store.feed_after(start, 5).await, Err(FeedError::Gone { .. })));
    assert_eq!(
        env.store.trim(RetentionTarget::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(),
        2,
        "the newest stays"
    );
    assert!(env.store.feed_after(rest.next, 5).await.unwrap().changes.is_empty());
    // The tombstone stays with its feed row.
    assert_eq!(
        env.store.trim(RetentionTarget::Tombstones, Duration::from_secs(60), 500, vec![]).await.unwrap(),
        0
    );
    let operation = NewDocument { uuid: claimed.lease.work, ..document("/s/op") };
    env.commit(create(operation.clone())).await;
    env.all_visible().await;
    assert_eq!(env.store.trim(RetentionTarget::Feed, Duration::from_secs(60), 500, vec![]).await.unwrap(), 1);
    assert_eq!(
        env.store.trim(RetentionTarget::Tombstones, Duration::from_secs(60), 500, vec![]).await.unwrap(),
        1
    );
    let minute = crate::Retention { operations: Duration::from_secs(60), ..crate::Retention::default() };
    assert_eq!(env.store.trim_history(crate::Retention::default(), 500).await.unwrap().changed, 0);
    assert_eq!(env.store.trim_history(minute, 500).await.unwrap().changed, 1);
    assert!(env.store.get(operation.uuid).await.unwrap().is_none());
    let other = crate::Position { generation: start.generation + 1, ..rest.next };
    assert!(matches!(env.store.feed_after(other, 5).await, Err(FeedError::Gone { .. })));
    // An empty page may be trusted for a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let ahead = crate::Position { tx: rest.next.tx + 1_000_000, ..rest.next };
    assert!(matches!(env.store.feed_after(ahead, 5).await, Err(FeedError::Gone { .. })));
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
async fn audit_entries_are_sealed_by_the_lease_holder() {
    let env = env!();
    for _ in 0..3 {
        env.commit(Transaction::new().audit(entry())).await;
    }
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let fence = env.store.take_lease("sealer", one, LEASE).await.unwrap().unwrap();
    assert_eq!(env.store.take_lease("sealer", one, LEASE).await.unwrap(), Some(fence));
    assert_eq!(env.store.take_lease("sealer", other, LEASE).await.unwrap(), None);
    env.all_visible().await;
    let unsealed = env.store.audit_unsealed(2).await.unwrap();
    assert_eq!(unsealed.len(), 2);
    let seal = |number: i64, row: &crate::engine::AuditRow| AuditSeal {
        place: row.place,
        number,
        seal: format!("s{number}"),
        sealed_at: 7,
    };
    let sealings = vec![seal(1, &unsealed[0]), seal(2, &unsealed[1])];
    let meta = vec![("audit_head".to_owned(), "2 s2".to_owned())];
    env.store.seal_audit("sealer", fence, sealings, meta.clone()).await.unwrap();
    assert_eq!(env.store.meta("audit_head").await.unwrap().as_deref(), Some("2 s2"));
    env.store.release_lease("sealer", one).await.unwrap();
    assert_eq!(env.store.take_lease("sealer", other, LEASE).await.unwrap(), Some(fence + 1));
    let last = env.store.audit_unsealed(10).await.unwrap();
    let late = env.store.seal_audit("sealer", fence, vec![seal(3, &last[0])], meta).await.unwrap_err();
    assert!(matches!(late, StoreError::LostNamedLease { name } if name == "sealer"));
    let listing = AuditQuery { action: Some("cluster".to_owned()), limit: 2, ..AuditQuery::default() };
    let newest = env.store.audit_list(listing.clone()).await.unwrap();
    assert_eq!(newest[0].record.id, last[0].record.id);
    let rest = env.store.audit_list(AuditQuery { before: Some(newest[1].place), ..listing }).await.unwrap();
    assert_eq!(rest[0].record.id, unsealed[0].record.id);
    assert_eq!(env.store.audit_sealed(2, 10).await.unwrap()[0].record.seal.as_deref(), Some("s2"));
    env.shift(Duration::from_secs(3600));
    let stale = |from, up_to| RetentionTarget::Audit { from, up_to };
    assert_eq!(env.store.trim(stale(1, 2), LEASE, 10, vec![]).await.unwrap(), 0, "the newest stays");
    assert_eq!(env.store.trim(stale(0, 2), LEASE, 10, vec![]).await.unwrap(), 1);
}

#[tokio::test]
async fn health_keeps_since_when() {
    let env = env!();
    let cluster = Uuid::new_v4();
    let sample = |reachable| crate::HealthSample {
        cluster,
        at: Timestamp::MIN,
        reachable,
        since: Timestamp::MIN,
        details: json!({"n": 1}).into(),
    };
    env.store.put_health(vec![sample(false), sample(true)]).await.unwrap();
    let first = env.store.health(vec![cluster]).await.unwrap().remove(0);
    assert!(first.reachable);
    env.store.put_health(vec![sample(true)]).await.unwrap();
    let second = env.store.health(vec![cluster]).await.unwrap().remove(0);
    assert!(second.since == first.since && second.at > first.at);
    env.store.put_health(vec![sample(false)]).await.unwrap();
    let third = env.store.health(vec![cluster]).await.unwrap().remove(0);
    assert_eq!(third.since, third.at);
}

#[tokio::test]
async fn a_store_moves_whole_into_an_empty_one() {
    let (from, to) = (env!(), env!());
    from.commit(Transaction::new().with(Write::SetMeta(vec![("key_id".to_owned(), "k1".to_owned())]))).await;
    let cluster = NewDocument { unique_keys: vec!["k".to_owned()], ..document("/s/a") };
    let sealed = crate::SealedSecret {
        owner: cluster.uuid,
        name: "n".to_owned(),
        key_id: "k1".to_owned(),
        bytes: (0..200).collect(),
    };
    from.commit(create(cluster.clone()).put_secret(sealed.clone()).audit(entry())).await;
    from.store.set_budget("fleet".to_owned(), Some(1), None).await.unwrap();
    let work = NewWork {
        budgets: vec!["fleet".to_owned()],
        ..NewWork::new(Uuid::new_v4(), cluster.uuid, WorkKind::Manifest)
    };
    from.commit(Transaction::new().enqueue(work.clone())).await;
    let claimed = from.claim(WorkKind::Manifest).await.remove(0);
    let entry = api::admin::Entry::new(Timestamp::MIN, api::admin::EntryEvent::Claimed, "me", 1);
    let checkpoint = Transaction::new().checkpoint(claimed.lease, "one", json!({"a": [1]}));
    from.commit(checkpoint.record(claimed.lease.work, entry)).await;
    let done = from.enqueue(Uuid::new_v4(), WorkKind::Operation).await;
    from.store.complete(&[end(&from.claim(WorkKind::Operation).await[0])]).await.unwrap();
    from.all_visible().await;
    let record = from.store.audit_unsealed(1).await.unwrap().remove(0);
    let fence = from.store.take_lease("sealer", Uuid::new_v4(), LEASE).await.unwrap().unwrap();
    let sealing = AuditSeal { place: record.place, number: 1, seal: "s1".to_owned(), sealed_at: 7 };
    from.store.seal_audit("sealer", fence, vec![sealing], vec![]).await.unwrap();
    from.store
        .put_health(vec![crate::HealthSample {
            cluster: cluster.uuid,
            at: Timestamp::MIN,
            reachable: false,
            since: Timestamp::MIN,
            details: json!({}).into(),
        }])
        .await
        .unwrap();

    let before = to.store.feed_end().await.unwrap();
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
        assert_eq!(
            from.store.dump(table, None, 10).await.unwrap(),
            to.store.dump(table, None, 10).await.unwrap()
        );
    }
    assert_eq!(to.store.secret(cluster.uuid, "n").await.unwrap(), Some(sealed));
    assert_eq!(to.state(done).await, WorkState::Completed);
    let resumed = to.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!((resumed.lease.fence, resumed.attempt, resumed.checkpoint), (2, 2, Some(json!({"a": [1]}))));
    to.sound().await;
}
