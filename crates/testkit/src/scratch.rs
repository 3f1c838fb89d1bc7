//! Directories that never outlive the test process; neither do the processes that run in them.
//!
//! Destructors do not run in a process that is killed, nor for statics, so each directory has a guardian: a small shell
//! that waits for the end of a pipe whose other end only this process holds. When the pipe closes, the guardian ends
//! every process whose working directory is the scratch directory (or `data` in it), unmounts `disk` in it and removes
//! it. It needs Linux's `/proc` and a POSIX shell.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::random;

/// A private directory with a guardian. It is removed on drop or when this process ends.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    guardian: Child,
}

impl ScratchDirectory {
    /// Creates a directory among the temporary files; `purpose` becomes part of its name.
    pub fn new(purpose: &str) -> anyhow::Result<ScratchDirectory> {
        ScratchDirectory::new_in(&std::env::temp_dir(), purpose)
    }

    /// Creates a directory in `parent`.
    pub fn new_in(parent: &Path, purpose: &str) -> anyhow::Result<ScratchDirectory> {
        let parent =
            parent.canonicalize().with_context(|| format!("failed to resolve {}", parent.display()))?;
        let path = parent.join(format!("shipshape-{purpose}-{}", random::suffix()));
        // The guardian is started first, so that the directory is never unguarded.
        let guardian = Command::new("sh")
            .args(["-c", include_str!("guardian.sh"), "shipshape-guardian"])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start the guardian of a scratch directory")?;
        let scratch = ScratchDirectory { path, guardian };
        DirBuilder::new()
            .mode(0o700)
            .create(&scratch.path)
            .with_context(|| format!("failed to create {}", scratch.path.display()))?;
        Ok(scratch)
    }

    /// The path; absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        // The guardian gives up if something cannot be ended, so this does not wait forever.
        let _ = self.guardian.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_private_and_removed_on_drop() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = ScratchDirectory::new("scratch").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_in_a_scratch_directory_ends_with_it() {
        let scratch = ScratchDirectory::new("scratch").unwrap();
        let mut sleeper = Command::new("sleep").arg("600").current_dir(scratch.path()).spawn().unwrap();
        drop(scratch);
        assert!(!sleeper.wait().unwrap().success());
    }

    #[test]
    fn the_error_names_a_missing_parent() {
        let error = ScratchDirectory::new_in(Path::new("/no/such/place"), "scratch").unwrap_err();
        assert_eq!(error.to_string(), "failed to resolve /no/such/place");
    }
}
