//! Two successive releases work on one schema: migrations add before anything is removed, and a release that is one
//! version behind continues to work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::doc::{Document as _, Manifest};
use api::work::{Ending, WorkKind, WorkState};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use store::{
    Completion, CompletionOutcome, EnsureOutcome, FeedError, Migrate, NewWork, OpenError, Options, Release,
    Store, Transaction,
};
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on};
use crate::fixture::{Folder, Note, assert_sound, close, context, counter, eventually, manifest, written};
use crate::raw::{self, RawDatabase};

/// What the next release may do to the schema while this one runs: new nullable columns, new tables, new indexes; and
/// the version.
const NEXT: &str = "
    alter table documents add column colour text;
    alter table work add column weight integer;
    alter table lanes add column region text default 'none';
    alter table history add column weight integer;
    alter table feed add column cause text;
    alter table audit add column request text;
    alter table secrets add column expires bigint;
    create table colours (name text not null primary key);
    create index documents_by_colour on documents (colour);
    insert into schema (number, name, checksum, applied) select max(number) + 1, 'next', 'of the next release', 0 from schema";

/// Each operation once, so that every statement meets the schema.
async fn uses_everything(store: &Store) {
    let start = store.feed_end().await.unwrap();
    let read = written(store, &Note::fresh().holding(&Uuid::new_v4().to_string())).await;
    store.collection().update(&read, &read.document.saying("changed"), &context()).await.unwrap();
    store.commit(Transaction::new().put_secret(store.seal(read.uuid, "s", b"x").unwrap())).await.unwrap();
    assert_eq!(store.secret(read.uuid, "s").await.unwrap().unwrap().expose(), b"x");
    let (lane, me) = (Uuid::now_v7(), Uuid::new_v4());
    let works = [Uuid::now_v7(), Uuid::now_v7()];
    store
        .enqueue(works.iter().map(|id| NewWork::new(*id, lane, WorkKind::Manifest)).collect())
        .await
        .unwrap();
    let lease = store
        .claim(WorkKind::Manifest, 50, me)
        .await
        .unwrap()
        .iter()
        .find(|it| it.lease.lane == lane)
        .unwrap()
        .lease;
    store.checkpoint(lease, "one", json!({})).await.unwrap();
    store.renew(me, vec![lane]).await.unwrap();
    let entry = |event| Entry::new(jiff::Timestamp::UNIX_EPOCH, event, "me", 1);
    let back =
        Release { entries: vec![entry(EntryEvent::Yielded)], ..Release::new(lease, Duration::ZERO, true) };
    store.release(back).await.unwrap();
    let lost = store.claim_for(WorkKind::Manifest, 50, me, Duration::ZERO).await.unwrap();
    assert!(lost.iter().any(|it| it.lease.work == lease.work));
    let taken = store.take_over(WorkKind::Manifest, 50, me).await.unwrap();
    let lease = taken.iter().find(|it| it.lease.lane == lane).unwrap().lease;
    let end = Completion::new(lease, Ending::Completed, json!({}));
    store.complete(&[Completion { entries: vec![entry(EntryEvent::Finished)], ..end }]).await.unwrap();
    assert_eq!(store.entries(lease.work, None, 9).await.unwrap().len(), 2);
    store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
    assert_eq!(store.works(works.to_vec()).await.unwrap().len(), 2);
    let origin = Uuid::new_v4().to_string();
    let slot = Manifest {
        created_by_schedule: Some(origin.clone()),
        run_after: "2190-01-01T00:00:00Z".parse().unwrap(),
        ..manifest(lane)
    };
    let slots = [(slot.clone(), vec!["fleet".to_owned()])];
    let superseded = json!({ "code": "Superseded" });
    assert_eq!(store.manifests().ensure(&slots, &context()).await.unwrap(), [EnsureOutcome::Created]);
    assert_eq!(store.manifests().withdraw(&[slot.id], superseded, &context()).await.unwrap(), [slot.id]);
    assert_eq!(store.manifests().ensure(&slots, &context()).await.unwrap(), [EnsureOutcome::Revived]);
    assert_eq!(store.pending_for_origin(&origin, None, 9).await.unwrap().len(), 1);
    assert!(store.live(WorkKind::Manifest, None, 1000).await.unwrap().iter().any(|it| it.id == slot.id));
    assert!(store.queue(WorkKind::Manifest).await.unwrap().pending > 0);
    assert_eq!(store.lanes(vec![lane]).await.unwrap().len(), 1);
    store.leases("").await.unwrap();
    let read = store.manifests().get(slot.id).await.unwrap().unwrap();
    store.manifests().delete(&read, &context()).await.unwrap();
    eventually("the changes are in the feed", async || {
        let page = store.feed_after(start, 1000).await.unwrap_or_else(|error| match error {
            FeedError::Gone { .. } => panic!("the position is gone"),
            FeedError::Store(error) => panic!("{error}"),
        });
        page.changes.iter().any(|it| it.uuid == read.uuid).then_some(())
    })
    .await;
    let sealer = Uuid::new_v4();
    store.seal_audit(sealer).await.unwrap();
    store.release_lease("audit-sealer", sealer).await.unwrap();
    let registry = store.worker_registry("monitor");
    if registry.refresh(sealer, store::LEASE, store::LEASE).await.unwrap().is_leader {
        assert!(registry.assign(sealer, &[Some(sealer); store::BUCKETS]).await.unwrap());
    }
    registry.leave(sealer).await.unwrap();
    assert_sound(store).await;
}

#[test]
fn an_older_and_a_newer_release_work_side_by_side_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (old, raw) = (&env.store, RawDatabase::connect(&env).await);
        uses_everything(old).await;
        // The next release migrates while this one is running.
        let write_mode = async {
            for _ in 0..30 {
                written(old, &Note::fresh()).await;
            }
        };
        tokio::join!(write_mode, raw.execute(NEXT));
        uses_everything(old).await;
        let another = env.another().await;
        uses_everything(&another).await;
        uses_everything(old).await;
        raw.execute("insert into schema (number, name, checksum, applied) select max(number) + 1, 'after', 'x', 0 from schema").await;
        let rejection = Store::open(env.options.clone()).await.unwrap_err();
        assert!(matches!(rejection, OpenError::TooNew { found: 11, known: 9, .. }), "{rejection}");
        // Running processes continue; they need no restart.
        uses_everything(old).await;
    });
}

#[test]
fn an_older_release_works_after_a_newer_one_on_sqlite() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        uses_everything(&store).await;
        RawDatabase::to(&folder.options.location).await.execute(NEXT).await;
        uses_everything(&store).await;
        close(store).await;
        let store = folder.open().await;
        uses_everything(&store).await;
        close(store).await;
        let more = "insert into schema (number, name, checksum, applied) select max(number) + 1, 'after', 'x', 0 from schema";
        RawDatabase::to(&folder.options.location).await.execute(more).await;
        let rejection = Store::open(folder.options.clone()).await.unwrap_err();
        assert!(matches!(rejection, OpenError::TooNew { found: 11, known: 9, .. }), "{rejection}");
    });
}

/// The schema of the first release, and what it had written: a note, a pending manifest, a running one, a finished
/// one. Uuids are their numbers.
async fn of_the_first_release(raw: &RawDatabase, engine: &str) {
    let files = migrations(engine);
    let sql: String = ["keel", "queue", "sweeps", "records"]
        .iter()
        .filter_map(|part| files.get(&format!("0001_{part}.sql")))
        .map(String::as_str)
        .collect();
    let checksum: String = Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    if engine == "sqlite" {
        raw.execute("pragma journal_mode = wal; pragma application_id = 1399353459").await;
    }
    raw.execute("create table schema (number bigint not null primary key, name text not null, checksum text not null, applied bigint not null)").await;
    raw.execute(&sql).await;
    raw.execute(&format!(
        "insert into schema (number, name, checksum, applied) values (1, 'keel', '{checksum}', 0)"
    ))
    .await;
    raw.execute("insert into meta (key, value) values ('generation', '1'), ('feed_floor', '0-0'), ('store_id', 'old')").await;
    let id = |number: u128| raw.uuid(Uuid::from_u128(number));
    let note = serde_json::to_string(&Note::at("old").saying("kept")).unwrap();
    let mut sql = format!(
        "insert into documents (uuid, id, kind, parent, etag, generation, body, created, changed)
           values ({}, '/notes/old', 'note', '/shelf', 3, 1, '{note}', 5, 6);
         insert into feed (kind, uuid, etag, deleted, at) values ('note', {}, 3, false, 6);",
        id(1),
        id(1)
    );
    for number in 2..=4 {
        let order = Manifest { id: Uuid::from_u128(number), ..manifest(Uuid::from_u128(number + 100)) };
        let body = serde_json::to_string(&order).unwrap();
        sql += &format!(
            "insert into documents (uuid, id, kind, parent, etag, generation, body, created, changed)
               values ({}, '{}', 'manifest', '{}', 1, 1, '{body}', 5, 5);",
            id(number),
            order.path(),
            order.scope()
        );
    }
    sql += &format!(
        "insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
           values ({}, {}, 'manifest', 2, 7, 7, 3, 'Pending', 5, 5);
         insert into work (id, lane, kind, class, run_after, due_at, priority, state, attempt, step, checkpoint, fence, owner, created, changed, started)
           values ({}, {}, 'manifest', 1, 7, 7, 0, 'InProgress', 1, 'half', '[1]', 4, {}, 5, 5, 6);
         insert into lanes (lane, head_kind, head_class, head_at, head_priority) values ({}, 'manifest', 2, 7, 3);
         insert into lanes (lane, owner, lease_until, fence, running, running_kind) values ({}, {}, 8, 4, {}, 'manifest');
         insert into history (id, lane, kind, class, run_after, priority, state, attempt, fence, result, created, started, finished)
           values ({}, {}, 'manifest', 2, 7, 0, 'Failed', 2, 9, '{{\"message\": \"no\"}}', 5, 6, 7);",
        id(2), id(102), id(3), id(103), id(99), id(102), id(103), id(99), id(3), id(4), id(104)
    );
    raw.execute(&sql).await;
}

/// Asserts that the data of the first release is there and continues.
async fn goes_on(store: &Store) {
    assert_sound(store).await;
    let uuid = Uuid::from_u128;
    let note = store.documents::<Note>().get(uuid(1)).await.unwrap().unwrap();
    assert_eq!((note.document.text.as_str(), counter(note.etag)), ("kept", 3));
    let ended = store.work(uuid(4)).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.attempt, ended.fence), (WorkState::Failed, 2, 9));
    assert_eq!(
        (ended.origin, ended.budgets, ended.result),
        (None, vec![], Some(json!({ "message": "no" }).into()))
    );
    assert!(store.entries(uuid(4), None, 9).await.unwrap().is_empty());
    // The holder of the running work is gone; the next one continues behind its last step.
    let me = Uuid::new_v4();
    let taken = store.take_over(WorkKind::Manifest, 9, me).await.unwrap();
    assert_eq!((taken[0].lease.work, taken[0].step.as_deref(), taken[0].attempt), (uuid(3), Some("half"), 2));
    let waited = store.claim(WorkKind::Manifest, 9, me).await.unwrap();
    assert_eq!((waited[0].lease.work, waited[0].first), (uuid(2), true));
    let entry = Entry::new(jiff::Timestamp::UNIX_EPOCH, EntryEvent::Finished, "me", 1);
    for lease in [taken[0].lease, waited[0].lease] {
        let end = Completion {
            entries: vec![entry.clone()],
            ..Completion::new(lease, Ending::Completed, json!({}))
        };
        assert_eq!(store.complete(&[end]).await.unwrap(), [CompletionOutcome::Done]);
        assert_eq!(store.entries(lease.work, None, 9).await.unwrap().len(), 1);
    }
    let again = Manifest { id: uuid(4), ..manifest(uuid(104)) };
    assert_eq!(
        store.manifests().ensure(&[(again, vec![])], &context()).await.unwrap(),
        [EnsureOutcome::Existed]
    );
    uses_everything(store).await;
}

#[test]
fn a_file_of_the_first_release_is_brought_up_with_all_that_is_in_it() {
    block_on(async {
        let folder = Folder::new();
        of_the_first_release(&RawDatabase::to(&folder.options.location).await, "sqlite").await;
        let never = Options { migrate: Migrate::Never, ..folder.options.clone() };
        let rejection = Store::open(never).await.unwrap_err();
        assert!(matches!(rejection, OpenError::TooOld { found: 1, needed: 9, .. }), "{rejection}");
        let store = folder.open().await;
        goes_on(&store).await;
        close(store).await;
        // The way back: the file as it was.
        let copied = folder.file("store.db.before-migration-2");
        let found = |sql: &str| raw::open(&copied).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(found("select max(number) from schema"), 1);
        assert_eq!(found("select count(*) from documents"), 4);

        // Somebody goes back to the previous release for a while: the next upgrade copies that state.
        std::fs::rename(&copied, folder.path()).unwrap();
        raw::open(&folder.path())
            .execute_batch("update meta set value = 'a while' where key = 'store_id'")
            .unwrap();
        std::fs::write(&copied, "an older copy").unwrap();
        close(folder.open().await).await;
        assert_eq!(found("select max(number) from schema"), 1);
        assert_eq!(found("select count(*) from meta where value = 'a while'"), 1);
    });
}

#[test]
fn a_database_of_the_first_release_is_brought_up_with_all_that_is_in_it() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        raw.execute("drop schema public cascade; create schema public").await;
        of_the_first_release(&raw, "postgres").await;
        let store = Store::open(env.options.clone()).await.unwrap();
        goes_on(&store).await;
        store.close().await;
    });
}

/// Statements that a process of the first release sends, after the second one has migrated.
#[test]
fn the_first_release_works_beside_the_second_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, raw) = (&env.store, RawDatabase::connect(&env).await);
        let uuid = Uuid::from_u128;
        let id = |number: u128| raw.uuid(uuid(number));
        for number in 1..=3 {
            raw.execute(&format!(
                "select enqueue_v1(array[{}], array[{}], array['manifest'], array[2], array[7::bigint], array[null::bigint], array[0], array['[\"b\"]'::jsonb])",
                id(number), id(number + 100)
            ))
            .await;
        }
        let claimed = raw
            .rows(&format!(
                "select work_, lane_, fence_, attempt_ from claim_v1('manifest', 2, {}, 60000000)",
                id(9)
            ))
            .await;
        assert_eq!(claimed.len(), 2);
        let [one, two] = [&claimed[0], &claimed[1]];
        raw.execute(&format!("select * from checkpoint_v1(array['{}'::uuid], array[{}], array[{}::bigint], array['s'], array['1'::jsonb])", one[0], id(9), one[2])).await;
        raw.execute(&format!("select * from complete_v1(array['{}'::uuid], array['{}'::uuid], array[{}], array[{}::bigint], array['Completed'], array['{{}}'::jsonb], true)", one[0], one[1], id(9), one[2])).await;
        raw.execute(&format!("select yield_v1(array['{}'::uuid], array['{}'::uuid], array[{}], array[{}::bigint], array[0::bigint], array[true])", two[0], two[1], id(9), two[2])).await;
        // The second release sees what the first one did, and its budgets; and vice versa.
        let ended = store.work(one[0].parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(
            (ended.state, ended.step.as_deref(), ended.budgets),
            (WorkState::Completed, Some("s"), vec!["b".to_owned()])
        );
        let me = Uuid::new_v4();
        let held = store.claim_for(WorkKind::Manifest, 9, me, Duration::ZERO).await.unwrap();
        assert_eq!(held.len(), 2);
        assert_eq!(
            raw.rows(&format!("select work_ from take_over_v1('manifest', 9, {}, 0)", id(9))).await.len(),
            2
        );
        assert_eq!(store.take_over(WorkKind::Manifest, 9, me).await.unwrap().len(), 2);
        // Late work that the first release times out gets an entry all the same.
        let late = NewWork {
            run_before: Some(jiff::Timestamp::UNIX_EPOCH),
            ..NewWork::new(uuid(50), uuid(150), WorkKind::Manifest)
        };
        store.enqueue(vec![late]).await.unwrap();
        raw.execute("select * from expire_v1(null, 100)").await;
        assert_eq!(store.entries(uuid(50), None, 9).await.unwrap().len(), 1);
        // Work that it removes is removed with its entries.
        raw.execute("select trim_history_v1('manifest', -1000000, 100, '{}', '{}')").await;
        assert!(store.entries(uuid(50), None, 9).await.unwrap().is_empty());
        assert_sound(store).await;
    });
}

#[test]
fn many_processes_that_start_at_once_on_an_empty_database_migrate_it_once() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        raw.execute("drop schema public cascade; create schema public").await;
        let opening = (0..5).map(|_| Store::open(env.options.clone()));
        for store in futures_util::future::try_join_all(opening).await.unwrap() {
            written(&store, &Note::fresh()).await;
        }
        assert_eq!(raw.one("select count(*) from schema").await, "9");
    });
}

fn migrations(engine: &str) -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files
        .map(|it| (it.file_name().into_string().unwrap(), std::fs::read_to_string(it.path()).unwrap()))
        .collect()
}

/// Statements of a migration that would break the previous release, unless they are marked with the reason why they
/// do not.
fn breaking(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    for statement in sql.split(';') {
        let marked = statement.lines().any(|line| line.trim_start().starts_with("-- contract:"));
        let code: Vec<&str> =
            statement.lines().map(|line| line.split("--").next().unwrap_or_default().trim()).collect();
        let code = code.join(" ").to_lowercase();
        let words: Vec<&str> = code.split_whitespace().collect();
        let has = |pattern: &[&str]| words.windows(pattern.len()).any(|window| window == pattern);
        let takes_away = has(&["drop"])
            || has(&["rename"])
            || has(&["alter", "column"])
            || words.first() == Some(&"truncate");
        let demands = has(&["add", "column"]) && has(&["not", "null"]) && !words.contains(&"default");
        let narrows = has(&["add", "constraint"])
            || (has(&["create", "unique", "index"]) && !words.contains(&"concurrently"));
        if !marked && (takes_away || demands || narrows) {
            found.push(code);
        }
    }
    found
}

#[test]
fn migrations_behind_the_first_only_add() {
    for engine in ["sqlite", "postgres"] {
        let files = migrations(engine);
        let numbers: BTreeSet<u32> = files.keys().map(|name| name[..4].parse().unwrap()).collect();
        assert_eq!(
            numbers,
            (1..=u32::try_from(numbers.len()).unwrap()).collect(),
            "{engine}: numbers have no gaps"
        );
        for (name, sql) in files.iter().filter(|(name, _)| !name.starts_with("0001")) {
            assert_eq!(breaking(sql), Vec::<String>::new(), "{engine}/{name} breaks the release before it");
        }
    }
    let of = |engine: &str| {
        migrations(engine).into_keys().map(|name| name[..4].to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(of("sqlite"), of("postgres"), "both engines are at the same step");
}

#[test]
fn a_migration_that_removes_something_is_distinguished_from_one_that_adds() {
    for sql in [
        "alter table a add column b text",
        "create table a (b text not null)",
        "create index a_b on a (b)",
        "alter table a add column b integer not null default 0",
        "-- contract: nobody reads it since 0003\nalter table a drop column b",
        "create unique index concurrently if not exists a_b on a (b)",
    ] {
        assert_eq!(breaking(sql), Vec::<String>::new(), "{sql}");
    }
    for sql in [
        "drop table a",
        "alter table a drop column b",
        "alter table a rename column b to c",
        "alter table a rename to b",
        "alter table a alter column b type bigint",
        "alter table a add column b text not null",
        "ALTER TABLE a\n  DROP COLUMN b",
        "alter table a add constraint c check (b > 0)",
        "create unique index a_b on a (b)",
        "drop function f()",
    ] {
        assert_eq!(breaking(sql).len(), 1, "{sql}");
    }
}

/// Tables with their columns: type, in terms that both engines share, and nullability.
type Shape = BTreeMap<String, BTreeMap<String, (String, bool)>>;

fn word(engine_type: &str) -> &'static str {
    match engine_type.to_lowercase().as_str() {
        "integer" | "bigint" | "boolean" => "number or flag",
        "text" | "jsonb" | "array" => "text, JSON or list",
        "blob" | "uuid" | "bytea" => "uuid or bytes",
        other => panic!("a column of the type {other}"),
    }
}

#[test]
fn both_dialects_end_in_the_same_shape() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let mut postgres = Shape::new();
        let columns = "select table_name, column_name, data_type, is_nullable from information_schema.columns
                       where table_schema = current_schema()";
        for row in RawDatabase::connect(&env).await.rows(columns).await {
            let [table, column, kind, nullable] = &row[..] else { panic!("four columns") };
            postgres
                .entry(table.clone())
                .or_default()
                .insert(column.clone(), (word(kind).to_owned(), nullable == "YES"));
        }
        let mut sqlite = Shape::new();
        let other = TestEnvironment::sqlite().await;
        let raw = RawDatabase::connect(&other).await;
        for table in
            raw.rows("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'").await
        {
            for row in raw
                .rows(&format!("select name, type, \"notnull\" from pragma_table_info('{}')", table[0]))
                .await
            {
                sqlite
                    .entry(table[0].clone())
                    .or_default()
                    .insert(row[0].clone(), (word(&row[1]).to_owned(), row[2] == "0"));
            }
        }
        // The feed's order is that of one writer there and of many transactions here.
        for table in ["feed", "audit"] {
            assert!(postgres.get_mut(table).unwrap().remove("tx").is_some());
        }
        assert_eq!(sqlite, postgres);
        assert!(sqlite.len() >= 14);

        let indexes = |rows: Vec<Vec<String>>| {
            rows.into_iter()
                .map(|row| row[0].clone())
                .filter(|it| !it.ends_with("_pkey"))
                .collect::<BTreeSet<_>>()
        };
        let mut there = indexes(
            RawDatabase::connect(&env)
                .await
                .rows("select indexname from pg_indexes where schemaname = current_schema()")
                .await,
        );
        let mut here = indexes(
            raw.rows("select name from sqlite_schema where type = 'index' and name not like 'sqlite_%'")
                .await,
        );
        // The single writer numbers audit records in the order of their positions, so it finds the rest without an
        // index; and a changed page costs it more than a row read in vain.
        assert!(there.remove("audit_unsealed") && there.remove("work_pending"));
        assert!(there.remove("history_finished"));
        // Held lanes sort before the free ones there, and have an index of their own here.
        assert!(here.remove("work_in_order") && here.remove("lanes_turns"));
        assert!(there.remove("lanes_due") && there.remove("lanes_owned"));
        assert_eq!(here, there);
    });
}
