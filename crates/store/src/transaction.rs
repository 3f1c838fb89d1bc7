//! A write is data: a list of changes that are committed together or not at all.
//!
//! Because every change states what it expects (an etag, a fence, an absence), no write needs a dialogue with the
//! database: it is sent at once, and the engine may retry it after a lost connection or a deadlock. The order of the
//! changes does not matter; the engine applies them in the one order that keeps locks from crossing: lanes, budgets,
//! documents, the rest.

use api::admin::Entry;
use api::audit::AuditEntry;
use api::doc::WorkResult;
use serde_json::Value;
use uuid::Uuid;

use crate::audit::NewAuditRecord;
use crate::completion::PreparedCompletion;
use crate::document::Body;
use crate::entries::StoredEntry;
use crate::keyring::SealedSecret;
use crate::work::{Completion, ENQUEUE_MAX, NewWork, WorkLease};
use crate::{BODY_BYTES_MAX, Etag, KEY_BYTES_MAX, Position, Release, Signals, StoreError};

/// Changes that are committed together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    pub(crate) writes: Vec<Write>,
}

/// One change.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Create(NewDocument),
    Update(DocumentUpdate),
    /// Leaves a tombstone; removes its secrets and unique keys.
    Delete {
        uuid: Uuid,
        etag: Etag,
    },
    PutSecret(SealedSecret),
    DropSecret {
        owner: Uuid,
        name: String,
    },
    /// Stores the secret only if there is none; an existing one stays.
    EnsureSecret(SealedSecret),
    /// Sets meta values of the store.
    SetMeta(Vec<(String, String)>),
    Enqueue(NewWork),
    /// Makes work pending again that its origin had withdrawn.
    Revive(NewWork),
    /// Fails unless the lane is idle: nothing runs, and no started work is pending in it.
    ExpectIdle {
        lane: Uuid,
    },
    /// Fails unless this document exists at that version; changes nothing.
    Expect {
        uuid: Uuid,
        etag: Etag,
    },
    /// Fails unless the caller still holds the work.
    Guard(WorkLease),
    Checkpoint {
        lease: WorkLease,
        step: String,
        data: Value,
    },
    Complete(Completion),
    Release(Release),
    /// Cancels pending work.
    Withdraw {
        work: Uuid,
        result: WorkResult,
    },
    /// Cancels all pending work of a lane, and requests its holder (if any) to cancel.
    WithdrawLane {
        lane: Uuid,
        result: WorkResult,
    },
    /// Makes pending work due at once.
    Expedite {
        work: Uuid,
    },
    /// Requests the holder of running work to cancel it.
    RequestCancel {
        work: Uuid,
    },
    /// Removes work that does not run, with its entries.
    Discard {
        work: Uuid,
    },
    Record(StoredEntry),
    Audit(NewAuditRecord),
    SavePosition {
        reader: String,
        position: Position,
    },
}

/// A document to be created.
#[derive(Debug, Clone)]
pub(crate) struct NewDocument {
    pub(crate) uuid: Uuid,
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) parent: String,
    pub(crate) body: Body,
    pub(crate) unique_keys: Vec<String>,
}

/// A document to be changed.
#[derive(Debug, Clone)]
pub(crate) struct DocumentUpdate {
    pub(crate) uuid: Uuid,
    /// Version that the caller had read.
    pub(crate) etag: Etag,
    pub(crate) body: Body,
    /// Whether the desired state changed, which raises the generation.
    pub(crate) desired: bool,
    /// New unique keys; `None` leaves them as they are.
    pub(crate) unique_keys: Option<Vec<String>>,
}

/// Result of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitResult {
    /// New versions of created and changed documents.
    pub etags: Vec<(Uuid, Etag)>,
    /// Signals to the holders whose checkpoints or guards it contained.
    pub signals: Vec<(Uuid, Signals)>,
}

impl CommitResult {
    /// New version of one document.
    pub fn etag(&self, uuid: Uuid) -> Option<Etag> {
        self.etags.iter().find(|(it, _)| *it == uuid).map(|(_, etag)| *etag)
    }

    /// Signals to the holder of one piece of work.
    pub fn signals(&self, work: Uuid) -> Signals {
        self.signals.iter().find(|(it, _)| *it == work).map(|(_, signals)| *signals).unwrap_or_default()
    }
}

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Whether it contains no change.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Fails unless the caller still holds the work.
    pub fn guard(self, lease: WorkLease) -> Transaction {
        self.with(Write::Guard(lease))
    }

    /// Stores a finished step of this work.
    pub fn checkpoint(self, lease: WorkLease, step: impl Into<String>, data: Value) -> Transaction {
        self.with(Write::Checkpoint { lease, step: step.into(), data })
    }

    /// Completes this work and frees its lane.
    pub fn complete(self, mut completion: Completion) -> Transaction {
        let (work, entries) = (completion.lease.work, std::mem::take(&mut completion.entries));
        self.with(Write::Complete(completion)).record_all(work, entries)
    }

    /// Releases this work and frees its lane.
    pub fn release(self, mut release: Release) -> Transaction {
        let (work, entries) = (release.lease.work, std::mem::take(&mut release.entries));
        self.with(Write::Release(release)).record_all(work, entries)
    }

    /// Appends an entry to the history of a piece of work, live or finished. An entry that is too long is truncated,
    /// and entries of steps are dropped from a full history.
    pub fn record(self, work: Uuid, entry: Entry) -> Transaction {
        self.with(Write::Record(StoredEntry::new(work, entry)))
    }

    fn record_all(self, work: Uuid, entries: Vec<Entry>) -> Transaction {
        entries.into_iter().fold(self, |transaction, entry| transaction.record(work, entry))
    }

    /// Enqueues work in its lane.
    pub fn enqueue(self, work: NewWork) -> Transaction {
        self.with(Write::Enqueue(work))
    }

    /// Cancels pending work.
    pub fn withdraw(self, work: Uuid, result: impl Into<WorkResult>) -> Transaction {
        self.with(Write::Withdraw { work, result: result.into() })
    }

    /// Cancels all pending work of a lane, and requests its holder, if there is one, to cancel.
    pub fn withdraw_lane(self, lane: Uuid, result: impl Into<WorkResult>) -> Transaction {
        self.with(Write::WithdrawLane { lane, result: result.into() })
    }

    /// Makes pending work due at once.
    pub fn expedite(self, work: Uuid) -> Transaction {
        self.with(Write::Expedite { work })
    }

    /// Requests the holder of running work to cancel it.
    pub fn request_cancel(self, work: Uuid) -> Transaction {
        self.with(Write::RequestCancel { work })
    }

    /// Stores a sealed secret, replacing an earlier one of that owner and name.
    pub fn put_secret(self, sealed: SealedSecret) -> Transaction {
        self.with(Write::PutSecret(sealed))
    }

    /// Removes a secret, if there is one.
    pub fn drop_secret(self, owner: Uuid, name: impl Into<String>) -> Transaction {
        self.with(Write::DropSecret { owner, name: name.into() })
    }

    /// Writes an entry of the audit log.
    pub fn audit(self, entry: AuditEntry) -> Transaction {
        self.with(Write::Audit(NewAuditRecord::new(entry, None)))
    }

    /// Saves the position of a feed reader.
    pub fn save_position(self, reader: impl Into<String>, position: Position) -> Transaction {
        self.with(Write::SavePosition { reader: reader.into(), position })
    }

    /// Deletes a document at the version that was read; a tombstone stays as long as its feed row.
    pub fn delete(self, uuid: Uuid, etag: Etag) -> Transaction {
        self.with(Write::Delete { uuid, etag })
    }

    pub(crate) fn with(mut self, write: Write) -> Transaction {
        self.writes.push(write);
        self
    }
}

/// Longest name of a budget: it is an index key.
pub(crate) const BUDGET_BYTES_MAX: usize = 200;
/// Most budgets of a piece of work.
const BUDGETS_MAX: usize = 16;
/// Most changes of a transaction; larger plans are split.
const WRITES_MAX: usize = 4 * ENQUEUE_MAX;
/// Longest text of an audit entry; the writer truncates longer ones.
const AUDIT_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Rejects what no engine could store, so that the engines need not check again.
pub(crate) fn validate(transaction: &Transaction) -> Result<(), StoreError> {
    check_count(transaction.writes.len())?;
    let enqueued = transaction
        .writes
        .iter()
        .filter(|write| matches!(write, Write::Enqueue(_) | Write::Revive(_)))
        .count();
    if enqueued > ENQUEUE_MAX {
        return Err(StoreError::invalid(format!(
            "a transaction enqueues {enqueued} pieces of work; at most {ENQUEUE_MAX} are accepted"
        )));
    }
    transaction.writes.iter().try_for_each(validate_write)
}

/// Validates one of several completions, each of which succeeds or fails alone.
pub(crate) fn validate_end(result: &Value) -> Result<(), StoreError> {
    json("result", result)
}

/// Validates their number.
pub(crate) fn validate_ends(ends: &[PreparedCompletion]) -> Result<(), StoreError> {
    // A completion is one write, and so is each of its entries.
    check_count(ends.iter().map(|it| 1 + it.entries().len()).sum())
}

fn check_count(count: usize) -> Result<(), StoreError> {
    match count {
        0..=WRITES_MAX => Ok(()),
        _ => Err(StoreError::invalid(format!(
            "a transaction contains {count} changes; at most {WRITES_MAX} are accepted"
        ))),
    }
}

fn validate_write(write: &Write) -> Result<(), StoreError> {
    match write {
        Write::Create(document) => {
            for (what, text) in
                [("path", &document.id), ("kind", &document.kind), ("scope", &document.parent)]
            {
                key(what, text)?;
            }
            document.unique_keys.iter().try_for_each(|text| key("unique key", text))?;
            if document.uuid.is_nil() {
                return Err(StoreError::invalid(format!(
                    "{} {}: it may not have the nil uuid",
                    document.kind, document.id
                )));
            }
            if document.id != document.id.to_lowercase() {
                return Err(StoreError::invalid(format!("path {:?} must be in lower case", document.id)));
            }
            body(&document.kind, &document.body)
        }
        Write::Update(update) => {
            update.unique_keys.iter().flatten().try_for_each(|text| key("unique key", text))?;
            body("document", &update.body)
        }
        Write::PutSecret(sealed) | Write::EnsureSecret(sealed) => {
            key("secret's name", &sealed.name)?;
            match sealed.bytes.len() {
                0..=BODY_BYTES_MAX => Ok(()),
                len => Err(StoreError::invalid(format!(
                    "secret {}: has {len} bytes; at most {BODY_BYTES_MAX} are accepted",
                    sealed.name
                ))),
            }
        }
        Write::Enqueue(work) | Write::Revive(work) => {
            if let Some(origin) = &work.origin {
                key("origin", origin)?;
            }
            if work.budgets.len() > BUDGETS_MAX {
                return Err(StoreError::invalid(format!(
                    "work {}: names {} budgets; at most {BUDGETS_MAX} are accepted",
                    work.id,
                    work.budgets.len()
                )));
            }
            for budget in &work.budgets {
                if budget.is_empty() || budget.len() > BUDGET_BYTES_MAX || budget.contains('\0') {
                    return Err(StoreError::invalid(format!(
                        "work {}: budget {budget:?} must have 1 to {BUDGET_BYTES_MAX} bytes and no NUL",
                        work.id
                    )));
                }
            }
            if work.id.is_nil() || work.lane.is_nil() {
                return Err(StoreError::invalid(format!(
                    "work {} in lane {}: neither may be the nil uuid",
                    work.id, work.lane
                )));
            }
            Ok(())
        }
        Write::Checkpoint { step, data, .. } => {
            key("step's name", step)?;
            json("checkpoint", data)
        }
        Write::Release(release) => match &release.checkpoint {
            Some((step, data)) => {
                key("step's name", step)?;
                json("checkpoint", data)
            }
            None => Ok(()),
        },
        Write::Complete(Completion { result, .. })
        | Write::Withdraw { result, .. }
        | Write::WithdrawLane { result, .. } => json("result", &result.to_json()),
        Write::Audit(NewAuditRecord { entry, .. }) => {
            let texts = [&entry.actor, &entry.action, &entry.target, &entry.reason];
            let more = entry.before.iter().chain(entry.after.iter());
            for text in texts.into_iter().chain(more) {
                if text.len() > AUDIT_TEXT_BYTES_MAX || text.contains('\0') {
                    return Err(StoreError::invalid(format!(
                        "an audit entry's texts must have at most {AUDIT_TEXT_BYTES_MAX} bytes and no NUL"
                    )));
                }
            }
            Ok(())
        }
        Write::SavePosition { reader, .. } => key("reader's name", reader),
        Write::DropSecret { .. }
        | Write::SetMeta(_)
        | Write::Delete { .. }
        | Write::Expect { .. }
        | Write::Guard(_)
        | Write::Expedite { .. }
        | Write::RequestCancel { .. }
        | Write::ExpectIdle { .. }
        | Write::Discard { .. }
        | Write::Record(_) => Ok(()),
    }
}

fn key(what: &str, text: &str) -> Result<(), StoreError> {
    if text.is_empty() || text.len() > KEY_BYTES_MAX || text.contains('\0') {
        // Only its start is repeated: it may be as long as a request can be.
        let shown: String = text.chars().take(60).collect();
        return Err(StoreError::invalid(format!(
            "{what} {shown:?} must have 1 to {KEY_BYTES_MAX} bytes and no NUL"
        )));
    }
    Ok(())
}

fn body(kind: &str, body: &Body) -> Result<(), StoreError> {
    if !body.text().starts_with('{') {
        return Err(StoreError::invalid(format!("the body of a {kind} must be a JSON object")));
    }
    measured(kind, body.has_nul(), body.text().len())
}

fn json(what: &str, value: &Value) -> Result<(), StoreError> {
    measured(what, has_nul(value), json_bytes(value))
}

fn measured(what: &str, has_nul: bool, bytes: usize) -> Result<(), StoreError> {
    if has_nul {
        return Err(StoreError::invalid(format!(
            "{what}: contains the character NUL, which cannot be stored"
        )));
    }
    match bytes {
        0..=BODY_BYTES_MAX => Ok(()),
        _ => Err(StoreError::invalid(format!(
            "{what}: has {bytes} bytes of JSON; at most {BODY_BYTES_MAX} are accepted"
        ))),
    }
}

/// Length of a value as text, without building the text.
fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = std::fmt::Write::write_fmt(&mut count, format_args!("{value}"));
    count.0
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
    }
}
