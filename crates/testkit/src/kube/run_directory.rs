//! The directory in which the shared etcd and the shared cluster of a test run are started.
//!
//! `tools/test` sets `SHIPSHAPE_TEST_RUN` to a guarded directory: all test executables of that run share one etcd and
//! one cluster, and the first that needs them starts them. Without it every test process has its own. In both cases a
//! guardian ends them ([`crate::scratch`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::binaries::Binaries;
use super::program::Program;
use crate::scratch::ScratchDirectory;
use crate::{environment, random, wait_until};

/// The length of `sun_path` on Linux, without the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// A start takes a tenth of a second, and much more on a busy machine.
const ETCD_DEADLINE: Duration = Duration::from_secs(60);

/// A guarded directory in which shared servers are started once.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    _scratch: Option<ScratchDirectory>,
}

impl RunDirectory {
    /// The directory of this test run, else that of this process.
    pub(super) fn shared() -> anyhow::Result<&'static RunDirectory> {
        static SHARED: OnceLock<Result<RunDirectory, String>> = OnceLock::new();
        let place = SHARED.get_or_init(|| RunDirectory::find().map_err(|error| format!("{error:#}")));
        place.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn find() -> anyhow::Result<RunDirectory> {
        if let Some(run) = environment::get("SHIPSHAPE_TEST_RUN").map(PathBuf::from)
            && fits_socket_paths(&run)
        {
            ensure!(run.is_dir(), "SHIPSHAPE_TEST_RUN is {}, where there is no directory", run.display());
            return Ok(RunDirectory { path: run, _scratch: None });
        }
        let scratch = scratch()?;
        Ok(RunDirectory { path: scratch.path().to_owned(), _scratch: Some(scratch) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory for the files of one cluster or etcd.
    pub(super) fn new_directory(&self) -> anyhow::Result<PathBuf> {
        let path = self.path.join(random::suffix());
        std::fs::create_dir(&path).with_context(|| format!("failed to create {}", path.display()))?;
        Ok(path)
    }

    /// The path that `start` returned, in this or another process of the run; calls `start` at most once.
    ///
    /// A process that is killed while it starts a server leaves only processes and files that the guardian removes;
    /// the next process starts the server again.
    pub(super) fn once(
        &self,
        what: &str,
        start: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<PathBuf> {
        let lock = File::create(self.path.join(format!("{what}.lock")))?;
        lock.lock().with_context(|| format!("the lock of {what}"))?;
        let link = self.path.join(what);
        if let Ok(path) = std::fs::read_link(&link) {
            return Ok(path);
        }
        let path = start()?;
        std::os::unix::fs::symlink(&path, &link)
            .with_context(|| format!("failed to create {}", link.display()))?;
        Ok(path)
    }

    /// The Unix socket of the shared etcd.
    pub(super) fn etcd(&self, binaries: &Binaries) -> anyhow::Result<PathBuf> {
        let directory = self.once("etcd", || {
            let directory = self.new_directory()?;
            start_etcd(binaries, &self.path, &directory)?;
            Ok(directory)
        })?;
        Ok(directory.join(CLIENT_SOCKET))
    }
}

const CLIENT_SOCKET: &str = "client.sock";

/// A scratch directory whose path is short enough for sockets in it.
pub(super) fn scratch() -> anyhow::Result<ScratchDirectory> {
    let usual = std::env::temp_dir();
    let parent = if fits_socket_paths(&usual) { usual.as_path() } else { Path::new("/tmp") };
    ScratchDirectory::new_in(parent, "kube")
}

fn fits_socket_paths(parent: &Path) -> bool {
    let longest = parent.join("shipshape-kube-0123456789abcdef/0123456789abcdef").join(CLIENT_SOCKET);
    longest.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// Starts etcd without fsync: the data need not survive a crash of the machine. A single member elects itself after
/// the election timeout.
fn start_etcd(binaries: &Binaries, place: &Path, directory: &Path) -> anyhow::Result<()> {
    let socket = directory.join(CLIENT_SOCKET);
    let flags = [
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls=unix://{}", socket.display()),
        format!("--advertise-client-urls=unix://{}", socket.display()),
        format!("--listen-peer-urls=unix://{}", directory.join("peer.sock").display()),
        // Only names: there is no other member, and nothing listens there.
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-cluster=default=http://127.0.0.1:2380".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--heartbeat-interval=10".to_owned(),
        "--election-timeout=50".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let mut etcd = Program::start(binaries, "etcd", place, directory, &flags)?;
    wait_until("etcd listens", ETCD_DEADLINE, || {
        if let Err(error) = etcd.ensure_running() {
            return Some(Err(error));
        }
        std::os::unix::net::UnixStream::connect(&socket).is_ok().then_some(Ok(()))
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> RunDirectory {
        let scratch = scratch().unwrap();
        RunDirectory { path: scratch.path().to_owned(), _scratch: Some(scratch) }
    }

    #[test]
    fn concurrent_callers_start_a_shared_server_once() {
        let place = place();
        let starts = std::sync::atomic::AtomicU32::new(0);
        let ask = || {
            place.once("thing", || {
                starts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                place.new_directory()
            })
        };
        let found: Vec<PathBuf> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| ask().unwrap())).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(starts.into_inner(), 1);
        assert!(found.iter().all(|path| path == &found[0] && path.is_dir()), "{found:?}");
    }

    #[test]
    fn the_next_caller_starts_a_shared_server_that_failed_to_start() {
        let place = place();
        assert!(place.once("thing", || anyhow::bail!("no")).is_err());
        assert_eq!(place.once("thing", || Ok("/there".into())).unwrap(), Path::new("/there"));
    }

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_detected() {
        assert!(fits_socket_paths(Path::new("/tmp")));
        assert!(!fits_socket_paths(&Path::new("/tmp").join("x".repeat(60))));
    }
}
