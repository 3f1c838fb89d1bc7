//! A claim costs the same for any backlog, measured by the databases themselves (rows read, index used, steps of
//! SQLite's virtual machine), never by a clock.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use api::work::WorkKind;
use futures_util::{StreamExt as _, stream};
use rusqlite::{Connection, OpenFlags, StatementStatus};
use serde_json::Value;
use store::{CLAIM_MAX, ENQUEUE_MAX, Location, NewWork, Store};
use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, NoTls};
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, short_or_long};
use crate::queue_fixture::{WorkProperties as _, future, manifest, past, repaired};

/// So many rows may be looked at for each piece of work that is claimed.
const ROWS_PER_PIECE: u64 = 20;

async fn enqueue(store: &Store, work: impl Iterator<Item = NewWork>) {
    let work: Vec<NewWork> = work.collect();
    for block in work.chunks(ENQUEUE_MAX) {
        store.enqueue(block.to_vec()).await.unwrap();
    }
}

/// A thousand lanes with that many manifests each.
async fn uniform(store: &Store, each: i64) {
    let lanes: Vec<Uuid> = (0..1000).map(|_| Uuid::new_v4()).collect();
    enqueue(store, (0..each).flat_map(|n| lanes.iter().map(move |lane| manifest(*lane).after(past(n)))))
        .await;
}

/// One lane with a long backlog, older than all others.
async fn hot(store: &Store, backlog: i64) {
    let lane = Uuid::new_v4();
    enqueue(store, (0..backlog).map(|n| manifest(lane).after(past(n)))).await;
    enqueue(store, (0..100).map(|_| manifest(Uuid::new_v4()))).await;
}

/// Very many lanes of which hardly one is due.
async fn all_future(store: &Store, lanes: u64) {
    enqueue(store, (0..lanes).map(|n| manifest(Uuid::new_v4()).after(future(n)).priority(i32::MIN))).await;
    enqueue(store, (0..60).map(|_| manifest(Uuid::new_v4()))).await;
}

/// One lane with a long backlog of a stopped task, older than all others, in a side queue.
async fn stopped(store: &Store, backlog: i64) {
    let lane = Uuid::new_v4();
    store.set_budget("task/stopped", Some(0), None).await.unwrap();
    enqueue(store, (0..backlog).map(|n| manifest(lane).after(past(n)).counted(&["task/stopped"]))).await;
    let owner = Uuid::new_v4();
    while store.until_due(WorkKind::Manifest).await.unwrap() == Some(Duration::ZERO) {
        assert!(store.claim(WorkKind::Manifest, 1, owner).await.unwrap().is_empty());
    }
    enqueue(store, [manifest(lane).after(past(backlog)).counted(&["task/other"])].into_iter()).await;
    enqueue(store, (0..100).map(|_| manifest(Uuid::new_v4()))).await;
}

#[test]
fn a_claim_reads_few_rows_behind_a_stopped_task_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        stopped(&env.store, short_or_long(5_000, 100_000)).await;
        assert_frugal(&env).await;
    });
}

#[test]
fn a_claim_reads_few_rows_behind_a_large_backlog_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        uniform(&env.store, short_or_long(50, 1000)).await;
        assert_frugal(&env).await;
    });
}

#[test]
fn a_claim_reads_few_rows_behind_a_hot_lane_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        hot(&env.store, short_or_long(20_000, 100_000)).await;
        assert_frugal(&env).await;
        // The hot lane is busy; its backlog costs the others nothing.
        let claimed = env.store.claim(WorkKind::Manifest, 1, Uuid::new_v4()).await.unwrap();
        assert_eq!(claimed[0].run_after, past(0));
        assert_frugal(&env).await;
    });
}

#[test]
fn a_claim_reads_few_rows_behind_an_all_future_backlog_on_postgresql() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        all_future(&env.store, short_or_long(20_000, 500_000)).await;
        assert_frugal(&env).await;
    });
}

/// Claims with and without fresh statistics of the tables, and rolls the claim back.
async fn assert_frugal(env: &TestEnvironment) {
    let observer = Observer::connect(env).await;
    for statistics in ["absent", "fresh"] {
        let seen = observer.claim().await;
        println!("statistics {statistics}: {} pieces, {} rows, {:?}", seen.claimed, seen.rows, seen.indexes);
        assert_eq!(seen.claimed, CLAIM_MAX);
        assert!(seen.rows <= ROWS_PER_PIECE * CLAIM_MAX as u64, "{seen:?}");
        assert!(seen.rows >= 2 * CLAIM_MAX as u64, "the observer sees nothing: {seen:?}");
        assert_eq!(seen.whole_tables, BTreeSet::new(), "statistics {statistics}");
        for index in ["lanes_due", "work_pending"] {
            assert!(seen.indexes.contains(index), "statistics {statistics}: {index} is not used: {seen:?}");
        }
        observer.client.batch_execute("analyze work, lanes").await.unwrap();
    }
}

/// The function that a claim on PostgreSQL calls, from its source.
fn claim_function() -> &'static str {
    let source = include_str!("../../src/postgres/queue.rs");
    let called: BTreeSet<&str> = source
        .match_indices("from claim_v")
        .map(|(at, _)| source[at..].split([' ', '(']).nth(1).unwrap())
        .collect();
    assert_eq!(called.len(), 1, "the source reads differently: {called:?}");
    called.first().unwrap()
}

/// What a claim did, as the server reports it.
#[derive(Debug, Default)]
struct Observed {
    claimed: usize,
    /// Rows read of `lanes` and `work`.
    rows: u64,
    indexes: BTreeSet<String>,
    whole_tables: BTreeSet<String>,
}

/// A connection whose statements are explained as they run, including those inside functions.
struct Observer {
    client: Client,
    plans: Arc<Mutex<Vec<String>>>,
    _connection: JoinSet<()>,
}

impl Observer {
    async fn connect(env: &TestEnvironment) -> Observer {
        let Location::Postgres(url) = &env.options.location else {
            panic!("only PostgreSQL explains itself")
        };
        let (client, mut connection) = tokio_postgres::connect(url.expose(), NoTls).await.unwrap();
        let plans = Arc::new(Mutex::new(Vec::new()));
        let (mut task, kept) = (JoinSet::new(), plans.clone());
        task.spawn(async move {
            let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notice(notice) = message {
                    kept.lock().unwrap().push(notice.message().to_owned());
                }
            }
        });
        // First the settings of every session of the store (src/postgres/connect.rs), then those of the explanation.
        client
            .batch_execute(
                "set jit = off; set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
                 set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off;
                 load 'auto_explain'; set auto_explain.log_level = notice; set auto_explain.log_min_duration = 0;
                 set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
                 set auto_explain.log_timing = off; set auto_explain.log_format = json;
                 set client_min_messages = notice",
            )
            .await
            .unwrap();
        Observer { client, plans, _connection: task }
    }

    async fn claim(&self) -> Observed {
        self.plans.lock().unwrap().clear();
        self.client.batch_execute("begin").await.unwrap();
        let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&i32::try_from(CLAIM_MAX).unwrap(), &Uuid::new_v4()];
        let sql = format!("select * from {}('manifest', $1, $2, 60000000)", claim_function());
        let rows = self.client.query(&sql, &arguments).await.unwrap();
        self.client.batch_execute("rollback").await.unwrap();
        let claimed = rows.iter().filter(|row| row.get::<_, Option<Uuid>>(0).is_some()).count();
        let mut seen = Observed { claimed, ..Observed::default() };
        for message in self.plans.lock().unwrap().iter() {
            let Some(at) = message.find('{') else { continue };
            let plan: Value = serde_json::from_str(&message[at..]).unwrap();
            seen.look_at(&plan["Plan"]);
        }
        seen
    }
}

impl Observed {
    fn look_at(&mut self, node: &Value) {
        let (kind, table) =
            (node["Node Type"].as_str().unwrap_or(""), node["Relation Name"].as_str().unwrap_or(""));
        if kind.ends_with("Scan") && matches!(table, "lanes" | "work") {
            let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
            let each = number("Actual Rows")
                + number("Rows Removed by Filter")
                + number("Rows Removed by Index Recheck");
            // The server reports an average; its rounding is added.
            self.rows += (each * number("Actual Loops") + 0.5) as u64;
            match node["Index Name"].as_str() {
                Some(index) => drop(self.indexes.insert(index.to_owned())),
                None => drop(self.whole_tables.insert(format!("{kind} on {table}"))),
            }
        }
        node["Plans"].as_array().into_iter().flatten().for_each(|child| self.look_at(child));
    }
}

/// The statements of SQLite's queue, from their source.
fn statements() -> Vec<&'static str> {
    let sources = [
        include_str!("../../src/sqlite/queue.rs"),
        include_str!("../../src/sqlite/budgets.rs"),
        include_str!("../../src/sqlite/side_queues.rs"),
        include_str!("../../src/sqlite/sweeps.rs"),
    ];
    let mut statements = Vec::new();
    for source in sources {
        let behind = source.split("prepare_cached(").skip(1);
        let found: Vec<&str> = behind.filter_map(|text| text.split('"').nth(1)).collect();
        assert!(found.len() > 5, "the source reads differently: {found:?}");
        statements.extend(found);
    }
    statements
}

fn statement(words: &[&str]) -> &'static str {
    let found: Vec<_> =
        statements().into_iter().filter(|sql| words.iter().all(|word| sql.contains(word))).collect();
    assert_eq!(found.len(), 1, "{words:?} is in {found:?}");
    found[0]
}

fn observe(env: &TestEnvironment) -> Connection {
    Connection::open_with_flags(env.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

#[test]
fn no_statement_of_the_queue_walks_a_whole_table_on_sqlite() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        uniform(&env.store, 2).await;
        let connection = observe(&env);
        for sql in statements() {
            let mut explained = connection.prepare(&format!("explain query plan {sql}")).unwrap();
            // The values do not matter; but each must be bound.
            for place in 1..=explained.parameter_count() {
                explained.raw_bind_parameter(place, 1).unwrap();
            }
            let mut lines = explained.raw_query();
            while let Some(line) = lines.next().unwrap() {
                let line: String = line.get(3).unwrap();
                let small = ["budgets", "json_each", "CONSTANT ROW"].iter().any(|table| line.contains(table));
                assert!(!line.starts_with("SCAN") || line.contains(" USING ") || small, "{line} in {sql}");
                assert!(!line.contains("TEMP B-TREE"), "{line} in {sql}");
            }
        }
    });
}

/// Steps of SQLite's virtual machine to run a statement to its end.
fn steps(connection: &Connection, sql: &str, values: &[&dyn rusqlite::ToSql]) -> i32 {
    let mut statement = connection.prepare(sql).unwrap();
    let found = statement.query_map(values, |_| Ok(())).unwrap().count();
    assert!(found > 0, "nothing was found by {sql}");
    statement.get_status(StatementStatus::VmStep)
}

#[test]
fn a_claim_takes_as_many_steps_behind_any_backlog_on_sqlite() {
    block_on(async {
        let due = statement(&["select lane, fence from lanes indexed by lanes_turns", "limit ?3"]);
        let first = statement(&["from work indexed by work_in_order", "order by class", "limit 1"]);
        let mut most: Option<(i32, i32)> = None;
        for scenario in 0..5 {
            let env = TestEnvironment::sqlite().await;
            match scenario {
                0 => uniform(&env.store, 1).await,
                1 => uniform(&env.store, short_or_long(50, 1000)).await,
                2 => hot(&env.store, short_or_long(20_000, 100_000)).await,
                3 => stopped(&env.store, short_or_long(5_000, 100_000)).await,
                _ => all_future(&env.store, short_or_long(20_000, 500_000)).await,
            }
            let connection = observe(&env);
            let head: Uuid = connection
                .query_row(
                    "select lane from lanes where head_kind = 'manifest' order by head_at limit 1",
                    [],
                    |row| row.get(0),
                )
                .unwrap();
            let now = SystemClock.now().as_microsecond();
            let found = (
                steps(&connection, due, &[&"manifest", &now, &CLAIM_MAX]),
                steps(&connection, first, &[&head]),
            );
            println!("scenario {scenario}: {found:?} steps");
            // The first scenario is the small and even one that the others are compared with.
            let most = *most.get_or_insert(found);
            assert!(
                found.0 <= most.0 + 20 && found.1 <= most.1 + 20,
                "scenario {scenario}: {found:?}, {most:?}"
            );
        }
    });
}

#[test]
fn a_repair_takes_as_many_steps_behind_any_backlog_on_sqlite() {
    block_on(async {
        let next_lane = statement(&["select lane from work indexed by work_in_order", "lane > ?1"]);
        for backlog in [1, short_or_long(20_000, 100_000)] {
            let env = TestEnvironment::sqlite().await;
            hot(&env.store, backlog).await;
            let taken = steps(&observe(&env), next_lane, &[&Uuid::nil()]);
            assert!(taken < 50, "{taken} steps to the first lane, with {backlog} pending in one of them");
            assert_eq!(repaired(&env.store).await, 0);
        }
    });
}
