//! Directories that never outlive the test process, nor do the processes that work in them.
//!
//! Destructors do not run in a process that is killed, nor for statics, so a directory has a guardian: a
//! small shell that waits for the end of a pipe whose other end only this process holds. When the pipe
//! closes, the guardian ends every process whose working directory is the scratch directory (or `data` in
//! it), unmounts `disk` in it and removes it. It needs Linux's `/proc` and a POSIX shell.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::random;

/// A private directory with a guardian, removed on drop or when this process ends.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    guardian: Child,
}

impl ScratchDirectory {
    /// Makes a directory in the system's place for temporary files; `purpose` becomes part of its name.
    pub fn new(purpose: &str) -> anyhow::Result<ScratchDirectory> {
        ScratchDirectory::new_in(&std::env::temp_dir(), purpose)
    }

    /// Makes a directory in `parent`.
    pub fn new_in(parent: &Path, purpose: &str) -> anyhow::Result<ScratchDirectory> {
        let parent = parent.canonicalize().with_context(|| format!("{} cannot be used", parent.display()))?;
        let path = parent.join(format!("shipshape-{purpose}-{}", random::word()));
        // The guardian comes first: there is no moment at which the directory exists unguarded.
        let guardian = Command::new("sh")
            .args(["-c", include_str!("guardian.sh"), "shipshape-guardian"])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("the shell that guards a scratch directory did not start")?;
        let scratch = ScratchDirectory { path, guardian };
        DirBuilder::new()
            .mode(0o700)
            .create(&scratch.path)
            .with_context(|| format!("{} could not be made", scratch.path.display()))?;
        Ok(scratch)
    }

    /// Where it is; absolute and free of symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        // It gives up by itself when something cannot be ended, so this does not wait forever.
        let _ = self.guardian.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_private_and_gone_after_its_drop() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = ScratchDirectory::new("scratch").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_works_in_a_scratch_directory_ends_with_it() {
        let scratch = ScratchDirectory::new("scratch").unwrap();
        let mut sleeper = Command::new("sleep").arg("600").current_dir(scratch.path()).spawn().unwrap();
        drop(scratch);
        assert!(!sleeper.wait().unwrap().success());
    }

    #[test]
    fn a_parent_that_is_missing_is_named() {
        let error = ScratchDirectory::new_in(Path::new("/no/such/place"), "scratch").unwrap_err();
        assert_eq!(error.to_string(), "/no/such/place cannot be used");
    }
}
