//! The audit log: lists, and the queries of the sealer.

use std::collections::HashSet;

use api::audit::{AuditEntry, AuditRecord};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::records::columns;
use super::{Postgres, count, get, time};
use crate::StoreError;
use crate::document::behind;
use crate::engine::{AuditPosition, AuditQuery, AuditRow, AuditSeal};

const RECORD: &str =
    "select tx, seq, id, at, actor, action, target, reason, correlation, before, after, number, seal,
  mac, sealed_at, refused is true from audit";

impl Postgres {
    pub(crate) async fn audit_list(&self, listing: AuditQuery) -> Result<Vec<AuditRow>, StoreError> {
        let before = listing.before.unwrap_or(AuditPosition { tx: i64::MAX, seq: i64::MAX });
        let (target_end, action_end) =
            (listing.target.as_deref().map(behind), listing.action.as_deref().map(behind));
        let sql = format!(
            "{RECORD} where (tx, seq) < ($1, $2) and ($3::text is null or actor = $3)
               and ($4::text is null or (target >= $4 and target < $5)) and ($6::text is null or (action >= $6 and action < $7))
             order by tx desc, seq desc limit $8"
        );
        let rows = self
            .rows(
                "list the audit log",
                &sql,
                &[
                    &before.tx,
                    &before.seq,
                    &listing.actor,
                    &listing.target,
                    &target_end,
                    &listing.action,
                    &action_end,
                    &count(listing.limit),
                ],
            )
            .await?;
        rows.iter().map(record).collect()
    }

    pub(crate) async fn audit_unsealed(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        let sql = format!(
            "{RECORD} where number is null and refused is null and tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
             order by tx, seq limit $1"
        );
        self.rows("read the audit log", &sql, &[&count(limit)]).await?.iter().map(record).collect()
    }

    pub(crate) async fn audit_unnumbered(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        let sql = format!("{RECORD} where number is null order by tx, seq limit $1");
        self.rows("read the audit log", &sql, &[&count(limit)]).await?.iter().map(record).collect()
    }

    pub(crate) async fn audit_waits(&self, unmarked: bool) -> Result<bool, StoreError> {
        let sql = "select exists (select from audit where number is null and refused is null and (mac is null or not $1)
            and tx < pg_snapshot_xmax(pg_current_snapshot())::text::bigint)";
        get(&self.row("read the audit log", sql, &[&unmarked]).await?, 0)
    }

    pub(crate) async fn audit_known(&self, ids: Vec<Uuid>) -> Result<HashSet<Uuid>, StoreError> {
        let sql = "select id from audit where id = any ($1) and number is not null";
        self.rows("read the audit log", sql, &[&ids]).await?.iter().map(|row| get(row, 0)).collect()
    }

    pub(crate) async fn reject_audit(
        &self,
        places: Vec<AuditPosition>,
    ) -> Result<HashSet<AuditPosition>, StoreError> {
        let (txs, seqs): (Vec<i64>, Vec<i64>) = places.into_iter().map(|it| (it.tx, it.seq)).unzip();
        let sql = "update audit a set refused = true from unnest($1::bigint[], $2::bigint[]) as r (tx, seq)
            where a.tx = r.tx and a.seq = r.seq and a.number is null and a.refused is null returning a.tx, a.seq";
        let rows = self.rows("reject audit records", sql, &[&txs, &seqs]).await?;
        rows.iter().map(|row| Ok(AuditPosition { tx: get(row, 0)?, seq: get(row, 1)? })).collect()
    }

    pub(crate) async fn now_micros(&self) -> Result<i64, StoreError> {
        get(&self.row("read the time", "select micros_v1()", &[]).await?, 0)
    }

    pub(crate) async fn audit_sealed(&self, number: i64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        let sql = format!("{RECORD} where number is not null and number >= $1 order by number limit $2");
        self.rows("read the audit log", &sql, &[&number, &count(limit)]).await?.iter().map(record).collect()
    }

    pub(crate) async fn seal_audit(
        &self,
        name: &str,
        fence: i64,
        sealings: Vec<AuditSeal>,
        meta: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        let txs: Vec<i64> = sealings.iter().map(|it| it.place.tx).collect();
        let seqs: Vec<i64> = sealings.iter().map(|it| it.place.seq).collect();
        let numbers: Vec<i64> = sealings.iter().map(|it| it.number).collect();
        let seals: Vec<&str> = sealings.iter().map(|it| it.seal.as_str()).collect();
        // All records of one sealing have the same time.
        let sealed_at = sealings.first().map_or(0, |it| it.sealed_at);
        let (keys, values) = columns(&meta);
        let sql = "select seal_audit_v7($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let values: [&(dyn ToSql + Sync); 9] =
            [&name, &fence, &txs, &seqs, &numbers, &seals, &sealed_at, &keys, &values];
        self.rows("seal the audit log", sql, &values).await.map(drop)
    }
}

fn record(row: &Row) -> Result<AuditRow, StoreError> {
    let entry = AuditEntry {
        actor: get(row, 4)?,
        action: get(row, 5)?,
        target: get(row, 6)?,
        reason: get(row, 7)?,
        correlation_id: get(row, 8)?,
        before: get(row, 9)?,
        after: get(row, 10)?,
    };
    let record = AuditRecord {
        id: get(row, 2)?,
        time: time(get(row, 3)?)?,
        entry,
        number: get(row, 11)?,
        seal: get(row, 12)?,
    };
    Ok(AuditRow {
        place: AuditPosition { tx: get(row, 0)?, seq: get(row, 1)? },
        record,
        mac: get(row, 13)?,
        sealed_at: get(row, 14)?,
        refused: get(row, 15)?,
    })
}
