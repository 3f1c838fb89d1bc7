//! A cluster that belongs to one test, which may make it fail.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use super::TestClusterOptions;
use super::binaries::Binaries;
use super::cluster::TestCluster;
use super::run_directory::{RunDirectory, scratch};
use super::servers::Servers;
use crate::scratch::ScratchDirectory;

/// A cluster of one test. It is removed when this value is dropped or the process ends.
///
/// It is a [`TestCluster`] whose API server can be killed, paused and restarted. Its methods take `&self`, so that
/// one thread may stop it while others use it.
#[derive(Debug)]
pub struct PrivateTestCluster {
    cluster: TestCluster,
    servers: Mutex<Servers>,
    _directory: ScratchDirectory,
}

impl Deref for PrivateTestCluster {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        &self.cluster
    }
}

impl PrivateTestCluster {
    pub(super) fn start(
        binaries: &Binaries,
        options: &TestClusterOptions,
    ) -> anyhow::Result<PrivateTestCluster> {
        let etcd = RunDirectory::shared()?.etcd(binaries)?;
        let place = scratch()?;
        let (servers, cluster) = Servers::start(binaries, place.path(), place.path(), &etcd, options)?;
        Ok(PrivateTestCluster { cluster, servers: Mutex::new(servers), _directory: place })
    }

    /// The process id of the API server while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.servers().pid()
    }

    /// The process ids of the controllers, if it was started with them.
    pub fn controller_pids(&self) -> Vec<u32> {
        self.servers().controller_pids()
    }

    /// Kills the API server with `kill -9`: connections break and new ones are rejected.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.servers().kill_api_server()
    }

    /// Starts the API server again after [`PrivateTestCluster::kill`], with the same data and port, and waits until
    /// it is ready.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.servers().restart_api_server(&self.cluster)
    }

    /// Pauses the API server with SIGSTOP: connections stay open, the system accepts new ones, but no request is
    /// answered.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.servers().signal_api_server(Signal::STOP)
    }

    /// Resumes the API server after [`PrivateTestCluster::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.servers().signal_api_server(Signal::CONT)
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PrivateTestCluster {
    fn drop(&mut self) {
        // Quicker than the guardian, which sends other signals first.
        self.servers().kill();
    }
}
