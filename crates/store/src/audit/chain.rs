//! The audit chain's key in use: seals of records, signatures of the chain's start and end, and writer marks by which
//! the sealer recognises entries of this store.

use std::fmt;

use api::audit::{AuditEntry, AuditRecord};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{CHAIN_KEY, seal_error};
use crate::StoreError;
use crate::migrate::hex;
use crate::rotate;
use crate::store::{Reader, Store};
use crate::transaction::{Transaction, Write};

pub(super) const HEAD: &str = "audit_head";
pub(super) const FLOOR: &str = "audit_floor";
/// Signing purpose of a head from which on every entry carries its writer's mark.
const MARKED_HEAD: &str = "audit_head of marked entries";
/// Seal before the first record.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// End of the chain: number of records so far and the seal of the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of the last sealed record.
    pub number: i64,
    /// Seal of that record, in hexadecimal.
    pub seal: String,
}

impl ChainHead {
    /// Seal before the first record.
    pub(super) fn start() -> ChainHead {
        ChainHead { number: 0, seal: GENESIS.to_owned() }
    }
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
                    "{text:?} is not a chain head; accepted: NUMBER:SEAL as `audit verify` prints it"
                ))
            })
    }
}

/// Stored end of the chain.
#[derive(Debug, Clone)]
pub(super) struct ChainEnd {
    pub(super) head: ChainHead,
    /// Whether every later entry must carry its writer's mark.
    pub(super) marked: bool,
}

/// Stored start of the chain: the last record that retention removed.
#[derive(Debug, Clone)]
pub(super) struct ChainStart {
    pub(super) head: ChainHead,
    /// Newest time in the ids of removed records, capped at the time of sealing, in milliseconds; none when only
    /// earlier builds removed records.
    pub(super) newest: Option<i64>,
}

/// Key of the writer marks. A person with only the database cannot create one.
#[derive(Clone)]
pub(crate) struct EntryKey(Zeroizing<Vec<u8>>);

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryKey")
    }
}

impl EntryKey {
    /// Mark of an entry.
    pub(crate) fn mac(&self, id: Uuid, entry: &AuditEntry) -> String {
        let optional = entry_texts(entry);
        let parts: Vec<&[u8]> =
            [id.as_bytes().as_slice()].into_iter().chain(optional.iter().map(String::as_bytes)).collect();
        hex(&digest(&self.0, &parts))
    }
}

pub(super) struct Chain {
    pub(super) key: Zeroizing<Vec<u8>>,
}

impl Chain {
    pub(super) async fn find(reader: &Reader) -> Result<Option<Chain>, StoreError> {
        let key = reader.secret(Uuid::nil(), CHAIN_KEY).await?;
        Ok(key.map(|key| Chain { key: Zeroizing::new(key.expose().clone()) }))
    }

    /// Loads the chain's key, or creates it on first use. When two processes create one at the same time, the first
    /// is stored and both read it.
    pub(super) async fn ensure(store: &Store) -> Result<Chain, StoreError> {
        if let Some(chain) = Chain::find(store).await? {
            return Ok(chain);
        }
        if rotate::has_chain(store).await? {
            return Err(seal_error("the chain's key is missing"));
        }
        let mut key = vec![0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            StoreError::broken(format!("the system's random number generator failed: {error}"))
        })?;
        store
            .commit(Transaction::new().with(Write::EnsureSecret(store.seal(Uuid::nil(), CHAIN_KEY, &key)?)))
            .await?;
        Chain::find(store)
            .await?
            .ok_or_else(|| StoreError::broken("the chain's key is missing after it was written"))
    }

    /// Derives the key of the writer marks.
    pub(super) fn entry_key(&self) -> EntryKey {
        EntryKey(Zeroizing::new(digest(&self.key, &[b"audit entries".as_slice()])))
    }

    fn digest(&self, parts: &[&[u8]]) -> String {
        hex(&digest(&self.key, parts))
    }

    /// Seal of a record after another one. It covers the sealing time, except for records of builds that did not
    /// store one.
    pub(super) fn seal(
        &self,
        before: &str,
        number: i64,
        record: &AuditRecord,
        sealed_at: Option<i64>,
    ) -> String {
        let texts = entry_texts(&record.entry);
        let (number, time) = (number.to_be_bytes(), record.time.as_microsecond().to_be_bytes());
        let sealed_at = sealed_at.map(i64::to_be_bytes);
        let mut parts: Vec<&[u8]> = vec![before.as_bytes(), &number, record.id.as_bytes(), &time];
        parts.extend(texts.iter().map(String::as_bytes));
        parts.extend(sealed_at.iter().map(<[u8; 8]>::as_slice));
        self.digest(&parts)
    }

    /// Text with a signature, so that it cannot be rewritten without the key.
    fn signed(&self, what: &str, text: &str) -> String {
        let signature = self.digest(&[what.as_bytes(), text.as_bytes()]);
        format!("{text} {signature}")
    }

    pub(super) fn signed_end(&self, end: &ChainEnd) -> String {
        self.signed(if end.marked { MARKED_HEAD } else { HEAD }, &end.head.to_string())
    }

    pub(super) fn signed_floor(&self, floor: &ChainStart) -> String {
        let text = match floor.newest {
            Some(newest) => format!("{} {newest}", floor.head),
            None => floor.head.to_string(),
        };
        self.signed(FLOOR, &text)
    }

    /// Reads the end of the chain, or the fault in what the store holds of it.
    pub(super) async fn end(
        &self,
        reader: &Reader,
        faults: &mut Vec<String>,
    ) -> Result<ChainEnd, StoreError> {
        let Some(text) = reader.engine.meta(HEAD).await? else {
            let started = rotate::has_chain(reader).await?;
            if started {
                faults.push("the chain's head is missing".to_owned());
            }
            return Ok(ChainEnd { head: ChainHead::start(), marked: started });
        };
        let head = text.split_once(' ').and_then(|(head, _)| head.parse().ok());
        let ends = head
            .into_iter()
            .flat_map(|head: ChainHead| [true, false].map(|marked| ChainEnd { head: head.clone(), marked }));
        Ok(ends.into_iter().find(|end| self.signed_end(end) == text).unwrap_or_else(|| {
            faults.push(changed(HEAD));
            ChainEnd { head: ChainHead::start(), marked: true }
        }))
    }

    /// Reads the start of the chain.
    pub(super) async fn floor(
        &self,
        reader: &Reader,
        faults: &mut Vec<String>,
    ) -> Result<ChainStart, StoreError> {
        let start = ChainStart { head: ChainHead::start(), newest: None };
        let Some(text) = reader.engine.meta(FLOOR).await? else { return Ok(start) };
        let parts: Vec<&str> = text.split(' ').collect();
        let floor = match parts.as_slice() {
            [head, _] => head.parse().ok().map(|head| ChainStart { head, newest: None }),
            [head, newest, _] => {
                let newest = newest.parse().ok();
                head.parse().ok().map(|head| ChainStart { head, newest })
            }
            _ => None,
        };
        Ok(floor.filter(|floor| self.signed_floor(floor) == text).unwrap_or_else(|| {
            faults.push(changed(FLOOR));
            start
        }))
    }
}

fn changed(what: &str) -> String {
    format!("the store's {what} was changed without the key")
}

/// Content of an entry as text with unambiguous parts.
fn entry_texts(entry: &AuditEntry) -> [String; 7] {
    let optional = |text: &Option<String>| text.as_ref().map_or("-".to_owned(), |text| format!("+{text}"));
    [
        entry.actor.clone(),
        entry.action.clone(),
        entry.target.clone(),
        entry.reason.clone(),
        entry.correlation_id.map_or("-".to_owned(), |id| id.to_string()),
        optional(&entry.before),
        optional(&entry.after),
    ]
}

fn digest(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        // Lengths keep two different lists of parts from producing the same bytes.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}
