//! The data directory: accessible by its owner only, and used by one `up` at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use cli::private_file;

/// Files of Shipshape. One of them identifies a data directory.
const SHIPSHAPE_FILES: [&str; 8] =
    ["shipshape.db", "keys", "context.toml", "pki", "cloud", "sim", "demo.json", LOCK];

/// The lock file of the directory.
const LOCK: &str = "up.lock";

/// Longest wait for the lock: a process that is ending may still hold it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Mode bits with which others can create, replace and remove files in a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Creates the data directory with mode 0700, and checks that it belongs to Shipshape and is writable: better an
/// error at the start than a failed write later, or keys that others can replace.
pub(crate) fn ensure_writable(directory: &Path) -> anyhow::Result<()> {
    let name = directory.display();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.with_context(|| format!("data_dir {name}: the directory cannot be created"))?;
    let found = std::fs::metadata(directory);
    let found = found.with_context(|| format!("data_dir {name}: the directory cannot be read"))?;
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        bail!(
            "data_dir {name}: its mode {mode:o} allows others to write to it; run `chmod 700 {name}`, or pass another directory, such as one below it, with --data-dir"
        );
    }
    let probed = probe(directory);
    let process_owner = match probed {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            bail!("data_dir {name}: its disk is full; free some space, or pass another --data-dir")
        }
        probed => probed.with_context(|| format!("data_dir {name}: the directory cannot be written to"))?,
    };
    if let Some(sentence) = foreign_owner(directory, found.uid(), process_owner) {
        bail!(sentence);
    }
    match foreign_file(directory).with_context(|| format!("data_dir {name}: the directory cannot be read"))? {
        Some(file) => bail!(
            "data_dir {name}: contains {file:?} and no file of Shipshape; pass an empty directory, or a data directory of Shipshape"
        ),
        None => Ok(()),
    }
}

/// Writes and removes a file in the directory; returns its owner, which is the user of this process. The
/// name cannot be guessed and the file is always new, so that no link redirects the write.
fn probe(directory: &Path) -> io::Result<u32> {
    let mut probe = tempfile::Builder::new().prefix(".write-probe-").tempfile_in(directory)?;
    // A full disk accepts a new file but not its contents.
    probe.write_all(&[0; 4096])?;
    probe.as_file().sync_all()?;
    let owner = probe.as_file().metadata()?.uid();
    probe.close()?;
    Ok(owner)
}

/// The error for a directory of another user, who could replace its files.
fn foreign_owner(directory: &Path, owner: u32, process_owner: u32) -> Option<String> {
    let name = directory.display();
    (owner != process_owner).then(|| {
        format!(
            "data_dir {name}: belongs to user {owner}, and Shipshape runs as user {process_owner}; run `chown {process_owner} {name}`, or pass another directory with --data-dir"
        )
    })
}

/// A foreign file in a directory without files of Shipshape. Settings, hidden files and `lost+found`
/// are allowed.
fn foreign_file(directory: &Path) -> io::Result<Option<String>> {
    let mut foreign = None;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if SHIPSHAPE_FILES.contains(&name.as_str()) {
            return Ok(None);
        }
        let is_allowed = name.starts_with('.') || name.ends_with(".toml") || name == "lost+found";
        if !is_allowed && foreign.as_ref().is_none_or(|first| name < *first) {
            foreign = Some(name);
        }
    }
    Ok(foreign)
}

/// The lock of the directory against other processes. The system releases it with the process,
/// even after a crash.
#[derive(Debug)]
pub(crate) struct DataDirLock {
    _lock: File,
}

/// Locks the directory for this process.
pub(crate) async fn lock(directory: &Path) -> anyhow::Result<DataDirLock> {
    let path = directory.join(LOCK);
    let mut file =
        private_file::open_lock(&path).with_context(|| format!("{}: cannot be written", path.display()))?;
    let limit = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < limit => tokio::time::sleep(LOCK_RETRY).await,
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                bail!(
                    "data_dir {}: in use by another process (process {}); stop it, or pass another --data-dir",
                    directory.display(),
                    owner.trim()
                )
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{}: cannot be locked", path.display()));
            }
        }
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.seek(io::SeekFrom::Start(0)))
        .and_then(|_| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    written.with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(DataDirLock { _lock: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_foreign_files_is_rejected_and_not_changed() {
        let check = |files: &[&str], refused: Option<&str>| {
            let directory = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(directory.path().join(file), "theirs").unwrap();
            }
            let result = ensure_writable(directory.path()).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!(result, Ok(()), "{files:?}"),
                Some(named) => {
                    assert!(result.unwrap_err().contains(&format!("contains {named:?} and no file of")));
                }
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), files.len());
        };
        check(&[], None);
        check(&["lost+found", ".profile", "config.toml"], None);
        check(&["shipshape.db", "notes.txt"], None);
        check(&["thesis.tex", "photos"], Some("photos"));
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_rejected_and_not_changed() {
        use std::os::unix::fs::PermissionsExt as _;
        let check = |mode: u32, is_refused: bool| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let result = ensure_writable(directory.path()).map_err(|error| error.to_string());
            let name = directory.path().display();
            let sentence = format!(
                "data_dir {name}: its mode {mode:o} allows others to write to it; run `chmod 700 {name}`, or pass another directory, such as one below it, with --data-dir"
            );
            assert_eq!(result, if is_refused { Err(sentence) } else { Ok(()) });
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        };
        check(0o700, false);
        check(0o755, false);
        check(0o777, true);
        check(0o1777, true);
        check(0o770, true);
        check(0o702, true);
    }

    #[test]
    fn a_directory_of_another_user_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let owner = std::fs::metadata(directory.path()).unwrap().uid();
        assert_eq!(probe(directory.path()).unwrap(), owner);
        assert_eq!(foreign_owner(Path::new("/d"), 7, 7), None);
        let sentence = foreign_owner(Path::new("/d"), 7, 8).unwrap();
        assert!(
            sentence.starts_with(
                "data_dir /d: belongs to user 7, and Shipshape runs as user 8; run `chown 8 /d`"
            )
        );
    }

    #[tokio::test]
    async fn no_symbolic_link_in_the_directory_is_followed() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = elsewhere.path().join("victim");
        std::fs::write(&victim, "theirs").unwrap();
        for name in [".write-probe", LOCK] {
            std::os::unix::fs::symlink(&victim, directory.path().join(name)).unwrap();
        }
        ensure_writable(directory.path()).unwrap();
        let error = format!("{:#}", lock(directory.path()).await.unwrap_err());
        assert!(error.ends_with("it is a symbolic link; remove it"), "{error}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_locked_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).await.unwrap();
        let error = lock(directory.path()).await.unwrap_err().to_string();
        let expected = format!("in use by another process (process {})", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(first);
        lock(directory.path()).await.unwrap();
    }
}
