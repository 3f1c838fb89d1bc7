//! Blobs in the database: a row for each with its properties, its content in chunks, and blocks that are not committed yet.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, seed};

/// A part of a content that is read without the others.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The properties of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    /// Rises with every change of any blob; the etag is made of it.
    pub(super) version: u64,
    pub(super) size: usize,
    pub(super) created: Timestamp,
    pub(super) modified: Timestamp,
    #[serde(default)]
    pub(super) headers: ContentHeaders,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    /// Id and size of each committed block, empty when the blob was written by one request.
    #[serde(default)]
    pub(super) blocks: Vec<(String, usize)>,
}

/// The headers that a blob is read with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContentHeaders {
    pub(super) content_type: String,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) cache_control: Option<String>,
    /// In base64.
    pub(super) content_md5: Option<String>,
}

/// A stored blob and its key in the database.
pub(super) struct StoredBlob {
    pub(super) id: i64,
    pub(super) blob: Blob,
}

/// An etag without quotes, in the form that Azure has.
pub(super) fn etag(seed: u64, words: &[&str]) -> String {
    format!("0x8D{:013X}", seed::draw(seed, words) & 0xF_FFFF_FFFF_FFFF)
}

impl Blob {
    pub(super) fn etag(&self, seed: u64) -> String {
        etag(seed, &["blob", &self.version.to_string()])
    }
}

/// A number that no version of a blob had before.
pub(super) fn next_version(cx: &CallContext<'_>) -> Result<u64, Failure> {
    const COUNTER: (&str, &str) = ("meta", "blob-versions");
    let number: u64 = database::record(cx.db, COUNTER.0, COUNTER.1)?.unwrap_or(0) + 1;
    database::write(cx.db, COUNTER.0, COUNTER.1, &number)?;
    Ok(number)
}

pub(super) fn find(cx: &CallContext<'_>, container: &str, name: &str) -> Result<Option<StoredBlob>, Failure> {
    let row: Option<(i64, String)> = cx
        .db
        .prepare_cached("select id, doc from blob where container = ? and name = ?")?
        .query_row([container, name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(id, doc)| Ok(StoredBlob { id, blob: serde_json::from_str(&doc)? })).transpose()
}

/// Writes a blob with its content, replacing one of that name, and forgets its blocks.
pub(super) fn write(
    cx: &CallContext<'_>,
    container: &str,
    name: &str,
    blob: &Blob,
    content: &[u8],
) -> Result<(), Failure> {
    if let Some(before) = find(cx, container, name)? {
        delete(cx, &before)?;
    }
    cx.db.prepare_cached("insert into blob (container, name, doc) values (?, ?, ?)")?.execute(params![
        container,
        name,
        serde_json::to_string(blob)?
    ])?;
    let id = cx.db.last_insert_rowid();
    for (number, chunk) in content.chunks(CHUNK_BYTES).enumerate() {
        cx.db
            .prepare_cached("insert into blob_chunk (blob, number, content) values (?, ?, ?)")?
            .execute(params![id, number, chunk])?;
    }
    cx.db
        .prepare_cached("delete from blob_block where container = ? and name = ?")?
        .execute([container, name])?;
    Ok(())
}

/// Changes the properties of a blob.
pub(super) fn update(cx: &CallContext<'_>, stored: &StoredBlob) -> Result<(), Failure> {
    cx.db
        .prepare_cached("update blob set doc = ? where id = ?")?
        .execute(params![serde_json::to_string(&stored.blob)?, stored.id])?;
    Ok(())
}

pub(super) fn delete(cx: &CallContext<'_>, stored: &StoredBlob) -> Result<(), Failure> {
    cx.db.prepare_cached("delete from blob_chunk where blob = ?")?.execute([stored.id])?;
    cx.db.prepare_cached("delete from blob where id = ?")?.execute([stored.id])?;
    Ok(())
}

/// A part of the content of a blob.
pub(super) fn content(
    cx: &CallContext<'_>,
    stored: &StoredBlob,
    range: &Range<usize>,
) -> Result<Vec<u8>, Failure> {
    let first = range.start / CHUNK_BYTES;
    let end = range.end.div_ceil(CHUNK_BYTES);
    let mut statement = cx.db.prepare_cached(
        "select content from blob_chunk where blob = ? and number >= ? and number < ? order by number",
    )?;
    let mut rows = statement.query(params![stored.id, first, end])?;
    let mut found = Vec::with_capacity(range.len());
    let mut at = first * CHUNK_BYTES;
    while let Some(row) = rows.next()? {
        let chunk = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        let from = range.start.saturating_sub(at).min(chunk.len());
        let to = range.end.saturating_sub(at).min(chunk.len());
        found.extend_from_slice(&chunk[from..to]);
        at += chunk.len();
    }
    match found.len() == range.len() {
        true => Ok(found),
        false => Err(Failure::Broken("the content of a blob is incomplete".to_owned())),
    }
}

/// Some blobs of a container whose names start with a prefix and follow a name, in the order of their names.
pub(super) fn following(
    cx: &CallContext<'_>,
    container: &str,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, Blob)>, Failure> {
    let mut statement = cx.db.prepare_cached(
        "select name, doc from blob where container = ? and name >= ? and name > ? order by name limit ?",
    )?;
    let rows = statement.query_map(params![container, prefix, after, limit], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (name, doc) = row?;
        if !name.starts_with(prefix) {
            break;
        }
        found.push((name, serde_json::from_str(&doc)?));
    }
    Ok(found)
}

/// Id and size of the blocks that are not committed, by id.
pub(super) fn blocks(
    cx: &CallContext<'_>,
    container: &str,
    name: &str,
) -> Result<Vec<(String, usize)>, Failure> {
    let mut statement = cx.db.prepare_cached(
        "select block, length(content) from blob_block where container = ? and name = ? order by block",
    )?;
    let rows = statement.query_map([container, name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn block(
    cx: &CallContext<'_>,
    container: &str,
    name: &str,
    block: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    Ok(cx
        .db
        .prepare_cached("select content from blob_block where container = ? and name = ? and block = ?")?
        .query_row([container, name, block], |row| row.get(0))
        .optional()?)
}

pub(super) fn put_block(
    cx: &CallContext<'_>,
    container: &str,
    name: &str,
    block: &str,
    content: &[u8],
) -> Result<(), Failure> {
    cx.db
        .prepare_cached(
            "insert or replace into blob_block (container, name, block, content) values (?, ?, ?, ?)",
        )?
        .execute(params![container, name, block, content])?;
    Ok(())
}

/// Removes everything in a container.
pub(super) fn clear(cx: &CallContext<'_>, container: &str) -> Result<(), Failure> {
    cx.db
        .prepare_cached("delete from blob_chunk where blob in (select id from blob where container = ?)")?
        .execute([container])?;
    for table in ["blob", "blob_block"] {
        cx.db.prepare_cached(&format!("delete from {table} where container = ?"))?.execute([container])?;
    }
    Ok(())
}
