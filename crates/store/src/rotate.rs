//! The key that a store's secrets are sealed with: whether a key file fits, and how the key is changed.
//!
//! The store itself says which key is current (`key_id`), and holds a sealed word by which a wrong key of the right
//! name is noticed. A rotation first makes the new key known to the file, then current in the store, from which
//! moment on nothing can be sealed with the old one, and only then seals everything anew.

use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use crate::keyring::{Keyring, SealedSecret};
use crate::open::OpenError;
use crate::store::{Reader, Store};
use crate::transaction::{Transaction, Write};
use crate::{AuditContext, PAGE_MAX, StoreError};

const KEY_ID: &str = "key_id";
const KEY_CHECK: &str = "key_check";
const CHECK_NAME: &str = "key-check";
/// What is sealed to tell a wrong key by; and the same in a store whose audit chain has begun. Whoever has no key cannot make
/// the second look like the first, so that a chain which began and is not there was removed.
const WORD: &[u8] = b"shipshape";
const WORD_WITH_CHAIN: &[u8] = b"shipshape, with an audit chain";

/// How a rotation went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// The key that is current now.
    pub key_id: String,
    /// How many secrets were sealed anew.
    pub resealed: usize,
}

/// Makes sure that the keys open this store; a new store takes the ring's current key.
pub(crate) async fn fit_keys(store: &Store) -> Result<(), OpenError> {
    if store.engine.meta(KEY_ID).await?.is_none() {
        // In the file before the store relies on it.
        store.keyring.publish()?;
        let key_id = store.keyring.current();
        let word = check_word(&store.keyring, &key_id, WORD)?;
        // Of several that open a new store at once the first one's key stays; what it is, is read again below.
        store.engine.ensure_meta(vec![word, (KEY_ID.to_owned(), key_id)]).await?;
    }
    check_keys(store).await
}

/// Makes sure that the keys open this store, and seals with the one that it wants.
pub(crate) async fn check_keys(reader: &Reader) -> Result<(), OpenError> {
    let place = reader.location();
    let Some(wanted) = reader.engine.meta(KEY_ID).await? else { return Ok(()) };
    let wrong = || OpenError::WrongKey { place: place.clone(), wanted: wanted.clone() };
    prefer_key(&reader.keyring, &wanted).map_err(|_| wrong())?;
    let Some(word) = reader.engine.meta(KEY_CHECK).await? else { return Err(wrong()) };
    open_word(&reader.keyring, &wanted, &word).map(drop).ok_or_else(wrong)
}

/// Whether the store's audit chain has begun, as far as those tell who have the key.
pub(crate) async fn has_chain(reader: &Reader) -> Result<bool, StoreError> {
    let (key_id, word) = (reader.engine.meta(KEY_ID).await?, reader.engine.meta(KEY_CHECK).await?);
    let (Some(key_id), Some(word)) = (key_id, word) else { return Ok(false) };
    let opened = open_word(&reader.keyring, &key_id, &word);
    Ok(opened.is_some_and(|opened| opened.expose().as_slice() == WORD_WITH_CHAIN))
}

/// Says that the store's audit chain has begun. When the key changes at the same moment, whoever changes it says so.
pub(crate) async fn remember_chain(store: &Store) -> Result<(), StoreError> {
    let Some(before) = store.engine.meta(KEY_CHECK).await? else { return Ok(()) };
    let Some(key_id) = store.engine.meta(KEY_ID).await? else { return Ok(()) };
    prefer_key(&store.keyring, &key_id)?;
    let (key, word) = check_word(&store.keyring, &key_id, WORD_WITH_CHAIN)?;
    store.engine.replace_meta(key, before, word).await.map(drop)
}

/// Seals with that key from now on, reading the key file again if it is new to us.
pub(crate) fn prefer_key(keyring: &Keyring, key_id: &str) -> Result<(), StoreError> {
    if keyring.prefer(key_id) {
        return Ok(());
    }
    keyring.reload().map_err(|error| StoreError::invalid(error.to_string()))?;
    match keyring.prefer(key_id) {
        true => Ok(()),
        false => Err(StoreError::invalid(format!("the key file does not hold key {key_id}"))),
    }
}

/// For tests: a store as an earlier release left it.
#[cfg(test)]
pub(crate) async fn forget_chain(store: &Store) -> Result<(), StoreError> {
    let word = check_word(&store.keyring, &store.keyring.current(), WORD)?;
    store.commit(Transaction::new().with(Write::SetMeta(vec![word]))).await.map(drop)
}

fn check_word(keyring: &Keyring, key_id: &str, word: &[u8]) -> Result<(String, String), StoreError> {
    let sealed = keyring.seal_with(key_id, Uuid::nil(), CHECK_NAME, word)?;
    Ok((KEY_CHECK.to_owned(), BASE64.encode(sealed.bytes)))
}

fn open_word(keyring: &Keyring, key_id: &str, word: &str) -> Option<Secret<Vec<u8>>> {
    let bytes = BASE64.decode(word).ok()?;
    let (name, key_id) = (CHECK_NAME.to_owned(), key_id.to_owned());
    keyring.open(&SealedSecret { owner: Uuid::nil(), name, key_id, bytes }).ok()
}

impl Store {
    /// Seals every secret with another key: `to`, which the key file must hold, or a fresh one, which is added to it.
    /// May be interrupted anywhere and run again; others may read and write secrets meanwhile. The audit log tells of it in
    /// the transaction that makes the key current.
    pub async fn rotate_key(
        &self,
        to: Option<&str>,
        context: &AuditContext,
    ) -> Result<KeyRotation, StoreError> {
        let key_id = match to {
            Some(id) => id.to_owned(),
            None => self.keyring.add_key().map_err(|error| StoreError::invalid(error.to_string()))?,
        };
        let word = if has_chain(self).await? { WORD_WITH_CHAIN } else { WORD };
        prefer_key(&self.keyring, &key_id)?;
        let word = check_word(&self.keyring, &key_id, word)?;
        // From here on no secret can be stored under the old key.
        let current = Write::SetMeta(vec![(KEY_ID.to_owned(), key_id.clone()), word]);
        let told = context.entry("store.rotate-key", &format!("/keys/{key_id}"), None, None);
        self.commit(Transaction::new().with(current).audit(told)).await?;
        // Whoever was told meanwhile that the old key is still current has turned the ring back to it.
        prefer_key(&self.keyring, &key_id)?;
        let resealed = self.reseal_all(&key_id).await?;
        Ok(KeyRotation { key_id, resealed })
    }

    async fn reseal_all(&self, key_id: &str) -> Result<usize, StoreError> {
        let mut resealed = 0;
        loop {
            let page = self.engine.secrets(Some(key_id.to_owned()), None, PAGE_MAX).await?;
            if page.is_empty() {
                return Ok(resealed);
            }
            // Two rotations at once would undo each other's work for ever: the later one goes on, the earlier stops.
            if let Some(other) = self.engine.meta(KEY_ID).await?.filter(|current| current != key_id) {
                return Err(StoreError::invalid(format!("another rotation made {other} the key meanwhile")));
            }
            for old in page {
                let plain = self.keyring.open(&old)?;
                let new = self.keyring.seal_with(key_id, old.owner, &old.name, plain.expose())?;
                // A secret that was replaced meanwhile is under the new key already; the next page tells.
                resealed += usize::from(self.engine.reseal(old, new).await?);
            }
        }
    }

    /// Removes from the key file all keys but the current one; refused while a secret still needs another.
    pub async fn forget_old_keys(&self) -> Result<(), StoreError> {
        let known = self.keyring.ids();
        let current = self.engine.meta(KEY_ID).await?.unwrap_or_default();
        prefer_key(&self.keyring, &current)?;
        if let Some(sealed) = self.engine.secrets(Some(current.clone()), None, 1).await?.first() {
            return Err(StoreError::invalid(format!(
                "secret {} of {} is still sealed with key {}",
                sealed.name, sealed.owner, sealed.key_id
            )));
        }
        // Only those that we knew before we looked: a newer one may be the next.
        let old: Vec<String> = known.into_iter().filter(|id| *id != current).collect();
        self.keyring.forget(&old).map_err(|error| StoreError::invalid(error.to_string()))
    }
}
