//! Reads of documents and secrets.

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::{Postgres, count, get, time};
use crate::document::{Body, RawBody, behind};
use crate::keyring::SealedSecret;
use crate::{DocumentQuery, Etag, StoreError, StoredDocument};

const DOCUMENT: &str = "select uuid, id, kind, parent, etag, generation, body, created, changed from documents where deleted_at is null";
const SECRET: &str = "select owner, name, key_id, sealed from secrets";

/// Sends a body to the server as text.
impl ToSql for Body {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // The first byte is the version of the format: text.
        out.put_u8(1);
        out.put_slice(self.text().as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}

impl Postgres {
    pub(crate) async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        let sql = format!("{DOCUMENT} and uuid = $1");
        self.rows("read a document", &sql, &[&uuid]).await?.first().map(document).transpose()
    }

    pub(crate) async fn get_many(
        &self,
        uuids: Vec<Uuid>,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        // Before a new table is first analysed, the server estimates the partial indexes of undeleted rows as tiny
        // and would scan one instead of probing by key; so it must not see that condition when planning.
        let sql = DOCUMENT.replace("documents", "(select * from documents where uuid = any ($1) offset 0) d");
        self.rows("read documents", &sql, &[&uuids]).await?.iter().map(document).collect()
    }

    pub(crate) async fn get_with_health(
        &self,
        uuids: Vec<Uuid>,
        clusters: Vec<Uuid>,
    ) -> Result<(Vec<StoredDocument<RawBody>>, Vec<crate::HealthSample>), StoreError> {
        tokio::try_join!(self.get_many(uuids), self.health(clusters))
    }

    pub(crate) async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        let sql = "select uuid, id from documents where deleted_at is not null and uuid = any ($1)";
        let rows = self.rows("read deleted documents", sql, &[&uuids]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        let sql = format!("{DOCUMENT} and id = $1");
        self.rows("find a document", &sql, &[&id]).await?.first().map(document).transpose()
    }

    pub(crate) async fn version(&self, id: &str) -> Result<Option<(Uuid, Etag)>, StoreError> {
        let sql = "select uuid, etag from documents where deleted_at is null and id = $1";
        let rows = self.rows("find a document's version", sql, &[&id]).await?;
        rows.first().map(|row| Ok((get(row, 0)?, Etag(get(row, 1)?)))).transpose()
    }

    pub(crate) async fn list(
        &self,
        listing: DocumentQuery,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        let limit = count(listing.limit);
        let mut sql = format!("{DOCUMENT} and kind = $1");
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&listing.kind];
        let end = listing.prefix.as_deref().map(behind);
        if listing.parent.is_some() || listing.prefix.is_some() {
            let mut narrow = |condition: &str, value| {
                values.push(value);
                sql += &format!(" and {condition} ${}", values.len());
            };
            if let Some(parent) = &listing.parent {
                narrow("parent =", parent);
            }
            if let (Some(prefix), Some(end)) = (&listing.prefix, &end) {
                narrow("id >=", prefix);
                narrow("id <", end);
            }
            if let Some((_, id)) = &listing.after {
                narrow("id >", id);
            }
            sql += " order by id";
        } else {
            if let Some((parent, id)) = &listing.after {
                values.extend([parent as &(dyn ToSql + Sync), id]);
                sql += " and (parent, id) > ($2, $3)";
            }
            sql += " order by parent, id";
        }
        values.push(&limit);
        sql += &format!(" limit ${}", values.len());
        self.rows("list documents", &sql, &values).await?.iter().map(document).collect()
    }

    pub(crate) async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<SealedSecret>, StoreError> {
        let sql = format!("{SECRET} where owner = $1 and name = $2");
        self.rows("read a secret", &sql, &[&owner, &name]).await?.first().map(sealed).transpose()
    }

    pub(crate) async fn secrets(
        &self,
        not_of: Option<String>,
        after: Option<(Uuid, String)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let (owner, name) = after.unwrap_or((Uuid::nil(), String::new()));
        let sql = format!(
            "{SECRET} where (owner, name) > ($1, $2) and ($3::text is null or key_id <> $3) order by owner, name limit $4"
        );
        self.rows("read secrets", &sql, &[&owner, &name, &not_of, &count(limit)])
            .await?
            .iter()
            .map(sealed)
            .collect()
    }

    pub(crate) async fn reseal(&self, old: SealedSecret, new: SealedSecret) -> Result<bool, StoreError> {
        // Only while that key is current: an outdated rotation must not undo the next one.
        let sql = "with current as (select value from meta where key = 'key_id' for share)
                   update secrets set sealed = $4, key_id = $5, changed = micros_v1() from current
                   where owner = $1 and name = $2 and sealed = $3 and current.value = $5 returning owner";
        let values: [&(dyn ToSql + Sync); 5] = [&old.owner, &old.name, &old.bytes, &new.bytes, &new.key_id];
        Ok(!self.rows("seal a secret again", sql, &values).await?.is_empty())
    }
}

fn document(row: &Row) -> Result<StoredDocument<RawBody>, StoreError> {
    Ok(StoredDocument {
        uuid: get(row, 0)?,
        id: get(row, 1)?,
        kind: get(row, 2)?,
        parent: get(row, 3)?,
        etag: Etag(get(row, 4)?),
        generation: get(row, 5)?,
        body: RawBody::Value(get(row, 6)?),
        created: time(get(row, 7)?)?,
        changed: time(get(row, 8)?)?,
    })
}

fn sealed(row: &Row) -> Result<SealedSecret, StoreError> {
    Ok(SealedSecret { owner: get(row, 0)?, name: get(row, 1)?, key_id: get(row, 2)?, bytes: get(row, 3)? })
}
