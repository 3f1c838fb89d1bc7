//! One running program of a cluster, and its log.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::binaries::Binaries;

/// Size of the part of the log that error messages contain.
const LOG_TAIL_BYTES_MAX: usize = 4096;

/// A program. It keeps running when this value is dropped: its owner kills it, or the guardian of its working
/// directory does.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
    log_start: u64,
}

impl Program {
    /// Starts the program in the guarded directory `place`; its log is in `files`.
    pub(super) fn start(
        binaries: &Binaries,
        name: &'static str,
        place: &Path,
        files: &Path,
        flags: &[String],
    ) -> anyhow::Result<Program> {
        let log = files.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let log_start = output.metadata()?.len();
        let child = Command::new(binaries.program(name))
            .args(flags)
            // A developer's `ETCD_…` and proxy variables would act as flags.
            .env_clear()
            .env("HOME", files)
            // The guardian finds the process by its working directory.
            .current_dir(place)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("failed to start {name}"))?;
        Ok(Program { name, child, log, log_start })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the program has exited.
    pub(super) fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("failed to wait for {}", self.name))
    }

    /// Fails with the end of the log if the program has exited.
    pub(super) fn ensure_running(&mut self) -> anyhow::Result<()> {
        let status = self.exit_status()?;
        ensure!(status.is_none(), "{} has exited ({status:?}), its log: {}", self.name, self.log_tail());
        Ok(())
    }

    /// The end of the log since the program was started.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let begin = usize::try_from(self.log_start).unwrap_or_default();
        let log = log.get(begin.max(log.len().saturating_sub(LOG_TAIL_BYTES_MAX))..).unwrap_or_default();
        String::from_utf8_lossy(log).trim().to_owned()
    }

    pub(super) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        // After the program was waited for, its process id may belong to another process.
        self.ensure_running()?;
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("failed to signal {}", self.name))
    }

    /// Kills the program with `kill -9` and waits for its end; it is no error if it has exited already.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("failed to kill {}", self.name))?;
        self.child.wait().with_context(|| format!("failed to wait for {}", self.name))?;
        Ok(())
    }
}
