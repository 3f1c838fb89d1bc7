//! Files that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file as a whole. Only its owner may read it (mode 0600) from the first byte on, and no symbolic link is followed: the
/// text goes into a new file beside it, which then takes its name. The text is on disk when this returns.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    replace(path, text, File::sync_all)
}

/// [`write_private`] without the wait for the disk, for simulators that write thousands of files and can write them again.
pub fn write_private_unsynced(path: &Path, text: &str) -> io::Result<()> {
    replace(path, text, |_| Ok(()))
}

fn replace(path: &Path, text: &str, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // A process that was killed here may have left one.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    sync(&file)?;
    fs::rename(&temporary, path)
}
