//! Migrates the schema on a dedicated connection under a lock, so that one of several starting processes migrates and
//! the others wait.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Postgres;
use super::connect::{DirectConnection, ServerConfig};
use crate::migrate::{self, Applied, Migration, Plan, migration};
use crate::open::{Migrate, OpenError, Options, Schema};

/// Migrations of this engine.
pub(crate) static MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "keel",
        sql: concat!(
            include_str!("../../migrations/postgres/0001_keel.sql"),
            include_str!("../../migrations/postgres/0001_queue.sql"),
            include_str!("../../migrations/postgres/0001_sweeps.sql"),
            include_str!("../../migrations/postgres/0001_records.sql"),
        ),
    },
    Migration {
        number: 2,
        name: "entries",
        sql: concat!(
            include_str!("../../migrations/postgres/0002_entries.sql"),
            include_str!("../../migrations/postgres/0002_queue.sql"),
        ),
    },
    migration!("postgres", 3, "turns"),
    migration!("postgres", 4, "one_index"),
    migration!("postgres", 5, "ending"),
    migration!("postgres", 6, "side_queues"),
    migration!("postgres", 7, "audit_marks"),
    migration!("postgres", 8, "cancellations"),
    migration!("postgres", 9, "health"),
];

/// Advisory lock of a migration.
const LOCK: i64 = 5_346_213_300;
/// Oldest supported server: it has 64-bit transaction ids.
const OLDEST: i32 = 130_000;
/// Statements behind this line build indexes concurrently, and so outside the transaction.
const CONCURRENTLY: &str = "-- concurrently";

/// Invalidates all earlier positions.
const RAISE: &str = "update meta set value = (value::bigint + 1)::text where key = 'generation'";
/// Whether a write can succeed, as far as known without trying.
const PLACE_ANEW: &str = "delete from feed;
    update meta set value = '0-0' where key = 'feed_floor';
    update audit a set tx = 0, seq = p.place
    from (select tx, seq, (select coalesce(max(seq), 0) from audit where tx = 0)
            + row_number() over (order by number nulls last, at, tx, seq) as place from audit where tx <> 0) p
    where a.tx = p.tx and a.seq = p.seq";

impl Postgres {
    /// Schema version of a database, and the newest known.
    pub(crate) async fn schema(options: &Options) -> Result<Schema, OpenError> {
        let route = ServerConfig::find(options)?;
        let server = connect(&route).await?;
        let found = applied(&route, &server.client).await?;
        let known = MIGRATIONS.last().map_or(0, |it| it.number);
        Ok(Schema { found: found.iter().map(|it| it.number).max().unwrap_or(0), known })
    }
}

/// Checks, without writing, that this release can read the schema.
pub(super) async fn check_schema(route: &ServerConfig) -> Result<(), OpenError> {
    let server = connect(route).await?;
    let found = applied(route, &server.client).await?;
    migrate::plan(&route.place, &found, MIGRATIONS, Migrate::Never).map(drop)
}

/// Migrates the schema to what this release needs, or fails; and checks that feed positions are still valid.
pub(super) async fn migrate(route: &ServerConfig, allowed: Migrate) -> Result<(), OpenError> {
    let server = connect(route).await?;
    let client = &server.client;
    let migration_error = |error| route.refused(&error);
    let plan = migrate::plan(&route.place, &applied(route, client).await?, MIGRATIONS, allowed)?;
    if matches!(plan, Plan::Apply { .. })
        || (allowed == Migrate::Auto && has_unbuilt(client).await.map_err(migration_error)?)
    {
        lock(route, client).await?;
        // Another process may have migrated while this one waited.
        if let Plan::Apply { from } =
            migrate::plan(&route.place, &applied(route, client).await?, MIGRATIONS, allowed)?
        {
            for migration in MIGRATIONS.iter().filter(|it| it.number > from) {
                apply(route, client, migration).await?;
            }
        }
        for migration in MIGRATIONS {
            build_indexes(route, client, migration).await?;
        }
        client.execute("select pg_advisory_unlock($1)", &[&LOCK]).await.map_err(migration_error)?;
    }
    recognise(route, client).await
}

/// Connects to a supported server.
async fn connect(route: &ServerConfig) -> Result<DirectConnection, OpenError> {
    let server = route.direct().await?;
    let migration_error = |error| route.refused(&error);
    // By the simple protocol and before anything else: an old server must be rejected by its version, not by a
    // statement that it does not understand.
    let version = server
        .client
        .simple_query("select current_setting('server_version_num'), current_setting('server_version')");
    let version = version.await.map_err(migration_error)?;
    let version = version.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse::<i32>().ok()?, row.get(1)?.to_owned())),
        _ => None,
    });
    let (number, found) = version.unwrap_or((0, "of an unknown version".to_owned()));
    if number < OLDEST {
        return Err(OpenError::ServerTooOld { place: route.place.clone(), found });
    }
    server
        .client
        .batch_execute("set statement_timeout = 0; set lock_timeout = 0")
        .await
        .map_err(migration_error)?;
    let row = server
        .client
        .query_one("select pg_is_in_recovery(), current_schema()::text", &[])
        .await
        .map_err(migration_error)?;
    let refused = |why: &str| OpenError::Server { place: route.place.clone(), why: why.to_owned() };
    if row.get::<_, bool>(0) {
        return Err(refused("is a read-only standby; use the primary"));
    }
    if row.get::<_, Option<String>>(1).is_none() {
        return Err(refused("the user's search_path contains no existing schema"));
    }
    Ok(server)
}

/// Applied migrations of a database; fails on a database of another program.
async fn applied(route: &ServerConfig, client: &Client) -> Result<Vec<Applied>, OpenError> {
    let migration_error = |error| route.refused(&error);
    let row = client
        .query_one(
            "select count(*) filter (where c.relname = 'schema' and exists (
                      select from pg_attribute a where a.attrelid = c.oid and a.attname = 'checksum')) as ours,
                    count(*) as tables
             from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')",
            &[],
        )
        .await
        .map_err(migration_error)?;
    match (row.get::<_, i64>(0), row.get::<_, i64>(1)) {
        (0, 0) => Ok(Vec::new()),
        (0, _) => Err(OpenError::Foreign { place: route.place.clone() }),
        _ => {
            let rows = client
                .query("select number, checksum from schema order by number", &[])
                .await
                .map_err(migration_error)?;
            Ok(rows.iter().map(|row| Applied { number: row.get(0), checksum: row.get(1) }).collect())
        }
    }
}

/// Acquires the lock by polling: a session that waits inside a statement would hold a snapshot, for which a
/// concurrent index build waits in turn.
async fn lock(route: &ServerConfig, client: &Client) -> Result<(), OpenError> {
    for _ in 0..600 {
        let row = client
            .query_one("select pg_try_advisory_lock($1)", &[&LOCK])
            .await
            .map_err(|error| route.refused(&error))?;
        if row.get(0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(OpenError::Server {
        place: route.place.clone(),
        why: "another process has been migrating it for two minutes".to_owned(),
    })
}

async fn apply(route: &ServerConfig, client: &Client, migration: &Migration) -> Result<(), OpenError> {
    let (inside, _) = parts(migration);
    let applied = async {
        client.batch_execute("begin").await?;
        if migration.number == 1 {
            client
                .batch_execute("create table schema (number bigint not null primary key, name text not null, checksum text not null, applied bigint not null)")
                .await?;
        }
        client.batch_execute(inside).await?;
        client
            .execute(
                "insert into schema (number, name, checksum, applied) values ($1, $2, $3, micros_v1())",
                &[&migration.number, &migration.name, &migration.checksum()],
            )
            .await?;
        if migration.number == 1 {
            for (key, value) in migrate::first_meta() {
                client.execute("insert into meta (key, value) values ($1, $2)", &[&key, &value]).await?;
            }
        }
        client.batch_execute("commit").await
    };
    match applied.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = client.batch_execute("rollback").await;
            Err(failed(route, migration, &error))
        }
    }
}

fn failed(route: &ServerConfig, migration: &Migration, error: &tokio_postgres::Error) -> OpenError {
    let why = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    OpenError::Migration { place: route.place.clone(), number: migration.number, why }
}

/// Splits a migration into the part inside and the part outside the transaction.
fn parts(migration: &Migration) -> (&'static str, Vec<&'static str>) {
    match migration.sql.split_once(CONCURRENTLY) {
        None => (migration.sql, Vec::new()),
        Some((inside, outside)) => {
            (inside, outside.split(';').map(str::trim).filter(|it| !it.is_empty()).collect())
        }
    }
}

/// Name in `create index concurrently if not exists NAME on …`.
fn index_name(statement: &str) -> &str {
    let mut words = statement.split_whitespace().skip_while(|word| !word.eq_ignore_ascii_case("exists"));
    words.nth(1).unwrap_or_default()
}

async fn validity(client: &Client, index: &str) -> Result<Option<bool>, tokio_postgres::Error> {
    let row = client
        .query_opt("select indisvalid from pg_index where indexrelid = to_regclass($1)", &[&index])
        .await?;
    Ok(row.map(|row| row.get(0)))
}

/// Whether an index is missing or invalid because a process was killed while building it.
async fn has_unbuilt(client: &Client) -> Result<bool, tokio_postgres::Error> {
    for migration in MIGRATIONS {
        for statement in parts(migration).1 {
            if validity(client, index_name(statement)).await? != Some(true) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn build_indexes(
    route: &ServerConfig,
    client: &Client,
    migration: &Migration,
) -> Result<(), OpenError> {
    let migration_error = |error: tokio_postgres::Error| failed(route, migration, &error);
    for statement in parts(migration).1 {
        let name = index_name(statement);
        match validity(client, name).await.map_err(migration_error)? {
            Some(true) => continue,
            Some(false) => {
                client
                    .batch_execute(&format!("drop index concurrently {name}"))
                    .await
                    .map_err(migration_error)?;
            }
            None => {}
        }
        client.batch_execute(statement).await.map_err(migration_error)?;
        if validity(client, name).await.map_err(migration_error)? != Some(true) {
            let why = format!("index {name} is invalid after it was built");
            return Err(OpenError::Migration { place: route.place.clone(), number: migration.number, why });
        }
    }
    Ok(())
}

/// Raises the store's generation when the database was restored into another instance or to an earlier time.
async fn recognise(route: &ServerConfig, client: &Client) -> Result<(), OpenError> {
    let system: String =
        match client.query_one("select system_identifier::text from pg_control_system()", &[]).await {
            Ok(row) => row.get(0),
            // Not permitted here: the transaction ids alone must do.
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => String::new(),
            Err(error) => return Err(route.refused(&error)),
        };
    let raised = raise(client, &system).await;
    if raised.is_err() {
        let _ = client.batch_execute("rollback").await;
    }
    if raised.map_err(|error| route.refused(&error))? {
        tracing::warn!(
            "Database {} was restored or failed over; readers of the change feed start over",
            route.place
        );
    }
    Ok(())
}

/// Whether the generation has to be raised.
async fn raise(client: &Client, system: &str) -> Result<bool, tokio_postgres::Error> {
    client.batch_execute("begin").await?;
    // Locks the generation, so that one of several starting processes raises it.
    let mut raised: bool = client.query_one("select recognise_v1($1)", &[&system]).await?.get(0);
    // A dump restored into another instance contains rows of transactions that have not started here. They would sort
    // behind everything written from now on, and stay invisible.
    let foreign =
        "select exists (select from feed where tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
        or exists (select from audit where tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)";
    if client.query_one(foreign, &[]).await?.get(0) {
        client.batch_execute(PLACE_ANEW).await?;
        if !raised {
            client.batch_execute(RAISE).await?;
            raised = true;
        }
    }
    // A server restored to an earlier time keeps its identifier, and all its own records are as old as its data; but
    // it continues in another timeline. So does a promoted standby, which may have lagged behind.
    let row = client
        .query_one(
            "select left(pg_walfile_name(pg_current_wal_lsn()), 8), (select value from meta where key = 'timeline')",
            &[],
        )
        .await?;
    let (timeline, before) = (row.get::<_, String>(0), row.get::<_, Option<String>>(1));
    if before.as_ref() != Some(&timeline) {
        if before.is_some() && !raised {
            client.batch_execute(RAISE).await?;
            raised = true;
        }
        client.execute("select set_meta_v1(array['timeline'], array[$1::text])", &[&timeline]).await?;
    }
    client.batch_execute("commit").await?;
    Ok(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_index_builds_stay_outside_the_transaction() {
        let sql =
            "create table a ();\n-- concurrently\ncreate index concurrently if not exists a_x on a (x);\n";
        let (inside, outside) = parts(&Migration { number: 9, name: "x", sql });
        assert_eq!(inside, "create table a ();\n");
        assert_eq!(outside, ["create index concurrently if not exists a_x on a (x)"]);
        assert_eq!(index_name(outside[0]), "a_x");
    }
}
