//! The key that a store's secrets are sealed with: whether a key file fits, and how the key is changed.
//!
//! The store itself says which key is current (`key_id`), and holds a sealed word by which a wrong key of the right
//! name is noticed. A rotation first makes the new key known to the file, then current in the store, from which
//! moment on nothing can be sealed with the old one, and only then seals everything anew.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use crate::keyring::{Keyring, Sealed};
use crate::open::OpenError;
use crate::store::{Reader, Store};
use crate::{PAGE_MAX, StoreError};

const KEY_ID: &str = "key_id";
const KEY_CHECK: &str = "key_check";
const CHECK_NAME: &str = "key-check";

/// How a rotation went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The key that is current now.
    pub key_id: String,
    /// How many secrets were sealed anew.
    pub resealed: usize,
}

/// Makes sure that the keys open this store; a new store takes the ring's current key.
pub(crate) async fn fit_keys(store: &Store) -> Result<(), OpenError> {
    if store.engine.meta(KEY_ID).await?.is_none() {
        let key_id = store.keyring.current();
        let word = check_word(&store.keyring, &key_id)?;
        store.engine.set_meta(vec![(KEY_ID.to_owned(), key_id), word]).await?;
    }
    check_keys(store).await
}

/// Makes sure that the keys open this store, and seals with the one that it wants.
pub(crate) async fn check_keys(reader: &Reader) -> Result<(), OpenError> {
    let place = reader.place();
    let Some(wanted) = reader.engine.meta(KEY_ID).await? else { return Ok(()) };
    let wrong = || OpenError::WrongKey { place: place.clone(), wanted: wanted.clone() };
    prefer_key(&reader.keyring, &wanted).map_err(|_| wrong())?;
    let Some(word) = reader.engine.meta(KEY_CHECK).await? else { return Err(wrong()) };
    let bytes = BASE64.decode(word).map_err(|_| wrong())?;
    let sealed = Sealed { owner: Uuid::nil(), name: CHECK_NAME.to_owned(), key_id: wanted.clone(), bytes };
    reader.keyring.open(&sealed).map(drop).map_err(|_| wrong())
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

fn check_word(keyring: &Keyring, key_id: &str) -> Result<(String, String), StoreError> {
    let sealed = keyring.seal_with(key_id, Uuid::nil(), CHECK_NAME, b"shipshape")?;
    Ok((KEY_CHECK.to_owned(), BASE64.encode(sealed.bytes)))
}

impl Store {
    /// Seals every secret with another key: `to`, which the key file must hold, or a fresh one, which is added to it.
    /// May be interrupted anywhere and run again; others may read and write secrets meanwhile.
    pub async fn rotate_key(&self, to: Option<&str>) -> Result<Rotation, StoreError> {
        let key_id = match to {
            Some(id) => id.to_owned(),
            None => self.keyring.add_key().map_err(|error| StoreError::invalid(error.to_string()))?,
        };
        prefer_key(&self.keyring, &key_id)?;
        // From here on no secret can be stored under the old key.
        let word = check_word(&self.keyring, &key_id)?;
        self.engine.set_meta(vec![(KEY_ID.to_owned(), key_id.clone()), word]).await?;
        // Whoever was told meanwhile that the old key is still current has turned the ring back to it.
        prefer_key(&self.keyring, &key_id)?;
        let resealed = self.reseal_all(&key_id).await?;
        Ok(Rotation { key_id, resealed })
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
