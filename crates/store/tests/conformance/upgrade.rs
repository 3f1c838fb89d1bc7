//! Two neighbouring releases work on one schema: migrations add before anything is removed, and a release that is one
//! step behind goes on working.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use api::work::{Ending, WorkKind};
use serde_json::json;
use store::{Completion, FeedError, NewWork, OpenError, Store, Transaction};
use uuid::Uuid;

use crate::bed::{Bed, block_on};
use crate::fixture::{Folder, Note, assert_sound, by, close, eventually, written};
use crate::raw::Raw;

/// What the next release may do to the schema while this one runs: new columns that may be empty, new tables, new
/// indexes; and it says so.
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

/// Each verb once, so that every statement meets the schema.
async fn uses_everything(store: &Store) {
    let start = store.feed_now().await.unwrap();
    let read = written(store, &Note::fresh().holding(&Uuid::new_v4().to_string())).await;
    store.collection().update(&read, &read.document.saying("changed"), &by()).await.unwrap();
    store.commit(Transaction::new().put_secret(store.seal(read.uuid, "s", b"x").unwrap())).await.unwrap();
    assert_eq!(store.secret(read.uuid, "s").await.unwrap().unwrap().expose(), b"x");
    let (lane, me) = (Uuid::now_v7(), Uuid::new_v4());
    let works = [Uuid::now_v7(), Uuid::now_v7()];
    store
        .enqueue(works.iter().map(|id| NewWork::new(*id, lane, WorkKind::Manifest)).collect())
        .await
        .unwrap();
    let hold = store
        .claim(WorkKind::Manifest, 50, me)
        .await
        .unwrap()
        .iter()
        .find(|it| it.hold.lane == lane)
        .unwrap()
        .hold;
    store.checkpoint(hold, "one", json!({})).await.unwrap();
    store.renew(me, vec![lane]).await.unwrap();
    store.complete(vec![Completion::new(hold, Ending::Completed, json!({}))]).await.unwrap();
    store.commit(Transaction::new().withdraw_lane(lane, json!({}))).await.unwrap();
    assert_eq!(store.works(works.to_vec()).await.unwrap().len(), 2);
    eventually("the changes are told", async || {
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
    assert_sound(store).await;
}

#[test]
fn an_older_and_a_newer_release_work_side_by_side_on_postgresql() {
    block_on(async {
        let Some(bed) = Bed::postgres().await else { return };
        let (old, raw) = (&bed.store, Raw::of(&bed).await);
        uses_everything(old).await;
        // The next release migrates while this one is at work.
        let writing = async {
            for _ in 0..30 {
                written(old, &Note::fresh()).await;
            }
        };
        tokio::join!(writing, raw.execute(NEXT));
        uses_everything(old).await;
        let another = bed.another().await;
        uses_everything(&another).await;
        uses_everything(old).await;
        raw.execute("insert into schema (number, name, checksum, applied) select max(number) + 1, 'after', 'x', 0 from schema").await;
        let refusal = Store::open(bed.options.clone()).await.unwrap_err();
        assert!(matches!(refusal, OpenError::TooNew { found: 4, known: 2, .. }), "{refusal}");
        // Who was here before goes on; it is not to be started again.
        uses_everything(old).await;
    });
}

#[test]
fn an_older_release_goes_on_behind_a_newer_one_on_sqlite() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        uses_everything(&store).await;
        Raw::to(&folder.options.location).await.execute(NEXT).await;
        uses_everything(&store).await;
        close(store).await;
        let store = folder.open().await;
        uses_everything(&store).await;
        close(store).await;
        let more = "insert into schema (number, name, checksum, applied) select max(number) + 1, 'after', 'x', 0 from schema";
        Raw::to(&folder.options.location).await.execute(more).await;
        let refusal = Store::open(folder.options.clone()).await.unwrap_err();
        assert!(matches!(refusal, OpenError::TooNew { found: 4, known: 2, .. }), "{refusal}");
    });
}

#[test]
fn many_processes_that_start_at_once_on_an_empty_database_migrate_it_once() {
    block_on(async {
        let Some(bed) = Bed::postgres().await else { return };
        let raw = Raw::of(&bed).await;
        raw.execute("drop schema public cascade; create schema public").await;
        let opening = (0..5).map(|_| Store::open(bed.options.clone()));
        for store in futures_util::future::try_join_all(opening).await.unwrap() {
            written(&store, &Note::fresh()).await;
        }
        assert_eq!(raw.one("select count(*) from schema").await, "2");
    });
}

fn migrations(engine: &str) -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files
        .map(|it| (it.file_name().into_string().unwrap(), std::fs::read_to_string(it.path()).unwrap()))
        .collect()
}

/// The statements of a migration that would break the release before it, unless they are marked with why they do not.
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
fn a_migration_that_takes_something_away_is_told_from_one_that_adds() {
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

/// Tables with their columns: what each may hold, in words that both engines share, and whether it may be empty.
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
        let Some(bed) = Bed::postgres().await else { return };
        let mut postgres = Shape::new();
        let columns = "select table_name, column_name, data_type, is_nullable from information_schema.columns
                       where table_schema = current_schema()";
        for row in Raw::of(&bed).await.rows(columns).await {
            let [table, column, kind, nullable] = &row[..] else { panic!("four columns") };
            postgres
                .entry(table.clone())
                .or_default()
                .insert(column.clone(), (word(kind).to_owned(), nullable == "YES"));
        }
        let mut sqlite = Shape::new();
        let other = Bed::sqlite().await;
        let raw = Raw::of(&other).await;
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
            Raw::of(&bed)
                .await
                .rows("select indexname from pg_indexes where schemaname = current_schema()")
                .await,
        );
        let mut here = indexes(
            raw.rows("select name from sqlite_schema where type = 'index' and name not like 'sqlite_%'")
                .await,
        );
        // One writer numbers audit records in the order of their places, so it finds the rest without an index; and to it
        // a changed page costs more than a row that is read in vain.
        assert!(there.remove("audit_unsealed") && there.remove("work_pending"));
        assert!(here.remove("work_in_order"));
        assert_eq!(here, there);
    });
}
