//! The directory of one server, and how its programs are run there.

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

/// initdb and pg_basebackup take seconds; a machine that also compiles may need a few more.
const PREPARE_DEADLINE: Duration = Duration::from_secs(120);
/// Long enough for crash recovery after the heaviest test.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// What `sockaddr_un` holds on Linux, less the name of the socket file and a final zero.
const SOCKET_DIRECTORY_BYTES_MAX: usize = 107 - "/.s.PGSQL.65535".len();

/// A guarded directory: `data` in it is the server's, beside it are its log and its Unix socket.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) binaries: Binaries,
    parent: PathBuf,
    account: Option<Account>,
    scratch: ScratchDirectory,
}

/// How an attempt to start a server ended, if not with a failure.
pub(super) enum Launch {
    Ready(Child),
    /// Somebody else took the port between our look and the server's.
    PortTaken,
}

impl Place {
    pub(super) fn new(parent: &Path) -> anyhow::Result<Place> {
        let binaries =
            Binaries::find()?.context("no PostgreSQL server is installed; tools/setup installs one")?;
        let account = Account::for_server()?;
        let scratch = ScratchDirectory::new_in(parent, "postgres")?;
        let place = Place { binaries, parent: parent.to_owned(), account, scratch };
        place.give(place.directory())?;
        Ok(place)
    }

    /// Makes the server's account the owner of a file or directory.
    pub(super) fn give(&self, path: &Path) -> anyhow::Result<()> {
        let Some(account) = &self.account else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid))
            .with_context(|| format!("{} cannot be given to {}", path.display(), account.name))
    }

    /// An empty place beside this one, for a copy of its server.
    pub(super) fn beside(&self) -> anyhow::Result<Place> {
        Place::new(&self.parent)
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

    /// Runs one of the server's programs to its end, as the server's account.
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
        forget_postgres_environment(&mut command);
        // Its working directory is how the guardian finds a process, and one that the account may enter.
        command.current_dir(self.directory()).env("LC_ALL", "C").process_group(0);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Starts the server that is in `data` and waits until it takes connections.
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
            .context("postgres did not start")?;
        let pid = child.id();
        let outcome = wait_until("PostgreSQL takes connections", START_DEADLINE, || match child.try_wait() {
            Ok(None) => self.is_ready(pid).then_some(None),
            Ok(Some(status)) => Some(Some(status)),
            Err(_) => None,
        });
        match outcome {
            Ok(None) => Ok(Launch::Ready(child)),
            Ok(Some(status)) => match said_since(&mut log, begin)? {
                said if said.contains("could not bind IPv4 address") => Ok(Launch::PortTaken),
                said => bail!("PostgreSQL ended while it started ({status}), its log: {said}"),
            },
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(format!("the server's log: {}", said_since(&mut log, begin)?)))
            }
        }
    }

    /// The server writes its state into its lock file; `pg_ctl` waits by that too. A lock file that a
    /// killed server left has another process id in its first line.
    fn is_ready(&self, pid: u32) -> bool {
        let Ok(lock) = std::fs::read_to_string(self.data().join("postmaster.pid")) else { return false };
        let mut lines = lock.lines();
        lines.next() == Some(&pid.to_string()) && lines.nth(6).map(str::trim) == Some("ready")
    }
}

fn said_since(log: &mut File, begin: u64) -> std::io::Result<String> {
    let mut said = String::new();
    log.seek(SeekFrom::Start(begin))?;
    log.read_to_string(&mut said)?;
    Ok(said.trim().to_owned())
}

/// The account that a server runs as when the test is root.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// `None` when the test may run the server as itself.
    fn for_server() -> anyhow::Result<Option<Account>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
        let found = ["postgres", "nobody"].iter().find_map(|name| Account::among(&accounts, name));
        Ok(Some(
            found.context("PostgreSQL does not run as root, and there is no account postgres or nobody")?,
        ))
    }

    fn among(accounts: &str, name: &str) -> Option<Account> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            (found && uid != 0).then(|| Account { name: name.to_owned(), uid, gid })
        })
    }
}

/// A developer's `PGHOST` or `PGSERVICE` must not lead a test to another server.
pub(super) fn forget_postgres_environment(command: &mut Command) {
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
    fn an_account_is_found_by_its_whole_name_and_is_never_root() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\npostgresql:x:7:7::/:/bin/sh\npostgres:x:101:103::/:/bin/sh\n";
        let found = Account::among(accounts, "postgres").unwrap();
        assert_eq!((found.uid, found.gid), (101, 103));
        assert!(Account::among(accounts, "nobody").is_none());
        assert!(Account::among(accounts, "root").is_none());
    }
}
