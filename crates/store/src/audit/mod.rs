//! The audit log's chain. Entries are written unchained in the transaction of the change; one leased sealer gives each
//! a number and a seal in feed order, so that no writer waits for another.
//!
//! A seal is a keyed digest (HMAC-SHA-256) over the seal before it and the record. The chain's key is itself a secret
//! of the store: who can write to the database but has no key file can change, cut or swap records only visibly.
//!
//! The chain begins when the store is first opened for writing: its key and a signed head of no records are there before any
//! record is, and the store's sealed key check says so. So a log, a head or a key that is gone is a fault, however empty
//! what is left looks.
//!
//! Two things do not show by themselves. Who kept a copy of an earlier head, which was signed by us, can cut all records
//! behind it and put that head back; and someone who has the key file too can forge. Against both, note the head (`shipshape
//! audit verify` prints it) somewhere else and give it to a later verification.

use std::time::Duration;

use api::audit::AuditRecord;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

use crate::engine::{AuditPlace, AuditRow, Sealing, Stale};
use crate::migrate::hex;
use crate::rotate;
use crate::store::{Reader, Store};
use crate::transaction::{Transaction, Write};
use crate::{PAGE_MAX, StoreError};

/// The lease of the one who seals.
const SEALER: &str = "audit-sealer";
/// How long a sealer that vanished keeps others waiting.
const SEALER_LEASE: Duration = Duration::from_secs(15);
/// Sealed in one transaction.
const BLOCK: usize = 500;

const CHAIN_KEY: &str = "audit-chain";
const HEAD: &str = "audit_head";
const FLOOR: &str = "audit_floor";
/// What the first record follows.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of the chain: how many records it has had, and its value after the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the last sealed record.
    pub number: i64,
    /// The seal of that record, in hexadecimal.
    pub seal: String,
}

impl std::fmt::Display for ChainHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.number, self.seal)
    }
}

impl std::str::FromStr for ChainHead {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<ChainHead, StoreError> {
        text.split_once(':')
            .and_then(|(number, seal)| Some((number.parse().ok()?, seal)))
            .filter(|(number, seal): &(i64, &str)| {
                *number >= 0 && seal.len() == GENESIS.len() && seal.bytes().all(|it| it.is_ascii_hexdigit())
            })
            .map(|(number, seal)| ChainHead { number, seal: seal.to_ascii_lowercase() })
            .ok_or_else(|| {
                StoreError::invalid(format!(
                    "{text:?} is no head of a chain; accepted: NUMBER:SEAL as `audit verify` prints it"
                ))
            })
    }
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many sealed records were looked at.
    pub records: i64,
    /// How many are written but not sealed yet.
    pub unsealed: usize,
    /// The end of the chain.
    pub head: ChainHead,
    /// Everything that is wrong, each in one sentence; empty when nothing is.
    pub faults: Vec<String>,
}

/// Begins the chain of a store that has none, so that from now on its absence is a fault.
pub(crate) async fn begin(store: &Store) -> Result<(), StoreError> {
    if rotate::has_chain(store).await? {
        return Ok(());
    }
    let chain = Chain::ensure(store).await?;
    // A release that did not begin the chain here has left a head with the first record that it sealed. Where records are
    // sealed and the head is not there, it was taken away; another one would hide that.
    if store.engine.audit_sealed(i64::MIN, 1).await?.is_empty() {
        let start = chain.signed(HEAD, &ChainHead::start());
        store.engine.ensure_meta(vec![(HEAD.to_owned(), start)]).await?;
    }
    rotate::remember_chain(store).await
}

impl ChainHead {
    /// What the first record follows.
    fn start() -> ChainHead {
        ChainHead { number: 0, seal: GENESIS.to_owned() }
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
            let mut head = chain.head(self).await?;
            let rows = self.engine.audit_unsealed(BLOCK).await?;
            let mut sealings = Vec::with_capacity(rows.len());
            for row in &rows {
                let seal = chain.seal(&head.seal, head.number + 1, &row.record);
                head = ChainHead { number: head.number + 1, seal };
                sealings.push(Sealing { place: row.place, number: head.number, seal: head.seal.clone() });
            }
            if !rows.is_empty() {
                let meta = vec![(HEAD.to_owned(), chain.signed(HEAD, &head))];
                self.engine.seal_audit(SEALER, fence, sealings, meta).await?;
            }
            sealed += rows.len();
            if rows.len() < BLOCK {
                return Ok(sealed);
            }
        }
    }

    /// Removes sealed records that are older than `age`, at most one block; the chain goes on from the last removed one.
    pub(crate) async fn trim_audit(&self, age: Duration) -> Result<usize, StoreError> {
        let old = self.engine.audit_older(age, BLOCK + 1).await?;
        // The newest record of all always stays: the chain must not look empty.
        let Some(last) = old.len().checked_sub(2).map(|place| &old[place]) else { return Ok(0) };
        let chain = Chain::ensure(self).await?;
        let floor = ChainHead {
            number: last.record.number.unwrap_or(0),
            seal: last.record.seal.clone().unwrap_or_default(),
        };
        // Removed by number, and the floor only with them: a housekeeper that was taken for dead does no harm.
        let stale = Stale::Audit { up_to: floor.number };
        self.engine.trim(stale, age, BLOCK, vec![(FLOOR.to_owned(), chain.signed(FLOOR, &floor))]).await
    }
}

impl Reader {
    /// Looks through the whole chain; `expected` is a head that was noted earlier and must still be part of it.
    pub async fn verify_audit(&self, expected: Option<ChainHead>) -> Result<Verified, StoreError> {
        let mut faults = Vec::new();
        let Some(chain) = Chain::find(self).await? else {
            let head = ChainHead::start();
            if rotate::has_chain(self).await? || !self.engine.audit_sealed(0, 1).await?.is_empty() {
                faults.push("the chain's key is gone".to_owned());
            }
            if expected.is_some_and(|it| it != head) {
                faults.push("the chain is empty, though a head of it is known".to_owned());
            }
            let unsealed = self.engine.audit_unsealed(PAGE_MAX).await?.len();
            return Ok(Verified { records: 0, unsealed, head, faults });
        };
        // The head first: what is sealed while we read comes behind it.
        let head = chain.read(self, HEAD, &mut faults).await?;
        let floor = chain.read(self, FLOOR, &mut faults).await?;
        // What was imported or restored got new places, or goes on from lower ones; in a store that never was, the order of
        // the places is the order of the chain.
        let in_order = self.engine.meta("generation").await?.as_deref() == Some("1");
        let mut walk =
            Walk { chain: &chain, last: floor.clone(), place: None, in_order, faults, expected, records: 0 };
        loop {
            let rows = self.engine.audit_sealed(walk.last.number + 1, PAGE_MAX).await?;
            let Some(end) = rows.last().and_then(|row| row.record.number) else { break };
            rows.iter()
                .take_while(|row| row.record.number <= Some(head.number))
                .for_each(|row| walk.step(row));
            if end >= head.number {
                break;
            }
        }
        if self
            .engine
            .audit_sealed(i64::MIN, 1)
            .await?
            .first()
            .is_some_and(|row| row.record.number <= Some(floor.number))
        {
            walk.faults.push(format!("records up to {} should have left, but one is there", floor.number));
        }
        // What is sealed meanwhile moves the head in the same transaction: a record behind a head that is read after it
        // was put there by someone else.
        if let Some(row) = self.engine.audit_sealed(head.number.saturating_add(1), 1).await?.first() {
            let now = chain.read(self, HEAD, &mut Vec::new()).await?;
            if row.record.number > Some(now.number) {
                walk.faults.push(format!(
                    "record {} is behind the end of the chain",
                    row.record.number.unwrap_or(0)
                ));
            }
        }
        if walk.last.number < head.number {
            walk.faults.push(format!(
                "records {} to {} are missing at the end",
                walk.last.number + 1,
                head.number
            ));
        } else if walk.last != head {
            walk.faults
                .push(format!("record {} is not the one that the chain's head was made of", head.number));
        }
        match &walk.expected {
            Some(noted) if noted.number > head.number => {
                walk.faults.push(format!(
                    "the chain ends at {}, but a head at {} was noted",
                    head.number, noted.number
                ));
            }
            Some(noted) if noted.number == floor.number && noted.seal != floor.seal => {
                walk.faults.push(format!("record {} is not the one whose seal was noted", noted.number));
            }
            Some(noted) if noted.number < floor.number => {
                walk.faults.push(format!(
                    "the noted head {} has left by age; the oldest that can be checked is {}",
                    noted.number, floor.number
                ));
            }
            _ => {}
        }
        match self.engine.audit_overlooked().await? {
            0 => {}
            1 => walk.faults.push("a record without a seal stands before sealed ones".to_owned()),
            many => walk.faults.push(format!("{many} records without a seal stand before sealed ones")),
        }
        let unsealed = self.engine.audit_unsealed(PAGE_MAX).await?.len();
        Ok(Verified { records: walk.records, unsealed, head, faults: walk.faults })
    }
}

struct Walk<'a> {
    chain: &'a Chain,
    last: ChainHead,
    /// Where the last record stands.
    place: Option<AuditPlace>,
    in_order: bool,
    faults: Vec<String>,
    expected: Option<ChainHead>,
    records: i64,
}

impl Walk<'_> {
    fn step(&mut self, row: &AuditRow) {
        let number = row.record.number.unwrap_or(0);
        let found = row.record.seal.clone().unwrap_or_default();
        if number != self.last.number + 1 {
            let (first, last) = (self.last.number + 1, number - 1);
            self.faults.push(format!("records {first} to {last} are missing"));
        } else if self.chain.seal(&self.last.seal, number, &row.record) != found {
            self.faults.push(format!(
                "record {number} ({} of {}) was changed or put in another's place",
                row.record.entry.action, row.record.entry.target
            ));
        }
        // The seal does not cover the place, which lists go by.
        if self.in_order && self.place.is_some_and(|before| row.place <= before) {
            self.faults.push(format!("record {number} or the one before it was moved to another place"));
        }
        self.place = Some(row.place);
        if let Some(noted) = &self.expected
            && noted.number == number
            && noted.seal != found
        {
            self.faults.push(format!("record {number} is not the one whose seal was noted"));
        }
        self.records += 1;
        self.last = ChainHead { number, seal: found };
    }
}

/// The chain's key at work.
struct Chain {
    key: Vec<u8>,
}

impl Chain {
    async fn find(reader: &Reader) -> Result<Option<Chain>, StoreError> {
        Ok(reader.secret(Uuid::nil(), CHAIN_KEY).await?.map(|key| Chain { key: key.expose().clone() }))
    }

    /// The chain's key, made when there has never been one. Of two that make one at once the first is kept, and both read it.
    async fn ensure(store: &Store) -> Result<Chain, StoreError> {
        if let Some(chain) = Chain::find(store).await? {
            return Ok(chain);
        }
        if rotate::has_chain(store).await? {
            return Err(unsealable("the chain's key is gone"));
        }
        let mut key = vec![0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| StoreError::broken(format!("the system gave no random bytes: {error}")))?;
        store
            .commit(Transaction::new().with(Write::EnsureSecret(store.seal(Uuid::nil(), CHAIN_KEY, &key)?)))
            .await?;
        Chain::find(store)
            .await?
            .ok_or_else(|| StoreError::broken("the chain's key was written and is not there"))
    }

    fn digest(&self, parts: &[&[u8]]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        for part in parts {
            // The lengths keep two different lists of parts from giving the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        hex(&mac.finalize().into_bytes())
    }

    fn seal(&self, before: &str, number: i64, record: &AuditRecord) -> String {
        let entry = &record.entry;
        let optional =
            |text: &Option<String>| text.as_ref().map_or("-".to_owned(), |text| format!("+{text}"));
        self.digest(&[
            before.as_bytes(),
            &number.to_be_bytes(),
            record.id.as_bytes(),
            &record.time.as_microsecond().to_be_bytes(),
            entry.actor.as_bytes(),
            entry.action.as_bytes(),
            entry.target.as_bytes(),
            entry.reason.as_bytes(),
            entry.correlation_id.map_or("-".to_owned(), |id| id.to_string()).as_bytes(),
            optional(&entry.before).as_bytes(),
            optional(&entry.after).as_bytes(),
        ])
    }

    /// A head or floor with a signature, so that it cannot be rewritten without the key either.
    fn signed(&self, what: &str, head: &ChainHead) -> String {
        let text = head.to_string();
        let signature = self.digest(&[what.as_bytes(), text.as_bytes()]);
        format!("{text} {signature}")
    }

    async fn head(&self, reader: &Reader) -> Result<ChainHead, StoreError> {
        let mut faults = Vec::new();
        let head = self.read(reader, HEAD, &mut faults).await?;
        match faults.pop() {
            Some(fault) => Err(unsealable(&fault)),
            None => Ok(head),
        }
    }

    async fn read(
        &self,
        reader: &Reader,
        what: &str,
        faults: &mut Vec<String>,
    ) -> Result<ChainHead, StoreError> {
        let start = ChainHead::start();
        let Some(text) = reader.engine.meta(what).await? else {
            if what == HEAD && rotate::has_chain(reader).await? {
                faults.push("the chain's head is gone".to_owned());
            }
            return Ok(start);
        };
        let head = text.split_once(' ').and_then(|(head, _)| head.parse().ok());
        match head {
            Some(head) if self.signed(what, &head) == text => Ok(head),
            _ => {
                faults.push(format!("the store's {what} was changed by someone without the key"));
                Ok(start)
            }
        }
    }
}

fn unsealable(fault: &str) -> StoreError {
    StoreError::broken(format!("the audit log cannot be sealed: {fault}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::clock::SystemClock;

    use super::*;
    use crate::{Keyring, Location, Options};

    /// The first key of the chain stays, whoever else made one at the same time.
    async fn the_first_key_is_kept(store: &Store) {
        let second = store.seal(Uuid::nil(), CHAIN_KEY, b"made by another at the same time").unwrap();
        // As if none had been made yet when the store was opened.
        forget_chain(store).await;
        let first = Chain::ensure(store).await.unwrap();
        store.commit(Transaction::new().with(Write::EnsureSecret(second))).await.unwrap();
        assert_eq!(Chain::ensure(store).await.unwrap().key, first.key);
        // Many at once find one.
        let chains = futures_util::future::join_all((0..8).map(|_| Chain::ensure(store))).await;
        assert!(chains.into_iter().all(|chain| chain.unwrap().key == first.key));
    }

    /// As a store was when the chain began with its first record.
    async fn forget_chain(store: &Store) {
        rotate::forget_chain(store).await.unwrap();
        let key = Write::DropSecret { owner: Uuid::nil(), name: CHAIN_KEY.to_owned() };
        store.commit(Transaction::new().with(key)).await.unwrap();
    }

    #[tokio::test]
    async fn of_two_keys_that_are_made_at_once_the_first_is_kept_on_sqlite() {
        let location = Location::Sqlite(":memory:".into());
        let options = Options {
            writing: crate::Writing::Inline,
            ..Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock))
        };
        the_first_key_is_kept(&Store::open(options).await.unwrap()).await;
    }

    #[tokio::test]
    async fn of_two_keys_that_are_made_at_once_the_first_is_kept_on_postgresql() {
        let Some(server) = testbed::postgres::shared() else {
            return testbed::parts::skip(testbed::parts::POSTGRESQL, "no server for tests");
        };
        let database = server.database().unwrap();
        let location = database.url().parse().unwrap();
        let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
        let store = Store::open(options).await.unwrap();
        the_first_key_is_kept(&store).await;
        store.close().await;
    }
}
