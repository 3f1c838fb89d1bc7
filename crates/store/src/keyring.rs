//! Secrets at rest. A secret is sealed (XChaCha20-Poly1305) before it reaches the store, with its owner, its name and
//! the key's id as associated data, so that moving a sealed value elsewhere is detected.
//!
//! The keys are in a file, the current one first. The store holds the id of the current key and rejects a secret
//! sealed with another one; this is how a process that has not read a new key learns of it.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::StoreError;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// First byte of a sealed value: version of its layout.
const LAYOUT: u8 = 1;

/// A secret as it is stored: unreadable without the key.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// Document that it belongs to.
    pub owner: Uuid,
    /// Name, unique within the document.
    pub name: String,
    /// Id of the key that sealed it.
    pub key_id: String,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedSecret({} of {}, key {})", self.name, self.owner, self.key_id)
    }
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("key file {}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("key file {}: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line is not a key.
    #[error("key file {}, line {line}: {why}; accepted: `<id> <32 bytes in base64>`, one key a line", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault.
        why: &'static str,
    },
    /// The file contains no key.
    #[error("key file {}: contains no key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read the file.
    #[error("key file {}: its mode {mode:o} allows others to read it; accepted: 600 or 400", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// The system's random number generator failed.
    #[error("the system's random number generator failed: {0}")]
    Random(getrandom::Error),
}

/// Keys that seal secrets. Cheap to clone; all clones see a reload.
#[derive(Clone)]
pub struct Keyring {
    path: Option<PathBuf>,
    keys: Arc<RwLock<Keys>>,
}

struct Keys {
    /// Current key first.
    order: Vec<String>,
    by_id: HashMap<String, Zeroizing<[u8; KEY_BYTES]>>,
}

impl Keys {
    /// Keys in the order of the file.
    fn lines(&self) -> Vec<(String, Zeroizing<[u8; KEY_BYTES]>)> {
        self.order.iter().map(|id| (id.clone(), self.by_id[id].clone())).collect()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("path", &self.path).field("keys", &self.ids()).finish()
    }
}

impl Keyring {
    /// Reads a key file.
    pub fn read(path: &Path) -> Result<Keyring, KeyFileError> {
        let keys = read_keys(path)?;
        Ok(Keyring { path: Some(path.to_owned()), keys: Arc::new(RwLock::new(keys)) })
    }

    /// Reads a key file, or creates one with a new key.
    pub fn read_or_create(path: &Path) -> Result<Keyring, KeyFileError> {
        let keyring = Keyring::read_or_draft(path)?;
        keyring.publish()?;
        Ok(keyring)
    }

    /// Reads a key file; without one, generates a key that is written to the file only when a store adopts it. So a
    /// key that opens nothing never takes the place of a lost one, and nobody has to remove one.
    pub fn read_or_draft(path: &Path) -> Result<Keyring, KeyFileError> {
        match read_keys(path) {
            Ok(keys) => Ok(Keyring { path: Some(path.to_owned()), keys: Arc::new(RwLock::new(keys)) }),
            Err(KeyFileError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Keyring { path: Some(path.to_owned()), ..Keyring::ephemeral()? })
            }
            Err(error) => Err(error),
        }
    }

    /// Ensures that the keys are in the file. When several processes create it at once, the first is kept and all
    /// take its key.
    pub(crate) fn publish(&self) -> Result<(), KeyFileError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut keys = self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The directory of a key file that others provide need not be writable.
        if !path.exists() {
            write_keys(path, &keys.lines(), false)?;
        }
        *keys = read_keys(path)?;
        Ok(())
    }

    /// A ring with one new key that exists nowhere else: for tests and simulations.
    pub fn ephemeral() -> Result<Keyring, KeyFileError> {
        let (id, key) = generate_key()?;
        let keys = Keys { order: vec![id.clone()], by_id: HashMap::from([(id, key)]) };
        Ok(Keyring { path: None, keys: Arc::new(RwLock::new(keys)) })
    }

    /// Id of the key that seals new secrets.
    pub fn current(&self) -> String {
        self.read_lock().order[0].clone()
    }

    /// Ids of all keys, the current one first.
    pub fn ids(&self) -> Vec<String> {
        self.read_lock().order.clone()
    }

    /// Makes that key current, in memory only; false when it is not in the ring.
    pub(crate) fn prefer(&self, id: &str) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(place) = keys.order.iter().position(|it| it == id) else { return false };
        let id = keys.order.remove(place);
        keys.order.insert(0, id);
        true
    }

    /// Reads the key file again; a ring without a file stays as it is.
    pub fn reload(&self) -> Result<(), KeyFileError> {
        if let Some(path) = &self.path {
            let keys = read_keys(path)?;
            *self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner) = keys;
        }
        Ok(())
    }

    /// Adds a new current key, to the file first, and returns its id.
    pub fn add_key(&self) -> Result<String, KeyFileError> {
        let (id, key) = generate_key()?;
        self.rewrite(|keys| {
            keys.order.insert(0, id.clone());
            keys.by_id.insert(id.clone(), key);
        })?;
        Ok(id)
    }

    /// Removes all keys except the current one, from the file too.
    pub fn remove_old_keys(&self) -> Result<(), KeyFileError> {
        self.forget(&self.ids()[1..])
    }

    /// Removes these keys, from the file too. A key that another process added meanwhile stays.
    pub(crate) fn forget(&self, ids: &[String]) -> Result<(), KeyFileError> {
        self.rewrite(|keys| {
            keys.order.retain(|id| !ids.contains(id));
            keys.by_id.retain(|id, _| !ids.contains(id));
        })
    }

    /// Changes the keys on the basis of the file's current content: another process may have changed it.
    fn rewrite(&self, change: impl FnOnce(&mut Keys)) -> Result<(), KeyFileError> {
        let mut current = self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(path) = &self.path else {
            change(&mut current);
            return Ok(());
        };
        let failed = |source| KeyFileError::Write { path: path.clone(), source };
        // Each change replaces the file, so the lock is on its directory.
        let directory = std::fs::File::open(parent_directory(path)).map_err(failed)?;
        directory.lock().map_err(failed)?;
        let mut keys = read_keys(path)?;
        change(&mut keys);
        write_keys(path, &keys.lines(), true)?;
        *current = keys;
        Ok(())
    }

    /// Seals a secret with the current key.
    pub fn seal(&self, owner: Uuid, name: &str, plain: &[u8]) -> Result<SealedSecret, StoreError> {
        self.seal_with(&self.current(), owner, name, plain)
    }

    /// Seals a secret with that key even if it is not current: another process may change the current key at any
    /// moment.
    pub(crate) fn seal_with(
        &self,
        key_id: &str,
        owner: Uuid,
        name: &str,
        plain: &[u8],
    ) -> Result<SealedSecret, StoreError> {
        let keys = self.read_lock();
        let Some(key) = keys.by_id.get(key_id) else {
            return Err(StoreError::invalid(format!("the key file does not contain key {key_id}")));
        };
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| {
            StoreError::broken(format!("the system's random number generator failed: {error}"))
        })?;
        let cipher = XChaCha20Poly1305::new(&Key::from(**key));
        let associated = associated(owner, name, key_id);
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: &associated })
            .map_err(|_| StoreError::invalid(format!("secret {name}: is too large to be sealed")))?;
        let mut bytes = Vec::with_capacity(1 + NONCE_BYTES + sealed.len());
        bytes.push(LAYOUT);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        Ok(SealedSecret { owner, name: name.to_owned(), key_id: key_id.to_owned(), bytes })
    }

    /// Opens a sealed secret. An unknown key makes it read the key file again: another process may have added it.
    pub fn open(&self, sealed: &SealedSecret) -> Result<Secret<Vec<u8>>, StoreError> {
        if !self.read_lock().by_id.contains_key(&sealed.key_id)
            && let Err(error) = self.reload()
        {
            return Err(open_error(sealed, error.to_string()));
        }
        let keys = self.read_lock();
        let Some(key) = keys.by_id.get(&sealed.key_id) else {
            return Err(open_error(sealed, format!("the key file does not contain key {}", sealed.key_id)));
        };
        let (layout, rest) =
            sealed.bytes.split_first().ok_or_else(|| open_error(sealed, "it is empty".to_owned()))?;
        if *layout != LAYOUT || rest.len() < NONCE_BYTES {
            return Err(open_error(sealed, "it was sealed by a newer release, or damaged".to_owned()));
        }
        let (nonce, message) = rest.split_at(NONCE_BYTES);
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().expect("split at that very length");
        let associated = associated(sealed.owner, &sealed.name, &sealed.key_id);
        XChaCha20Poly1305::new(&Key::from(**key))
            .decrypt(&XNonce::from(nonce), Payload { msg: message, aad: &associated })
            .map(Secret::new)
            .map_err(|_| open_error(sealed, "it was changed or moved".to_owned()))
    }

    /// Seals a text that a client stores and returns, such as a page token: nobody can read or forge one without the
    /// key. `purpose` keeps a text of one use from being accepted for another.
    pub fn seal_text(&self, purpose: &str, text: &str) -> Result<String, StoreError> {
        let sealed = self.seal(Uuid::nil(), purpose, text.as_bytes())?;
        let mut bytes = sealed.key_id.into_bytes();
        bytes.push(0);
        bytes.extend_from_slice(&sealed.bytes);
        Ok(BASE64.encode(bytes))
    }

    /// Opens a text of [`seal_text`](Keyring::seal_text); none for anything else.
    pub fn open_text(&self, purpose: &str, text: &str) -> Option<String> {
        let bytes = BASE64.decode(text).ok()?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let key_id = String::from_utf8(bytes[..end].to_vec()).ok()?;
        // An unknown key is not looked up: otherwise every forged text would read the key file.
        if !self.read_lock().by_id.contains_key(&key_id) {
            return None;
        }
        let sealed = SealedSecret {
            owner: Uuid::nil(),
            name: purpose.to_owned(),
            key_id,
            bytes: bytes[end + 1..].to_vec(),
        };
        String::from_utf8(self.open(&sealed).ok()?.expose().clone()).ok()
    }

    fn read_lock(&self) -> std::sync::RwLockReadGuard<'_, Keys> {
        self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn open_error(sealed: &SealedSecret, why: String) -> StoreError {
    StoreError::Sealed { owner: sealed.owner, name: sealed.name.clone(), why }
}

fn associated(owner: Uuid, name: &str, key_id: &str) -> Vec<u8> {
    // Lengths keep two different pairs of texts from producing the same bytes.
    let mut bytes = owner.as_bytes().to_vec();
    for text in [name, key_id] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

fn generate_key() -> Result<(String, Zeroizing<[u8; KEY_BYTES]>), KeyFileError> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(key.as_mut_slice()).map_err(KeyFileError::Random)?;
    let id = format!("k{}", &Uuid::new_v4().simple().to_string()[..12]);
    Ok((id, key))
}

fn read_keys(path: &Path) -> Result<Keys, KeyFileError> {
    let read = |source| KeyFileError::Read { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(read)?);
    let mut keys = Keys { order: Vec::new(), by_id: HashMap::new() };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why| KeyFileError::Line { path: path.to_owned(), line: number + 1, why };
        let (id, encoded) =
            line.split_once(char::is_whitespace).ok_or_else(|| wrong("has no key after its id"))?;
        let decoded = Zeroizing::new(BASE64.decode(encoded.trim()).map_err(|_| wrong("is not base64"))?);
        let key: [u8; KEY_BYTES] =
            decoded.as_slice().try_into().map_err(|_| wrong("is not 32 bytes long"))?;
        if keys.by_id.insert(id.to_owned(), Zeroizing::new(key)).is_some() {
            return Err(wrong("repeats a key id"));
        }
        keys.order.push(id.to_owned());
    }
    if keys.order.is_empty() {
        return Err(KeyFileError::Empty { path: path.to_owned() });
    }
    Ok(keys)
}

fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes the file atomically: a crash leaves the old or the new one, never a part. An existing file is left alone
/// unless it is to be replaced.
fn write_keys(
    path: &Path,
    keys: &[(String, Zeroizing<[u8; KEY_BYTES]>)],
    replace: bool,
) -> Result<(), KeyFileError> {
    let mut text = Zeroizing::new(String::from(
        "# Keys that encrypt the secrets of this store. The first key encrypts, all keys decrypt.\n\
         # A person with this file and the database can read every secret. Keep a copy apart from the database's backups.\n",
    ));
    for (id, key) in keys {
        let encoded = Zeroizing::new(BASE64.encode(key.as_slice()));
        text.push_str(&format!("{id} {}\n", encoded.as_str()));
    }
    let temporary = path.with_extension(format!("new-{}", Uuid::new_v4().simple()));
    let written = (|| {
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        if replace {
            std::fs::rename(&temporary, path)?;
        } else {
            // A hard link, unlike a rename, does not replace an existing file, which may hold another process's only
            // key.
            match std::fs::hard_link(&temporary, path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => std::fs::remove_file(&temporary)?,
            }
        }
        std::fs::File::open(parent_directory(path))?.sync_all()
    })();
    written.map_err(|source| {
        let _ = std::fs::remove_file(&temporary);
        KeyFileError::Write { path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_is_opened_for_its_purpose_only() {
        let keyring = Keyring::ephemeral().unwrap();
        let sealed = keyring.seal_text("page", "/subscriptions/s").unwrap();
        assert!(!sealed.contains("subscriptions"));
        assert_eq!(keyring.open_text("page", &sealed).as_deref(), Some("/subscriptions/s"));
        assert_eq!(keyring.open_text("other", &sealed), None);
        assert_eq!(Keyring::ephemeral().unwrap().open_text("page", &sealed), None);
        let mut changed = BASE64.decode(&sealed).unwrap();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(keyring.open_text("page", &BASE64.encode(changed)), None);
        for nonsense in ["", "AA==", "not base64", "AAAA"] {
            assert_eq!(keyring.open_text("page", nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_sealed_secret_opens_only_for_its_owner_and_name() {
        let notify = Keyring::ephemeral().unwrap();
        let owner = Uuid::new_v4();
        let sealed = notify.seal(owner, "kubeconfig", b"hunter2").unwrap();
        assert_eq!(notify.open(&sealed).unwrap().expose(), b"hunter2");
        assert!(!sealed.bytes.windows(7).any(|window| window == b"hunter2"));

        let moved = SealedSecret { owner: Uuid::new_v4(), ..sealed.clone() };
        assert!(notify.open(&moved).unwrap_err().to_string().contains("was changed or moved"));
        let renamed = SealedSecret { name: "password".to_owned(), ..sealed.clone() };
        assert!(notify.open(&renamed).is_err());
        for place in 0..sealed.bytes.len() {
            let mut damaged = sealed.clone();
            damaged.bytes[place] ^= 1;
            assert!(notify.open(&damaged).is_err(), "a flipped bit in byte {place} went unnoticed");
        }
        let cut = SealedSecret { bytes: sealed.bytes[..10].to_vec(), ..sealed.clone() };
        assert!(notify.open(&cut).is_err());
        assert!(!format!("{sealed:?}").contains("hunter2"));
    }

    #[test]
    fn a_key_file_is_created_once_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let notify = Keyring::read_or_create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let sealed = notify.seal(Uuid::nil(), "a", b"b").unwrap();
        let again = Keyring::read_or_create(&path).unwrap();
        assert_eq!(again.open(&sealed).unwrap().expose(), b"b");
    }

    #[test]
    fn concurrent_creators_of_a_key_file_have_the_same_key() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("keys");
            let begin = std::sync::Barrier::new(8);
            let ids: Vec<String> = std::thread::scope(|scope| {
                let make = || {
                    begin.wait();
                    Keyring::read_or_create(&path).unwrap().current()
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(Keyring::read(&path).unwrap().ids(), [ids[0].clone()]);
            assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a temporary file was left");
        }
    }

    #[test]
    fn a_key_that_no_store_adopted_is_in_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let (ours, theirs) = (Keyring::read_or_draft(&path).unwrap(), Keyring::read_or_draft(&path).unwrap());
        assert!(!path.exists());
        theirs.publish().unwrap();
        let published = std::fs::read(&path).unwrap();
        ours.publish().unwrap();
        assert_eq!(ours.current(), theirs.current());
        assert!(std::fs::read(&path).unwrap() == published);
    }

    #[test]
    fn another_process_reads_a_new_key_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let ours = Keyring::read_or_create(&path).unwrap();
        let theirs = Keyring::read(&path).unwrap();
        let old = ours.seal(Uuid::nil(), "a", b"old").unwrap();
        let new_id = ours.add_key().unwrap();
        let new = ours.seal(Uuid::nil(), "a", b"new").unwrap();
        assert_eq!(new.key_id, new_id);
        assert_eq!(theirs.open(&new).unwrap().expose(), b"new");
        ours.remove_old_keys().unwrap();
        assert!(ours.open(&old).unwrap_err().to_string().contains("does not contain key"));
    }

    #[test]
    fn an_invalid_key_file_is_rejected_with_its_line_and_never_shows_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let check = |text: &str, expect: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let open_error = Keyring::read(&path).unwrap_err().to_string();
            assert!(open_error.contains(expect), "{open_error}");
            assert!(!open_error.contains("c2VjcmV0"), "{open_error}");
        };
        check("", "contains no key");
        check("# only a comment\n", "contains no key");
        check("k1\n", "line 1: has no key after its id");
        check("k1 !!!\n", "line 1: is not base64");
        check("\nk1 c2VjcmV0\n", "line 2: is not 32 bytes long");
        let key = BASE64.encode([7; 32]);
        check(&format!("k1 {key}\nk1 {key}\n"), "line 2: repeats a key id");
        std::fs::write(&path, format!("k1 {key}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Keyring::read(&path).unwrap_err().to_string().contains("mode 644"));
    }
}
