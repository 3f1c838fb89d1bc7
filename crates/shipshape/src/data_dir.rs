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
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("data_dir {name}: the directory cannot be made"))?;
    let found = std::fs::metadata(directory);
    let found = found.with_context(|| format!("data_dir {name}: the directory cannot be read"))?;
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        bail!(
            "data_dir {name}: its mode {mode:o} lets others write to it; run `chmod 700 {name}`, or name another directory, such as one below it, with --data-dir"
        );
    }
    let probed = probe(directory);
    let ours = match probed {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            bail!("data_dir {name}: its disk is full; make room, or name another place with --data-dir")
        }
        probed => probed.with_context(|| format!("data_dir {name}: the directory cannot be written to"))?,
    };
    if let Some(sentence) = foreign_owner(directory, found.uid(), ours) {
        bail!(sentence);
    }
    match foreign(directory).with_context(|| format!("data_dir {name}: the directory cannot be read"))? {
        Some(stranger) => bail!(
            "data_dir {name}: holds {stranger:?} and nothing of Shipshape's; name an empty directory, or one that Shipshape made"
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
fn foreign_owner(directory: &Path, owner: u32, ours: u32) -> Option<String> {
    let name = directory.display();
    (owner != ours).then(|| {
        format!(
            "data_dir {name}: belongs to user {owner}, and Shipshape runs as user {ours}; run `chown {ours} {name}`, or name another directory with --data-dir"
        )
    })
}

/// A foreign file in a directory without files of Shipshape. Settings, hidden files and `lost+found`
/// are allowed.
fn foreign(directory: &Path) -> io::Result<Option<String>> {
    let mut stranger = None;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if SHIPSHAPE_FILES.contains(&name.as_str()) {
            return Ok(None);
        }
        let is_welcome = name.starts_with('.') || name.ends_with(".toml") || name == "lost+found";
        if !is_welcome && stranger.as_ref().is_none_or(|known| name < *known) {
            stranger = Some(name);
        }
    }
    Ok(stranger)
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
                    "data_dir {}: is in use by another process (process {}); end it, or name another place with --data-dir",
                    directory.display(),
                    owner.trim()
                )
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{}: cannot be locked", path.display()));
            }
        }
    }
    let told = file
        .set_len(0)
        .and_then(|()| file.seek(io::SeekFrom::Start(0)))
        .and_then(|_| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    told.with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(DataDirLock { _lock: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_somebody_else_is_refused_and_left_as_it_was() {
        let check = |files: &[&str], refused: Option<&str>| {
            let directory = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(directory.path().join(file), "theirs").unwrap();
            }
            let answer = ensure_writable(directory.path()).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!(answer, Ok(()), "{files:?}"),
                Some(named) => {
                    assert!(answer.unwrap_err().contains(&format!("holds {named:?} and nothing of")));
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
    fn a_directory_that_others_can_write_to_is_refused_and_left_as_it_was() {
        use std::os::unix::fs::PermissionsExt as _;
        let check = |mode: u32, is_refused: bool| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let answer = ensure_writable(directory.path()).map_err(|error| error.to_string());
            let name = directory.path().display();
            let sentence = format!(
                "data_dir {name}: its mode {mode:o} lets others write to it; run `chmod 700 {name}`, or name another directory, such as one below it, with --data-dir"
            );
            assert_eq!(answer, if is_refused { Err(sentence) } else { Ok(()) });
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
    fn a_directory_of_another_user_is_refused() {
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
    async fn no_link_in_the_directory_is_written_through() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = elsewhere.path().join("victim");
        std::fs::write(&victim, "theirs").unwrap();
        for name in [".write-probe", LOCK] {
            std::os::unix::fs::symlink(&victim, directory.path().join(name)).unwrap();
        }
        ensure_writable(directory.path()).unwrap();
        let refusal = format!("{:#}", lock(directory.path()).await.unwrap_err());
        assert!(refusal.ends_with("it is a symbolic link; remove it"), "{refusal}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_held_once() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).await.unwrap();
        let refusal = lock(directory.path()).await.unwrap_err().to_string();
        let internal = format!("is in use by another process (process {})", std::process::id());
        assert!(refusal.contains(&internal), "{refusal}");
        drop(held);
        lock(directory.path()).await.unwrap();
    }
}
