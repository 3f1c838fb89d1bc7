//! The SQLite file: resources in a table with the columns that queries need, everything else as documents by kind and key.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The application id in the header of every database of the simulated cloud.
const APPLICATION_ID: i64 = 0x5368_7063; // "Shpc"

/// Pages that are kept in memory. The resources of 100 clusters take 10 MiB; with SQLite's usual 2 MiB each list reads them again.
const CACHE_KIB: u32 = 32 * 1024;
/// Statements that are kept prepared; there are about a hundred.
const STATEMENTS: usize = 256;

const SCHEMA: &str = "
create table if not exists arm_resource (
    key text primary key, grp text not null, subscription text not null, location text not null,
    type text not null, gone_at integer, doc text not null
) without rowid;
create index if not exists arm_resource_of_group on arm_resource (grp, type);
create index if not exists arm_resource_of_type on arm_resource (subscription, type);
create index if not exists arm_resource_of_type_anywhere on arm_resource (type);
create index if not exists arm_resource_anywhere on arm_resource (type);
create index if not exists arm_resource_going on arm_resource (gone_at) where gone_at is not null;
create table if not exists arm_reference (
    user text not null, used text not null, primary key (user, used)
) without rowid;
create index if not exists arm_reference_used on arm_reference (used);
create table if not exists operation (id text primary key, expires integer not null, doc text not null) without rowid;
create index if not exists operation_expiring on operation (expires);
create table if not exists role_assignment (
    key text primary key, principal text not null, scope text not null, doc text not null
) without rowid;
create index if not exists role_assignment_of_principal on role_assignment (principal);
create table if not exists vault_object (
    vault text not null, kind text not null, name text not null, deleted integer not null, doc text not null,
    primary key (vault, kind, name)
) without rowid;
create table if not exists vault_version (
    vault text not null, kind text not null, name text not null, number integer not null, version text not null, doc text not null,
    primary key (vault, kind, name, number)
) without rowid;
create table if not exists blob (
    id integer primary key, container text not null, name text not null, doc text not null, unique (container, name)
);
create table if not exists blob_chunk (blob integer not null, number integer not null, content blob not null, primary key (blob, number));
create table if not exists blob_block (
    container text not null, name text not null, block text not null, content blob not null, primary key (container, name, block)
);
create table if not exists record (kind text not null, key text not null, doc text not null, primary key (kind, key)) without rowid;
";

/// Opens the file, creating it if necessary; without a path, the database is in memory.
pub(crate) fn open(path: Option<&Path>) -> Result<Connection, Failure> {
    let connection = match path {
        Some(path) => {
            private(path).map_err(|error| Failure::Broken(format!("{}: {error}", path.display())))?;
            Connection::open(path)?
        }
        None => Connection::open_in_memory()?,
    };
    let found: i64 = connection.query_row("pragma application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    if found != APPLICATION_ID && tables > 0 {
        return Err(Failure::Broken("the file is the database of another program".to_owned()));
    }
    let has_table = "select exists (select 1 from sqlite_schema where name = 'resource')";
    if connection.query_row(has_table, [], |row| row.get(0))? {
        let why = "the file holds the simulated cloud of an earlier release, which had another protocol; remove its directory or name another data directory";
        return Err(Failure::Broken(why.to_owned()));
    }
    // A killed process loses nothing; a power failure could lose the last moments of a simulation.
    connection.execute_batch(&format!(
        "pragma journal_mode = wal; pragma synchronous = normal; pragma cache_size = -{CACHE_KIB};
         pragma application_id = {APPLICATION_ID}; {SCHEMA}"
    ))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// The file holds keys, so only its owner may read it.
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

/// A document by kind and key.
pub(crate) fn record<T: DeserializeOwned>(
    db: &Connection,
    kind: &str,
    key: &str,
) -> Result<Option<T>, Failure> {
    let doc: Option<String> = db
        .prepare_cached("select doc from record where kind = ? and key = ?")?
        .query_row(params![kind, key], |row| row.get(0))
        .optional()?;
    Ok(doc.map(|doc| serde_json::from_str(&doc)).transpose()?)
}

/// Every document of a kind, by key.
pub(crate) fn records<T: DeserializeOwned>(db: &Connection, kind: &str) -> Result<Vec<T>, Failure> {
    let mut statement = db.prepare_cached("select doc from record where kind = ? order by key")?;
    let docs = statement.query_map([kind], |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

/// Writes a document.
pub(crate) fn write<T: Serialize>(db: &Connection, kind: &str, key: &str, value: &T) -> Result<(), Failure> {
    db.prepare_cached("insert or replace into record (kind, key, doc) values (?, ?, ?)")?
        .execute(params![kind, key, serde_json::to_string(value)?])?;
    Ok(())
}

/// Deletes a document and returns whether it existed.
pub(crate) fn delete(db: &Connection, kind: &str, key: &str) -> Result<bool, Failure> {
    let removed =
        db.prepare_cached("delete from record where kind = ? and key = ?")?.execute(params![kind, key])?;
    Ok(removed > 0)
}

/// A time as it is stored.
pub(crate) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}
