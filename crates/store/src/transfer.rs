//! Export and import of a store: the tables, their columns and keys as both engines have them.

use std::io::{BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::StoreError;
use crate::engine::{Engine, Import, Row};
use crate::open::OpenError;
use crate::store::{Reader, Store};

/// A table that is exported.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Key columns, in the order of the export.
    pub(crate) key: &'static [&'static str],
    pub(crate) columns: &'static [Column],
}

impl Table {
    /// Type of a column.
    pub(crate) fn column_type(&self, name: &str) -> ColumnType {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .map_or(ColumnType::Text, |column| column.column_type)
    }

    /// Why a row cannot be imported, if so.
    fn fault(&self, row: &Row) -> Option<String> {
        if let Some(unknown) = row.keys().find(|name| !self.columns.iter().any(|column| column.name == *name))
        {
            return Some(format!("{} has no column {unknown:?} in this release", self.name));
        }
        let fits =
            |column: &&Column| column.column_type.accepts(row.get(column.name).unwrap_or(&Value::Null));
        let column = self.columns.iter().find(|column| !fits(column))?;
        Some(format!("column {} of {} is not a {:?}", column.name, self.name, column.column_type))
    }

    /// Condition that its key is set: rows without one are not exported.
    pub(crate) fn not_null(&self) -> String {
        format!("{} is not null", self.key[0])
    }
}

/// A column and its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) column_type: ColumnType,
}

/// Type of a column, independent of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Uuid,
    Text,
    Integer,
    Flag,
    Bytes,
    Json,
}

impl ColumnType {
    /// Whether a value has this type; the database checks whether it may be absent.
    fn accepts(self, value: &Value) -> bool {
        match (self, value) {
            (ColumnType::Json, _) | (_, Value::Null) => true,
            (ColumnType::Uuid, Value::String(text)) => text.parse::<::uuid::Uuid>().is_ok(),
            (ColumnType::Text, Value::String(text)) => !text.contains('\0'),
            (ColumnType::Integer, Value::Number(number)) => number.is_i64(),
            (ColumnType::Flag, Value::Bool(_)) => true,
            (ColumnType::Bytes, Value::String(text)) => BASE64.decode(text).is_ok(),
            _ => false,
        }
    }
}

const fn column(name: &'static str, column_type: ColumnType) -> Column {
    Column { name, column_type }
}

use ColumnType::{Bytes, Flag, Integer, Json, Text, Uuid};

/// Exported tables. Lanes are derived from the work; the feed, positions, leases and owners are left out: the new
/// store is a new generation, and its readers start over.
pub(crate) static TABLES: [Table; 10] = [
    Table {
        name: "documents",
        key: &["uuid"],
        columns: &[
            column("uuid", Uuid),
            column("id", Text),
            column("kind", Text),
            column("parent", Text),
            column("etag", Integer),
            column("generation", Integer),
            column("body", Json),
            column("created", Integer),
            column("changed", Integer),
            column("deleted_at", Integer),
        ],
    },
    Table { name: "unique_keys", key: &["key"], columns: &[column("key", Text), column("uuid", Uuid)] },
    Table {
        name: "secrets",
        key: &["owner", "name"],
        columns: &[
            column("owner", Uuid),
            column("name", Text),
            column("sealed", Bytes),
            column("key_id", Text),
            column("changed", Integer),
        ],
    },
    Table {
        name: "work",
        key: &["id"],
        columns: &[
            column("id", Uuid),
            column("lane", Uuid),
            column("kind", Text),
            column("class", Integer),
            column("run_after", Integer),
            column("due_at", Integer),
            column("run_before", Integer),
            column("priority", Integer),
            column("attempt", Integer),
            column("step", Text),
            column("checkpoint", Json),
            column("fence", Integer),
            column("budgets", Json),
            column("created", Integer),
            column("changed", Integer),
            column("started", Integer),
            column("origin", Text),
            column("to_end", Flag),
            column("cancel_by", Text),
            column("cancel_reason", Text),
            column("cancel_at", Integer),
        ],
    },
    Table {
        name: "history",
        key: &["id"],
        columns: &[
            column("id", Uuid),
            column("lane", Uuid),
            column("kind", Text),
            column("class", Integer),
            column("run_after", Integer),
            column("run_before", Integer),
            column("priority", Integer),
            column("state", Text),
            column("attempt", Integer),
            column("step", Text),
            column("checkpoint", Json),
            column("fence", Integer),
            column("owner", Uuid),
            column("result", Json),
            column("created", Integer),
            column("started", Integer),
            column("finished", Integer),
            column("origin", Text),
            column("budgets", Json),
        ],
    },
    Table {
        name: "entries",
        key: &["work", "number"],
        columns: &[
            column("work", Uuid),
            column("number", Integer),
            column("at", Integer),
            column("body", Json),
        ],
    },
    Table { name: "budgets", key: &["key"], columns: &[column("key", Text), column("cap", Integer)] },
    Table {
        name: "health",
        key: &["cluster"],
        columns: &[
            column("cluster", Uuid),
            column("at", Integer),
            column("reachable", Flag),
            column("since", Integer),
            column("sample", Json),
        ],
    },
    Table {
        name: "health_events",
        key: &["cluster", "facet", "at"],
        columns: &[
            column("cluster", Uuid),
            column("at", Integer),
            column("facet", Text),
            column("previous", Text),
            column("value", Text),
            column("expected", Flag),
        ],
    },
    Table {
        // Only sealed records are exported (an export seals the rest first); their position becomes (0, number).
        name: "audit",
        key: &["number"],
        columns: &[
            column("id", Uuid),
            column("at", Integer),
            column("actor", Text),
            column("action", Text),
            column("target", Text),
            column("reason", Text),
            column("correlation", Uuid),
            column("before", Text),
            column("after", Text),
            column("number", Integer),
            column("seal", Text),
            column("sealed_at", Integer),
        ],
    },
];

/// Header line of an export.
const FORMAT: &str = "shipshape-export";
const FORMAT_VERSION: u64 = 1;
const BLOCK: usize = 500;

/// Together longer than the lease of a sealer that was killed.
const SEALING_TRIES: usize = 100;
const SEALING_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// Number of rows moved, for each table.
pub type TransferCounts = Vec<(&'static str, usize)>;

impl Store {
    /// Writes the whole store as lines of JSON. No other process may write meanwhile; on SQLite the open store guarantees that.
    pub async fn export(&self, out: &mut (dyn Write + Send)) -> Result<TransferCounts, StoreError> {
        self.seal_everything(SEALING_TRIES).await?;
        let mut meta = Map::new();
        for key in EXPORTED_META {
            if let Some(value) = self.engine.meta(key).await? {
                meta.insert(key.to_owned(), value.into());
            }
        }
        write_line(
            out,
            &json!({ "format": FORMAT, "version": FORMAT_VERSION, "from": self.location(), "meta": meta }),
        )?;
        let mut counts = TransferCounts::new();
        for table in &TABLES {
            let (mut count, mut after) = (0, None);
            loop {
                let rows = self.engine.dump(table, after, BLOCK).await?;
                count += rows.len();
                for row in &rows {
                    write_line(out, &json!({ "table": table.name, "row": row }))?;
                }
                after = rows.last().cloned();
                if rows.len() < BLOCK {
                    break;
                }
            }
            counts.push((table.name, count));
        }
        let total: usize = counts.iter().map(|(_, count)| count).sum();
        write_line(out, &json!({ "end": total }))?;
        out.flush().map_err(export_error)?;
        Ok(counts)
    }

    /// Seals everything, since only sealed records are exported. A sealer that was killed a moment ago still holds
    /// its lease, and an open transaction on the server hides later commits; both end soon.
    pub(crate) async fn seal_everything(&self, tries: usize) -> Result<(), StoreError> {
        let owner = ::uuid::Uuid::new_v4();
        for _ in 0..tries {
            self.seal_audit(owner).await?;
            if !self.engine.audit_waits(false).await? {
                return Ok(());
            }
            tokio::time::sleep(SEALING_PAUSE).await;
        }
        Err(StoreError::invalid(
            "export: audit records are not sealed, because another process seals them or a transaction is open on the database \
             server; stop it and export again"
                .to_owned(),
        ))
    }

    /// Imports an export into this store, which must be empty; all of it or nothing. The key file must contain the
    /// keys of the exported store.
    pub async fn import(&self, lines: &mut (dyn BufRead + Send)) -> Result<TransferCounts, OpenError> {
        let mut lines = lines.lines().enumerate();
        let mut next = || -> Result<Option<(usize, Value)>, StoreError> {
            let Some((number, text)) = lines.next() else { return Ok(None) };
            let invalid = |why: String| StoreError::invalid(format!("import, line {}: {why}", number + 1));
            let text = text.map_err(|error| invalid(format!("cannot be read: {error}")))?;
            let value = serde_json::from_str(&text).map_err(|_| invalid("is not JSON".to_owned()))?;
            Ok(Some((number + 1, value)))
        };
        let header = next()?.map(|(_, value)| value).unwrap_or_default();
        if header["format"] != FORMAT || header["version"] != FORMAT_VERSION {
            return Err(
                StoreError::invalid(format!("import: not a {FORMAT} of version {FORMAT_VERSION}")).into()
            );
        }
        let mut meta: Vec<(String, String)> = Vec::new();
        for key in EXPORTED_META {
            if let Some(value) = header["meta"][key].as_str() {
                meta.push((key.to_owned(), value.to_owned()));
            }
        }
        let key_id = header["meta"]["key_id"].as_str().unwrap_or_default().to_owned();
        if crate::rotate::prefer_key(&self.keyring, &key_id).is_err() {
            return Err(OpenError::WrongKey {
                place: header["from"].as_str().unwrap_or("export").to_owned(),
                wanted: key_id,
            });
        }
        let mut import = Import::start(&self.engine).await?;
        let mut counts: TransferCounts = TABLES.iter().map(|table| (table.name, 0)).collect();
        let mut block: Vec<Row> = Vec::new();
        let mut current = 0;
        loop {
            let Some((number, value)) = next()? else {
                return Err(
                    StoreError::invalid("import: truncated: the last line is missing".to_owned()).into()
                );
            };
            if let Some(total) = value["end"].as_u64() {
                import.rows(&TABLES[current], std::mem::take(&mut block)).await?;
                let imported: usize = counts.iter().map(|(_, count)| count).sum();
                if total != imported as u64 {
                    return Err(StoreError::invalid(format!(
                        "import: {imported} rows found, {total} were exported"
                    ))
                    .into());
                }
                break;
            }
            let index = TABLES.iter().position(|table| value["table"] == table.name);
            let (Some(index), Value::Object(row)) = (index, value["row"].clone()) else {
                return Err(StoreError::invalid(format!(
                    "import, line {number}: not a row of a known table"
                ))
                .into());
            };
            if let Some(fault) = TABLES[index].fault(&row) {
                return Err(StoreError::invalid(format!("import, line {number}: {fault}")).into());
            }
            if index != current || block.len() >= BLOCK {
                import.rows(&TABLES[current], std::mem::take(&mut block)).await?;
                current = index;
            }
            counts[index].1 += 1;
            block.push(row);
        }
        // Readers of the old store must start over.
        let generation = meta
            .iter()
            .find(|(key, _)| key == "generation")
            .and_then(|(_, it)| it.parse::<i64>().ok())
            .unwrap_or(0);
        meta.retain(|(key, _)| key != "generation");
        meta.push(("generation".to_owned(), (generation + 1).to_string()));
        import.commit(meta).await?;
        // Imported with the records, unless the exported store had none yet.
        crate::audit::start(self).await?;
        Ok(counts)
    }
}

impl Reader {
    /// Copies an SQLite store, as it is now, into a new file; writers continue meanwhile.
    pub async fn backup(&self, target: &std::path::Path) -> Result<(), StoreError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.backup(target).await,
            Engine::Postgres(_) => Err(StoreError::invalid(
                "backup: only for SQLite; back up a PostgreSQL server with its own tools (pg_basebackup, pg_dump on a replica)".to_owned(),
            )),
        }
    }
}

/// Meta values that are exported.
const EXPORTED_META: [&str; 6] =
    ["store_id", "generation", "key_id", "key_check", "audit_head", "audit_floor"];

fn write_line(out: &mut (dyn Write + Send), value: &Value) -> Result<(), StoreError> {
    writeln!(out, "{value}").map_err(export_error)
}

fn export_error(error: std::io::Error) -> StoreError {
    StoreError::invalid(format!("export: cannot be written: {error}"))
}
