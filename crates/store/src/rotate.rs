//! The key that seals the store's secrets: validation of a key file, and rotation.
//!
//! The store names the current key (`key_id`) and holds a sealed check value that detects a wrong key of the right
//! id. A rotation first adds the new key to the file, then makes it current in the store, after which nothing can be
//! sealed with the old one, and only then seals every secret again.

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
/// Check value that detects a wrong key; and the one of a store whose audit chain has started. Without the key nobody
/// can turn the second into the first, so a chain that started and is missing was removed.
const KEY_CHECK_TEXT: &[u8] = b"shipshape";
const KEY_CHECK_TEXT_WITH_CHAIN: &[u8] = b"shipshape, with an audit chain";

/// Result of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// Id of the current key.
    pub key_id: String,
    /// Secrets sealed again.
    pub resealed: usize,
}

/// Ensures that the key file opens this store; a new store adopts the ring's current key.
pub(crate) async fn adopt_keys(store: &Store) -> Result<(), OpenError> {
    if store.engine.meta(KEY_ID).await?.is_none() {
        // In the file before the store relies on it.
        store.keyring.publish()?;
        let key_id = store.keyring.current();
        let check = seal_key_check(&store.keyring, &key_id, KEY_CHECK_TEXT)?;
        // When several processes open a new store at once, the first one's key stays; it is read again below.
        store.engine.ensure_meta(vec![check, (KEY_ID.to_owned(), key_id)]).await?;
    }
    check_keys(store).await
}

/// Ensures that the key file opens this store, and makes the store's key current in the ring.
pub(crate) async fn check_keys(reader: &Reader) -> Result<(), OpenError> {
    let place = reader.location();
    let Some(wanted) = reader.engine.meta(KEY_ID).await? else { return Ok(()) };
    let wrong = || OpenError::WrongKey { place: place.clone(), wanted: wanted.clone() };
    prefer_key(&reader.keyring, &wanted).map_err(|_| wrong())?;
    let Some(check) = reader.engine.meta(KEY_CHECK).await? else { return Err(wrong()) };
    open_key_check(&reader.keyring, &wanted, &check).map(drop).ok_or_else(wrong)
}

/// Whether the store's audit chain has started, according to the sealed check value.
pub(crate) async fn has_chain(reader: &Reader) -> Result<bool, StoreError> {
    let (key_id, check) = (reader.engine.meta(KEY_ID).await?, reader.engine.meta(KEY_CHECK).await?);
    let (Some(key_id), Some(check)) = (key_id, check) else { return Ok(false) };
    let opened = open_key_check(&reader.keyring, &key_id, &check);
    Ok(opened.is_some_and(|opened| opened.expose().as_slice() == KEY_CHECK_TEXT_WITH_CHAIN))
}

/// Records that the store's audit chain has started. A concurrent rotation records it too.
pub(crate) async fn record_chain(store: &Store) -> Result<(), StoreError> {
    let Some(before) = store.engine.meta(KEY_CHECK).await? else { return Ok(()) };
    let Some(key_id) = store.engine.meta(KEY_ID).await? else { return Ok(()) };
    prefer_key(&store.keyring, &key_id)?;
    let (key, check) = seal_key_check(&store.keyring, &key_id, KEY_CHECK_TEXT_WITH_CHAIN)?;
    store.engine.replace_meta(key, before, check).await.map(drop)
}

/// Makes that key current in the ring, reading the key file again if it is unknown.
pub(crate) fn prefer_key(keyring: &Keyring, key_id: &str) -> Result<(), StoreError> {
    if keyring.prefer(key_id) {
        return Ok(());
    }
    keyring.reload().map_err(|error| StoreError::invalid(error.to_string()))?;
    match keyring.prefer(key_id) {
        true => Ok(()),
        false => Err(StoreError::invalid(format!("the key file does not contain key {key_id}"))),
    }
}

/// For tests: a store as an earlier release left it.
#[cfg(test)]
pub(crate) async fn remove_chain(store: &Store) -> Result<(), StoreError> {
    let check = seal_key_check(&store.keyring, &store.keyring.current(), KEY_CHECK_TEXT)?;
    store.commit(Transaction::new().with(Write::SetMeta(vec![check]))).await.map(drop)
}

fn seal_key_check(keyring: &Keyring, key_id: &str, check: &[u8]) -> Result<(String, String), StoreError> {
    let sealed = keyring.seal_with(key_id, Uuid::nil(), CHECK_NAME, check)?;
    Ok((KEY_CHECK.to_owned(), BASE64.encode(sealed.bytes)))
}

fn open_key_check(keyring: &Keyring, key_id: &str, check: &str) -> Option<Secret<Vec<u8>>> {
    let bytes = BASE64.decode(check).ok()?;
    let (name, key_id) = (CHECK_NAME.to_owned(), key_id.to_owned());
    keyring.open(&SealedSecret { owner: Uuid::nil(), name, key_id, bytes }).ok()
}

impl Store {
    /// Seals every secret with another key: `to`, which the key file must contain, or a new one, which is added to
    /// it. May be interrupted anywhere and run again; others may read and write secrets meanwhile. The transaction
    /// that makes the key current writes the audit entry.
    pub async fn rotate_key(
        &self,
        to: Option<&str>,
        context: &AuditContext,
    ) -> Result<KeyRotation, StoreError> {
        let key_id = match to {
            Some(id) => id.to_owned(),
            None => self.keyring.add_key().map_err(|error| StoreError::invalid(error.to_string()))?,
        };
        let check = if has_chain(self).await? { KEY_CHECK_TEXT_WITH_CHAIN } else { KEY_CHECK_TEXT };
        prefer_key(&self.keyring, &key_id)?;
        let check = seal_key_check(&self.keyring, &key_id, check)?;
        // From here on no secret can be stored under the old key.
        let current = Write::SetMeta(vec![(KEY_ID.to_owned(), key_id.clone()), check]);
        let entry = context.entry("store.rotate-key", &format!("/keys/{key_id}"), None, None);
        self.commit(Transaction::new().with(current).audit(entry)).await?;
        // A process that still read the old key as current has switched the ring back to it.
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
            // Two concurrent rotations would undo each other for ever: the later one continues, the earlier one
            // stops.
            if let Some(other) = self.engine.meta(KEY_ID).await?.filter(|current| current != key_id) {
                return Err(StoreError::invalid(format!("another rotation set {other} as the current key")));
            }
            for old in page {
                let plain = self.keyring.open(&old)?;
                let new = self.keyring.seal_with(key_id, old.owner, &old.name, plain.expose())?;
                // A secret replaced meanwhile is under the new key already; the next page shows it.
                resealed += usize::from(self.engine.reseal(old, new).await?);
            }
        }
    }

    /// Removes all keys except the current one from the key file; fails while a secret still needs another.
    pub async fn remove_old_keys(&self) -> Result<(), StoreError> {
        let known = self.keyring.ids();
        let current = self.engine.meta(KEY_ID).await?.unwrap_or_default();
        prefer_key(&self.keyring, &current)?;
        if let Some(sealed) = self.engine.secrets(Some(current.clone()), None, 1).await?.first() {
            return Err(StoreError::invalid(format!(
                "secret {} of {} is still sealed with key {}",
                sealed.name, sealed.owner, sealed.key_id
            )));
        }
        // Only keys known before the check: a newer one may be the next.
        let old: Vec<String> = known.into_iter().filter(|id| *id != current).collect();
        self.keyring.forget(&old).map_err(|error| StoreError::invalid(error.to_string()))
    }
}
