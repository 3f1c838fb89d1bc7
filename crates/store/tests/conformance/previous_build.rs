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

/// Migrations of the previous build, by their files.
const STEPS: [(&str, &[&str]); 5] = [
    ("keel", &["0001_keel", "0001_queue", "0001_sweeps", "0001_records"]),
    ("entries", &["0002_entries", "0002_queue"]),
    ("turns", &["0003_turns"]),
    ("one_index", &["0004_one_index"]),
    ("ending", &["0005_ending"]),
];

/// Migrates an empty database to the previous build's schema.
pub(crate) async fn schema(raw: &RawDatabase, engine: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    if engine == "sqlite" {
        raw.execute("pragma journal_mode = wal; pragma application_id = 1399353459").await;
    }
    raw.execute("create table schema (number bigint not null primary key, name text not null, checksum text not null, applied bigint not null)").await;
    for (number, (name, files)) in (1..).zip(STEPS) {
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
        schema(&raw, "sqlite").await;
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
        schema(&raw, "postgres").await;
        parked_lane(&raw).await;
        let store = Store::open(env.options.clone()).await.unwrap();
        goes_on(&store).await;
        store.close().await;
    });
}
