//! The data directory: made for its owner only, ours alone, and used by one `up` at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

/// What we make in a data directory. One of these tells that it is ours.
const OURS: [&str; 8] = ["shipshape.db", "keys", "context.toml", "pki", "cloud", "sim", "demo.json", LOCK];

/// Whoever serves from the directory holds this file.
const LOCK: &str = "up.lock";

/// A process that was just ended may hold the directory for a moment longer.
const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);

/// Makes the data directory, for its owner only, and makes sure that it can be written to: better a
/// sentence now than a failed write in the middle of the night.
pub(crate) fn ensure_writable(directory: &Path) -> anyhow::Result<()> {
    let name = directory.display();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("data_dir {name}: the directory cannot be made"))?;
    let probe = directory.join(".write-probe");
    let written = File::create(&probe).and_then(|mut file| {
        // A full disk takes the name of a file and not its contents.
        let filled = file.write_all(&[0; 4096]).and_then(|()| file.sync_all());
        match std::fs::remove_file(&probe) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error), // another process probed too
            _ => filled,
        }
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            bail!("data_dir {name}: its disk is full; make room, or name another place with --data-dir")
        }
        written => written.with_context(|| format!("data_dir {name}: the directory cannot be written to"))?,
    }
    match foreign(directory).with_context(|| format!("data_dir {name}: the directory cannot be read"))? {
        Some(stranger) => bail!(
            "data_dir {name}: holds {stranger:?} and nothing of Shipshape's; name an empty directory, or one that Shipshape made"
        ),
        None => Ok(()),
    }
}

/// A file that is not ours in a directory that has none of ours. Settings, hidden files and what a file system makes by itself
/// may be there before us.
fn foreign(directory: &Path) -> io::Result<Option<String>> {
    let mut stranger = None;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if OURS.contains(&name.as_str()) {
            return Ok(None);
        }
        let is_welcome = name.starts_with('.') || name.ends_with(".toml") || name == "lost+found";
        if !is_welcome && stranger.as_ref().is_none_or(|known| name < *known) {
            stranger = Some(name);
        }
    }
    Ok(stranger)
}

/// The directory, held against any other process that would serve from it. The system lets go of it with the process,
/// however that ends.
#[derive(Debug)]
pub(crate) struct Held {
    _lock: File,
}

/// Takes the directory for this process.
pub(crate) async fn hold(directory: &Path) -> anyhow::Result<Held> {
    let path = directory.join(LOCK);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    let limit = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < limit => tokio::time::sleep(AGAIN).await,
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
    Ok(Held { _lock: file })
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

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_held_once() {
        let directory = tempfile::tempdir().unwrap();
        let held = hold(directory.path()).await.unwrap();
        let refusal = hold(directory.path()).await.unwrap_err().to_string();
        let ourselves = format!("is in use by another process (process {})", std::process::id());
        assert!(refusal.contains(&ourselves), "{refusal}");
        drop(held);
        hold(directory.path()).await.unwrap();
    }
}
