//! `audit verify`: checks the whole log, from the start of the chain past its end.

use std::collections::HashSet;

use uuid::Uuid;

use super::chain::{Chain, ChainHead, ChainStart, EntryKey};
use crate::engine::{AuditPosition, AuditRow};
use crate::rotate;
use crate::store::Reader;
use crate::{PAGE_MAX, StoreError};

/// Unchained records reported by name; the others are counted.
const EXAMPLES: usize = 20;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditVerification {
    /// Sealed records checked.
    pub records: i64,
    /// Entries not sealed yet.
    pub unsealed: usize,
    /// End of the chain.
    pub head: ChainHead,
    /// Every fault, in one sentence each; empty when there is none.
    pub faults: Vec<String>,
}

impl Reader {
    /// Verifies the whole chain; `expected` is a head saved earlier that must still be part of it.
    pub async fn verify_audit(&self, expected: Option<ChainHead>) -> Result<AuditVerification, StoreError> {
        let mut faults = Vec::new();
        let Some(chain) = Chain::find(self).await? else {
            let head = ChainHead::start();
            if rotate::has_chain(self).await? || !self.engine.audit_sealed(0, 1).await?.is_empty() {
                faults.push("the chain's key is missing".to_owned());
            }
            if expected.is_some_and(|it| it != head) {
                faults.push("the chain is empty, but a head was given".to_owned());
            }
            let unsealed = self.engine.audit_unsealed(PAGE_MAX).await?.len();
            return Ok(AuditVerification { records: 0, unsealed, head, faults });
        };
        // The head is read first: records sealed during the verification come behind it.
        let end = chain.end(self, &mut faults).await?;
        let floor = chain.floor(self, &mut faults).await?;
        let head = end.head;
        let mut verifier = ChainVerifier {
            chain: &chain,
            last: floor.head.clone(),
            place: None,
            faults,
            expected,
            records: 0,
        };
        loop {
            let rows = self.engine.audit_sealed(verifier.last.number + 1, PAGE_MAX).await?;
            let Some(last) = rows.last().and_then(|row| row.record.number) else { break };
            rows.iter()
                .take_while(|row| row.record.number <= Some(head.number))
                .for_each(|row| verifier.step(row));
            if last >= head.number {
                break;
            }
        }
        if self
            .engine
            .audit_sealed(i64::MIN, 1)
            .await?
            .first()
            .is_some_and(|row| row.record.number <= Some(floor.head.number))
        {
            verifier.faults.push(format!(
                "records up to {} should have been removed, but one exists",
                floor.head.number
            ));
        }
        // Sealing moves the head in the same transaction: a record behind a head that is read after it was put there
        // by another program.
        if let Some(row) = self.engine.audit_sealed(head.number.saturating_add(1), 1).await?.first() {
            let now = chain.end(self, &mut Vec::new()).await?.head;
            if row.record.number > Some(now.number) {
                verifier.faults.push(format!(
                    "record {} is behind the end of the chain",
                    row.record.number.unwrap_or(0)
                ));
            }
        }
        if verifier.last.number < head.number {
            verifier.faults.push(format!(
                "records {} to {} are missing at the end",
                verifier.last.number + 1,
                head.number
            ));
        } else if verifier.last != head {
            verifier.faults.push(format!("record {} does not match the chain's head", head.number));
        }
        verifier.compare_saved_head(&head, &floor);
        let waiting = self.engine.audit_unnumbered(PAGE_MAX).await?;
        let sealed = self.engine.audit_known(waiting.iter().map(|row| row.record.id).collect()).await?;
        // Read again: an entry that was sealed meanwhile is no copy of itself.
        let unnumbered = self.engine.audit_unnumbered(PAGE_MAX).await?;
        let key = chain.entry_key();
        let faults = unchained_faults(&unnumbered, &sealed, &key, end.marked, verifier.place);
        verifier.faults.extend(faults);
        let unsealed = unnumbered.iter().filter(|row| !row.refused).count();
        Ok(AuditVerification { records: verifier.records, unsealed, head, faults: verifier.faults })
    }
}

/// Faults of records that are not in the chain; `sealed` are the ids in it, and `last` is the position of its last
/// record.
fn unchained_faults(
    rows: &[AuditRow],
    sealed: &HashSet<Uuid>,
    key: &EntryKey,
    marked: bool,
    last: Option<AuditPosition>,
) -> Vec<String> {
    let (mut faults, mut foreign, mut before) = (Vec::new(), 0, 0);
    for row in rows {
        let entry = &row.record.entry;
        let is_authentic = row.is_marked_by(key, marked);
        if !is_authentic || row.refused || sealed.contains(&row.record.id) {
            foreign += 1;
            if foreign <= EXAMPLES {
                faults.push(match is_authentic {
                    false => format!("the record {} of {} was not written by this store", entry.action, entry.target),
                    true => format!(
                        "the record {} of {} was written by this store and is not part of the chain: it is a copy, was moved, \
                         or was marked as rejected by another program",
                        entry.action, entry.target
                    ),
                });
            }
        }
        before += usize::from(!row.refused && last.is_some_and(|last| row.place < last));
    }
    if foreign > EXAMPLES {
        faults.push(format!("{} more records are not part of the log", foreign - EXAMPLES));
    }
    match before {
        0 => {}
        1 => faults.push("an unsealed record precedes sealed ones".to_owned()),
        many => faults.push(format!("{many} unsealed records precede sealed ones")),
    }
    faults
}

struct ChainVerifier<'a> {
    chain: &'a Chain,
    last: ChainHead,
    /// Position of the last record.
    place: Option<AuditPosition>,
    faults: Vec<String>,
    expected: Option<ChainHead>,
    records: i64,
}

impl ChainVerifier<'_> {
    fn step(&mut self, row: &AuditRow) {
        let number = row.record.number.unwrap_or(0);
        let found = row.record.seal.clone().unwrap_or_default();
        if number != self.last.number + 1 {
            let (first, last) = (self.last.number + 1, number - 1);
            self.faults.push(format!("records {first} to {last} are missing"));
        } else if !self.chain.follows(&self.last, row) {
            self.faults.push(format!(
                "record {number} ({} of {}) was changed or replaced",
                row.record.entry.action, row.record.entry.target
            ));
        }
        // The seal does not cover the position, which lists sort by. Imports and restores that assign new positions
        // keep the order of the chain, so this holds in every store.
        if self.place.is_some_and(|before| row.place <= before) {
            self.faults.push(format!("record {number} or the one before it was moved to another position"));
        }
        self.place = Some(row.place);
        if let Some(saved) = &self.expected
            && saved.number == number
            && saved.seal != found
        {
            self.faults.push(format!("record {number} does not match the saved head"));
        }
        self.records += 1;
        self.last = ChainHead { number, seal: found };
    }

    /// Reports whether a head saved earlier is part of the chain, or that this cannot be determined any more.
    fn compare_saved_head(&mut self, head: &ChainHead, floor: &ChainStart) {
        let floor = &floor.head;
        match &self.expected {
            Some(saved) if saved.number > head.number => {
                self.faults.push(format!(
                    "the chain ends at {}, but the saved head is at {}",
                    head.number, saved.number
                ));
            }
            Some(saved) if saved.number == floor.number && saved.seal != floor.seal => {
                self.faults.push(format!("record {} does not match the saved head", saved.number));
            }
            Some(saved) if saved.number < floor.number => {
                self.faults.push(format!(
                    "the saved head {} was removed by retention; the oldest that can be checked is {}",
                    saved.number, floor.number
                ));
            }
            _ => {}
        }
    }
}
