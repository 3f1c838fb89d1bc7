//! A store written by the previous build opens, and its work continues.

use std::path::PathBuf;

use api::work::WorkKind;
use sha2::{Digest as _, Sha256};
use store::Store;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on};
use crate::fixture::{Folder, assert_sound, close};
use crate::queue_fixture::complete_all;
use crate::raw::RawDatabase;

/// Migrations of earlier builds, by their files.
const STEPS: [(&str, &[&str]); 7] = [
    ("keel", &["0001_keel", "0001_queue", "0001_sweeps", "0001_records"]),
    ("entries", &["0002_entries", "0002_queue"]),
    ("turns", &["0003_turns"]),
    ("one_index", &["0004_one_index"]),
    ("ending", &["0005_ending"]),
    ("side_queues", &["0006_side_queues"]),
    ("audit_marks", &["0007_audit_marks"]),
];
/// The last migration before lanes had side queues.
const BEFORE_SIDE_QUEUES: usize = 5;
/// The last migration before work had a column for its cancellation.
const BEFORE_CANCELLATIONS: usize = 7;

/// Applies the first `steps` migrations to an empty database.
async fn schema(raw: &RawDatabase, engine: &str, steps: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    if engine == "sqlite" {
        raw.execute("pragma journal_mode = wal; pragma application_id = 1399353459").await;
    }
    raw.execute("create table schema (number bigint not null primary key, name text not null, checksum text not null, applied bigint not null)").await;
    for (number, (name, files)) in (1..).zip(STEPS).take(steps) {
        let text = |file: &&str| std::fs::read_to_string(folder.join(format!("{file}.sql"))).ok();
        let sql: String = files.iter().filter_map(text).collect();
        // Concurrent index builds run outside of a transaction.
        let (inside, outside) = sql.split_once("-- concurrently").unwrap_or((&sql, ""));
        raw.execute(inside).await;
        for statement in outside.split(';').filter(|it| !it.trim().is_empty()) {
            raw.execute(statement).await;
        }
        let checksum: String =
            Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        raw.execute(&format!(
            "insert into schema (number, name, checksum, applied) values ({number}, '{name}', '{checksum}', 0)"
        ))
        .await;
    }
    raw.execute("insert into meta (key, value) values ('generation', '1'), ('feed_floor', '0-0'), ('store_id', 'old')").await;
}

/// A lane that the previous build parked, because the task of its first manifest was stopped; another manifest waits
/// behind it.
async fn parked_lane(raw: &RawDatabase) {
    let id = |number: u128| raw.uuid(Uuid::from_u128(number));
    let budgets = |task: &str| match raw {
        RawDatabase::Sqlite(_) => format!("'[\"fleet\",\"{task}\"]'"),
        RawDatabase::Postgres { .. } => format!("array['fleet', '{task}']"),
    };
    raw.execute(&format!(
        "insert into budgets (key, cap, used) values ('task/bad', 0, 0);
         insert into work (id, lane, kind, class, run_after, due_at, priority, state, budgets, created, changed) values
           ({}, {lane}, 'manifest', 2, 7, 7, 0, 'Pending', {}, 5, 5), ({}, {lane}, 'manifest', 2, 8, 8, 0, 'Pending', {}, 5, 5);
         insert into lanes (lane, head_kind, head_class, head_at, head_priority, parked_on)
           values ({lane}, 'manifest', 2, 7, 0, 'task/bad')",
        id(1), budgets("task/bad"), id(2), budgets("task/good"), lane = id(9)
    ))
    .await;
}

async fn goes_on(store: &Store) {
    assert_sound(store).await;
    assert_eq!(complete_all(store, WorkKind::Manifest).await, [Uuid::from_u128(2)]);
    store.set_budget("task/bad", Some(1), None).await.unwrap();
    assert_eq!(complete_all(store, WorkKind::Manifest).await, [Uuid::from_u128(1)]);
    assert_sound(store).await;
}

#[test]
fn a_lane_that_a_stopped_task_had_parked_continues_on_sqlite() {
    block_on(async {
        let folder = Folder::new();
        let raw = RawDatabase::to(&folder.options.location).await;
        schema(&raw, "sqlite", BEFORE_SIDE_QUEUES).await;
        parked_lane(&raw).await;
        let store = folder.open().await;
        goes_on(&store).await;
        close(store).await;
    });
}

#[test]
fn a_lane_that_a_stopped_task_had_parked_continues_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        raw.execute("drop schema public cascade; create schema public").await;
        schema(&raw, "postgres", BEFORE_SIDE_QUEUES).await;
        parked_lane(&raw).await;
        let store = Store::open(env.options.clone()).await.unwrap();
        goes_on(&store).await;
        store.close().await;
    });
}

/// Work that rests half done (1 and 2) and work whose holder is lost (3), with requests to cancel that are in the history only;
/// and work that nobody requested to cancel (4). A row of entries can be a list.
async fn cancelled_work(raw: &RawDatabase) {
    let id = |number: u128| raw.uuid(Uuid::from_u128(number));
    let mut sql = String::new();
    for number in [1, 2, 4] {
        sql += &format!(
            "insert into work (id, lane, kind, class, run_after, due_at, priority, state, attempt, step, checkpoint, fence, created, changed, started)
               values ({work}, {lane}, 'manifest', 1, 7, 7, 0, 'Pending', 1, 'half', '{{}}', 1, 5, 5, 6);
             insert into lanes (lane, head_kind, head_class, head_at, head_priority, fence) values ({lane}, 'manifest', 1, 7, 0, 1);",
            work = id(number), lane = id(number + 100)
        );
    }
    sql += &format!(
        "insert into work (id, lane, kind, class, run_after, due_at, priority, state, attempt, step, checkpoint, fence, owner, created, changed, started)
           values ({work}, {lane}, 'manifest', 1, 7, 7, 0, 'InProgress', 1, 'half', '{{}}', 1, {owner}, 5, 5, 6);
         insert into lanes (lane, owner, lease_until, fence, running, running_kind, cancel)
           values ({lane}, {owner}, 8, 1, {work}, 'manifest', true);",
        work = id(3), lane = id(103), owner = id(99)
    );
    let mut entry = |work: u128, number: u32, at: u32, body: &str| {
        sql += &format!(
            "insert into entries (work, number, at, body) values ({}, {number}, {at}, '{body}');",
            id(work)
        );
    };
    let entry_json = |event: &str, actor: &str, more: &str| {
        format!(r#"{{"time":"1970-01-01T00:00:00Z","event":"{event}","actor":"{actor}","attempt":1{more}}}"#)
    };
    entry(1, 1, 10, &entry_json("claimed", "service:actuator", ""));
    entry(1, 2, 11, &entry_json("cancelRequested", "ada", r#","message":"wrong cluster""#));
    entry(1, 3, 12, &entry_json("cancelRequested", "bob", r#","message":"not today""#));
    let both = format!(
        "[{},{}]",
        entry_json("yielded", "service:actuator", ""),
        entry_json("cancelRequested", "cy", r#","message":"""#)
    );
    entry(2, 2, 13, &both);
    entry(3, 1, 14, &entry_json("cancelRequested", "dee", ""));
    entry(4, 1, 15, &entry_json("claimed", "cancelRequested", ""));
    raw.execute(&sql).await;
}

/// Every claim delivers the last request, though the build before wrote it into the history only.
async fn requests_are_delivered(store: &Store) {
    assert_sound(store).await;
    let (uuid, me) = (Uuid::from_u128, Uuid::new_v4());
    let lost = store.take_over(WorkKind::Manifest, 9, me).await.unwrap();
    let rested = store.claim(WorkKind::Manifest, 9, me).await.unwrap();
    let request = |number: u128| {
        let claimed = lost.iter().chain(&rested).find(|it| it.lease.work == uuid(number)).unwrap();
        let request = claimed.cancellation.clone()?;
        Some((request.requested_by, request.reason, request.requested_at.as_microsecond()))
    };
    assert_eq!(request(1), Some(("bob".to_owned(), Some("not today".to_owned()), 12)));
    assert_eq!(request(2), Some(("cy".to_owned(), None, 13)));
    assert_eq!(request(3), Some(("dee".to_owned(), None, 14)));
    assert_eq!(request(4), None);
    assert_sound(store).await;
}

#[test]
fn requests_to_cancel_of_the_build_before_are_delivered_on_sqlite() {
    block_on(async {
        let folder = Folder::new();
        let raw = RawDatabase::to(&folder.options.location).await;
        schema(&raw, "sqlite", BEFORE_CANCELLATIONS).await;
        cancelled_work(&raw).await;
        let store = folder.open().await;
        requests_are_delivered(&store).await;
        close(store).await;
    });
}

#[test]
fn requests_to_cancel_of_the_build_before_are_delivered_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        raw.execute("drop schema public cascade; create schema public").await;
        schema(&raw, "postgres", BEFORE_CANCELLATIONS).await;
        cancelled_work(&raw).await;
        let store = Store::open(env.options.clone()).await.unwrap();
        requests_are_delivered(&store).await;
        store.close().await;
    });
}

/// The build before runs on the new schema while processes are replaced one by one: its requests are delivered too.
#[test]
fn a_request_to_cancel_that_the_build_before_writes_later_is_delivered_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let (store, raw) = (&env.store, RawDatabase::connect(&env).await);
        let work = store::NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest);
        store.enqueue(vec![work.clone()]).await.unwrap();
        let hold = store.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap()[0].lease;
        store.checkpoint(hold, "half", serde_json::json!({})).await.unwrap();
        let back =
            store::Release { started: true, ..store::Release::new(hold, std::time::Duration::ZERO, false) };
        store.release(back).await.unwrap();
        let entry = r#"{"time":"1970-01-01T00:00:00Z","event":"cancelRequested","actor":"ada","attempt":1,"message":"wrong cluster"}"#;
        raw.execute(&format!(
            "begin; select request_cancel_v2(array[{id}]); select lock_told_v2(array[{id}]);
             select record_v2(array[{id}], array['{entry}'::jsonb], array[false]); commit",
            id = raw.uuid(work.id)
        ))
        .await;
        let claimed = store.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap();
        let request = claimed[0].cancellation.clone().unwrap();
        assert_eq!(
            (request.requested_by.as_str(), request.reason.as_deref()),
            ("ada", Some("wrong cluster"))
        );
    });
}
