//! Child processes that a test exchanges lines with, and kills.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait_until;

/// A running helper executable. Its standard input and output are lines; its standard error is that of the test.
///
/// It is killed on drop. A helper should also exit when its standard input closes: a test that is itself killed with
/// `kill -9` drops nothing.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl ChildProcess {
    /// Starts `command` with its standard input and output piped.
    pub fn start(mut command: Command) -> anyhow::Result<ChildProcess> {
        let name = PathBuf::from(command.get_program()).display().to_string();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("a piped output is there")?;
        let (sender, lines) = channel();
        // Reading ahead keeps the helper from blocking on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(ChildProcess { name, child, stdin, lines })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the standard input.
    pub fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("the input of {} is closed", self.name))?;
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .with_context(|| format!("{} does not accept the line {line:?}", self.name))
    }

    /// Closes the standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// The next line of output, or `None` at its end.
    pub fn next_line(&mut self, deadline: Duration) -> anyhow::Result<Option<String>> {
        match self.lines.recv_timeout(deadline) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("{} printed nothing for {deadline:?}", self.name),
        }
    }

    /// The next line of output; the end of the output is an error.
    pub fn line(&mut self, deadline: Duration) -> anyhow::Result<String> {
        match self.next_line(deadline)? {
            Some(line) => Ok(line),
            None => bail!("{} closed its output when a line was expected", self.name),
        }
    }

    /// The exit status, if the process has exited.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("failed to wait for {}", self.name))
    }

    /// Waits for the end of the process; fails if it still runs at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let until = format!("{} exits", self.name);
        wait_until(&until, deadline, || self.exit_status().transpose())?
    }

    /// Kills the process with `kill -9` and waits for its end; it is no error if it has exited already.
    pub fn kill9(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.kill().with_context(|| format!("failed to kill {}", self.name))?;
        self.child.wait().with_context(|| format!("failed to wait for {}", self.name))
    }

    /// Sends SIGTERM; [`ChildProcess::wait`] waits for the effect.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Pauses the process with SIGSTOP: it seems to hang, and its connections stay open.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the process after [`ChildProcess::pause`].
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        // After the process was waited for, its id may belong to another process.
        ensure!(self.exit_status()?.is_none(), "{} has exited already", self.name);
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("failed to signal {}", self.name))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The executable of an example in the profile of the running test: `target/<profile>/examples/NAME`.
///
/// `cargo test` builds the examples of a package together with its tests, `cargo test --test NAME` does not.
pub fn example_path(name: &str) -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe().context("the running executable has no path")?;
    let profile = test
        .ancestors()
        .skip(1)
        .find(|directory| !directory.ends_with("deps"))
        .with_context(|| format!("{} is not where cargo puts tests", test.display()))?;
    let example = profile.join("examples").join(name);
    ensure!(
        example.is_file(),
        "{} is missing; run cargo build --examples with -p and the profile of the test",
        example.display()
    );
    Ok(example)
}

/// Runs a command to completion with `input` as its standard input; kills it at the deadline.
pub(crate) fn output(mut command: Command, input: &str, deadline: Duration) -> anyhow::Result<Output> {
    let name = PathBuf::from(command.get_program()).display().to_string();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {name}"))?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    if let Some(mut stdin) = child.stdin.take() {
        // A command that exits without reading its input reports the cause in its exit status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = wait_until(&format!("{name} exits"), deadline, || child.try_wait().transpose());
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(Output { status: status??, stdout: finish(stdout), stderr: finish(stderr) })
}

type Collector = std::thread::JoinHandle<Vec<u8>>;

fn collect(mut from: impl Read + Send + 'static) -> Collector {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

fn finish(collector: Option<Collector>) -> Vec<u8> {
    collector.and_then(|collector| collector.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> ChildProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ChildProcess::start(command).unwrap()
    }

    #[test]
    fn lines_are_exchanged_until_the_input_closes() {
        let mut child = shell("while read -r line; do echo \"got $line\"; done; exit 3");
        child.send("one").unwrap();
        assert_eq!(child.line(SOON).unwrap(), "got one");
        child.close_input();
        assert_eq!(child.next_line(SOON).unwrap(), None);
        assert_eq!(child.wait(SOON).unwrap().code(), Some(3));
        assert!(child.send("two").is_err());
    }

    #[test]
    fn a_child_that_ignores_sigterm_is_killed() {
        let mut child = shell("trap '' TERM; echo ready; while :; do read -r line; done");
        assert_eq!(child.line(SOON).unwrap(), "ready");
        child.terminate().unwrap();
        assert!(child.wait(Duration::from_millis(100)).is_err());
        assert_eq!(child.kill9().unwrap().signal(), Some(9));
        assert_eq!(child.kill9().unwrap().signal(), Some(9));
        assert!(child.terminate().is_err());
    }

    #[test]
    fn sigterm_terminates_a_child() {
        let mut child = shell("echo ready; exec sleep 600");
        assert_eq!(child.line(SOON).unwrap(), "ready");
        child.terminate().unwrap();
        assert_eq!(child.wait(SOON).unwrap().signal(), Some(15));
    }

    #[test]
    fn a_paused_child_responds_after_it_is_resumed() {
        let mut child = shell("while read -r line; do echo \"$line\"; done");
        child.pause().unwrap();
        child.send("hello").unwrap();
        assert!(child.next_line(Duration::from_millis(100)).is_err());
        child.resume().unwrap();
        assert_eq!(child.line(SOON).unwrap(), "hello");
    }

    #[test]
    fn a_dropped_child_is_killed() {
        let child = shell("exec sleep 600");
        let proc = PathBuf::from(format!("/proc/{}", child.pid()));
        assert!(proc.exists());
        drop(child);
        assert!(!proc.exists());
    }

    #[test]
    fn the_error_names_a_missing_example() {
        let error = example_path("no-such-example").unwrap_err().to_string();
        assert!(error.contains("examples/no-such-example is missing"), "{error}");
    }

    #[test]
    fn a_command_is_killed_at_its_deadline() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let error = output(command, "", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "timed out after 20ms waiting until sleep exits");
    }
}
