//! The audit log's chain. Entries are written unchained in the transaction of the change; one leased sealer gives each
//! a number and a seal in feed order, so that no writer waits for another.
//!
//! A seal is a keyed digest (HMAC-SHA-256) over the seal before it, the record and the time of the sealing. The chain's key
//! is itself a secret of the store: who can write to the database but has no key file can change, cut or swap records only
//! visibly.
//!
//! Whoever writes an entry marks it with a digest under a key that is derived from the chain's. The sealer leaves out what
//! carries no valid mark, repeats another record or stands before what is sealed; a verification names it. Records leave by
//! age only from the beginning of the chain, and only those whose seals were verified on the way.
//!
//! The chain begins when the store is first opened for writing: its key and a signed head of no records are there before any
//! record is, and the store's sealed key check says so. So a log, a head or a key that is gone is a fault, however empty
//! what is left looks.
//!
//! Two things do not show by themselves. Who kept a copy of an earlier head, which was signed by us, can cut all records
//! behind it and put that head back; and someone who has the key file too can forge. Against both, note the head (`shipshape
//! audit verify` prints it) somewhere else and give it to a later verification.

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

/// The lease of the one who seals.
const SEALER: &str = "audit-sealer";
/// How long a sealer that vanished keeps others waiting.
const SEALER_LEASE: Duration = Duration::from_secs(15);
/// Sealed in one transaction.
const BLOCK: usize = 500;
/// By so much an entry may be older, by the clock in its id, than one that has left: longer than any transaction takes.
const LATEST_MS: i64 = 10 * 60 * 1000;

const CHAIN_KEY: &str = "audit-chain";

/// An entry on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewAuditRecord {
    pub(crate) id: Uuid,
    pub(crate) entry: AuditEntry,
    /// By which the sealer knows that we wrote it; none while the chain's key is gone.
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
    /// Whether one of us wrote it. Entries of before there were marks have none.
    fn is_marked_by(&self, key: &EntryKey, marked: bool) -> bool {
        match &self.mac {
            Some(mac) => *mac == key.mac(self.record.id, &self.record.entry),
            None => !marked,
        }
    }

    /// Since when it is in the chain, in microseconds; of an earlier build's, when it was written. The seal covers both.
    fn since(&self) -> i64 {
        self.sealed_at.unwrap_or(self.record.time.as_microsecond())
    }

    /// The time in its id, in milliseconds.
    fn id_ms(&self) -> Option<i64> {
        let (seconds, nanos) = self.record.id.get_timestamp()?.to_unix();
        Some(i64::try_from(seconds).ok()?.saturating_mul(1000).saturating_add(i64::from(nanos) / 1_000_000))
    }
}

impl Chain {
    /// Whether a record is the next one behind another.
    fn follows(&self, last: &ChainHead, row: &AuditRow) -> bool {
        let number = last.number + 1;
        row.record.number == Some(number)
            && row.record.seal.as_deref()
                == Some(self.seal(&last.seal, number, &row.record, row.sealed_at).as_str())
    }
}

/// Begins the chain of a store that has none, so that from now on its absence is a fault; and takes note of the key by which
/// entries are marked.
pub(crate) async fn begin(store: &Store) -> Result<(), StoreError> {
    if rotate::has_chain(store).await? {
        let chain = Chain::find(store).await?;
        store.mark_entries_with(chain.as_ref().map(Chain::entry_key));
        return match chain {
            Some(chain) => require_marks(store, &chain).await,
            None => Ok(()),
        };
    }
    let chain = Chain::ensure(store).await?;
    store.mark_entries_with(Some(chain.entry_key()));
    // A release that did not begin the chain here has left a head with the first record that it sealed. Where records are
    // sealed and the head is not there, it was taken away; another one would hide that.
    if store.engine.audit_sealed(i64::MIN, 1).await?.is_empty() {
        let marked = store.engine.audit_unnumbered(1).await?.is_empty();
        let start = chain.signed_end(&ChainEnd { head: ChainHead::start(), marked });
        store.engine.ensure_meta(vec![(HEAD.to_owned(), start)]).await?;
    }
    rotate::remember_chain(store).await?;
    require_marks(store, &chain).await
}

/// In a store of a build that did not mark entries: seals what is there, and from then on seals nothing without a mark.
async fn require_marks(store: &Store, chain: &Chain) -> Result<(), StoreError> {
    let mut faults = Vec::new();
    let end = chain.end(store, &mut faults).await?;
    // What is wrong with the head is told by whoever seals or verifies.
    if end.marked || !faults.is_empty() {
        return Ok(());
    }
    let owner = Uuid::new_v4();
    // While another process seals, the next that is sealed does it.
    let Some(fence) = store.take_lease(SEALER, owner, SEALER_LEASE).await? else { return Ok(()) };
    let sealed = store.seal_under(fence).await;
    store.release_lease(SEALER, owner).await?;
    sealed.map(drop)
}

/// By what the sealer knows which entries belong into the chain.
struct ChainAdmission {
    key: EntryKey,
    marked: bool,
    /// Ids that are in the chain already.
    known: HashSet<Uuid>,
    /// Where the last sealed record stands.
    last: Option<AuditPosition>,
    /// The newest time in the ids of those that have left.
    newest_left: Option<i64>,
    /// In milliseconds, by the later clock: who turns the database's back does not let copies in.
    now: i64,
}

impl ChainAdmission {
    /// Why an entry is left out, if it is.
    fn refusal(&mut self, row: &AuditRow) -> Option<&'static str> {
        if !row.is_marked_by(&self.key, self.marked) {
            return Some("it was not written by this store");
        }
        if self.last.is_some_and(|last| row.place <= last) {
            return Some("it stands before records that are sealed");
        }
        if !self.known.insert(row.record.id) {
            return Some("it repeats another record");
        }
        // A time that is yet to come is that of a clock that was ahead, and says nothing of the age of others.
        let newest_left = self.newest_left.filter(|newest| *newest <= self.now);
        let has_left = |newest| row.id_ms().is_some_and(|ms| ms.saturating_add(LATEST_MS) < newest);
        if newest_left.is_some_and(has_left) {
            return Some("it repeats a record that has left by age");
        }
        None
    }
}

impl Store {
    /// Seals what is not sealed yet, if no other process is at it; how many it sealed.
    pub async fn seal_audit(&self, owner: Uuid) -> Result<usize, StoreError> {
        // Looking costs no write, and most of the time there is nothing to seal.
        if self.engine.audit_unsealed(1).await?.is_empty() {
            return Ok(0);
        }
        let Some(fence) = self.take_lease(SEALER, owner, SEALER_LEASE).await? else { return Ok(0) };
        let sealed = self.seal_under(fence).await;
        // Given back at once: whoever comes next need not wait until it runs out.
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
                return Err(unsealable(&fault));
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
                if let Some(why) = gate.refusal(row) {
                    refused.push((row, why));
                    continue;
                }
                let number = head.number + 1;
                let seal = chain.seal(&head.seal, number, &row.record, Some(sealed_at));
                head = ChainHead { number, seal };
                sealings.push(AuditSeal { place: row.place, number, seal: head.seal.clone(), sealed_at });
            }
            // Or they would be in the way of others for ever.
            if !refused.is_empty() {
                self.leave_out(&refused).await?;
            }
            // Not before all of the build before is sealed: what it wrote may be committed and still hidden from us by an
            // open transaction of somebody else. Then the next sealing tries again.
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

    /// Marks entries as refused and logs why; how many. What another sealed meanwhile, because we lost the lease, is not
    /// refused: it only looks like a copy of itself.
    async fn leave_out(&self, refused: &[(&AuditRow, &str)]) -> Result<usize, StoreError> {
        let left_out = self.engine.refuse_audit(refused.iter().map(|(row, _)| row.place).collect()).await?;
        for (row, why) in refused.iter().filter(|(row, _)| left_out.contains(&row.place)) {
            let AuditEntry { action, target, .. } = &row.record.entry;
            tracing::error!("The audit record {} ({action} of {target}) is not sealed: {why}", row.record.id);
        }
        Ok(left_out.len())
    }

    /// Removes sealed records that are older than `age`, at most one block, from the beginning of the chain and only as far as
    /// each is what was sealed; the chain goes on from the last removed one.
    pub(crate) async fn trim_audit(&self, age: Duration) -> Result<usize, StoreError> {
        let before =
            self.earliest_now().await?.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        // Most of the time nothing is old: that costs one look. What the row says is verified below.
        let first = self.engine.audit_sealed(i64::MIN, 1).await?;
        if first.first().is_none_or(|row| row.since() >= before) {
            return Ok(0);
        }
        let chain = Chain::ensure(self).await?;
        let mut faults = Vec::new();
        let head = chain.end(self, &mut faults).await?.head;
        let floor = chain.floor(self, &mut faults).await?;
        if let Some(fault) = faults.pop() {
            return Err(uncuttable(&fault));
        }
        let mut left = floor.clone();
        for row in self.engine.audit_sealed(floor.head.number + 1, BLOCK).await? {
            let number = left.head.number + 1;
            // The newest record of all always stays: the chain must not look empty.
            if number >= head.number {
                break;
            }
            if !chain.follows(&left.head, &row) {
                let fault = format!("record {number} is missing, or was changed or put in another's place");
                if left.head == floor.head {
                    return Err(uncuttable(&fault));
                }
                break;
            }
            if row.since() >= before {
                break;
            }
            // A writer's clock that is ahead must not make what others write look old.
            let newest = row.id_ms().map(|ms| ms.min(row.since() / 1000)).max(left.newest);
            left =
                ChainStart { head: ChainHead { number, seal: row.record.seal.unwrap_or_default() }, newest };
        }
        if left.head == floor.head {
            return Ok(0);
        }
        // Removed by number, and the floor only with them: a housekeeper that was taken for dead does no harm.
        let stale = RetentionTarget::Audit { from: floor.head.number, up_to: left.head.number };
        self.engine.trim(stale, age, BLOCK, vec![(FLOOR.to_owned(), chain.signed_floor(&left))]).await
    }

    /// The time by the later, or by the earlier, of the database's clock and ours: nobody who can turn one of them makes
    /// records look old.
    async fn latest_now(&self) -> Result<i64, StoreError> {
        Ok(self.engine.now_micros().await?.max(self.clock.now().as_microsecond()))
    }

    async fn earliest_now(&self) -> Result<i64, StoreError> {
        Ok(self.engine.now_micros().await?.min(self.clock.now().as_microsecond()))
    }
}

fn unsealable(fault: &str) -> StoreError {
    StoreError::broken(format!("the audit log cannot be sealed: {fault}"))
}

fn uncuttable(fault: &str) -> StoreError {
    StoreError::broken(format!("the audit log is not shortened: {fault}"))
}

#[cfg(test)]
mod tests;
