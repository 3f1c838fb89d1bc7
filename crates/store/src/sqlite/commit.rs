//! Applies a transaction: all of it, or an error and nothing; the writer rolls back.

use rusqlite::{OptionalExtension as _, params};
use uuid::Uuid;

use super::Sqlite;
use super::writer::Session;
use crate::completion::PreparedCompletion;
use crate::notify::Topic;
use crate::transaction::{CommitResult, DocumentUpdate, NewDocument, Transaction, Write};
use crate::{Etag, StoreError};

impl Sqlite {
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<CommitResult, StoreError> {
        self.write(move |session| apply(session, transaction)).await
    }
}

fn apply(session: &mut Session<'_>, transaction: Transaction) -> Result<CommitResult, StoreError> {
    let mut writes = transaction.writes;
    // A lost lease is reported before any other fault; work is taken out of lanes before new work is put in.
    writes.sort_by_key(rank);
    let mut committed = CommitResult::default();
    // A unique key that one document gives up may be taken by another in the same transaction, in either order.
    for write in &writes {
        if let Write::Update(DocumentUpdate { uuid, unique_keys: Some(_), .. }) = write {
            session.release_keys(*uuid)?;
        }
    }
    for write in writes {
        match write {
            Write::Guard(lease) => {
                let signals = session.guard(lease)?;
                committed.signals.push((lease.work, signals));
            }
            Write::Checkpoint { lease, step, data } => {
                let signals = session.checkpoint(lease, &step, &data)?;
                committed.signals.push((lease.work, signals));
            }
            Write::Complete(completion) => {
                let work = completion.lease.work;
                if !session.complete(&PreparedCompletion::from_valid(&completion))? {
                    return Err(StoreError::LostLease { work });
                }
            }
            Write::Release(release) => session.release(&release)?,
            Write::Withdraw { work, result } => session.withdraw(work, &result.into())?,
            Write::WithdrawLane { lane, result } => session.withdraw_lane(lane, &result.into())?,
            Write::Expedite { work } => session.expedite(work)?,
            Write::RequestCancel { work } => session.request_cancel(work)?,
            Write::Discard { work } => session.discard(work)?,
            Write::ExpectIdle { lane } => session.expect_idle(lane)?,
            Write::Enqueue(work) => session.enqueue(&work)?,
            Write::Revive(work) => session.revive(&work)?,
            Write::Create(document) => committed.etags.push((document.uuid, session.create(&document)?)),
            Write::Update(update) => committed.etags.push((update.uuid, session.update(&update)?)),
            Write::Delete { uuid, etag } => session.delete(uuid, etag)?,
            Write::Expect { uuid, etag } => drop(session.expect(uuid, etag)?),
            Write::PutSecret(sealed) => session.put_secret(&sealed, true)?,
            Write::EnsureSecret(sealed) => session.put_secret(&sealed, false)?,
            Write::DropSecret { owner, name } => session.drop_secret(owner, &name)?,
            Write::SetMeta(values) => session.set_meta(&values)?,
            Write::Record(recorded) => session.record(&recorded)?,
            Write::Audit(record) => session.audit(&record)?,
            Write::SavePosition { reader, position } => session.save_position(&reader, position)?,
        }
    }
    Ok(committed)
}

fn rank(write: &Write) -> u8 {
    match write {
        Write::Guard(_) | Write::ExpectIdle { .. } | Write::Expect { .. } => 0,
        Write::Checkpoint { .. } => 1,
        Write::Complete(_) | Write::Release(_) => 2,
        Write::Withdraw { .. }
        | Write::WithdrawLane { .. }
        | Write::Expedite { .. }
        | Write::RequestCancel { .. }
        | Write::Discard { .. } => 3,
        Write::Enqueue(_) | Write::Revive(_) => 4,
        // A path that one document gives up may be taken by the next in the same transaction.
        Write::Delete { .. } => 5,
        Write::Create(_) | Write::Update(_) => 6,
        Write::PutSecret(_) | Write::EnsureSecret(_) | Write::DropSecret { .. } | Write::SetMeta(_) => 7,
        // After the events that they describe.
        Write::Record(_) | Write::Audit(_) | Write::SavePosition { .. } => 8,
    }
}

impl Session<'_> {
    fn create(&mut self, document: &NewDocument) -> Result<Etag, StoreError> {
        let inserted = self
            .connection
            .prepare_cached(
                "insert into documents (uuid, id, kind, parent, etag, generation, body, created, changed)
                 values (?1, ?2, ?3, ?4, 1, 1, ?5, ?6, ?6)",
            )?
            .execute(params![
                document.uuid,
                document.id,
                document.kind,
                document.parent,
                document.body.text(),
                self.now
            ]);
        if let Err(error) = inserted {
            return Err(match is_conflict(&error) {
                true => StoreError::Exists { kind: document.kind.clone(), id: document.id.clone() },
                false => error.into(),
            });
        }
        self.hold_keys(document.uuid, &document.unique_keys)?;
        self.feed(&document.kind, document.uuid, 1, false)?;
        Ok(Etag::FIRST)
    }

    fn update(&mut self, update: &DocumentUpdate) -> Result<Etag, StoreError> {
        let kind = self.expect(update.uuid, update.etag)?;
        self.connection
            .prepare_cached(
                "update documents set etag = etag + 1, generation = generation + ?2, body = ?3, changed = ?4
                 where uuid = ?1",
            )?
            .execute(params![update.uuid, update.desired, update.body.text(), self.now])?;
        if let Some(keys) = &update.unique_keys {
            self.hold_keys(update.uuid, keys)?;
        }
        let etag = update.etag.next();
        self.feed(&kind, update.uuid, etag.0, false)?;
        Ok(etag)
    }

    /// Leaves a tombstone, which frees the path.
    pub(super) fn delete(&mut self, uuid: Uuid, etag: Etag) -> Result<(), StoreError> {
        let kind = self.expect(uuid, etag)?;
        self.connection
            .prepare_cached(
                "update documents set etag = etag + 1, changed = ?2, deleted_at = ?2 where uuid = ?1",
            )?
            .execute(params![uuid, self.now])?;
        self.release_keys(uuid)?;
        self.connection.prepare_cached("delete from secrets where owner = ?1")?.execute([uuid])?;
        self.feed(&kind, uuid, etag.next().0, true)
    }

    /// Kind of the document, if it is at this etag; else the error. There is one writer, so nothing comes between
    /// this and the change; a statement with `returning` would cost SQLite twice as much as both.
    fn expect(&self, uuid: Uuid, etag: Etag) -> Result<String, StoreError> {
        let found: Option<(i64, String)> = self
            .connection
            .prepare_cached("select etag, kind from documents where uuid = ?1 and deleted_at is null")?
            .query_row([uuid], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match found {
            Some((found, kind)) if found == etag.0 => Ok(kind),
            Some((found, _)) => Err(StoreError::Changed { uuid, expected: etag, found: Etag(found) }),
            None => Err(StoreError::Gone { uuid }),
        }
    }

    fn release_keys(&self, uuid: Uuid) -> Result<(), StoreError> {
        self.connection.prepare_cached("delete from unique_keys where uuid = ?1")?.execute([uuid])?;
        Ok(())
    }

    fn hold_keys(&self, uuid: Uuid, keys: &[String]) -> Result<(), StoreError> {
        for key in keys {
            let inserted = self
                .connection
                .prepare_cached("insert into unique_keys (key, uuid) values (?1, ?2)")?
                .execute(params![key, uuid]);
            if let Err(error) = inserted {
                return Err(match is_conflict(&error) {
                    true => StoreError::KeyTaken { key: key.clone() },
                    false => error.into(),
                });
            }
        }
        Ok(())
    }

    /// Adds a feed row: a document changed (`etag` is its new one) or its work changed state (`etag` 0).
    pub(super) fn feed(
        &mut self,
        kind: &str,
        uuid: Uuid,
        etag: i64,
        deleted: bool,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("insert into feed (kind, uuid, etag, deleted, at) values (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![kind, uuid, etag, deleted, self.now])?;
        self.topics.add(Topic::Feed);
        Ok(())
    }
}

/// Whether a statement failed because the row exists already.
pub(super) fn is_conflict(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}
