//! Statements of a transaction: its changes grouped by subject, one statement each, in lock order.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::commit::topics;
use super::micros;
use crate::audit::NewAuditRecord;
use crate::entries::StoredEntry;
use crate::notify::{Topic, Topics};
use crate::transaction::{DocumentUpdate, NewDocument, Write};
use crate::work::{Completion, NewWork, Release, WorkLease, first_class};
use crate::{Etag, StoreError};

const LOCK_LANES: &str = "select lock_lanes_v1($1, $2, $3)";
const CHECKPOINT: &str = "select * from checkpoint_v1($1, $2, $3, $4, $5)";
const COMPLETE: &str = "select done_, woken_ from complete_v1($1, $2, $3, $4, $5, $6, $7)";
const YIELD: &str = "select yield_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const WITHDRAW: &str = "select withdraw_v1($1, $2)";
const WITHDRAW_LANES: &str = "select withdraw_lanes_v1($1, $2)";
const EXPEDITE: &str = "select expedite_v1($1)";
const REQUEST_CANCEL: &str = "select request_cancel_v2($1)";
const ENQUEUE: &str = "select enqueue_v2($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const REVIVE: &str = "select revive_v2($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const DISCARD: &str = "select discard_v2($1)";
const EXPECT_IDLE: &str = "select expect_idle_v2($1)";
const LOCK_RECORDED: &str = "select lock_told_v2($1)";
const RECORD: &str = "select record_v2($1, $2, $3)";
/// Concurrent writers of these documents wait for this transaction; earlier changes are seen here.
const EXPECT: &str = "with found as materialized (
    select uuid, etag from documents where uuid = any ($1) and deleted_at is null order by uuid for share)
  select refuse_document_v1(e.uuid) from unnest($1::uuid[], $2::bigint[]) as e (uuid, etag)
  where not exists (select from found f where f.uuid = e.uuid and f.etag = e.etag)";
const DOCUMENTS: &str = "select documents_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
const PUT_SECRETS: &str = "select put_secrets_v1($1, $2, $3, $4)";
const ENSURE_SECRETS: &str = "select ensure_secrets_v2($1, $2, $3, $4)";
const SET_META: &str = "select set_meta_v1($1, $2)";
const DROP_SECRETS: &str = "delete from secrets s using unnest($1::uuid[], $2::text[]) as d (owner, name)
  where s.owner = d.owner and s.name = d.name";
/// A retry after a lost response finds the record already written.
const AUDIT: &str = "insert into audit (id, at, actor, action, target, reason, correlation, before, after, mac)
  select a.id, micros_v1(), a.actor, a.action, a.target, a.reason, a.correlation, a.before, a.after, a.mac
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[], $9::text[])
    as a (id, actor, action, target, reason, correlation, before, after, mac)
  where not exists (select from audit existing where existing.id = a.id)";
const SAVE_POSITIONS: &str = "insert into positions (reader, position, changed)
  select p.reader, p.position, micros_v1() from unnest($1::text[], $2::text[]) as p (reader, position) order by p.reader
  on conflict (reader) do update set position = excluded.position, changed = excluded.changed";

pub(super) type Bound = Box<dyn ToSql + Sync + Send>;

/// One statement of a transaction.
pub(super) struct Statement {
    pub(super) sql: &'static str,
    pub(super) values: Vec<Bound>,
    pub(super) results: ResultKind,
}

/// What a statement returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultKind {
    Nothing,
    /// Topics to notify, as bits in this column of its only row.
    Woken(usize),
    /// Signals to holders.
    Signals,
}

macro_rules! bound {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as Bound),*] };
}

/// Changes of a transaction by subject, each in lock order.
#[derive(Default)]
pub(super) struct WritesBySubject {
    checkpoints: Vec<(WorkLease, Option<String>, Option<Value>)>,
    completions: Vec<Completion>,
    releases: Vec<Release>,
    withdrawn: Vec<(Uuid, Value)>,
    withdrawn_lanes: Vec<(Uuid, Value)>,
    expedited: Vec<Uuid>,
    cancelled: Vec<Uuid>,
    discarded: Vec<Uuid>,
    idle: Vec<Uuid>,
    enqueued: Vec<NewWork>,
    revived: Vec<NewWork>,
    expected: Vec<(Uuid, Etag)>,
    deleted: Vec<(Uuid, Etag)>,
    updated: Vec<DocumentUpdate>,
    created: Vec<NewDocument>,
    secrets: Vec<crate::SealedSecret>,
    ensured: Vec<crate::SealedSecret>,
    dropped: Vec<(Uuid, String)>,
    meta: Vec<(String, String)>,
    audit: Vec<NewAuditRecord>,
    recorded: Vec<StoredEntry>,
    positions: BTreeMap<String, String>,
}

impl WritesBySubject {
    pub(super) fn new(writes: Vec<Write>) -> WritesBySubject {
        let mut sorted = WritesBySubject::default();
        for write in writes {
            match write {
                Write::Guard(lease) => sorted.checkpoints.push((lease, None, None)),
                Write::Checkpoint { lease, step, data } => {
                    sorted.checkpoints.push((lease, Some(step), Some(data)));
                }
                Write::Complete(completion) => sorted.completions.push(completion),
                Write::Release(release) => sorted.releases.push(release),
                Write::Withdraw { work, result } => sorted.withdrawn.push((work, result.into())),
                Write::WithdrawLane { lane, result } => sorted.withdrawn_lanes.push((lane, result.into())),
                Write::Expedite { work } => sorted.expedited.push(work),
                Write::RequestCancel { work } => sorted.cancelled.push(work),
                Write::Discard { work } => sorted.discarded.push(work),
                Write::ExpectIdle { lane } => sorted.idle.push(lane),
                Write::Enqueue(work) => sorted.enqueued.push(work),
                Write::Revive(work) => sorted.revived.push(work),
                Write::Delete { uuid, etag } => sorted.deleted.push((uuid, etag)),
                Write::Expect { uuid, etag } => sorted.expected.push((uuid, etag)),
                Write::Update(update) => sorted.updated.push(update),
                Write::Create(document) => sorted.created.push(document),
                Write::PutSecret(sealed) => sorted.secrets.push(sealed),
                Write::EnsureSecret(sealed) => sorted.ensured.push(sealed),
                Write::DropSecret { owner, name } => sorted.dropped.push((owner, name)),
                Write::SetMeta(values) => sorted.meta.extend(values),
                Write::Audit(entry) => sorted.audit.push(entry),
                Write::Record(recorded) => sorted.recorded.push(recorded),
                Write::SavePosition { reader, position } => {
                    sorted.positions.insert(reader, position.to_string());
                }
            }
        }
        sorted.checkpoints.sort_by_key(|it| it.0.work);
        sorted.enqueued.sort_by_key(|it| it.id);
        sorted.revived.sort_by_key(|it| it.id);
        sorted.recorded.sort_by_key(|it| it.work);
        sorted.created.sort_by(|a, b| a.id.cmp(&b.id));
        // Of two secrets of one name the later one counts, and one statement writes a row once.
        sorted.secrets.reverse();
        sorted.secrets.sort_by(|a, b| (a.owner, &a.name).cmp(&(b.owner, &b.name)));
        sorted.secrets.dedup_by(|a, b| (a.owner, &a.name) == (b.owner, &b.name));
        sorted
    }

    /// Topics that are known before the statements run.
    pub(super) fn topics(&self) -> Topics {
        let documents = self.deleted.len() + self.updated.len() + self.created.len();
        let steps = self.checkpoints.iter().filter(|it| it.1.is_some()).count();
        let mut topics = topics(i32::from(documents + steps + self.audit.len() > 0));
        for work in self.enqueued.iter().chain(&self.revived) {
            topics.add(Topic::Work(work.kind));
            // The holder of a manifest may have to yield.
            topics.add(Topic::Work(api::work::WorkKind::Manifest));
        }
        topics
    }

    pub(super) fn etags(&self) -> Vec<(Uuid, Etag)> {
        let created = self.created.iter().map(|it| (it.uuid, Etag::FIRST));
        created.chain(self.updated.iter().map(|it| (it.uuid, it.etag.next()))).collect()
    }

    pub(super) fn names(&self) -> ErrorContext {
        let updated = self.updated.iter().map(|it| (it.uuid, it.etag));
        ErrorContext {
            expected: updated.chain(self.deleted.iter().chain(&self.expected).copied()).collect(),
            created: self
                .created
                .iter()
                .map(|it| (it.uuid.to_string(), it.kind.clone(), it.id.clone()))
                .collect(),
            key_ids: self.secrets.iter().chain(&self.ensured).map(|it| it.key_id.clone()).collect(),
        }
    }

    pub(super) fn steps(self) -> Vec<Statement> {
        let mut steps = Vec::new();
        steps.extend(self.lock_lanes());
        steps.extend(self.lock_recorded());
        if !self.idle.is_empty() {
            steps.push(Statement {
                sql: EXPECT_IDLE,
                values: bound![self.idle],
                results: ResultKind::Nothing,
            });
        }
        if !self.checkpoints.is_empty() {
            let mut columns = (vec![], vec![], vec![], vec![], vec![]);
            for (lease, step, data) in self.checkpoints {
                columns.0.push(lease.work);
                columns.1.push(lease.owner);
                columns.2.push(lease.fence);
                columns.3.push(step);
                columns.4.push(data);
            }
            let values = bound![columns.0, columns.1, columns.2, columns.3, columns.4];
            steps.push(Statement { sql: CHECKPOINT, values, results: ResultKind::Signals });
        }
        if !self.completions.is_empty() {
            steps.push(complete_step(self.completions, true));
        }
        if !self.releases.is_empty() {
            let (works, lanes, owners, fences) = lease_columns(self.releases.iter().map(|it| it.lease));
            let rests: Vec<i64> = self.releases.iter().map(|it| micros(it.delay)).collect();
            let spent: Vec<bool> = self.releases.iter().map(|it| it.attempt_spent).collect();
            let uncancelled: Vec<bool> = self.releases.iter().map(|it| it.unless_cancelled).collect();
            let started: Vec<bool> = self.releases.iter().map(|it| it.started).collect();
            let (names, datas): (Vec<Option<String>>, Vec<Option<Value>>) =
                self.releases.into_iter().map(|it| it.checkpoint.unzip()).unzip();
            let values =
                bound![works, lanes, owners, fences, rests, spent, names, datas, uncancelled, started];
            steps.push(Statement { sql: YIELD, values, results: ResultKind::Woken(0) });
        }
        for (sql, targets) in [(WITHDRAW, self.withdrawn), (WITHDRAW_LANES, self.withdrawn_lanes)] {
            if !targets.is_empty() {
                let (targets, results): (Vec<Uuid>, Vec<Value>) = targets.into_iter().unzip();
                steps.push(Statement {
                    sql,
                    values: bound![targets, results],
                    results: ResultKind::Woken(0),
                });
            }
        }
        for (sql, works) in
            [(EXPEDITE, self.expedited), (REQUEST_CANCEL, self.cancelled), (DISCARD, self.discarded)]
        {
            if !works.is_empty() {
                steps.push(Statement { sql, values: bound![works], results: ResultKind::Woken(0) });
            }
        }
        for (sql, works) in [(ENQUEUE, self.enqueued), (REVIVE, self.revived)] {
            if !works.is_empty() {
                steps.push(enqueue_step(sql, works));
            }
        }
        if !self.expected.is_empty() {
            let (uuids, etags): (Vec<Uuid>, Vec<i64>) =
                self.expected.into_iter().map(|(uuid, etag)| (uuid, etag.0)).unzip();
            steps.push(Statement { sql: EXPECT, values: bound![uuids, etags], results: ResultKind::Nothing });
        }
        if !(self.deleted.is_empty() && self.updated.is_empty() && self.created.is_empty()) {
            steps.push(documents_step(self.deleted, self.updated, self.created));
        }
        if !self.dropped.is_empty() {
            let (owners, names): (Vec<Uuid>, Vec<String>) = self.dropped.into_iter().unzip();
            steps.push(Statement {
                sql: DROP_SECRETS,
                values: bound![owners, names],
                results: ResultKind::Nothing,
            });
        }
        for (sql, secrets) in [(PUT_SECRETS, self.secrets), (ENSURE_SECRETS, self.ensured)] {
            if !secrets.is_empty() {
                steps.push(secrets_step(sql, secrets));
            }
        }
        if !self.meta.is_empty() {
            let (keys, values): (Vec<String>, Vec<String>) = self.meta.into_iter().unzip();
            steps.push(Statement {
                sql: SET_META,
                values: bound![keys, values],
                results: ResultKind::Nothing,
            });
        }
        if !self.audit.is_empty() {
            steps.push(audit_step(self.audit));
        }
        if !self.positions.is_empty() {
            let (readers, positions): (Vec<String>, Vec<String>) = self.positions.into_iter().unzip();
            steps.push(Statement {
                sql: SAVE_POSITIONS,
                values: bound![readers, positions],
                results: ResultKind::Nothing,
            });
        }
        if !self.recorded.is_empty() {
            let (works, bodies, of_steps) = recorded(self.recorded);
            let values = bound![works, bodies, of_steps];
            steps.push(Statement { sql: RECORD, values, results: ResultKind::Nothing });
        }
        steps
    }

    /// Locks work that gets an entry and is not otherwise locked. Rows of work come behind the lanes in lock order,
    /// and in id order: so checkpointed work is locked with them.
    fn lock_recorded(&self) -> Option<Statement> {
        let moved: HashSet<Uuid> = self
            .completions
            .iter()
            .map(|it| it.lease.work)
            .chain(self.releases.iter().map(|it| it.lease.work))
            .chain(self.withdrawn.iter().map(|it| it.0))
            .chain(self.expedited.iter().copied())
            .chain(self.enqueued.iter().chain(&self.revived).map(|it| it.id))
            .collect();
        let held: HashSet<Uuid> = self.checkpoints.iter().map(|it| it.0.work).collect();
        let recorded = self.recorded.iter().map(|it| it.work).filter(|work| !moved.contains(work));
        let recorded: Vec<Uuid> = recorded.collect();
        if recorded.iter().all(|work| held.contains(work)) {
            return None;
        }
        let works: Vec<Uuid> = recorded.into_iter().chain(held).collect();
        Some(Statement { sql: LOCK_RECORDED, values: bound![works], results: ResultKind::Nothing })
    }

    /// Each queue operation locks its lanes in order; several operations together need them locked in order
    /// beforehand.
    fn lock_lanes(&self) -> Option<Statement> {
        let verbs = [
            self.completions.is_empty(),
            self.releases.is_empty(),
            self.withdrawn.is_empty(),
            self.withdrawn_lanes.is_empty(),
            self.expedited.is_empty(),
            self.cancelled.is_empty(),
            self.discarded.is_empty(),
            self.idle.is_empty(),
            self.enqueued.is_empty(),
            self.revived.is_empty(),
        ];
        let used = verbs.into_iter().filter(|is_empty| !is_empty).count();
        // A lease check locks a row of work, which comes behind the lanes.
        if used == 0 || (used == 1 && self.checkpoints.is_empty()) {
            return None;
        }
        let held = self
            .completions
            .iter()
            .map(|it| it.lease.lane)
            .chain(self.releases.iter().map(|it| it.lease.lane));
        let lanes: Vec<Uuid> =
            held.chain(self.withdrawn_lanes.iter().map(|it| it.0)).chain(self.idle.iter().copied()).collect();
        let named = self.withdrawn.iter().map(|it| it.0).chain(self.expedited.iter().copied());
        let works: Vec<Uuid> =
            named.chain(self.cancelled.iter().copied()).chain(self.discarded.iter().copied()).collect();
        let fresh: Vec<Uuid> = self.enqueued.iter().chain(&self.revived).map(|it| it.lane).collect();
        Some(Statement { sql: LOCK_LANES, values: bound![lanes, works, fresh], results: ResultKind::Nothing })
    }
}

fn lease_columns(given: impl Iterator<Item = WorkLease>) -> (Vec<Uuid>, Vec<Uuid>, Vec<Uuid>, Vec<i64>) {
    let mut columns = (vec![], vec![], vec![], vec![]);
    for lease in given {
        columns.0.push(lease.work);
        columns.1.push(lease.lane);
        columns.2.push(lease.owner);
        columns.3.push(lease.fence);
    }
    columns
}

fn complete_step(completions: Vec<Completion>, strict: bool) -> Statement {
    let (works, lanes, owners, fences) = lease_columns(completions.iter().map(|it| it.lease));
    let states: Vec<&'static str> = completions.iter().map(|it| it.ending.state().as_str()).collect();
    let results: Vec<Value> = completions.into_iter().map(|it| it.result.into()).collect();
    let values = bound![works, lanes, owners, fences, states, results, strict];
    Statement { sql: COMPLETE, values, results: ResultKind::Woken(1) }
}

fn enqueue_step(sql: &'static str, enqueued: Vec<NewWork>) -> Statement {
    let micros = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_microsecond);
    let mut columns = (vec![], vec![], vec![], vec![], vec![], vec![], vec![], vec![], vec![]);
    for mut work in enqueued {
        work.budgets.sort();
        work.budgets.dedup();
        columns.0.push(work.id);
        columns.1.push(work.lane);
        columns.2.push(work.kind.as_str());
        columns.3.push(i32::try_from(first_class(work.kind)).unwrap_or(i32::MAX));
        columns.4.push(micros(work.run_after));
        columns.5.push(micros(work.run_before));
        columns.6.push(work.priority);
        columns.7.push((!work.budgets.is_empty()).then(|| json!(work.budgets)));
        columns.8.push(work.origin);
    }
    let values = bound![
        columns.0, columns.1, columns.2, columns.3, columns.4, columns.5, columns.6, columns.7, columns.8
    ];
    Statement { sql, values, results: ResultKind::Nothing }
}

fn secrets_step(sql: &'static str, secrets: Vec<crate::SealedSecret>) -> Statement {
    let mut columns = (vec![], vec![], vec![], vec![]);
    for sealed in secrets {
        columns.0.push(sealed.owner);
        columns.1.push(sealed.name);
        columns.2.push(sealed.bytes);
        columns.3.push(sealed.key_id);
    }
    let values = bound![columns.0, columns.1, columns.2, columns.3];
    Statement { sql, values, results: ResultKind::Nothing }
}

/// Entries as three arrays.
fn recorded(entries: Vec<StoredEntry>) -> (Vec<Uuid>, Vec<Value>, Vec<bool>) {
    let mut columns = (vec![], vec![], vec![]);
    for entry in entries {
        columns.0.push(entry.work);
        columns.1.push(entry.body);
        columns.2.push(entry.is_step_entry);
    }
    columns
}

fn documents_step(
    deleted: Vec<(Uuid, Etag)>,
    updated: Vec<DocumentUpdate>,
    created: Vec<NewDocument>,
) -> Statement {
    let (mut owners, mut keyed, mut keys) = (vec![], vec![], vec![]);
    let mut hold_keys = |uuid: Uuid, wanted: Vec<String>| {
        owners.push(uuid);
        for key in wanted {
            keyed.push(uuid);
            keys.push(key);
        }
    };
    let (gone, gone_etags): (Vec<Uuid>, Vec<i64>) =
        deleted.into_iter().map(|(uuid, etag)| (uuid, etag.0)).unzip();
    let mut changed = (vec![], vec![], vec![], vec![]);
    for update in updated {
        changed.0.push(update.uuid);
        changed.1.push(update.etag.0);
        changed.2.push(update.body);
        changed.3.push(update.desired);
        if let Some(wanted) = update.unique_keys {
            hold_keys(update.uuid, wanted);
        }
    }
    let mut new = (vec![], vec![], vec![], vec![], vec![]);
    for document in created {
        new.0.push(document.uuid);
        new.1.push(document.id);
        new.2.push(document.kind);
        new.3.push(document.parent);
        new.4.push(document.body);
        if !document.unique_keys.is_empty() {
            hold_keys(document.uuid, document.unique_keys);
        }
    }
    let values = bound![
        gone, gone_etags, changed.0, changed.1, changed.2, changed.3, new.0, new.1, new.2, new.3, new.4,
        owners, keyed, keys
    ];
    Statement { sql: DOCUMENTS, values, results: ResultKind::Nothing }
}

pub(super) fn audit_step(records: Vec<NewAuditRecord>) -> Statement {
    let mut columns = (vec![], vec![], vec![], vec![], vec![], vec![], vec![], vec![], vec![]);
    for NewAuditRecord { id, entry, mac } in records {
        columns.0.push(id);
        columns.1.push(entry.actor);
        columns.2.push(entry.action);
        columns.3.push(entry.target);
        columns.4.push(entry.reason);
        columns.5.push(entry.correlation_id);
        columns.6.push(entry.before);
        columns.7.push(entry.after);
        columns.8.push(mac);
    }
    let values = bound![
        columns.0, columns.1, columns.2, columns.3, columns.4, columns.5, columns.6, columns.7, columns.8
    ];
    Statement { sql: AUDIT, values, results: ResultKind::Nothing }
}

/// Details of the transaction that the server's errors lack.
pub(super) struct ErrorContext {
    expected: Vec<(Uuid, Etag)>,
    created: Vec<(String, String, String)>,
    key_ids: Vec<String>,
}

impl ErrorContext {
    pub(super) fn complete_error(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Changed { uuid, found, .. } => {
                let expected = self.expected.iter().find(|it| it.0 == uuid).map_or(found, |it| it.1);
                StoreError::Changed { uuid, expected, found }
            }
            // A document may have the uuid of its work: only an error about a document concerns the document.
            StoreError::Exists { kind, id } if kind == "document" => {
                match self.created.iter().find(|it| it.0 == id) {
                    Some((_, kind, id)) => StoreError::Exists { kind: kind.clone(), id: id.clone() },
                    None => StoreError::Exists { kind, id },
                }
            }
            StoreError::StaleKey { current, .. } => {
                let used = self.key_ids.iter().find(|it| **it != current).cloned().unwrap_or_default();
                StoreError::StaleKey { current, used }
            }
            other => other,
        }
    }
}
