//! Files that only their owner can read: contexts, kubeconfigs, keys, tokens. Each is created with mode 0600 under a name that cannot be
//! guessed and then renamed. So no reader sees half a file, no symbolic link is followed, and a file that
//! others could read is replaced.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use tempfile::NamedTempFile;

/// Writes a file atomically.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> io::Result<()> {
        let mut part = NamedTempFile::new_in(directory)?;
        part.write_all(text.as_bytes())?;
        part.as_file().sync_all()?;
        part.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("{}: cannot be written", path.display()))
}

/// Opens or creates a lock file. A symbolic link is rejected, because its target is not
/// a lock file of Shipshape.
pub fn open_lock(path: &Path) -> io::Result<File> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("it is a symbolic link; remove it"));
    }
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_takes_the_place_of_a_link_and_of_one_that_others_could_read() {
        let place = tempfile::tempdir().unwrap();
        let [victim, linked, open] = ["victim", "linked", "open"].map(|name| place.path().join(name));
        std::fs::write(&victim, "theirs").unwrap();
        symlink(&victim, &linked).unwrap();
        std::fs::write(&open, "old").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
        for path in [&linked, &open, &place.path().join("new")] {
            write(path, "secret").unwrap();
            let found = std::fs::symlink_metadata(path).unwrap();
            assert!(found.is_file(), "{}", path.display());
            assert_eq!(found.permissions().mode() & 0o777, 0o600, "{}", path.display());
            assert_eq!(std::fs::read_to_string(path).unwrap(), "secret");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 4, "nothing is left beside them");
        let error = format!("{:#}", write(&place.path().join("nowhere/file"), "x").unwrap_err());
        assert!(error.contains("nowhere/file: cannot be written"), "{error}");
    }

    #[test]
    fn a_lock_is_not_taken_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        drop(open_lock(&path).unwrap());
        drop(open_lock(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let victim = place.path().join("victim");
        symlink(&victim, &path).unwrap();
        assert_eq!(open_lock(&path).unwrap_err().to_string(), "it is a symbolic link; remove it");
        assert!(!victim.exists());
    }
}
