//! The audit log's chain. Entries are written unchained in the transaction of the change. One sealer, elected by a
//! lease, gives each entry a number and a seal in feed order, so that no writer waits for another.
//!
//! A seal is a keyed digest (HMAC-SHA-256) over the previous seal, the record and the time of sealing. The chain's
//! key is itself a secret of the store: somebody who can write to the database but has no key file cannot change, cut
//! or swap records without being detected.
//!
//! The writer of an entry marks it with a digest under a key derived from the chain's key. The sealer rejects an
//! entry that has no valid mark, repeats another record or precedes what is sealed; a verification reports it.
//! Retention removes records only from the start of the chain, and only records whose seals it has verified.
//!
//! The chain starts when the store is first opened for writing: its key and a signed head of zero records exist
//! before any record, and the store's sealed key check states this. So a missing log, head or key is a fault, even if
//! the remaining tables look empty.
//!
//! Two attacks are not visible by themselves. Somebody who kept a copy of an earlier signed head can cut all records
//! behind it and restore that head; somebody who has the key file can forge records. Against both, save the head
//! (`shipshape audit verify` prints it) elsewhere and pass it to a later verification.

mod chain;
mod verify;

use std::collections::HashSet;
use std::time::Duration;

use api::audit::AuditEntry;
use uuid::Uuid;

pub use chain::ChainHead;
pub(crate) use chain::EntryKey;
use chain::{Chain, ChainEnd, ChainStart, FLOOR, HEAD};
pub use verify::AuditVerification;

use crate::StoreError;
use crate::engine::{AuditPosition, AuditRow, AuditSeal, RetentionTarget};
use crate::rotate;
use crate::store::Store;

/// Lease of the sealer.
const SEALER: &str = "audit-sealer";
/// Time until another process takes over from a sealer that vanished.
const SEALER_LEASE: Duration = Duration::from_secs(15);
/// Records sealed in one transaction.
const BLOCK: usize = 500;
/// Tolerance by which an entry's id may be older than a removed record: longer than any transaction takes.
const LATEST_MS: i64 = 10 * 60 * 1000;

const CHAIN_KEY: &str = "audit-chain";

/// Entry to be added to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewAuditRecord {
    pub(crate) id: Uuid,
    pub(crate) entry: AuditEntry,
    /// Writer's mark; none while the chain's key is missing.
    pub(crate) mac: Option<String>,
}

impl NewAuditRecord {
    pub(crate) fn new(entry: AuditEntry, key: Option<&EntryKey>) -> NewAuditRecord {
        let id = Uuid::now_v7();
        let mac = key.map(|key| key.mac(id, &entry));
        NewAuditRecord { id, entry, mac }
    }
}

impl AuditRow {
    /// Whether a process of this store wrote it. Entries of builds without marks have none.
    fn is_marked_by(&self, key: &EntryKey, marked: bool) -> bool {
        match &self.mac {
            Some(mac) => *mac == key.mac(self.record.id, &self.record.entry),
            None => !marked,
        }
    }

    /// Time of sealing, in microseconds; time of writing for records of earlier builds. The seal covers both.
    fn since(&self) -> i64 {
        self.sealed_at.unwrap_or(self.record.time.as_microsecond())
    }

    /// Time in its id, in milliseconds.
    fn id_ms(&self) -> Option<i64> {
        let (seconds, nanos) = self.record.id.get_timestamp()?.to_unix();
        Some(i64::try_from(seconds).ok()?.saturating_mul(1000).saturating_add(i64::from(nanos) / 1_000_000))
    }
}

impl Chain {
    /// Whether a record directly follows another.
    fn follows(&self, last: &ChainHead, row: &AuditRow) -> bool {
        let number = last.number + 1;
        row.record.number == Some(number)
            && row.record.seal.as_deref()
                == Some(self.seal(&last.seal, number, &row.record, row.sealed_at).as_str())
    }
}

/// Starts the chain of a store that has none, so that its absence is a fault from then on, and loads the key of the
/// writer marks.
pub(crate) async fn start(store: &Store) -> Result<(), StoreError> {
    if rotate::has_chain(store).await? {
        let chain = Chain::find(store).await?;
        store.set_entry_key(chain.as_ref().map(Chain::entry_key));
        return match chain {
            Some(chain) => require_marks(store, &chain).await,
            None => Ok(()),
        };
    }
    let chain = Chain::ensure(store).await?;
    store.set_entry_key(Some(chain.entry_key()));
    // A release that did not start the chain here left a head with the first record that it sealed. Sealed records
    // without a head mean that the head was removed; a new one would hide that.
    if store.engine.audit_sealed(i64::MIN, 1).await?.is_empty() {
        let marked = store.engine.audit_unnumbered(1).await?.is_empty();
        let start = chain.signed_end(&ChainEnd { head: ChainHead::start(), marked });
        store.engine.ensure_meta(vec![(HEAD.to_owned(), start)]).await?;
    }
    rotate::record_chain(store).await?;
    require_marks(store, &chain).await
}

/// In a store of a build without marks: seals the existing entries, and from then on rejects entries without a mark.
async fn require_marks(store: &Store, chain: &Chain) -> Result<(), StoreError> {
    let mut faults = Vec::new();
    let end = chain.end(store, &mut faults).await?;
    // A fault in the head is reported by the sealer and by a verification.
    if end.marked || !faults.is_empty() {
        return Ok(());
    }
    let owner = Uuid::new_v4();
    // If another process holds the lease, a later sealing does it.
    let Some(fence) = store.take_lease(SEALER, owner, SEALER_LEASE).await? else { return Ok(()) };
    let sealed = store.seal_under(fence).await;
    store.release_lease(SEALER, owner).await?;
    sealed.map(drop)
}

/// Criteria by which the sealer admits entries to the chain.
struct ChainAdmission {
    key: EntryKey,
    marked: bool,
    /// Ids already in the chain.
    known: HashSet<Uuid>,
    /// Position of the last sealed record.
    last: Option<AuditPosition>,
    /// Newest time in the ids of removed records.
    newest_left: Option<i64>,
    /// Later of both clocks, in milliseconds: setting back the database's clock must not admit copies.
    now: i64,
}

impl ChainAdmission {
    /// Reason to reject an entry, if there is one.
    fn rejection(&mut self, row: &AuditRow) -> Option<&'static str> {
        if !row.is_marked_by(&self.key, self.marked) {
            return Some("it was not written by this store");
        }
        if self.last.is_some_and(|last| row.place <= last) {
            return Some("it precedes sealed records");
        }
        if !self.known.insert(row.record.id) {
            return Some("it repeats another record");
        }
        // A future time comes from a clock that was ahead, and says nothing about the age of other entries.
        let newest_left = self.newest_left.filter(|newest| *newest <= self.now);
        let has_left = |newest| row.id_ms().is_some_and(|ms| ms.saturating_add(LATEST_MS) < newest);
        if newest_left.is_some_and(has_left) {
            return Some("it repeats a record that retention removed");
        }
        None
    }
}

impl Store {
    /// Seals unsealed entries unless another process does; returns how many.
    pub async fn seal_audit(&self, owner: Uuid) -> Result<usize, StoreError> {
        // Reading costs no write, and usually there is nothing to seal.
        if self.engine.audit_unsealed(1).await?.is_empty() {
            return Ok(0);
        }
        let Some(fence) = self.take_lease(SEALER, owner, SEALER_LEASE).await? else { return Ok(0) };
        let sealed = self.seal_under(fence).await;
        // Released at once, so that the next sealer does not wait for it to expire.
        self.release_lease(SEALER, owner).await?;
        sealed
    }

    async fn seal_under(&self, fence: i64) -> Result<usize, StoreError> {
        let chain = Chain::ensure(self).await?;
        let mut sealed = 0;
        loop {
            let mut faults = Vec::new();
            let ChainEnd { mut head, marked } = chain.end(self, &mut faults).await?;
            let floor = chain.floor(self, &mut Vec::new()).await?;
            if let Some(fault) = faults.pop() {
                return Err(seal_error(&fault));
            }
            let rows = self.engine.audit_unsealed(BLOCK).await?;
            let is_last = rows.len() < BLOCK;
            let sealed_at = self.latest_now().await?;
            let last = self.engine.audit_sealed(head.number, 1).await?;
            let mut gate = ChainAdmission {
                key: chain.entry_key(),
                marked,
                known: self.engine.audit_known(rows.iter().map(|row| row.record.id).collect()).await?,
                last: last.first().filter(|row| row.record.number == Some(head.number)).map(|row| row.place),
                newest_left: floor.newest,
                now: sealed_at / 1000,
            };
            let (mut sealings, mut refused) = (Vec::with_capacity(rows.len()), Vec::new());
            for row in &rows {
                if let Some(why) = gate.rejection(row) {
                    refused.push((row, why));
                    continue;
                }
                let number = head.number + 1;
                let seal = chain.seal(&head.seal, number, &row.record, Some(sealed_at));
                head = ChainHead { number, seal };
                sealings.push(AuditSeal { place: row.place, number, seal: head.seal.clone(), sealed_at });
            }
            // Otherwise they would block others for ever.
            if !refused.is_empty() {
                self.reject_entries(&refused).await?;
            }
            // Not before all entries of the previous build are sealed: an entry of it may be committed but still
            // hidden by an open transaction. The next sealing tries again.
            let marks_begin = !marked && rows.is_empty() && !self.engine.audit_waits(true).await?;
            if !sealings.is_empty() || marks_begin {
                sealed += sealings.len();
                let end = ChainEnd { head, marked: marked || marks_begin };
                let meta = vec![(HEAD.to_owned(), chain.signed_end(&end))];
                self.engine.seal_audit(SEALER, fence, sealings, meta).await?;
            }
            if is_last && (marked || rows.is_empty()) {
                return Ok(sealed);
            }
        }
    }

    /// Marks entries as rejected and logs the reason; returns how many. Entries that another sealer sealed meanwhile,
    /// because this one lost the lease, are not rejected: they only look like copies of themselves.
    async fn reject_entries(&self, refused: &[(&AuditRow, &str)]) -> Result<usize, StoreError> {
        let left_out = self.engine.reject_audit(refused.iter().map(|(row, _)| row.place).collect()).await?;
        for (row, why) in refused.iter().filter(|(row, _)| left_out.contains(&row.place)) {
            let AuditEntry { action, target, .. } = &row.record.entry;
            tracing::error!("The audit record {} ({action} of {target}) is not sealed: {why}", row.record.id);
        }
        Ok(left_out.len())
    }

    /// Removes sealed records older than `age`, at most one block, from the start of the chain and only while each
    /// record matches its seal; the chain then starts at the last removed one.
    pub(crate) async fn trim_audit(&self, age: Duration) -> Result<usize, StoreError> {
        let before =
            self.earliest_now().await?.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        // Usually nothing is old, and this costs one read. The row's content is verified below.
        let first = self.engine.audit_sealed(i64::MIN, 1).await?;
        if first.first().is_none_or(|row| row.since() >= before) {
            return Ok(0);
        }
        let chain = Chain::ensure(self).await?;
        let mut faults = Vec::new();
        let head = chain.end(self, &mut faults).await?.head;
        let floor = chain.floor(self, &mut faults).await?;
        if let Some(fault) = faults.pop() {
            return Err(trim_error(&fault));
        }
        let mut left = floor.clone();
        for row in self.engine.audit_sealed(floor.head.number + 1, BLOCK).await? {
            let number = left.head.number + 1;
            // The newest record always stays: the chain must not look empty.
            if number >= head.number {
                break;
            }
            if !chain.follows(&left.head, &row) {
                let fault = format!("record {number} is missing, or was changed or replaced");
                if left.head == floor.head {
                    return Err(trim_error(&fault));
                }
                break;
            }
            if row.since() >= before {
                break;
            }
            // A writer's clock that is ahead must not make other entries look old.
            let newest = row.id_ms().map(|ms| ms.min(row.since() / 1000)).max(left.newest);
            left =
                ChainStart { head: ChainHead { number, seal: row.record.seal.unwrap_or_default() }, newest };
        }
        if left.head == floor.head {
            return Ok(0);
        }
        // Removed by number, together with the new start: a housekeeper that lost its lease does no harm.
        let stale = RetentionTarget::Audit { from: floor.head.number, up_to: left.head.number };
        self.engine.trim(stale, age, BLOCK, vec![(FLOOR.to_owned(), chain.signed_floor(&left))]).await
    }

    /// The later, or the earlier, of the database's clock and this process's: changing one of them makes no record
    /// look old.
    async fn latest_now(&self) -> Result<i64, StoreError> {
        Ok(self.engine.now_micros().await?.max(self.clock.now().as_microsecond()))
    }

    async fn earliest_now(&self) -> Result<i64, StoreError> {
        Ok(self.engine.now_micros().await?.min(self.clock.now().as_microsecond()))
    }
}

fn seal_error(fault: &str) -> StoreError {
    StoreError::broken(format!("the audit log cannot be sealed: {fault}"))
}

fn trim_error(fault: &str) -> StoreError {
    StoreError::broken(format!("the audit log cannot be trimmed: {fault}"))
}

#[cfg(test)]
mod tests;
