//! Moving and copying a whole store: everything arrives or nothing does, and followers of the old one start over.

use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::doc::Verb;
use api::secret::Secret;
use api::work::{Ending, WorkKind, WorkState};
use serde_json::{Value, json};
use store::{
    AuditQuery, Completion, DocumentQuery, FeedError, HealthSample, Keyring, Location, NewWork, OpenError,
    Options, Position, Reader, Release, Store, StoreError, Transaction,
};
use testkit::postgres;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, options};
use crate::fixture::{Folder, Note, assert_sound, close, cluster, context, manifest, operation, written};
use crate::raw::RawDatabase;

/// What was put into a store, to be found in another.
struct Moved {
    keyring: Keyring,
    export: String,
    notes: Vec<(Uuid, String)>,
    imported: Uuid,
    /// Work that ran when the store was exported, with its last step.
    running: Uuid,
    resting: Uuid,
    ended: Uuid,
    operation: Uuid,
    head: store::ChainHead,
    position: Position,
    rows: usize,
}

fn said(event: EntryEvent) -> Entry {
    Entry {
        message: Some("a \u{1F6A2} log".to_owned()),
        ..Entry::new(jiff::Timestamp::UNIX_EPOCH, event, "me", 1)
    }
}

/// Fills a store with every kind of data, and exports it.
async fn export(store: &Store, keyring: Keyring) -> Moved {
    let mut notes = Vec::new();
    for number in 0..700 {
        let text = format!("note {number}: \u{1F6A2} \"quoted\" \\ \n \u{7f}");
        let document = Note::fresh().saying(&text);
        let uuid = Uuid::now_v7();
        store.commit(Transaction::new().create(uuid, &document, &context()).unwrap()).await.unwrap();
        notes.push((uuid, text));
    }
    let gone = written(store, &Note::fresh().holding("key")).await;
    store.collection().delete(&gone, &context()).await.unwrap();
    let held = written(store, &Note::fresh().holding("key")).await;
    notes.push((held.uuid, String::new()));
    let mine = api::doc::Cluster { imported: true, ..cluster("mine") };
    let (imported, _, _) =
        store.clusters().import(&mine, &Secret::new(b"kubeconfig".to_vec()), &context()).await.unwrap();
    let create = operation(Uuid::now_v7(), Verb::Create);
    store.clusters().start_create(&cluster("made"), &create, &Default::default(), &context()).await.unwrap();

    store.set_budget("fleet", Some(5), None).await.unwrap();
    let lanes = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
    let works: Vec<Uuid> = lanes.iter().map(|_| Uuid::now_v7()).collect();
    for (lane, work) in lanes.iter().zip(&works) {
        let budgets = vec!["fleet".to_owned()];
        store
            .enqueue(vec![NewWork {
                budgets,
                origin: Some("weekly".to_owned()),
                ..NewWork::new(*work, *lane, WorkKind::Manifest)
            }])
            .await
            .unwrap();
    }
    let claimed = store.claim(WorkKind::Manifest, 10, Uuid::new_v4()).await.unwrap();
    let lease = |work: Uuid| claimed.iter().find(|it| it.lease.work == work).unwrap().lease;
    let step = Transaction::new().checkpoint(lease(works[0]), "step one", json!({ "n": [1, null, "x"] }));
    store.commit(step.record(works[0], said(EntryEvent::StepFinished))).await.unwrap();
    store.release(Release::new(lease(works[1]), Duration::from_secs(3600), true)).await.unwrap();
    let ending = Completion::new(lease(works[2]), Ending::Failed, json!({ "message": "no" }));
    let ending = Completion { entries: vec![said(EntryEvent::Finished)], ..ending };
    store.complete(&[ending]).await.unwrap();
    let sample = HealthSample {
        cluster: imported,
        at: jiff::Timestamp::UNIX_EPOCH,
        reachable: true,
        since: jiff::Timestamp::UNIX_EPOCH,
        details: json!({ "ok": 1 }).into(),
    };
    store.health_writer().put(vec![sample]).await.unwrap();

    let position = store.feed_end().await.unwrap();
    let mut out = Vec::new();
    let counts = store.export(&mut out).await.unwrap();
    let head = store.verify_audit(None).await.unwrap().head;
    assert!(head.number > 700);
    let rows = counts.iter().map(|(_, count)| count).sum();
    let export = String::from_utf8(out).unwrap();
    assert_eq!(export.lines().count(), rows + 2);
    assert!(!export.contains("kubeconfig\":"), "a secret is in the export");
    let [running, resting, ended] = works[..] else { panic!("three pieces of work") };
    Moved {
        keyring,
        export,
        notes,
        imported,
        running,
        resting,
        ended,
        operation: create.id,
        head,
        position,
        rows,
    }
}

/// Asserts that everything exported is there, and continues.
async fn arrived(store: &Store, moved: &Moved) {
    for (uuid, text) in &moved.notes {
        assert_eq!(store.documents::<Note>().get(*uuid).await.unwrap().unwrap().document.text, *text);
    }
    let rejected = store.collection().create(&Note::fresh().holding("key"), &context()).await;
    assert!(matches!(rejected, Err(StoreError::KeyTaken { .. })));
    assert_eq!(store.clusters().kubeconfig(moved.imported).await.unwrap().unwrap().expose(), b"kubeconfig");
    assert_eq!(store.health(vec![moved.imported]).await.unwrap()[0].details.to_json(), json!({ "ok": 1 }));
    let events = store.health_events(vec![moved.imported], jiff::Timestamp::UNIX_EPOCH, 9).await.unwrap();
    assert_eq!(events.iter().map(|it| it.value.as_str()).collect::<Vec<_>>(), ["ok", "unknown"]);
    let budgets = store.budgets().await.unwrap();
    assert_eq!((budgets[0].key.as_str(), budgets[0].limit, budgets[0].used), ("fleet", 5, 0));
    let ended = store.work(moved.ended).await.unwrap().unwrap();
    assert_eq!(
        (ended.state, ended.result.unwrap().to_json()),
        (WorkState::Failed, json!({ "message": "no" }))
    );
    assert_eq!((ended.origin.as_deref(), ended.budgets), (Some("weekly"), vec!["fleet".to_owned()]));
    let entries = store.entries(moved.ended, None, 9).await.unwrap();
    assert_eq!(
        entries.iter().map(|it| (it.0, it.1.event.clone())).collect::<Vec<_>>(),
        [(1, EntryEvent::Finished)]
    );
    assert_eq!(store.entries(moved.running, None, 9).await.unwrap(), [(1, said(EntryEvent::StepFinished))]);
    assert_eq!(store.pending_for_origin("weekly", None, 9).await.unwrap().len(), 2);

    // Its holder is not here: it is pending, and continues behind its last step, under a newer fence.
    let running = store.work(moved.running).await.unwrap().unwrap();
    assert_eq!((running.state, running.step.as_deref()), (WorkState::Pending, Some("step one")));
    assert_eq!(store.work(moved.resting).await.unwrap().unwrap().state, WorkState::Pending);
    assert_sound(store).await;
    let claimed = store.claim(WorkKind::Manifest, 10, Uuid::new_v4()).await.unwrap();
    assert_eq!(
        claimed.iter().map(|it| it.lease.work).collect::<Vec<_>>(),
        [moved.running],
        "what rests goes on resting"
    );
    assert_eq!(claimed[0].checkpoint, Some(json!({ "n": [1, null, "x"] })));
    assert!(claimed[0].lease.fence > running.fence);
    assert_eq!(store.budgets().await.unwrap()[0].used, 1);
    let operations = store.claim(WorkKind::Operation, 10, Uuid::new_v4()).await.unwrap();
    assert_eq!(operations.iter().map(|it| it.lease.work).collect::<Vec<_>>(), [moved.operation]);

    let verified = store.verify_audit(Some(moved.head.clone())).await.unwrap();
    assert_eq!((verified.faults, verified.head), (vec![], moved.head.clone()));
    assert!(
        matches!(store.feed_after(moved.position, 10).await, Err(FeedError::Gone { .. })),
        "an old position is still taken"
    );
    // A reader that lists from here on misses nothing, and the log continues.
    let position = store.feed_end().await.unwrap();
    let next = written(store, &Note::fresh()).await;
    crate::fixture::eventually("the next change is in the feed", async || {
        let changes = crate::fixture::feed_from(store, position).await.unwrap();
        changes.iter().any(|it| it.uuid == next.uuid).then_some(())
    })
    .await;
    crate::fixture::eventually("the log is sealed further", async || {
        store.seal_audit(Uuid::from_u128(9)).await.unwrap();
        let verified = store.verify_audit(Some(moved.head.clone())).await.unwrap();
        assert_eq!(verified.faults, Vec::<String>::new());
        (verified.head.number > moved.head.number).then_some(())
    })
    .await;
    assert_sound(store).await;
}

async fn import(store: &Store, text: &str) -> Result<store::TransferCounts, OpenError> {
    store.import(&mut text.as_bytes()).await
}

/// An empty SQLite store that has the keys.
async fn empty(keyring: &Keyring) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let place = Location::Sqlite(folder.path().join("store.db"));
    let store = Store::open(Options { keyring: keyring.clone(), ..options(place) }).await.unwrap();
    (folder, store)
}

#[test]
fn a_store_moves_from_sqlite_to_postgresql_and_back() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        let moved = export(&store, folder.options.keyring.clone()).await;

        let (_place, second) = empty(&moved.keyring).await;
        let counts = import(&second, &moved.export).await.unwrap();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), moved.rows);
        arrived(&second, &moved).await;

        let Some(server) = postgres::shared() else {
            return testkit::prerequisites::skip(
                testkit::prerequisites::POSTGRESQL,
                "no PostgreSQL server was found",
            );
        };
        let database = server.database().unwrap();
        let third = Options { keyring: moved.keyring.clone(), ..options(database.url().parse().unwrap()) };
        let third = Store::open(third).await.unwrap();
        let counts_there = import(&third, &moved.export).await.unwrap();
        assert_eq!(counts_there, counts);
        // Exported from PostgreSQL again it is the same, line by line, except for its location and generation.
        let mut out = Vec::new();
        third.export(&mut out).await.unwrap();
        let back = String::from_utf8(out).unwrap();
        let lines = |text: &str| {
            text.lines().skip(1).map(|it| serde_json::from_str::<Value>(it).unwrap()).collect::<Vec<_>>()
        };
        for (there, here) in lines(&back).iter().zip(lines(&moved.export)) {
            assert_eq!(*there, here);
        }
        let (_place, fourth) = empty(&moved.keyring).await;
        import(&fourth, &back).await.unwrap();
        arrived(&fourth, &moved).await;
        arrived(&third, &moved).await;
    });
}

on_both_engines! {
    async fn an_import_into_a_store_that_is_not_empty_fails(env: &TestEnvironment) {
        let (_place, source) = empty(&env.options.keyring).await;
        written(&source, &Note::at("one")).await;
        let mut out = Vec::new();
        source.export(&mut out).await.unwrap();
        let note = written(&env.store, &Note::at("two")).await;
        let rejection = env.store.import(&mut out.as_slice()).await.unwrap_err().to_string();
        assert_eq!(rejection, format!("import: {} is not empty; import into an empty store", env.store.location()));
        assert!(env.store.find("/notes/one").await.unwrap().is_none());
        assert_eq!(env.store.get(note.uuid).await.unwrap().unwrap().etag, note.etag);
    }
}

on_both_engines! {
    async fn housekeeping_leaves_an_empty_store_empty(env: &TestEnvironment) {
        let (_place, source) = empty(&env.options.keyring).await;
        let note = written(&source, &Note::at("one")).await;
        let mut out = Vec::new();
        source.export(&mut out).await.unwrap();
        // As `shipshape up` does once, before an import.
        let (stop, mut keeper) = (tokio_util::sync::CancellationToken::new(), JoinSet::new());
        keeper.spawn(store::housekeeping::run(env.store.clone(), store::Retention::default(), store::housekeeping::Metrics::default(), stop.clone()));
        let raw = RawDatabase::connect(env).await;
        crate::fixture::eventually("the housekeeper was here", async || {
            (raw.one("select count(*) from leases where name = 'housekeeper'").await == "1").then_some(())
        }).await;
        stop.cancel();
        keeper.join_all().await;
        env.store.import(&mut out.as_slice()).await.unwrap();
        assert_eq!(env.store.get(note.uuid).await.unwrap().unwrap().etag, note.etag);
    }
}

on_both_engines! {
    async fn a_damaged_truncated_or_foreign_export_is_rejected_by_line_and_nothing_is_stored(env: &TestEnvironment) {
        let (_place, source) = empty(&env.options.keyring).await;
        for number in 0..3 {
            written(&source, &Note::at(&number.to_string())).await;
        }
        let mut out = Vec::new();
        source.export(&mut out).await.unwrap();
        let whole = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let store = &env.store;
        let rejected = async |text: String, expect: &str| {
            let rejection = import(store, &text).await.unwrap_err().to_string();
            assert!(rejection.starts_with(expect), "{rejection:?} does not begin with {expect:?}");
            assert!(!rejection.contains('\n'), "{rejection}");
            let listing = DocumentQuery { kind: "note".to_owned(), limit: 10, ..DocumentQuery::default() };
            assert!(store.list(listing).await.unwrap().is_empty(), "{expect}: something was stored");
            assert!(store.audit_list(AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap().is_empty());
        };
        let with = |line: usize, text: &str| {
            let mut lines: Vec<&str> = lines.clone();
            lines[line - 1] = text;
            lines.join("\n") + "\n"
        };
        rejected(String::new(), "import: not a shipshape-export of version 1").await;
        rejected("Dear Sir,\n".to_owned(), "import, line 1: is not JSON").await;
        rejected("{}\n".to_owned(), "import: not a shipshape-export of version 1").await;
        rejected(with(1, "{\"format\":\"shipshape-export\",\"version\":2}"), "import: not a shipshape-export of version 1").await;
        rejected(with(2, "{\"table\":"), "import, line 2: is not JSON").await;
        rejected(with(3, "{\"table\":\"letters\",\"row\":{}}"), "import, line 3: not a row of a known table").await;
        rejected(with(3, "[]"), "import, line 3: not a row of a known table").await;
        rejected(lines[..lines.len() - 1].join("\n"), "import: truncated: the last line is missing").await;
        rejected(lines[..3].join("\n"), "import: truncated: the last line is missing").await;
        let without: Vec<&str> = lines.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| *line).collect();
        let rows = lines.len() - 2;
        rejected(without.join("\n"), &format!("import: {} rows found, {rows} were exported", rows - 1)).await;
        // A value of another type, a missing value, an unknown column: reported by line as well.
        let changed = |from: &str, to: &str| with(2, &lines[1].replacen(from, to, 1));
        assert!(lines[1].contains("\"etag\":1,"), "{}", lines[1]);
        rejected(changed("\"etag\":1,", "\"etag\":\"one\","), "import, line 2: ").await;
        rejected(changed("\"etag\":1,", "\"etag\":1.5,"), "import, line 2: ").await;
        rejected(changed("\"etag\":1,", "\"etag\":1,\"colour\":\"red\","), "import, line 2: ").await;
        rejected(changed("\"uuid\":\"", "\"uuid\":\"x"), "import, line 2: ").await;
        // Rejected by the database itself: the same document twice.
        let mut twice = lines.clone();
        twice.insert(2, lines[1]);
        let end = format!("{{\"end\":{}}}", rows + 1);
        *twice.last_mut().unwrap() = &end;
        rejected(twice.join("\n"), "").await;
        // Another store's key.
        let other = Store::open(Options { keyring: Keyring::ephemeral().unwrap(), ..options(Location::Sqlite(_place.path().join("other.db"))) }).await.unwrap();
        assert!(matches!(import(&other, &whole).await, Err(OpenError::WrongKey { .. })));

        // After all of that the store is still empty, and takes the complete import.
        import(store, &whole).await.unwrap();
        assert!(store.find("/notes/2").await.unwrap().is_some());
    }
}

#[test]
fn a_copy_made_during_writes_opens_and_is_consistent() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        let before = written(&store, &Note::fresh()).await;
        let (stop, mut writers) = (tokio_util::sync::CancellationToken::new(), JoinSet::new());
        for _ in 0..4 {
            let (store, stop) = (store.clone(), stop.clone());
            writers.spawn(async move {
                let cluster = Uuid::now_v7();
                let mut count = 0;
                while !stop.is_cancelled() {
                    store.manifests().create(&[(manifest(cluster), vec![])], &context()).await.unwrap();
                    written(&store, &Note::fresh().saying("x".repeat(3000))).await;
                    count += 1;
                }
                count
            });
        }
        for number in 0..3 {
            let copy = folder.file(&format!("copy-{number}.db"));
            let seen = written(&store, &Note::fresh()).await;
            store.backup(&copy).await.unwrap();
            let behind = written(&store, &Note::fresh()).await;
            let copied = Store::open(Options { location: Location::Sqlite(copy), ..folder.options.clone() })
                .await
                .unwrap();
            assert_sound(&copied).await;
            assert!(copied.get(before.uuid).await.unwrap().is_some());
            assert!(copied.get(seen.uuid).await.unwrap().is_some());
            assert!(copied.get(behind.uuid).await.unwrap().is_none());
            written(&copied, &Note::fresh()).await;
        }
        stop.cancel();
        assert!(writers.join_all().await.into_iter().all(|count| count > 0));
        // An existing file is not replaced; and a missing directory is named.
        for target in [folder.file("copy-0.db"), folder.path(), folder.file("no/such/copy.db")] {
            let bytes = std::fs::read(&target).ok();
            let rejection = store.backup(&target).await.unwrap_err().to_string();
            assert!(
                rejection.starts_with(&format!("backup {}: cannot be created: ", target.display())),
                "{rejection}"
            );
            if target != folder.path() {
                assert_eq!(std::fs::read(&target).ok(), bytes);
            }
        }
        // A reader may copy as well, and nothing partial is left behind.
        let reader = Reader::open(folder.options.clone()).await.unwrap();
        reader.backup(&folder.file("read.db")).await.unwrap();
        reader.close().await;
        close(store).await;
        let home = folder.path().parent().unwrap().to_owned();
        let parts = std::fs::read_dir(home)
            .unwrap()
            .flatten()
            .filter(|it| it.file_name().to_string_lossy().ends_with(".part"));
        assert_eq!(parts.count(), 0);
    });
}

#[test]
fn a_postgresql_server_is_not_backed_up() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let rejection = env.store.backup(std::path::Path::new("/nowhere")).await.unwrap_err().to_string();
        assert!(
            rejection.starts_with("backup: only for SQLite; back up a PostgreSQL server with its own tools"),
            "{rejection}"
        );
    });
}
