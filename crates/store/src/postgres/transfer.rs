//! Export, import and checks of the whole store.

use serde_json::Value;
use tokio_postgres::types::ToSql;

use super::connect::DirectConnection;
use super::error::{pool_error, store_error};
use super::{Postgres, count, get};
use crate::StoreError;
use crate::engine::Row;
use crate::open::OpenError;
use crate::transfer::{Column, ColumnType, Table};

impl Postgres {
    pub(crate) async fn dump(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let pairs: Vec<String> = table
            .columns
            .iter()
            .map(|column| format!("'{}', {}", column.name, export_expression(*column)))
            .collect();
        let key = table.key.join(", ");
        let mut sql = format!(
            "select jsonb_build_object({}) from {} where {}",
            pairs.join(", "),
            table.name,
            table.not_null()
        );
        let limit = count(limit);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&limit];
        // A dumped row is text and JSON; the server converts it to the key's types.
        let texts: Vec<String> =
            after.iter().flat_map(|row| table.key.iter().map(|name| plain(&row[*name]))).collect();
        if !texts.is_empty() {
            let places: Vec<String> = table
                .key
                .iter()
                .enumerate()
                .map(|(at, name)| format!("${}::text::{}", at + 2, kind(table.column_type(name))))
                .collect();
            sql += &format!(" and ({key}) > ({})", places.join(", "));
            values.extend(texts.iter().map(|text| text as &(dyn ToSql + Sync)));
        }
        sql += &format!(" order by {key} limit $1");
        let rows = self.rows("export", &sql, &values).await?;
        rows.iter()
            .map(|row| match get(row, 0)? {
                Value::Object(row) => Ok(row),
                _ => Err(StoreError::broken("a row is not an object")),
            })
            .collect()
    }

    pub(crate) async fn begin_import(&self) -> Result<Import, OpenError> {
        let route = &self.shared.route;
        let server = route.direct().await?;
        let open_error = |error| route.refused(&error);
        server.client.batch_execute("set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set jit = off; begin").await.map_err(open_error)?;
        // Writers of documents and work wait until the import has ended.
        server
            .client
            .batch_execute("lock table documents, work, history, audit in share row exclusive mode")
            .await
            .map_err(open_error)?;
        let sql = "select exists (select from documents) or exists (select from work) or exists (select from history)
                     or exists (select from audit)";
        if server.client.query_one(sql, &[]).await.map_err(open_error)?.get(0) {
            return Err(OpenError::Store(StoreError::invalid(format!(
                "import: {} is not empty; import into an empty store",
                self.location()
            ))));
        }
        // The chain of an empty store is replaced by the imported one.
        server
            .client
            .batch_execute("delete from secrets; delete from meta where key in ('audit_head', 'audit_floor')")
            .await
            .map_err(open_error)?;
        Ok(Import { server })
    }

    pub(crate) async fn violations(
        &self,
        queries: Vec<String>,
        limit: usize,
    ) -> Result<Vec<Vec<String>>, StoreError> {
        let what = "check";
        let error = |error| store_error(what, error);
        let mut client = self.shared.pool.get().await.map_err(|error| pool_error(what, error))?;
        let transaction = client
            .build_transaction()
            .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await
            .map_err(error)?;
        // These queries read everything: scans and hashes are right here, and may take long.
        let settings = "set local statement_timeout = 0; set local enable_seqscan = on; set local enable_bitmapscan = on;
                        set local enable_hashjoin = on; set local enable_mergejoin = on";
        transaction.batch_execute(settings).await.map_err(error)?;
        let mut found = Vec::with_capacity(queries.len());
        for query in queries {
            let sql = format!("select subject::text from ({query}) as violations (subject) limit {limit}");
            let rows = transaction.query(&sql, &[]).await.map_err(error)?;
            found.push(rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?);
        }
        transaction.commit().await.map_err(error)?;
        Ok(found)
    }

    pub(crate) async fn soundness(&self) -> Result<Vec<String>, StoreError> {
        let sql = "select 'index ' || i.indexrelid::regclass || ' is not valid' from pg_index i
              join pg_class c on c.oid = i.indexrelid
              where c.relnamespace = current_schema()::regnamespace and not (i.indisvalid and i.indisready)
            union all
            select 'the server counted ' || checksum_failures || ' damaged pages' from pg_stat_database
              where datname = current_database() and checksum_failures > 0";
        self.rows("check", sql, &[]).await?.iter().map(|row| get(row, 0)).collect()
    }
}

/// Rows to import: one transaction on a dedicated connection, rolled back when it ends early.
#[derive(Debug)]
pub(crate) struct Import {
    server: DirectConnection,
}

impl Import {
    pub(crate) async fn rows(&mut self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        let (mut names, mut values): (Vec<&str>, Vec<String>) =
            table.columns.iter().map(|column| (column.name, import_expression(*column))).unzip();
        let more: &[(&str, &str)] = match table.name {
            "work" => &[("state", "'Pending'")],
            "budgets" => &[("used", "0")],
            "audit" => &[("tx", "0"), ("seq", "r.number")],
            _ => &[],
        };
        for (name, value) in more {
            names.push(name);
            values.push((*value).to_owned());
        }
        let given: Vec<String> = table
            .columns
            .iter()
            .map(|column| format!("{} {}", column.name, transfer_type(column.column_type)))
            .collect();
        let sql = format!(
            "insert into {} ({}) select {} from jsonb_to_recordset($1) as r ({})",
            table.name,
            names.join(", "),
            values.join(", "),
            given.join(", ")
        );
        let rows = Value::Array(rows.into_iter().map(Value::Object).collect());
        self.server
            .client
            .execute(&sql, &[&rows])
            .await
            .map(drop)
            .map_err(|error| store_error("import", error))
    }

    pub(crate) async fn commit(self, meta: Vec<(String, String)>) -> Result<(), StoreError> {
        let client = &self.server.client;
        let error = |error| store_error("import", error);
        client
            .batch_execute(
                "update work set class = 2 where class = 3;
                 insert into lanes (lane, fence, head_kind, head_class, head_at, head_priority)
                 select distinct on (w.lane) w.lane, max(w.fence) over (partition by w.lane), w.kind, w.class, w.due_at, w.priority
                 from work w order by w.lane, w.class, w.due_at, w.priority, w.id",
            )
            .await
            .map_err(error)?;
        // Neither a position of the old store nor one of this store may stay valid.
        let sql = "select value::bigint + 1 from meta where key = 'generation' for update";
        let raised: i64 = client.query_one(sql, &[]).await.map_err(error)?.get(0);
        let (keys, values) = super::records::columns(&meta);
        client.execute("select set_meta_v1($1, $2)", &[&keys, &values]).await.map_err(error)?;
        let sql = "update meta set value = greatest(value::bigint, $1)::text where key = 'generation'";
        client.execute(sql, &[&raised]).await.map_err(error)?;
        client.batch_execute("commit").await.map_err(error)?;
        // Only for the planner of `store check`; other statements need no statistics.
        let _ = client.batch_execute("analyze").await;
        Ok(())
    }
}

/// Expression that exports a column: text, numbers, flags and JSON.
fn export_expression(Column { name, column_type }: Column) -> String {
    match column_type {
        ColumnType::Bytes => format!("translate(encode({name}, 'base64'), E'\\n', '')"),
        // Lists of budgets are arrays here and JSON elsewhere.
        ColumnType::Json => format!("to_jsonb({name})"),
        ColumnType::Uuid | ColumnType::Text | ColumnType::Integer | ColumnType::Flag => name.to_owned(),
    }
}

/// Expression that imports a column.
fn import_expression(Column { name, column_type }: Column) -> String {
    match (name, column_type) {
        ("budgets", ColumnType::Json) => {
            "(select array_agg(b) from jsonb_array_elements_text(r.budgets) as b)".to_owned()
        }
        (_, ColumnType::Bytes) => format!("decode(r.{name}, 'base64')"),
        _ => format!("r.{name}"),
    }
}

/// Type of a column in an import.
fn transfer_type(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Bytes => "text",
        other => kind(other),
    }
}

fn kind(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Uuid => "uuid",
        ColumnType::Text => "text",
        ColumnType::Integer => "bigint",
        ColumnType::Flag => "boolean",
        ColumnType::Bytes => "bytea",
        ColumnType::Json => "jsonb",
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
