//! Attacks on the audit log by somebody who can write to the database, but has no key: to have young records removed
//! as old, to have forged records sealed, to change the order. None succeeds undetected.

use std::time::Duration;

use store::{AuditContext, Retention, Store};
use uuid::Uuid;

use crate::audit::{faults, listed, seal_all, sealed_log};
use crate::fixture::{Note, eventually, written};
use crate::raw::RawDatabase;
use crate::retention::keep_house;

const RECORDS: usize = 12;

async fn count(raw: &RawDatabase) -> String {
    raw.one("select count(*) from audit").await
}

async fn restore(raw: &RawDatabase) {
    raw.execute("delete from audit; insert into audit select * from audit_copy").await;
}

/// Seals until the store's newest entry is in the chain.
async fn seal_newest(store: &Store) {
    let note = written(store, &Note::fresh()).await;
    eventually("the entry of a note is sealed", async || {
        store.seal_audit(Uuid::new_v4()).await.unwrap();
        let rows = listed(store).await;
        let ours = rows.iter().find(|it| it.record.entry.target == note.document.id).unwrap();
        ours.record.number.map(drop)
    })
    .await;
}

/// An entry written without the key.
fn forged(raw: &RawDatabase, mac: &str) -> String {
    let id = raw.uuid(Uuid::now_v7());
    let place = match raw {
        RawDatabase::Sqlite(_) => ("seq", "(select max(seq) + 1 from audit)"),
        RawDatabase::Postgres { .. } => ("seq", "nextval('audit_seq')"),
    };
    format!(
        "insert into audit ({}, id, at, actor, action, target, reason, mac)
         values ({}, {id}, 5, 'somebody', 'cluster.delete', '/forged', 'because', {mac})",
        place.0, place.1
    )
}

on_both_engines! {
    async fn backdated_records_are_not_trimmed_and_neither_are_earlier_ones(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let noted = sealed_log(store, RECORDS).await;
        raw.execute("create table audit_copy as select * from audit").await;
        let attacks = [
            "update audit set at = 0, sealed_at = 0 where number in (7, 8)",
            "update audit set at = 0, sealed_at = null where number in (7, 8)",
            "update audit set at = 0, sealed_at = 0",
            "update audit set at = 0, sealed_at = null where number <= 8",
            "update audit set at = 0, sealed_at = 0 where number = 1",
        ];
        for attack in attacks {
            raw.execute(attack).await;
            keep_house(store, &raw, Retention::default()).await;
            assert_eq!(count(&raw).await, RECORDS.to_string(), "{attack}: records were cut");
            assert!(!faults(store).await.is_empty(), "{attack} went unnoticed");
            restore(&raw).await;
        }
        let verified = store.verify_audit(Some(noted)).await.unwrap();
        assert_eq!((verified.faults, verified.records), (vec![], i64::try_from(RECORDS).unwrap()));
    }
}

on_both_engines! {
    async fn an_entry_backdated_before_it_is_sealed_is_kept_as_long_as_others(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        for _ in 0..4 {
            store.audit_writer().put(vec![AuditContext::service("x").entry("thing.change", "/thing", None, None)]).await.unwrap();
        }
        raw.execute("update audit set at = 0").await;
        seal_all(store).await;
        keep_house(store, &raw, Retention::default()).await;
        assert_eq!(count(&raw).await, "4");
    }
}

on_both_engines! {
    async fn only_the_verified_part_before_a_changed_record_leaves_by_age(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, RECORDS).await;
        raw.execute("create table audit_copy as select * from audit where number = 5").await;
        raw.execute("update audit set reason = 'another' where number = 5").await;
        let none = Retention { audit: Duration::ZERO, ..Retention::default() };
        for _ in 0..2 {
            keep_house(store, &raw, none).await;
            assert_eq!(raw.one("select min(number) from audit").await, "5");
        }
        // A record put before the start is not removed by retention.
        raw.execute("update audit set number = 2 where number = 12").await;
        assert!(faults(store).await.iter().any(|it| it == "records up to 4 should have been removed, but one exists"));
        keep_house(store, &raw, none).await;
        assert_eq!(raw.one("select count(*) from audit where number = 2").await, "1");
        raw.execute("update audit set number = 12 where number = 2").await;
        raw.execute("delete from audit where number = 5; insert into audit select * from audit_copy").await;
        keep_house(store, &raw, none).await;
        assert_eq!(raw.one("select min(number) from audit").await, "12");
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_forged_entry_is_not_sealed_and_is_reported(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, 3).await;
        let mark = format!("'{}'", "0".repeat(64));
        for mac in ["null", &mark, "(select max(mac) from audit)"] {
            raw.execute(&forged(&raw, mac)).await;
            let expected = "the record cluster.delete of /forged was not written by this store";
            assert!(faults(store).await.iter().any(|it| it == expected), "{mac}: before sealing");
            seal_newest(store).await;
            assert_eq!(faults(store).await, [expected], "{mac}: behind it others are sealed");
            assert_eq!(raw.one("select count(*) from audit where target = '/forged' and number is not null").await, "0");
            let checked = store.check().await.unwrap();
            let chain = checked.iter().find(|it| it.invariant == "the audit chain is intact").unwrap();
            assert_eq!(chain.faults, [expected]);
            raw.execute("delete from audit where target = '/forged'").await;
            assert_eq!(faults(store).await, Vec::<String>::new());
        }
    }
}

on_both_engines! {
    async fn more_forged_entries_than_a_block_hold_up_no_other(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, 3).await;
        let all: Vec<String> = (0..700).map(|_| forged(&raw, "null")).collect();
        raw.execute(&all.join(";")).await;
        seal_newest(store).await;
        let found = faults(store).await;
        assert_eq!((found.len(), found.last().unwrap().as_str()), (21, "680 more records are not part of the log"));
        raw.execute("delete from audit where target = '/forged'").await;
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_copy_of_a_record_is_not_sealed_again(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, RECORDS).await;
        let (place, behind) = match raw {
            RawDatabase::Sqlite(_) => ("seq", "(select max(seq) + 1 from audit)"),
            RawDatabase::Postgres { .. } => ("seq", "nextval('audit_seq')"),
        };
        let columns = "id, at, actor, action, target, reason, correlation, before, after, mac";
        raw.execute(&format!("insert into audit ({place}, {columns}) select {behind}, {columns} from audit where number = 5")).await;
        let unsealed = faults(store).await;
        assert!(unsealed.len() == 1 && unsealed[0].contains("it is a copy"), "before any process runs: {unsealed:?}");
        seal_newest(store).await;
        let found = faults(store).await;
        assert!(found.len() == 1 && found[0].contains("is not part of the chain"), "{found:?}");
        raw.execute("delete from audit where number is null").await;
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_valid_entry_that_an_attacker_marks_as_rejected_is_reported(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, 2).await;
        store.audit_writer().put(vec![AuditContext::service("x").entry("thing.change", "/ours", None, None)]).await.unwrap();
        let rejected = match raw { RawDatabase::Sqlite(_) => "1", RawDatabase::Postgres { .. } => "true" };
        raw.execute(&format!("update audit set refused = {rejected} where target = '/ours'")).await;
        let found = faults(store).await;
        assert!(found.len() == 1 && found[0].contains("thing.change of /ours was written by this store"), "{found:?}");
        raw.execute("update audit set refused = null").await;
        seal_all(store).await;
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn swapped_records_are_detected_regardless_of_the_stored_head(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, RECORDS).await;
        let place = match raw { RawDatabase::Sqlite(_) => "seq", RawDatabase::Postgres { .. } => "tx" };
        let before = raw.one("select value from meta where key = 'generation'").await;
        let of = async |number: i32| raw.one(&format!("select {place} from audit where number = {number}")).await;
        let (three, seven) = (of(3).await, of(7).await);
        let swap = async |one: &str, two: &str| {
            raw.execute(&format!(
                "update audit set {place} = -1 where number = 3; update audit set {place} = {one} where number = 7;
                 update audit set {place} = {two} where number = 3"
            )).await;
        };
        raw.execute("update meta set value = '9' where key = 'generation'").await;
        swap(&three, &seven).await;
        let found = faults(store).await;
        assert!(found.iter().any(|it| it.contains("was moved to another position")), "{found:?}");
        swap(&seven, &three).await;
        raw.execute(&format!("update meta set value = '{before}' where key = 'generation'")).await;
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}
