//! Where the etcd and the cluster that tests share are, and who starts them.
//!
//! `tools/test` names a guarded directory in `SHIPSHAPE_TEST_RUN`: then all test executables of that run
//! share one etcd and one cluster, and whoever needs them first starts them. Without it every test process
//! has its own. Either way a guardian ends them ([`crate::scratch`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::binaries::Binaries;
use super::program::Program;
use crate::scratch::ScratchDirectory;
use crate::{random, setting, wait_until};

/// What `sockaddr_un` holds on Linux, less a final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// It takes a tenth of a second, unless the machine also compiles.
const ETCD_DEADLINE: Duration = Duration::from_secs(60);

/// A guarded directory in which shared things are started once.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    _scratch: Option<ScratchDirectory>,
}

impl Place {
    /// The one of this test run, else of this process.
    pub(super) fn shared() -> anyhow::Result<&'static Place> {
        static SHARED: OnceLock<Result<Place, String>> = OnceLock::new();
        let place = SHARED.get_or_init(|| Place::find().map_err(|error| format!("{error:#}")));
        place.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn find() -> anyhow::Result<Place> {
        if let Some(run) = setting::get("SHIPSHAPE_TEST_RUN").map(PathBuf::from)
            && has_room_for_sockets(&run)
        {
            ensure!(run.is_dir(), "SHIPSHAPE_TEST_RUN is {}, where there is no directory", run.display());
            return Ok(Place { path: run, _scratch: None });
        }
        let scratch = scratch()?;
        Ok(Place { path: scratch.path().to_owned(), _scratch: Some(scratch) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory for the files of one cluster or etcd.
    pub(super) fn new_directory(&self) -> anyhow::Result<PathBuf> {
        let path = self.path.join(random::word());
        std::fs::create_dir(&path).with_context(|| format!("{} could not be made", path.display()))?;
        Ok(path)
    }

    /// What `start` returned when it was called, here or in another process of the run: a path.
    ///
    /// Who is killed while starting leaves nothing but processes and files that the guardian removes; the
    /// next one starts anew.
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
            .with_context(|| format!("{} could not be made", link.display()))?;
        Ok(path)
    }

    /// The Unix socket of the etcd in this place.
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

/// A scratch directory that is short enough for the paths of sockets in it.
pub(super) fn scratch() -> anyhow::Result<ScratchDirectory> {
    let usual = std::env::temp_dir();
    let parent = if has_room_for_sockets(&usual) { usual.as_path() } else { Path::new("/tmp") };
    ScratchDirectory::new_in(parent, "kube")
}

fn has_room_for_sockets(parent: &Path) -> bool {
    let longest = parent.join("shipshape-kube-0123456789abcdef/0123456789abcdef").join(CLIENT_SOCKET);
    longest.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// Nothing here survives a crash of the machine, and nothing needs to: so it never waits for a disk. A
/// single member elects itself after the election time-out.
fn start_etcd(binaries: &Binaries, place: &Path, directory: &Path) -> anyhow::Result<()> {
    let socket = directory.join(CLIENT_SOCKET);
    let flags = [
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls=unix://{}", socket.display()),
        format!("--advertise-client-urls=unix://{}", socket.display()),
        format!("--listen-peer-urls=unix://{}", directory.join("peer.sock").display()),
        // Names only: there is no other member, and nobody listens there.
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

    fn place() -> Place {
        let scratch = scratch().unwrap();
        Place { path: scratch.path().to_owned(), _scratch: Some(scratch) }
    }

    #[test]
    fn a_shared_thing_is_started_once_however_many_ask_for_it() {
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
    fn who_fails_to_start_a_shared_thing_leaves_it_to_the_next() {
        let place = place();
        assert!(place.once("thing", || anyhow::bail!("no")).is_err());
        assert_eq!(place.once("thing", || Ok("/there".into())).unwrap(), Path::new("/there"));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_seen() {
        assert!(has_room_for_sockets(Path::new("/tmp")));
        assert!(!has_room_for_sockets(&Path::new("/tmp").join("x".repeat(60))));
    }
}
