//! Online backup, export and import of the whole store.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;
use uuid::Uuid;

use super::Sqlite;
use crate::StoreError;
use crate::document::text_value;
use crate::engine::Row;
use crate::open::OpenError;
use crate::transfer::{ColumnType, Table};

/// Copies a database, as of one moment, into a new file that appears complete or not at all. Writers continue
/// meanwhile.
pub(super) fn copy(connection: &Connection, target: &Path) -> Result<(), String> {
    let to_text = |error: rusqlite::Error| error.to_string();
    let temporary = target.with_file_name(format!(".{}.part", Uuid::new_v4().simple()));
    let written = (|| {
        let name = temporary.to_str().ok_or("its name is not UTF-8")?;
        // Created empty first, readable only by its owner: it will contain the whole store.
        let new = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temporary);
        new.map_err(|error| error.to_string())?;
        connection.execute("vacuum into ?1", [name]).map_err(to_text)?;
        let copy = Connection::open(&temporary).map_err(to_text)?;
        let verdict: String =
            copy.query_row("pragma quick_check(1)", [], |row| row.get(0)).map_err(to_text)?;
        drop(copy);
        if verdict != "ok" {
            return Err(format!("the copy is damaged: {verdict}"));
        }
        let sync = |path: &Path| {
            std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(|error| error.to_string())
        };
        sync(&temporary)?;
        // A hard link, unlike a rename, does not replace an existing file.
        std::fs::hard_link(&temporary, target).map_err(|error| error.to_string())?;
        sync(target.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    })();
    let _ = std::fs::remove_file(&temporary);
    written
}

impl Sqlite {
    /// Copies the store, as it is now, into a new file.
    pub(crate) async fn backup(&self, target: &Path) -> Result<(), StoreError> {
        let target = target.to_owned();
        self.read(move |connection| {
            copy(connection, &target).map_err(|why| {
                StoreError::invalid(format!("backup {}: cannot be created: {why}", target.display()))
            })
        })
        .await
    }

    pub(crate) async fn dump(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        self.read(move |connection| {
            let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            let key = table.key.join(", ");
            let mut sql = format!(
                "select {} from {} where {key_set}",
                names.join(", "),
                table.name,
                key_set = table.not_null()
            );
            let mut values: Vec<SqlValue> = Vec::new();
            if let Some(after) = after {
                let places: Vec<String> = (1..=table.key.len()).map(|it| format!("?{it}")).collect();
                sql += &format!(" and ({key}) > ({})", places.join(", "));
                for name in table.key {
                    values.push(to_sql(table.column_type(name), &after[*name])?);
                }
            }
            sql += &format!(" order by {key} limit {limit}");
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let mut out = Row::new();
                for (index, column) in table.columns.iter().enumerate() {
                    out.insert(column.name.to_owned(), from_sql(column.column_type, row.get_ref(index)?)?);
                }
                found.push(out);
            }
            Ok(found)
        })
        .await
    }

    pub(crate) async fn begin_import(&self) -> Result<Import, OpenError> {
        let used = self
            .read(|connection| {
                let sql = "select exists (select 1 from documents) or exists (select 1 from work) or exists (select 1 from history)
                             or exists (select 1 from audit)";
                Ok(connection.query_row(sql, [], |row| row.get::<_, bool>(0))?)
            })
            .await?;
        if used {
            return Err(OpenError::Store(StoreError::invalid(format!(
                "import: {} is not empty; import into an empty store",
                self.location()
            ))));
        }
        Ok(Import { engine: self.clone(), rows: Vec::new() })
    }
}

/// Rows to import, gathered and written at the end in one transaction: the writer's transactions are short, and an
/// import into SQLite only serves small fleets.
#[derive(Debug)]
pub(crate) struct Import {
    engine: Sqlite,
    rows: Vec<(&'static Table, Row)>,
}

impl Import {
    #[expect(clippy::unused_async, reason = "the other engine's import waits for its server here")]
    pub(crate) async fn rows(&mut self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        self.rows.extend(rows.into_iter().map(|row| (table, row)));
        Ok(())
    }

    pub(crate) async fn commit(self, meta: Vec<(String, String)>) -> Result<(), StoreError> {
        let rows = self.rows;
        let generation = meta.iter().find(|(key, _)| key == "generation").and_then(|(_, it)| it.parse().ok());
        self.engine
            .write(move |session| {
                // The chain of an empty store is replaced by the imported one.
                session.connection.execute_batch(
                    "delete from secrets; delete from meta where key in ('audit_head', 'audit_floor')",
                )?;
                for (table, row) in rows {
                    let mut names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
                    let mut values = table
                        .columns
                        .iter()
                        .map(|column| to_sql(column.column_type, row.get(column.name).unwrap_or(&Value::Null)))
                        .collect::<Result<Vec<_>, _>>()?;
                    match table.name {
                        "work" => {
                            names.push("state");
                            values.push("Pending".to_owned().into());
                        }
                        "budgets" => {
                            names.push("used");
                            values.push(0.into());
                        }
                        "audit" => {
                            names.push("seq");
                            values.push(to_sql(ColumnType::Integer, &row["number"])?);
                        }
                        _ => {}
                    }
                    let places: Vec<String> = (1..=values.len()).map(|it| format!("?{it}")).collect();
                    let sql = format!("insert into {} ({}) values ({})", table.name, names.join(", "), places.join(", "));
                    session.connection.prepare_cached(&sql)?.execute(params_from_iter(values))?;
                }
                // Work in side queues is checked again.
                session.connection.execute("update work set class = 2 where class = 3", [])?;
                session.connection.execute("insert into lanes (lane, fence) select lane, max(fence) from work group by lane", [])?;
                session.connection.execute(
                    "update lanes set (head_kind, head_class, head_at, head_priority) =
                       (select kind, class, due_at, priority from work where work.lane = lanes.lane and state = 'Pending'
                        order by class, due_at, priority, id limit 1)",
                    [],
                )?;
                session.set_meta(&meta)
            })
            .await?;
        // From here on positions of the exported store are invalid, in this process too.
        if let Some(generation) = generation {
            self.engine.shared.generation.store(generation, Ordering::Release);
        }
        Ok(())
    }
}

fn to_sql(column_type: ColumnType, value: &Value) -> Result<SqlValue, StoreError> {
    let wrong = || StoreError::invalid(format!("import: {value} is not of type {column_type:?}"));
    Ok(match (column_type, value) {
        (ColumnType::Json, Value::Null) | (_, Value::Null) => SqlValue::Null,
        (ColumnType::Json, json) => SqlValue::Text(json.to_string()),
        (ColumnType::Uuid, Value::String(text)) => {
            SqlValue::Blob(text.parse::<Uuid>().map_err(|_| wrong())?.as_bytes().to_vec())
        }
        (ColumnType::Text, Value::String(text)) => SqlValue::Text(text.clone()),
        (ColumnType::Bytes, Value::String(text)) => SqlValue::Blob(BASE64.decode(text).map_err(|_| wrong())?),
        (ColumnType::Integer, Value::Number(number)) => SqlValue::Integer(number.as_i64().ok_or_else(wrong)?),
        (ColumnType::Flag, Value::Bool(flag)) => SqlValue::Integer(i64::from(*flag)),
        _ => return Err(wrong()),
    })
}

fn from_sql(column_type: ColumnType, value: ValueRef<'_>) -> Result<Value, StoreError> {
    let wrong = || StoreError::broken(format!("a column is not of type {column_type:?}"));
    Ok(match (column_type, value) {
        (_, ValueRef::Null) => Value::Null,
        (ColumnType::Json, ValueRef::Text(text)) => {
            text_value(std::str::from_utf8(text).map_err(|_| wrong())?)?
        }
        (ColumnType::Text, ValueRef::Text(text)) => {
            Value::String(std::str::from_utf8(text).map_err(|_| wrong())?.to_owned())
        }
        (ColumnType::Uuid, ValueRef::Blob(bytes)) => {
            Value::String(Uuid::from_slice(bytes).map_err(|_| wrong())?.to_string())
        }
        (ColumnType::Bytes, ValueRef::Blob(bytes)) => Value::String(BASE64.encode(bytes)),
        (ColumnType::Integer, ValueRef::Integer(number)) => number.into(),
        (ColumnType::Flag, ValueRef::Integer(flag)) => Value::Bool(flag != 0),
        _ => return Err(wrong()),
    })
}
