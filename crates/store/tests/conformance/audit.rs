//! The audit log's chain: changing, cutting or swapping records without the key is detected.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use store::housekeeping::{self, Metrics};
use store::{AuditContext, AuditQuery, AuditRow, ChainHead, Retention, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::{TestEnvironment, short_or_long};
use crate::fixture::{Note, cases, eventually, written};
use crate::raw::RawDatabase;

pub(crate) async fn listed(store: &Store) -> Vec<AuditRow> {
    store.audit_list(AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap()
}

/// Seals until all is sealed, and lets the next sealer start at once. On PostgreSQL another open transaction may
/// delay the sealer for a moment.
pub(crate) async fn seal_all(store: &Store) {
    let sealer = Uuid::new_v4();
    eventually("all records are sealed", async || {
        store.seal_audit(sealer).await.unwrap();
        listed(store).await.iter().all(|row| row.record.number.is_some()).then_some(())
    })
    .await;
    store.release_lease("audit-sealer", sealer).await.unwrap();
}

pub(crate) async fn faults(store: &Store) -> Vec<String> {
    store.verify_audit(None).await.unwrap().faults
}

/// A log with `count` sealed records of different kinds.
pub(crate) async fn sealed_log(store: &Store, count: usize) -> ChainHead {
    for number in 0..count {
        let correlation_id = (number % 2 == 0).then(Uuid::new_v4);
        let who = AuditContext {
            actor: format!("actor {number}"),
            reason: format!("reason {number}"),
            correlation_id,
        };
        let (before, after) = (json!({ "before": number }), json!({ "after": number }));
        let before = (number % 3 > 0).then_some(&before);
        let after = (number % 3 < 2).then_some(&after);
        let entry = who.entry(&format!("thing.change{number}"), &format!("/thing/{number}"), before, after);
        store.audit_writer().put(vec![entry]).await.unwrap();
    }
    seal_all(store).await;
    let verified = store.verify_audit(None).await.unwrap();
    assert_eq!((verified.faults, verified.records), (vec![], i64::try_from(count).unwrap()));
    verified.head
}

/// Attacks on the log by somebody who can write to the database, but has no key.
#[derive(Debug, Clone)]
enum Tampering {
    Change {
        column: usize,
        number: usize,
    },
    Cut {
        from: usize,
        to: usize,
    },
    /// Two records swap positions, with or without their seals.
    Swap {
        one: usize,
        two: usize,
        seals: bool,
    },
    /// A record is taken out of the chain, to be sealed again at its end.
    Unseal {
        number: usize,
    },
    /// A record is repeated behind the end, or before the start.
    Repeat {
        number: usize,
        behind: bool,
    },
    /// One record is removed, and all behind it move up.
    CloseUp {
        number: usize,
    },
}

/// Ways to change a record, each in SQL that both engines understand.
const CHANGES: [&str; 16] = [
    "at = at + 1",
    "at = -at",
    "actor = actor || 'x'",
    "action = 'thing.delete'",
    "target = substr(target, 1, length(target) - 1)",
    "reason = ''",
    "reason = actor, actor = reason",
    "correlation = case when correlation is null then {uuid} else null end",
    "correlation = {uuid}",
    "before = coalesce(before, '') || 'x'",
    "before = case when before is null then 'x' else null end",
    "after = before, before = coalesce(after, 'x')",
    "after = case when after is null then '' else null end",
    "id = {uuid}",
    "seal = case when substr(seal, 1, 1) = '0' then '1' else '0' end || substr(seal, 2)",
    "seal = null",
];

const RECORDS: usize = 12;

fn tampering() -> impl Strategy<Value = Tampering> {
    let number = 1..=RECORDS;
    prop_oneof![
        4 => (0..CHANGES.len(), number.clone()).prop_map(|(column, number)| Tampering::Change { column, number }),
        2 => (number.clone(), number.clone()).prop_map(|(one, two)| Tampering::Cut { from: one.min(two), to: one.max(two) }),
        2 => (1..RECORDS, number.clone(), any::<bool>()).prop_map(|(gap, one, seals)| Tampering::Swap { one, two: (one + gap - 1) % RECORDS + 1, seals }),
        1 => number.clone().prop_map(|number| Tampering::Unseal { number }),
        1 => (number.clone(), any::<bool>()).prop_map(|(number, behind)| Tampering::Repeat { number, behind }),
        1 => (1..RECORDS).prop_map(|number| Tampering::CloseUp { number }),
    ]
}

impl Tampering {
    async fn carry_out(&self, raw: &RawDatabase) {
        let fresh = raw.uuid(Uuid::new_v4());
        match self {
            Tampering::Change { column, number } => {
                let change = CHANGES[*column].replace("{uuid}", &fresh);
                raw.execute(&format!("update audit set {change} where number = {number}")).await;
            }
            Tampering::Cut { from, to } => {
                raw.execute(&format!("delete from audit where number between {from} and {to}")).await;
            }
            Tampering::Swap { one, two, seals } => {
                let columns = if *seals {
                    "number = case number when {one} then {two} else {one} end"
                } else {
                    "number = case number when {one} then {two} else {one} end, seal = (select b.seal from audit_copy b where b.number = case audit.number when {one} then {two} else {one} end)"
                };
                let columns = columns.replace("{one}", &one.to_string()).replace("{two}", &two.to_string());
                // The unique index on numbers prevents a swap in one statement; an attacker takes two.
                raw.execute(&format!(
                    "drop index audit_by_number; update audit set {columns} where number in ({one}, {two});
                     create unique index audit_by_number on audit (number) where number is not null"
                ))
                .await;
            }
            Tampering::Unseal { number } => {
                raw.execute(&format!("update audit set number = null, seal = null where number = {number}"))
                    .await;
            }
            Tampering::Repeat { number, behind } => {
                let to = if *behind { i64::try_from(RECORDS).unwrap() + 1 } else { 0 };
                let place = match raw {
                    RawDatabase::Sqlite(_) => "seq",
                    RawDatabase::Postgres { .. } => "tx, seq",
                };
                let moved = match raw {
                    RawDatabase::Sqlite(_) => "1000 + seq",
                    RawDatabase::Postgres { .. } => "tx, 1000 + seq",
                };
                let columns = "id, at, actor, action, target, reason, correlation, before, after, seal";
                raw.execute(&format!(
                    "insert into audit ({place}, number, {columns}) select {moved}, {to}, {columns} from audit where number = {number}"
                )).await;
            }
            Tampering::CloseUp { number } => {
                raw.execute(&format!(
                    "drop index audit_by_number; delete from audit where number = {number};
                     update audit set number = number - 1 where number > {number};
                     create unique index audit_by_number on audit (number) where number is not null"
                ))
                .await;
            }
        }
    }
}

async fn restore(raw: &RawDatabase) {
    raw.execute("delete from audit; insert into audit select * from audit_copy").await;
}

on_both_engines! {
    async fn any_change_cut_or_swap_is_found(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let head = sealed_log(store, RECORDS).await;
        raw.execute("create table audit_copy as select * from audit").await;
        // Each column once, and then at random.
        let every = (0..CHANGES.len()).map(|column| Tampering::Change { column, number: 1 + column % RECORDS });
        for tampering in every.chain(cases(short_or_long(60, 3000), tampering())) {
            tampering.carry_out(&raw).await;
            let found = store.verify_audit(Some(head.clone())).await.unwrap();
            assert!(!found.faults.is_empty(), "{tampering:?} went unnoticed, though a head was noted");
            // And without a saved head.
            assert!(!faults(store).await.is_empty(), "{tampering:?} went unnoticed");
            restore(&raw).await;
        }
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_record_that_is_listed_elsewhere_than_it_was_sealed_is_found(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, RECORDS).await;
        let place = match raw {
            RawDatabase::Sqlite(_) => "seq",
            RawDatabase::Postgres { .. } => "tx",
        };
        for (number, fault) in [(3, "record 3 or"), (7, "record 7 or")] {
            raw.execute(&format!("update audit set {place} = -{place} where number = {number}")).await;
            let found = faults(store).await;
            assert!(found.len() == 1 && found[0].starts_with(fault), "{found:?}");
            raw.execute(&format!("update audit set {place} = -{place} where number = {number}")).await;
            assert_eq!(faults(store).await, Vec::<String>::new());
        }
    }
}

on_both_engines! {
    async fn tampering_is_still_detected_after_further_sealing(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        sealed_log(store, RECORDS).await;
        let head = raw.one("select value from meta where key = 'audit_head'").await;
        raw.execute("create table audit_copy as select * from audit").await;
        raw.execute("update audit set number = null, seal = null where number = 5").await;
        written(store, &Note::fresh()).await;
        eventually("the newest record is sealed", async || {
            store.seal_audit(Uuid::new_v4()).await.unwrap();
            listed(store).await[0].record.number.map(drop)
        })
        .await;
        assert!(!faults(store).await.is_empty());
        raw.execute("delete from audit; insert into audit select * from audit_copy; delete from meta where key = 'audit_head'").await;
        assert!(!faults(store).await.is_empty(), "the end of the chain was removed unnoticed");
        // Repaired for the check that ends this test.
        raw.execute(&format!("delete from meta where key = 'audit_head'; insert into meta (key, value) values ('audit_head', '{head}')")).await;
    }
}

on_both_engines! {
    async fn a_wiped_log_is_detected_even_if_the_tables_look_empty(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        raw.execute("create table as_new as select * from meta; create table key_as_new as select * from secrets").await;
        sealed_log(store, RECORDS).await;
        raw.execute("create table audit_copy as select * from audit; create table meta_copy as select * from meta").await;
        let gone = |what: &str| vec![format!("the chain's {what} is missing")];
        raw.execute("delete from audit; delete from meta where key like 'audit%'").await;
        assert_eq!(faults(store).await, gone("head"));
        raw.execute("delete from secrets").await;
        assert_eq!(faults(store).await, gone("key"));
        // Neither the sealer nor the next opening creates another one.
        store.audit_writer().put(vec![AuditContext::service("x").entry("thing.change", "/thing", None, None)]).await.unwrap();
        let rejection = eventually("the sealer stops", async || store.seal_audit(Uuid::new_v4()).await.err()).await;
        assert!(rejection.to_string().contains("the audit log cannot be sealed: the chain's key is missing"), "{rejection}");
        if env.is_shared() {
            env.another().await.close().await;
        }
        assert_eq!(faults(store).await, gone("key"));
        raw.execute("insert into secrets select * from key_as_new").await;
        assert_eq!(faults(store).await, gone("head"));
        raw.execute("delete from audit; insert into audit select * from audit_copy; delete from meta; insert into meta select * from meta_copy").await;
        assert_eq!(faults(store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_record_that_is_slipped_in_behind_the_sealers_back_is_found_on_sqlite() {
    let env = TestEnvironment::sqlite().await;
    sealed_log(&env.store, 3).await;
    let raw = RawDatabase::connect(&env).await;
    raw.execute(
        "insert into audit (seq, id, at, actor, action, target, reason)
         values (-1, randomblob(16), 0, 'somebody', 'thing.change', '/thing', '')",
    )
    .await;
    let expected = [
        "the record thing.change of /thing was not written by this store",
        "an unsealed record precedes sealed ones",
    ];
    assert_eq!(faults(&env.store).await, expected);
    env.store.seal_audit(Uuid::new_v4()).await.unwrap();
    assert_eq!(faults(&env.store).await, expected);
    raw.execute("delete from audit where seq = -1").await;
    assert_eq!(faults(&env.store).await, Vec::<String>::new());
}

on_both_engines! {
    async fn a_forged_head_or_floor_is_found_and_stops_the_sealer(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let (me, head) = (Uuid::new_v4(), sealed_log(store, RECORDS).await);
        let signed = raw.one("select value from meta where key = 'audit_head'").await;
        let set = async |key: &str, value: &str| {
            raw.execute(&format!("delete from meta where key = '{key}'; insert into meta (key, value) values ('{key}', '{value}')")).await;
        };
        let signature = signed.split_once(' ').unwrap().1.to_owned();
        // A cut end with a matching head, the same head under another name, and nonsense.
        let earlier = ChainHead { number: 3, seal: listed(store).await.iter().find(|it| it.record.number == Some(3)).unwrap().record.seal.clone().unwrap() };
        for forged in [format!("{earlier} {signature}"), earlier.to_string(), String::new(), "0: ".to_owned(), signed.replace(' ', "  ")] {
            set("audit_head", &forged).await;
            let found = faults(store).await;
            assert!(found.iter().any(|it| it == "the store's audit_head was changed without the key"), "{forged:?}: {found:?}");
            written(store, &Note::fresh()).await;
            let rejection = eventually("the sealer stops", async || store.seal_audit(me).await.err()).await;
            assert!(rejection.to_string().contains("the audit log cannot be sealed"), "{rejection}");
        }
        set("audit_head", &signed).await;
        for forged in [format!("{earlier} {signature}"), signed.clone(), "x".to_owned()] {
            set("audit_floor", &forged).await;
            let found = faults(store).await;
            assert!(found.iter().any(|it| it.contains("audit_floor was changed")), "{forged:?}: {found:?}");
        }
        raw.execute("delete from meta where key = 'audit_floor'").await;
        store.release_lease("audit-sealer", me).await.unwrap();
        seal_all(store).await;
        let verified = store.verify_audit(Some(head)).await.unwrap();
        assert_eq!(verified.faults, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn a_head_saved_elsewhere_detects_a_log_that_was_reset_to_an_earlier_state(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        raw.execute("create table as_new as select * from meta").await;
        let noted = sealed_log(store, RECORDS).await;
        let as_text: ChainHead = noted.to_string().parse().unwrap();
        assert_eq!(as_text, noted);
        for nonsense in ["", "1", "x:y", "-1:00", &format!("1:{}", "g".repeat(64)), &format!("{noted}0")] {
            assert!(nonsense.parse::<ChainHead>().is_err(), "{nonsense:?}");
        }
        written(store, &Note::fresh()).await;
        seal_all(store).await;
        assert_eq!(store.verify_audit(Some(noted.clone())).await.unwrap().faults, Vec::<String>::new());
        let wrong = ChainHead { seal: noted.seal.replace(|it: char| it.is_ascii_digit(), "a"), ..noted.clone() };
        assert_eq!(store.verify_audit(Some(wrong)).await.unwrap().faults, [format!("record {RECORDS} does not match the saved head")]);
        let beyond = ChainHead { number: 1000, ..noted.clone() };
        assert_eq!(store.verify_audit(Some(beyond)).await.unwrap().faults, ["the chain ends at 13, but the saved head is at 1000"]);

        // The signed head of zero records is restored, and the records are removed: only the saved head can tell.
        raw.execute("delete from audit; delete from meta; insert into meta select * from as_new").await;
        assert_eq!(faults(store).await, Vec::<String>::new());
        assert_eq!(store.verify_audit(Some(noted.clone())).await.unwrap().faults, ["the chain ends at 0, but the saved head is at 12"]);
        sealed_log(store, RECORDS + 3).await;
        assert_eq!(store.verify_audit(Some(noted)).await.unwrap().faults, [format!("record {RECORDS} does not match the saved head")]);
    }
}

on_both_engines! {
    async fn many_sealers_at_once_make_one_chain(env: &TestEnvironment) {
        let mut stores = vec![env.store.clone()];
        if env.is_shared() {
            stores.extend([env.another().await, env.another().await]);
        }
        let (mut writers, mut sealers, stop) = (JoinSet::new(), JoinSet::new(), CancellationToken::new());
        for number in 0..4 {
            let store = stores[number % stores.len()].clone();
            writers.spawn(async move {
                for _ in 0..25 {
                    written(&store, &Note::fresh()).await;
                }
            });
            let (store, stop) = (stores[number % stores.len()].clone(), stop.clone());
            sealers.spawn(async move {
                let me = Uuid::new_v4();
                while !stop.is_cancelled() {
                    store.seal_audit(me).await.unwrap();
                    // The lease rotates, so that each of them seals.
                    store.release_lease("audit-sealer", me).await.unwrap();
                }
            });
        }
        writers.join_all().await;
        stop.cancel();
        sealers.join_all().await;
        seal_all(&env.store).await;
        let verified = env.store.verify_audit(None).await.unwrap();
        assert_eq!((verified.records, verified.unsealed, verified.faults), (100, 0, vec![]));
        let mut numbers: Vec<_> = listed(&env.store).await.iter().map(|row| row.record.number.unwrap()).collect();
        numbers.reverse();
        assert_eq!(numbers, (1..=100).collect::<Vec<_>>(), "the chain is in the order of the feed");
    }
}

on_both_engines! {
    async fn the_list_is_newest_first_paged_and_filtered(env: &TestEnvironment) {
        let store = &env.store;
        sealed_log(store, RECORDS).await;
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = store.audit_list(AuditQuery { before, limit: 5, ..AuditQuery::default() }).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.place);
            seen.extend(page.iter().map(|row| row.record.entry.target.clone()));
        }
        let expect: Vec<String> = (0..RECORDS).rev().map(|number| format!("/thing/{number}")).collect();
        assert_eq!(seen, expect);
        let filtered = async |listing: AuditQuery| {
            let rows = store.audit_list(AuditQuery { limit: 100, ..listing }).await.unwrap();
            rows.into_iter().map(|row| row.record.entry.target).collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(filtered(AuditQuery { actor: some("actor 1"), ..AuditQuery::default() }).await, ["/thing/1"]);
        assert_eq!(filtered(AuditQuery { target: some("/thing/1"), ..AuditQuery::default() }).await, ["/thing/11", "/thing/10", "/thing/1"]);
        assert_eq!(filtered(AuditQuery { action: some("thing.change1"), target: some("/thing/10"), ..AuditQuery::default() }).await, ["/thing/10"]);
        assert!(filtered(AuditQuery { target: some("/thing/%"), ..AuditQuery::default() }).await.is_empty());
    }
}

on_both_engines! {
    async fn a_log_that_was_shortened_by_age_still_verifies(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let early = sealed_log(store, 5).await;
        for _ in 0..5 {
            written(store, &Note::fresh()).await;
        }
        // All of them: another open transaction on the same server may hide the newest from the housekeeper.
        seal_all(store).await;
        let (stop, mut keeper) = (CancellationToken::new(), JoinSet::new());
        let retention = Retention { audit: Duration::ZERO, ..Retention::default() };
        keeper.spawn(housekeeping::run(store.clone(), retention, Metrics::default(), stop.clone()));
        let left = eventually("old records have left", async || {
            let left = listed(store).await;
            (left.len() < 10).then_some(left)
        }).await;
        stop.cancel();
        keeper.join_all().await;
        // The newest always stays, so that the chain never looks empty.
        assert!(!left.is_empty());
        seal_all(store).await;
        let verified = store.verify_audit(None).await.unwrap();
        assert_eq!((verified.faults, verified.head.number), (vec![], 10));
        let floor = store.verify_audit(None).await.unwrap().head.number - verified.records;
        assert!(floor >= 5, "{floor}");
        // A removed head can no longer be checked, and that is reported.
        let reported = store.verify_audit(Some(early.clone())).await.unwrap().faults;
        match floor {
            5 => assert_eq!(reported, Vec::<String>::new()),
            _ => assert_eq!(reported, [format!("the saved head 5 was removed by retention; the oldest that can be checked is {floor}")]),
        }
        // The record of the chain's start is known, though it was removed.
        let signed = raw.one("select value from meta where key = 'audit_floor'").await;
        let at_floor: ChainHead = signed.split_once(' ').unwrap().0.parse().unwrap();
        assert_eq!(store.verify_audit(Some(at_floor.clone())).await.unwrap().faults, Vec::<String>::new());
        let wrong = ChainHead { seal: early.seal.replace(|it: char| it.is_ascii_digit(), "b"), ..at_floor };
        assert!(!store.verify_audit(Some(wrong)).await.unwrap().faults.is_empty(), "a noted head at the floor is not compared");
        // Removal by hand rather than by retention is still detected.
        raw.execute("create table audit_copy as select * from audit").await;
        raw.execute("delete from audit where number = (select min(number) from audit)").await;
        assert!(!faults(store).await.is_empty());
        restore(&raw).await;
    }
}
