//! Executes a transaction: all of it or nothing.
//!
//! Its changes are grouped into one statement for each subject, in lock order. A single statement is a transaction by
//! itself. Several are pipelined from `begin` to `commit` without waiting for results in between: a failure aborts
//! the transaction on the server, and the `commit` then rolls back. So a caller that stops waiting leaves no
//! transaction open either.

use deadpool_postgres::Object;
use futures_util::future::{join_all, join3};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::error;
use super::statements::{Bound, ResultKind, Statement, WritesBySubject, audit_step};
use super::{DEADLINE, Postgres, discard, get, prepare_retry};
use crate::audit::NewAuditRecord;
use crate::notify::{Topic, Topics};
use crate::transaction::{CommitResult, DocumentUpdate, NewDocument, Transaction, Write};
use crate::work::Signals;
use crate::{Etag, StoreError};

/// The most frequent write of services: one document and its feed row. One statement is a transaction by itself.
const OBSERVE_ONE: &str = "with changed as (
    update documents set etag = etag + 1, changed = micros_v1(), body = $3, generation = generation + $4
    where uuid = $1 and etag = $2 and deleted_at is null returning kind, etag, changed),
  feed_row as (insert into feed (kind, uuid, etag, deleted, at) select kind, $1, etag, false, changed from changed)
  select etag from changed";
/// The same with its audit record, at half the cost of three statements. Not used without a record: even a part that
/// writes nothing costs the server a tenth of the whole.
const UPDATE_ONE: &str = "with changed as (
    update documents set etag = etag + 1, changed = micros_v1(), body = $3, generation = generation + $4
    where uuid = $1 and etag = $2 and deleted_at is null returning kind, etag, changed),
  feed_row as (insert into feed (kind, uuid, etag, deleted, at) select kind, $1, etag, false, changed from changed),
  noted as (
    insert into audit (id, at, actor, action, target, reason, correlation, before, after, mac)
    select $5::uuid, changed, $6::text, $7::text, $8::text, $9::text, $10::uuid, $11::text, $12::text, $13::text
    from changed)
  select etag from changed";
const CREATE_ONE: &str = "with created as (
    insert into documents (uuid, id, kind, parent, etag, generation, body, created, changed)
    select $1, $2, $3, $4, 1, 1, $14, now, now from (select micros_v1() as now) t
    on conflict do nothing returning kind, created),
  feed_row as (insert into feed (kind, uuid, etag, deleted, at) select kind, $1, 1, false, created from created),
  noted as (
    insert into audit (id, at, actor, action, target, reason, correlation, before, after, mac)
    select $5::uuid, created, $6::text, $7::text, $8::text, $9::text, $10::uuid, $11::text, $12::text, $13::text
    from created where $5::uuid is not null)
  select kind from created";

impl Postgres {
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<CommitResult, StoreError> {
        let mut writes = transaction.writes;
        let entry = match writes.as_slice() {
            [Write::Update(_) | Write::Create(_), Write::Audit(_)] => writes.pop(),
            _ => None,
        };
        if writes.len() == 1 {
            match (writes.remove(0), entry) {
                (Write::Update(update), entry) if update.unique_keys.is_none() => {
                    return self.update_one(update, entry.map(|entry| AuditColumns::new(Some(entry)))).await;
                }
                (Write::Create(document), entry) if document.unique_keys.is_empty() => {
                    return self.create_one(document, AuditColumns::new(entry)).await;
                }
                (other, entry) => writes.extend([other].into_iter().chain(entry)),
            }
        }
        if writes.is_empty() {
            return Ok(CommitResult::default());
        }
        let sorted = WritesBySubject::new(writes);
        let mut topics = sorted.topics();
        let (names, etags) = (sorted.names(), sorted.etags());
        let steps = sorted.steps();
        let results =
            Box::pin(self.transact("commit", &steps)).await.map_err(|error| names.complete_error(error))?;
        let mut signals = Vec::new();
        for (step, rows) in steps.iter().zip(&results) {
            topics.merge(woken_by(step, rows)?);
            if step.results == ResultKind::Signals {
                for row in rows {
                    signals.push((get(row, 0)?, Signals { preempt: get(row, 1)?, cancel: get(row, 2)? }));
                }
            }
        }
        self.wake(topics);
        Ok(CommitResult { etags, signals })
    }

    async fn update_one(
        &self,
        update: DocumentUpdate,
        audit_entry: Option<AuditColumns>,
    ) -> Result<CommitResult, StoreError> {
        let DocumentUpdate { uuid, etag, body, desired, .. } = update;
        let generations = i64::from(desired);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&uuid, &etag.0, &body, &generations];
        values.extend(audit_entry.iter().flat_map(AuditColumns::values));
        let sql = if audit_entry.is_some() { UPDATE_ONE } else { OBSERVE_ONE };
        let rows = self.rows("update a document", sql, &values).await?;
        if rows.is_empty() {
            let sql = "select etag from documents where uuid = $1 and deleted_at is null";
            return Err(match self.rows("read a document", sql, &[&uuid]).await?.first() {
                Some(row) => StoreError::Changed { uuid, expected: etag, found: Etag(get(row, 0)?) },
                None => StoreError::Gone { uuid },
            });
        }
        self.wake(topics(1));
        Ok(CommitResult { etags: vec![(uuid, etag.next())], signals: Vec::new() })
    }

    async fn create_one(
        &self,
        document: NewDocument,
        audit_entry: AuditColumns,
    ) -> Result<CommitResult, StoreError> {
        let NewDocument { uuid, id, kind, parent, body, .. } = document;
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&uuid, &id, &kind, &parent];
        values.extend(audit_entry.values());
        values.push(&body);
        let rows = self.rows("create a document", CREATE_ONE, &values).await?;
        if rows.is_empty() {
            return Err(StoreError::Exists { kind, id });
        }
        self.wake(topics(1));
        Ok(CommitResult { etags: vec![(uuid, Etag::FIRST)], signals: Vec::new() })
    }

    pub(super) async fn set_limit(
        &self,
        key: &str,
        limit: Option<u32>,
        audit: Option<NewAuditRecord>,
    ) -> Result<(), StoreError> {
        let cap = limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
        let mut steps = vec![Statement {
            sql: "select set_budget_v1($1, $2)",
            values: vec![Box::new(key.to_owned()) as Bound, Box::new(cap)],
            results: ResultKind::Woken(0),
        }];
        steps.extend(audit.map(|record| audit_step(vec![record])));
        let mut notified = topics(i32::from(steps.len() > 1));
        let results = Box::pin(self.transact("set a budget", &steps)).await?;
        for (step, rows) in steps.iter().zip(&results) {
            notified.merge(woken_by(step, rows)?);
        }
        self.wake(notified);
        Ok(())
    }

    /// Executes all statements or none; retries after a deadlock or serialisation failure.
    async fn transact(&self, what: &'static str, steps: &[Statement]) -> Result<Vec<Vec<Row>>, StoreError> {
        for attempt in 1.. {
            let client = self.shared.pool.get().await.map_err(|error| error::pool_error(what, error))?;
            match tokio::time::timeout(DEADLINE, send(&client, steps)).await {
                Ok(Ok(results)) => return Ok(results),
                Ok(Err(failure)) => prepare_retry(what, client, failure, attempt).await?,
                Err(_) => {
                    discard(client);
                    return Err(error::late(what));
                }
            }
        }
        unreachable!("the last attempt returns")
    }
}

/// Audit record of a single document's change as parameters; all null when there is none.
#[derive(Default)]
struct AuditColumns {
    id: Option<Uuid>,
    actor: Option<String>,
    action: Option<String>,
    target: Option<String>,
    reason: Option<String>,
    correlation: Option<Uuid>,
    before: Option<String>,
    after: Option<String>,
    mac: Option<String>,
}

impl AuditColumns {
    fn new(write: Option<Write>) -> AuditColumns {
        let Some(Write::Audit(NewAuditRecord { id, entry, mac })) = write else {
            return AuditColumns::default();
        };
        AuditColumns {
            id: Some(id),
            actor: Some(entry.actor),
            action: Some(entry.action),
            target: Some(entry.target),
            reason: Some(entry.reason),
            correlation: entry.correlation_id,
            before: entry.before,
            after: entry.after,
            mac,
        }
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 9] {
        let AuditColumns { id, actor, action, target, reason, correlation, before, after, mac } = self;
        [id, actor, action, target, reason, correlation, before, after, mac]
    }
}

/// Sends all statements at once. All of them are sent when this future is first polled past preparing, so dropping it
/// later leaves no transaction open.
async fn send(client: &Object, steps: &[Statement]) -> Result<Vec<Vec<Row>>, Error> {
    let mut statements = Vec::with_capacity(steps.len());
    for step in steps {
        statements.push(client.prepare_cached(step.sql).await?);
    }
    let values: Vec<Vec<&(dyn ToSql + Sync)>> = steps
        .iter()
        .map(|step| step.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect())
        .collect();
    let queries = statements.iter().zip(&values).map(|(statement, values)| client.query(statement, values));
    if steps.len() == 1 {
        return join_all(queries).await.into_iter().collect();
    }
    let (started, results, committed) =
        join3(client.batch_execute("begin"), join_all(queries), client.batch_execute("commit")).await;
    started?;
    // The first failure is the cause of the others.
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    committed?;
    Ok(results)
}

/// Topics from the bits that the server's functions return.
pub(super) fn topics(bits: i32) -> Topics {
    let mut topics = Topics::default();
    Topic::ALL
        .into_iter()
        .filter(|topic| bits & (1 << topic.index()) != 0)
        .for_each(|topic| topics.add(topic));
    topics
}

fn woken_by(step: &Statement, rows: &[Row]) -> Result<Topics, StoreError> {
    match (step.results, rows.first()) {
        (ResultKind::Woken(column), Some(row)) => Ok(topics(get(row, column)?)),
        _ => Ok(Topics::default()),
    }
}
