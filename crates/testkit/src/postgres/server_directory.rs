//! The directory of one server, and the programs that run in it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::binaries::Binaries;
use crate::scratch::ScratchDirectory;
use crate::{process, wait_until};

/// initdb and pg_basebackup take seconds, and more on a busy machine.
const PREPARE_DEADLINE: Duration = Duration::from_secs(120);
/// Long enough for crash recovery after the heaviest test.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// The length of `sun_path` on Linux, without the name of the socket file and the final zero.
const SOCKET_DIRECTORY_BYTES_MAX: usize = 107 - "/.s.PGSQL.65535".len();

/// A guarded directory with the server's `data`, its log and its Unix socket.
#[derive(Debug)]
pub(super) struct ServerDirectory {
    pub(super) binaries: Binaries,
    parent: PathBuf,
    account: Option<Account>,
    scratch: ScratchDirectory,
}

/// The result of an attempt to start a server.
pub(super) enum Launch {
    Ready(Child),
    /// Another process took the port between our check and the server's start.
    PortTaken,
}

impl ServerDirectory {
    pub(super) fn new(parent: &Path) -> anyhow::Result<ServerDirectory> {
        let binaries =
            Binaries::find()?.context("no PostgreSQL server is installed; tools/setup installs one")?;
        let account = Account::for_server()?;
        let scratch = ScratchDirectory::new_in(parent, "postgres")?;
        let place = ServerDirectory { binaries, parent: parent.to_owned(), account, scratch };
        place.chown(place.directory())?;
        Ok(place)
    }

    /// Makes the server's account the owner of a file or directory.
    pub(super) fn chown(&self, path: &Path) -> anyhow::Result<()> {
        let Some(account) = &self.account else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid))
            .with_context(|| format!("failed to change the owner of {} to {}", path.display(), account.name))
    }

    /// An empty directory with the same parent, for a copy of the server.
    pub(super) fn sibling(&self) -> anyhow::Result<ServerDirectory> {
        ServerDirectory::new(&self.parent)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    pub(super) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// Runs one of the server's programs to completion, as the server's account.
    pub(super) fn run(&self, program: &str, arguments: &[&OsStr]) -> anyhow::Result<()> {
        let mut command = self.command(program);
        command.args(arguments);
        let output = process::output(command, "", PREPARE_DEADLINE)?;
        ensure!(
            output.status.success(),
            "{program} failed in {} ({}): {}",
            self.directory().display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.program(program));
        clear_postgres_environment(&mut command);
        // The guardian finds the process by its working directory, which the account may enter.
        command.current_dir(self.directory()).env("LC_ALL", "C").process_group(0);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Starts the server in `data` and waits until it accepts connections.
    pub(super) fn launch(&self, port: u16) -> anyhow::Result<Launch> {
        let mut log = OpenOptions::new().create(true).append(true).read(true).open(self.log())?;
        let begin = log.seek(SeekFrom::End(0))?;
        let sockets = self.scratch.path();
        let sockets =
            if sockets.as_os_str().len() > SOCKET_DIRECTORY_BYTES_MAX { Path::new("") } else { sockets };
        let mut child = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-c", &format!("port={port}"), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("unix_socket_directories={}", sockets.display())])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()
            .context("failed to start postgres")?;
        let pid = child.id();
        let outcome =
            wait_until("PostgreSQL accepts connections", START_DEADLINE, || match child.try_wait() {
                Ok(None) => self.is_ready(pid).then_some(None),
                Ok(Some(status)) => Some(Some(status)),
                Err(_) => None,
            });
        match outcome {
            Ok(None) => Ok(Launch::Ready(child)),
            Ok(Some(status)) => match log_since(&mut log, begin)? {
                log_text if log_text.contains("could not bind IPv4 address") => Ok(Launch::PortTaken),
                log_text => bail!("PostgreSQL exited during its start ({status}), its log: {log_text}"),
            },
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(format!("the server's log: {}", log_since(&mut log, begin)?)))
            }
        }
    }

    /// Whether the server's lock file reports it ready; `pg_ctl` checks the same. A lock file of a killed server has
    /// another process id in its first line.
    fn is_ready(&self, pid: u32) -> bool {
        let Ok(lock) = std::fs::read_to_string(self.data().join("postmaster.pid")) else { return false };
        let mut lines = lock.lines();
        lines.next() == Some(&pid.to_string()) && lines.nth(6).map(str::trim) == Some("ready")
    }
}

fn log_since(log: &mut File, begin: u64) -> std::io::Result<String> {
    let mut log_text = String::new();
    log.seek(SeekFrom::Start(begin))?;
    log.read_to_string(&mut log_text)?;
    Ok(log_text.trim().to_owned())
}

/// The account of a server when the test runs as root.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// `None` if the test can run the server as itself.
    fn for_server() -> anyhow::Result<Option<Account>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
        let found = ["postgres", "nobody"].iter().find_map(|name| Account::find(&accounts, name));
        Ok(Some(
            found.context("PostgreSQL does not run as root, and there is no account postgres or nobody")?,
        ))
    }

    fn find(accounts: &str, name: &str) -> Option<Account> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            (found && uid != 0).then(|| Account { name: name.to_owned(), uid, gid })
        })
    }
}

/// Removes variables such as `PGHOST` and `PGSERVICE`, which could lead a test to another server.
pub(super) fn clear_postgres_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_full_name_and_is_never_root() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\npostgresql:x:7:7::/:/bin/sh\npostgres:x:101:103::/:/bin/sh\n";
        let found = Account::find(accounts, "postgres").unwrap();
        assert_eq!((found.uid, found.gid), (101, 103));
        assert!(Account::find(accounts, "nobody").is_none());
        assert!(Account::find(accounts, "root").is_none());
    }
}
