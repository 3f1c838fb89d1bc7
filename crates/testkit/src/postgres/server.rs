//! A private server, which a test can start, stop, kill, copy and promote.

use std::fmt::Write;
use std::fs::OpenOptions;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::endpoint::Endpoint;
use super::server_directory::{Launch, ServerDirectory};
use crate::{port, random, wait_until};

const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// How long a restarted server waits for its port if another process holds it.
const PORT_DEADLINE: Duration = Duration::from_secs(30);
const PORTS_TRIED_MAX: usize = 10;
const REPLICATION_DEADLINE: Duration = Duration::from_secs(60);

/// Settings in which test servers differ from PostgreSQL's defaults.
const SETTINGS: &[(&str, &str)] = &[
    ("max_connections", "200"),
    ("shared_buffers", "128MB"),
    ("wal_level", "replica"),
    // A checkpoint during a measurement would distort it.
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
    // Many tests are about durability; these are the defaults and must stay.
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    // In the data directory, which is removed: segments of a killed server in /dev/shm would stay.
    ("dynamic_shared_memory_type", "mmap"),
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
];

/// Options of a private server.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Settings of `postgresql.conf` besides those of this crate; the last one of a name wins.
    pub settings: Vec<(String, String)>,
    /// The superuser's password for SCRAM; with `None`, connections need no password.
    pub password: Option<String>,
    /// The parent of the server's directory, such as a [`crate::tmpfs::SmallDisk`]; by default the directory for
    /// temporary files. A test that runs as root starts the server as another user, who must be able to enter the
    /// directory.
    pub data_parent: Option<PathBuf>,
}

impl PostgresOptions {
    /// Adds a setting of `postgresql.conf`.
    #[must_use]
    pub fn with(mut self, setting: &str, value: &str) -> PostgresOptions {
        self.settings.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// Requires this password for every connection.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> PostgresOptions {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the parent of the server's directory.
    #[must_use]
    pub fn in_directory(mut self, parent: &Path) -> PostgresOptions {
        self.data_parent = Some(parent.to_owned());
        self
    }
}

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Closes connections and writes everything; the next start needs no recovery.
    Fast,
    /// All processes exit at once, as in a crash; the next start recovers from the log.
    Immediate,
}

/// A private PostgreSQL server. It is removed with its data when this value is dropped or the process ends.
///
/// It is an [`Endpoint`] that can also fail. Its methods take `&self`, so that one thread may stop it while others
/// use it.
#[derive(Debug)]
pub struct TestPostgres {
    endpoint: Endpoint,
    /// With the password, as in the URL; a standby has the same.
    user: String,
    port: u16,
    standbys: Mutex<Vec<String>>,
    postmaster: Mutex<Option<Child>>,
    place: ServerDirectory,
}

impl Deref for TestPostgres {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl TestPostgres {
    /// Creates a server and waits until it accepts connections.
    pub fn start(options: PostgresOptions) -> anyhow::Result<TestPostgres> {
        let parent = options.data_parent.clone().unwrap_or_else(std::env::temp_dir);
        let place = ServerDirectory::new(&parent)?;
        make_data_directory(&place, &options)?;
        TestPostgres::open(place, user_info(options.password.as_deref()))
    }

    /// Starts the server in `place` on a free port.
    fn open(place: ServerDirectory, user: String) -> anyhow::Result<TestPostgres> {
        for _ in 0..PORTS_TRIED_MAX {
            let port = port::free()?;
            match place.launch(port)? {
                Launch::PortTaken => continue,
                Launch::Ready(child) => {
                    let url = format!("postgres://{user}@127.0.0.1:{port}/postgres");
                    return Ok(TestPostgres {
                        endpoint: Endpoint::new(&url, place.binaries.program("psql"))?,
                        user,
                        port,
                        standbys: Mutex::default(),
                        postmaster: Mutex::new(Some(child)),
                        place,
                    });
                }
            }
        }
        bail!("{PORTS_TRIED_MAX} ports in a row were taken by others before PostgreSQL could bind them")
    }

    /// The port on 127.0.0.1, which never changes.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with its data directory (`data`), its log (`log`) and its Unix socket.
    pub fn directory(&self) -> &Path {
        self.place.directory()
    }

    /// The process id of the postmaster while it runs.
    pub fn pid(&self) -> Option<u32> {
        let mut postmaster = self.postmaster();
        running(&mut postmaster).map(|child| child.id())
    }

    /// Stops the server and waits for its end.
    pub fn stop(&self, how: StopMode) -> anyhow::Result<()> {
        let mut postmaster = self.postmaster();
        let child = running(&mut postmaster).context("PostgreSQL is not running")?;
        let signal = match how {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        };
        kill_process(Pid::from_child(child), signal).context("failed to signal PostgreSQL")?;
        wait_until("PostgreSQL stops", STOP_DEADLINE, || child.try_wait().transpose())??;
        *postmaster = None;
        Ok(())
    }

    /// Kills the postmaster and all its children with `kill -9`, and waits for their end.
    pub fn kill(&self) -> anyhow::Result<()> {
        let mut postmaster = self.postmaster();
        let child = running(&mut postmaster).context("PostgreSQL is not running")?;
        let pid = Pid::from_child(child);
        // A paused postmaster can neither start another child nor stop its children in order.
        kill_process(pid, Signal::STOP).context("failed to signal PostgreSQL")?;
        wait_until("the postmaster is paused", STOP_DEADLINE, || (state(pid)?.0 == 'T').then_some(()))?;
        let children = children_of(pid)?;
        kill_process(pid, Signal::KILL).context("failed to kill the postmaster")?;
        for child in &children {
            // It is no error if a child has just exited.
            let _ = kill_process(*child, Signal::KILL);
        }
        child.wait().context("failed to wait for the postmaster")?;
        *postmaster = None;
        wait_until("the killed server's children are gone", STOP_DEADLINE, || {
            let gone = |pid: &Pid| !matches!(state(*pid), Some((state, _)) if state != 'Z' && state != 'X');
            children.iter().all(gone).then_some(())
        })
    }

    /// Starts the server again after [`TestPostgres::stop`] or [`TestPostgres::kill`], with the same data and port.
    pub fn restart(&self) -> anyhow::Result<()> {
        let mut postmaster = self.postmaster();
        ensure!(running(&mut postmaster).is_none(), "PostgreSQL is already running");
        let until = format!("port {} is free again", self.port);
        let child = wait_until(&until, PORT_DEADLINE, || match self.place.launch(self.port) {
            Ok(Launch::Ready(child)) => Some(Ok(child)),
            Ok(Launch::PortTaken) => None,
            Err(error) => Some(Err(error)),
        })??;
        *postmaster = Some(child);
        Ok(())
    }

    /// Creates a synchronous standby: after this call, every commit waits until the standby (or every standby, if
    /// there are several) has it on disk.
    ///
    /// A server whose standby is stopped or dropped completes no commit until [`TestPostgres::remove_standbys`].
    pub fn standby(&self) -> anyhow::Result<TestPostgres> {
        let name = format!("standby_{}", random::suffix());
        let place = self.place.sibling()?;
        let source = format!("{}?application_name={name}", self.url(""));
        let data = place.data();
        place.run(
            "pg_basebackup",
            &[
                "--pgdata".as_ref(),
                data.as_os_str(),
                "--dbname".as_ref(),
                source.as_ref(),
                "--wal-method=stream".as_ref(),
                "--checkpoint=fast".as_ref(),
                "--write-recovery-conf".as_ref(),
                "--no-sync".as_ref(),
                "--no-password".as_ref(),
            ],
        )?;
        // The setting that the copy inherits from a server with a standby would block its commits once it is
        // promoted.
        append(&data.join("postgresql.auto.conf"), "synchronous_standby_names = ''\n")?;
        let standby = TestPostgres::open(place, self.user.clone())?;

        let mut names = self.standbys.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name.clone());
        self.psql(&format!(
            "alter system set synchronous_standby_names = 'FIRST {} ({})';
             alter system set synchronous_commit = 'on';
             alter system set wal_keep_size = '256MB'; -- a standby that was away for a while can catch up
             select pg_reload_conf();",
            names.len(),
            names.join(", ")
        ))?;
        let query = format!("select sync_state from pg_stat_replication where application_name = '{name}'");
        wait_until("the standby is synchronous", REPLICATION_DEADLINE, || {
            self.psql(&query).is_ok_and(|state| state == "sync").then_some(())
        })?;
        Ok(standby)
    }

    /// Makes commits independent of standbys.
    pub fn remove_standbys(&self) -> anyhow::Result<()> {
        self.standbys.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.psql("alter system reset synchronous_standby_names; select pg_reload_conf();")?;
        Ok(())
    }

    /// Promotes a standby and waits until it accepts writes. The old primary is not notified: kill it first.
    pub fn promote(&self) -> anyhow::Result<()> {
        let promoted = self.psql("select pg_promote(true, 60)")?;
        ensure!(promoted == "t", "the standby was not promoted within 60 s");
        Ok(())
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Child>> {
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // The guardian of the directory ends what is left after this.
        let _ = self.stop(StopMode::Immediate);
        if let Some(mut child) = self.postmaster().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn make_data_directory(place: &ServerDirectory, options: &PostgresOptions) -> anyhow::Result<()> {
    let data = place.data();
    let method = if options.password.is_some() { "--auth=scram-sha-256" } else { "--auth=trust" };
    let mut arguments = vec![
        "--pgdata".as_ref(),
        data.as_os_str(),
        method.as_ref(),
        "--username=postgres".as_ref(),
        "--encoding=UTF8".as_ref(),
        "--locale=C".as_ref(),
        "--no-instructions".as_ref(),
        // Only a power failure could lose these first files, and it ends the test anyway.
        "--no-sync".as_ref(),
    ];
    let file = place.directory().join("password");
    let file_argument = format!("--pwfile={}", file.display());
    if let Some(password) = &options.password {
        // A file instead of standard input: that pipe belongs to root, and the server's account may not open it.
        std::fs::write(&file, format!("{password}\n")).context("failed to write the password file")?;
        place.chown(&file)?;
        arguments.push(file_argument.as_ref());
    }
    place.run("initdb", &arguments)?;
    let _ = std::fs::remove_file(&file);

    let mut settings = String::from("\n# The testkit's own settings, then those of the test.\n");
    let own = SETTINGS.iter().copied();
    let given = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in own.chain(given) {
        writeln!(settings, "{name} = '{}'", value.replace('\'', "''"))?;
    }
    append(&data.join("postgresql.conf"), &settings)
}

fn append(file: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("failed to write {}", file.display()))
}

/// The superuser as it appears in a URL.
fn user_info(password: Option<&str>) -> String {
    let mut user = String::from("postgres");
    for (position, byte) in password.into_iter().flat_map(str::bytes).enumerate() {
        if position == 0 {
            user.push(':');
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            user.push(char::from(byte));
        } else {
            user.push_str(&format!("%{byte:02X}"));
        }
    }
    user
}

/// The postmaster, unless it has exited. A process that was waited for must not be signalled: its id may belong to
/// another process.
fn running(postmaster: &mut Option<Child>) -> Option<&mut Child> {
    if postmaster.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
        *postmaster = None;
    }
    postmaster.as_mut()
}

fn children_of(parent: Pid) -> anyhow::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && state(pid).is_some_and(|(_, of)| of == parent.as_raw_nonzero().get())
        {
            children.push(pid);
        }
    }
    Ok(children)
}

/// The state letter of a process and the id of its parent. They follow the name of the command, which is in
/// parentheses and may contain any character.
fn state(pid: Pid) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
