//! Direct access to the database, past the store: for tests that check the data, or tamper with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ValueRef;
use store::Location;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::environment::TestEnvironment;

/// A direct connection to the database of a store.
pub(crate) enum RawDatabase {
    Sqlite(PathBuf),
    Postgres { client: Client, _connection: JoinSet<()> },
}

impl RawDatabase {
    /// Connects to the database of that store.
    pub(crate) async fn connect(env: &TestEnvironment) -> RawDatabase {
        RawDatabase::to(&env.options.location).await
    }

    /// Connects to that database.
    pub(crate) async fn to(location: &Location) -> RawDatabase {
        match location {
            Location::Sqlite(path) => RawDatabase::Sqlite(path.clone()),
            Location::Postgres(url) => {
                let (client, connection) = tokio_postgres::connect(url.expose(), NoTls).await.unwrap();
                let mut tasks = JoinSet::new();
                tasks.spawn(async move {
                    // A killed server ends it with an error, which the test expects.
                    let _ = connection.await;
                });
                RawDatabase::Postgres { client, _connection: tasks }
            }
        }
    }

    /// Runs statements.
    pub(crate) async fn execute(&self, sql: &str) {
        match self {
            RawDatabase::Sqlite(path) => open(path).execute_batch(sql).unwrap(),
            RawDatabase::Postgres { client, .. } => client.batch_execute(sql).await.unwrap(),
        }
    }

    /// The rows of a query, every value as text; null is empty.
    pub(crate) async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        match self {
            RawDatabase::Sqlite(path) => {
                let connection = open(path);
                let mut statement = connection.prepare(sql).unwrap();
                let columns = statement.column_count();
                let mut rows = statement.query([]).unwrap();
                let mut found = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    found.push((0..columns).map(|column| text(row.get_ref(column).unwrap())).collect());
                }
                found
            }
            RawDatabase::Postgres { client, .. } => {
                let messages = client.simple_query(sql).await.unwrap();
                let row = |message| match message {
                    SimpleQueryMessage::Row(row) => {
                        Some((0..row.len()).map(|it| row.get(it).unwrap_or_default().to_owned()).collect())
                    }
                    _ => None,
                };
                messages.into_iter().filter_map(row).collect()
            }
        }
    }

    /// The only value of a query.
    pub(crate) async fn one(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert_eq!(rows.len(), 1, "{sql} gave {rows:?}");
        rows[0][0].clone()
    }

    /// A uuid in this engine's SQL.
    pub(crate) fn uuid(&self, uuid: Uuid) -> String {
        match self {
            RawDatabase::Sqlite(_) => format!("x'{}'", uuid.simple()),
            RawDatabase::Postgres { .. } => format!("'{uuid}'::uuid"),
        }
    }
}

/// A second connection to an SQLite file; nobody may copy it while a store is about to reset its WAL.
pub(crate) fn open(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
