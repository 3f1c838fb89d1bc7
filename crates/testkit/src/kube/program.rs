//! One running program of a cluster, and what it says.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::binaries::Binaries;

/// Enough of a log to tell why a program ended.
const SAID_BYTES_MAX: usize = 4096;

/// It runs on when this value is dropped: its owner kills it, or the guardian of the directory it works in.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
    log_begin: u64,
}

impl Program {
    /// Starts it in the guarded directory `place`; its log is in `files`.
    pub(super) fn start(
        binaries: &Binaries,
        name: &'static str,
        place: &Path,
        files: &Path,
        flags: &[String],
    ) -> anyhow::Result<Program> {
        let log = files.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let log_begin = output.metadata()?.len();
        let child = Command::new(binaries.program(name))
            .args(flags)
            // A developer's ETCD_… and proxy variables would be taken for flags.
            .env_clear()
            .env("HOME", files)
            // Its working directory is how the guardian finds it.
            .current_dir(place)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{name} did not start"))?;
        Ok(Program { name, child, log, log_begin })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, when it has ended.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("{} cannot be waited for", self.name))
    }

    /// An error with the end of its log, when it has ended.
    pub(super) fn ensure_running(&mut self) -> anyhow::Result<()> {
        let status = self.ended()?;
        ensure!(status.is_none(), "{} has ended ({status:?}), its log: {}", self.name, self.said());
        Ok(())
    }

    /// The end of what it has logged since it was started.
    pub(super) fn said(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let begin = usize::try_from(self.log_begin).unwrap_or_default();
        let log = log.get(begin.max(log.len().saturating_sub(SAID_BYTES_MAX))..).unwrap_or_default();
        String::from_utf8_lossy(log).trim().to_owned()
    }

    pub(super) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        // After it was waited for, its number may be another process's.
        self.ensure_running()?;
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("{} cannot be signalled", self.name))
    }

    /// Kills it with `kill -9` and waits until it is gone; no matter if it had ended before.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("{} cannot be killed", self.name))?;
        self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))?;
        Ok(())
    }
}
