//! The chain's key, stores of earlier builds, and copies of removed records.

use std::sync::Arc;

use api::clock::SystemClock;

use super::*;
use crate::transaction::{Transaction, Write};
use crate::{AuditContext, Keyring, Location, Options};

/// The first key of the chain stays, even if others create one at the same time.
async fn the_first_key_is_kept(store: &Store) {
    let second = store.seal(Uuid::nil(), CHAIN_KEY, b"made by another at the same time").unwrap();
    // As if no key had existed when the store was opened.
    remove_chain(store).await;
    let first = Chain::ensure(store).await.unwrap();
    store.commit(Transaction::new().with(Write::EnsureSecret(second))).await.unwrap();
    assert_eq!(Chain::ensure(store).await.unwrap().key, first.key);
    // Concurrent callers find the same key.
    let chains = futures_util::future::join_all((0..8).map(|_| Chain::ensure(store))).await;
    assert!(chains.into_iter().all(|chain| chain.unwrap().key == first.key));
}

/// A store of a build whose chain started with its first record.
async fn remove_chain(store: &Store) {
    rotate::remove_chain(store).await.unwrap();
    let key = Write::DropSecret { owner: Uuid::nil(), name: CHAIN_KEY.to_owned() };
    store.commit(Transaction::new().with(key)).await.unwrap();
}

#[tokio::test]
async fn of_two_keys_created_at_once_the_first_is_stored_on_sqlite() {
    let location = Location::Sqlite(":memory:".into());
    let options = Options {
        write_mode: crate::WriteMode::Inline,
        ..Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock))
    };
    the_first_key_is_kept(&Store::open(options).await.unwrap()).await;
}

#[tokio::test]
async fn of_two_keys_created_at_once_the_first_is_stored_on_postgresql() {
    let Some(server) = testkit::postgres::shared() else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    let database = server.database().unwrap();
    let location = database.url().parse().unwrap();
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    let store = Store::open(options).await.unwrap();
    the_first_key_is_kept(&store).await;
    store.close().await;
}

/// Direct access to the database, past the store.
enum Raw {
    Sqlite(std::path::PathBuf),
    Postgres(
        tokio_postgres::Client,
        #[expect(dead_code, reason = "ends when dropped")] tokio::task::JoinSet<()>,
    ),
}

impl Raw {
    async fn postgres(database: &testkit::postgres::TestDatabase) -> Raw {
        let (client, connection) =
            tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Raw::Postgres(client, tasks)
    }

    async fn execute(&self, sql: &str) {
        match self {
            Raw::Sqlite(path) => rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap(),
            Raw::Postgres(client, _) => client.batch_execute(sql).await.unwrap(),
        }
    }
}

fn entry(target: &str) -> AuditEntry {
    AuditContext::service("x").entry("thing.change", target, None, None)
}

/// Seals visible entries; on PostgreSQL another open transaction may hide entries for a moment.
async fn seal_all(store: &Store) {
    while !store.engine.audit_unnumbered(1).await.unwrap().is_empty() {
        store.seal_audit(Uuid::new_v4()).await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// A log of a build that neither marked entries nor stored the time of sealing: three sealed records and two unsealed
/// entries.
async fn of_the_build_before(store: &Store, raw: &Raw) -> ChainHead {
    for number in 0..5 {
        store.audit_writer().put(vec![entry(&format!("/{number}"))]).await.unwrap();
    }
    let chain = Chain::find(store).await.unwrap().unwrap();
    let mut head = ChainHead::start();
    let mut sql = "update audit set mac = null;".to_owned();
    for row in store.engine.audit_unnumbered(3).await.unwrap() {
        let number = head.number + 1;
        let seal = chain.seal(&head.seal, number, &row.record, None);
        let target = &row.record.entry.target;
        sql += &format!("update audit set number = {number}, seal = '{seal}' where target = '{target}';");
        head = ChainHead { number, seal };
    }
    let signed = chain.signed_end(&ChainEnd { head: head.clone(), marked: false });
    sql += &format!("update meta set value = '{signed}' where key = 'audit_head'");
    raw.execute(&sql).await;
    head
}

/// Existing entries are sealed once more without marks; later ones are not.
async fn old_entries_are_sealed_and_new_ones_need_marks(store: &Store, raw: &Raw) {
    let audit_entry = of_the_build_before(store, raw).await;
    let verified = store.verify_audit(Some(audit_entry.clone())).await.unwrap();
    assert_eq!((verified.faults, verified.records, verified.unsealed), (vec![], 3, 2));
    // Opened by this build.
    while store.engine.audit_unsealed(9).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    start(store).await.unwrap();
    let verified = store.verify_audit(Some(audit_entry.clone())).await.unwrap();
    assert_eq!((verified.faults, verified.records, verified.unsealed), (vec![], 5, 0));
    store.audit_writer().put(vec![entry("/unmarked"), entry("/marked")]).await.unwrap();
    raw.execute("update audit set mac = null where target = '/unmarked'").await;
    // On PostgreSQL a row can be sealed once no older transaction of the whole server is open.
    let sealed = async {
        loop {
            store.seal_audit(Uuid::new_v4()).await.unwrap();
            let verified = store.verify_audit(Some(audit_entry.clone())).await.unwrap();
            if verified.records == 6 && verified.unsealed == 0 {
                return verified;
            }
        }
    };
    let verified =
        tokio::time::timeout(Duration::from_secs(30), sealed).await.expect("the marked entry is sealed");
    assert_eq!(verified.faults, ["the record thing.change of /unmarked was not written by this store"]);
    assert_eq!(verified.records, 6);
    raw.execute("delete from audit where target = '/unmarked'").await;
    // Old records are removed by their time of writing, which their seals cover.
    assert_eq!(store.trim_audit(Duration::ZERO).await.unwrap(), 5);
    assert_eq!(store.verify_audit(None).await.unwrap().faults, Vec::<String>::new());
    store.audit_writer().put(vec![entry("/more")]).await.unwrap();
    seal_all(store).await;
    assert_eq!(store.verify_audit(None).await.unwrap().faults, Vec::<String>::new());
}

#[tokio::test]
async fn a_log_of_the_previous_build_continues_and_needs_marks_on_sqlite() {
    let (_folder, store, raw) = on_sqlite().await;
    old_entries_are_sealed_and_new_ones_need_marks(&store, &raw).await;
    store.close().await;
}

#[tokio::test]
async fn a_log_of_the_previous_build_continues_and_needs_marks_on_postgresql() {
    let Some((_database, store, raw, _)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    old_entries_are_sealed_and_new_ones_need_marks(&store, &raw).await;
    store.close().await;
}

/// A store in a file, with direct access to it.
async fn on_sqlite() -> (tempfile::TempDir, Store, Raw) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options =
        Options::new(Location::Sqlite(path.clone()), Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    (folder, Store::open(options).await.unwrap(), Raw::Sqlite(path))
}

/// A store on the test server, with two direct connections; none without a server.
async fn on_postgresql() -> Option<(testkit::postgres::TestDatabase, Store, Raw, Raw)> {
    let server = testkit::postgres::shared()?;
    let database = server.database().unwrap();
    let options =
        Options::new(database.url().parse().unwrap(), Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    let store = Store::open(options).await.unwrap();
    let (one, other) = (Raw::postgres(&database).await, Raw::postgres(&database).await);
    Some((database, store, one, other))
}

/// Opens a writing transaction until the connection rolls it back: entries of others are not sealed meanwhile.
const OPEN_TRANSACTION: &str = "begin; select pg_current_xact_id()";

#[tokio::test]
async fn entries_of_the_build_before_that_an_open_transaction_hides_are_sealed_when_it_ends() {
    let Some((_database, store, raw, neighbour)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    neighbour.execute(OPEN_TRANSACTION).await;
    let audit_entry = of_the_build_before(&store, &raw).await;
    // Nothing can have been written there, so nothing waits for it.
    raw.execute(
        "insert into audit (tx, id, at, actor, action, target, reason)
         values (9000000000000000000, gen_random_uuid(), 1, 'me', 'thing.change', '/invented', '')",
    )
    .await;
    start(&store).await.unwrap();
    let chain = Chain::find(&store).await.unwrap().unwrap();
    assert!(!chain.end(&store, &mut Vec::new()).await.unwrap().marked, "entries wait that have no marks");
    store.audit_writer().put(vec![entry("/marked")]).await.unwrap();
    neighbour.execute("rollback").await;
    let sealed = async {
        loop {
            store.seal_audit(Uuid::new_v4()).await.unwrap();
            let verified = store.verify_audit(Some(audit_entry.clone())).await.unwrap();
            if verified.records == 6 {
                return verified;
            }
        }
    };
    let verified = tokio::time::timeout(Duration::from_secs(30), sealed).await.expect("all is sealed");
    assert_eq!(verified.faults, ["the record thing.change of /invented was not written by this store"]);
    assert!(chain.end(&store, &mut Vec::new()).await.unwrap().marked);
    store.close().await;
}

#[tokio::test]
async fn foreign_records_do_not_end_the_marks_of_a_store() {
    let Some((_database, store, raw, neighbour)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    neighbour.execute(OPEN_TRANSACTION).await;
    store.audit_writer().put(vec![entry("/unmarked")]).await.unwrap();
    raw.execute("update audit set mac = null").await;
    start(&store).await.unwrap();
    store.seal_audit(Uuid::new_v4()).await.unwrap();
    let chain = Chain::find(&store).await.unwrap().unwrap();
    assert!(chain.end(&store, &mut Vec::new()).await.unwrap().marked);
    neighbour.execute("rollback").await;
    store.close().await;
}

#[tokio::test]
async fn an_export_waits_for_entries_that_an_open_transaction_hides() {
    let Some((_database, store, _, neighbour)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    neighbour.execute(OPEN_TRANSACTION).await;
    store.audit_writer().put(vec![entry("/hidden")]).await.unwrap();
    let refusal = store.seal_everything(1).await.unwrap_err().to_string();
    assert!(refusal.contains("a transaction is open on the database server"), "{refusal}");
    neighbour.execute("rollback").await;
    let mut out = Vec::new();
    store.export(&mut out).await.unwrap();
    assert!(String::from_utf8(out).unwrap().contains("/hidden"));
    store.close().await;
}

#[test]
fn a_copy_of_a_record_removed_long_ago_is_rejected() {
    let chain = Chain { key: vec![7; 32].into() };
    let row = |ms: u64| {
        let id = Uuid::new_v7(uuid::Timestamp::from_unix(
            uuid::NoContext,
            ms / 1000,
            u32::try_from(ms % 1000).unwrap() * 1_000_000,
        ));
        let entry = entry("/thing");
        AuditRow {
            place: AuditPosition { tx: 0, seq: 9 },
            mac: Some(chain.entry_key().mac(id, &entry)),
            record: api::audit::AuditRecord {
                id,
                time: jiff::Timestamp::UNIX_EPOCH,
                entry,
                number: None,
                seal: None,
            },
            sealed_at: None,
            refused: false,
        }
    };
    let newest = 1_800_000_000_000;
    let mut gate = ChainAdmission {
        key: chain.entry_key(),
        marked: true,
        known: HashSet::new(),
        last: Some(AuditPosition { tx: 0, seq: 8 }),
        newest_left: Some(newest),
        now: newest,
    };
    let ms = u64::try_from(newest).unwrap();
    let latest = u64::try_from(LATEST_MS).unwrap();
    assert_eq!(gate.rejection(&row(ms - latest - 1)), Some("it repeats a record that retention removed"));
    assert_eq!(gate.rejection(&row(ms - latest)), None, "it was under way when others left");
    // The removed record had the time of a clock that was ahead, and says nothing about the age of others.
    gate.now = newest - 1;
    assert_eq!(gate.rejection(&row(ms - latest - 1)), None);
    gate.now = newest;
    let fresh = row(ms + 1);
    assert_eq!(gate.rejection(&fresh), None);
    assert_eq!(gate.rejection(&fresh), Some("it repeats another record"));
    gate.last = Some(AuditPosition { tx: 0, seq: 9 });
    assert_eq!(gate.rejection(&row(ms + 2)), Some("it precedes sealed records"));
    let other = AuditRow { mac: None, ..row(ms + 3) };
    assert_eq!(gate.rejection(&other), Some("it was not written by this store"));
}

/// A marked entry whose id has the time of a clock two years ahead.
async fn put_ahead(store: &Store, raw: &Raw) {
    let ms = u64::try_from(store.clock.now().as_millisecond()).unwrap() + 2 * 365 * 86_400_000;
    let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, ms / 1000, 0));
    let mac = Chain::find(store).await.unwrap().unwrap().entry_key().mac(id, &entry("/ahead"));
    store.audit_writer().put(vec![entry("/ahead")]).await.unwrap();
    let id = match raw {
        Raw::Sqlite(_) => format!("x'{}'", id.simple()),
        Raw::Postgres(..) => format!("'{id}'"),
    };
    raw.execute(&format!("update audit set id = {id}, mac = '{mac}' where target = '/ahead'")).await;
}

/// Records of a process whose clock was ahead are removed, and later entries are sealed as before.
async fn a_clock_that_was_ahead_shuts_nothing_out(store: &Store, raw: &Raw) {
    put_ahead(store, raw).await;
    store.audit_writer().put(vec![entry("/next")]).await.unwrap();
    seal_all(store).await;
    // By the clock, the sealing is in the past only with the next microsecond.
    while store.trim_audit(Duration::ZERO).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let chain = Chain::find(store).await.unwrap().unwrap();
    let newest = chain.floor(store, &mut Vec::new()).await.unwrap().newest.unwrap();
    assert!(newest <= store.latest_now().await.unwrap() / 1000, "{newest} is in the future");
    store.audit_writer().put(vec![entry("/more")]).await.unwrap();
    let sealed = async {
        while store.engine.audit_waits(false).await.unwrap() {
            store.seal_audit(Uuid::new_v4()).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), sealed).await.expect("the next entry is sealed");
    let verified = store.verify_audit(None).await.unwrap();
    assert_eq!((verified.faults, verified.head.number), (vec![], 3));
}

#[tokio::test]
async fn a_clock_that_was_ahead_shuts_nothing_out_on_sqlite() {
    let (_folder, store, raw) = on_sqlite().await;
    a_clock_that_was_ahead_shuts_nothing_out(&store, &raw).await;
    store.close().await;
}

#[tokio::test]
async fn a_clock_that_was_ahead_shuts_nothing_out_on_postgresql() {
    let Some((_database, store, raw, _)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    a_clock_that_was_ahead_shuts_nothing_out(&store, &raw).await;
    store.close().await;
}

/// Rows that another sealer sealed meanwhile are not rejected, and rejected ones are rejected once.
async fn only_unchained_records_are_rejected(store: &Store) {
    store.audit_writer().put(vec![entry("/one")]).await.unwrap();
    let read = store.engine.audit_unnumbered(1).await.unwrap().remove(0);
    seal_all(store).await;
    store.audit_writer().put(vec![entry("/two")]).await.unwrap();
    let waits = store.engine.audit_unnumbered(1).await.unwrap().remove(0);
    let why = "it repeats another record";
    assert_eq!(store.reject_entries(&[(&read, why)]).await.unwrap(), 0);
    assert_eq!(store.reject_entries(&[(&read, why), (&waits, why)]).await.unwrap(), 1);
    assert_eq!(store.reject_entries(&[(&waits, why)]).await.unwrap(), 0, "another refused it already");
    let left_out = store.engine.audit_unnumbered(9).await.unwrap();
    assert_eq!(
        left_out.iter().map(|row| (row.place, row.refused)).collect::<Vec<_>>(),
        [(waits.place, true)]
    );
}

#[tokio::test]
async fn only_unchained_records_are_rejected_on_sqlite() {
    let (_folder, store, _) = on_sqlite().await;
    only_unchained_records_are_rejected(&store).await;
    store.close().await;
}

#[tokio::test]
async fn only_unchained_records_are_rejected_on_postgresql() {
    let Some((_database, store, ..)) = on_postgresql().await else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    only_unchained_records_are_rejected(&store).await;
    store.close().await;
}
