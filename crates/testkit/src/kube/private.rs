//! A cluster of a test's own, which may fail.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use super::TestClusterOptions;
use super::binaries::Binaries;
use super::cluster::TestCluster;
use super::place::{Place, scratch};
use super::servers::Servers;
use crate::scratch::ScratchDirectory;

/// A cluster of the test's own, gone when this value or this process ends.
///
/// It is a [`TestCluster`] whose API server can also be killed, paused and started again. Its methods take
/// `&self`, so that one thread may stop it while others use it.
#[derive(Debug)]
pub struct PrivateTestCluster {
    cluster: TestCluster,
    servers: Mutex<Servers>,
    _place: ScratchDirectory,
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
        let etcd = Place::shared()?.etcd(binaries)?;
        let place = scratch()?;
        let (servers, cluster) = Servers::start(binaries, place.path(), place.path(), &etcd, options)?;
        Ok(PrivateTestCluster { cluster, servers: Mutex::new(servers), _place: place })
    }

    /// The process id of its API server while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.servers().pid()
    }

    /// The process ids of its controllers, when it was started with them.
    pub fn controller_pids(&self) -> Vec<u32> {
        self.servers().controller_pids()
    }

    /// Kills its API server with `kill -9`: connections break and new ones are refused.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.servers().kill_api_server()
    }

    /// Starts its API server again after [`PrivateTestCluster::kill`], on the same data and port, and waits until it
    /// is ready.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.servers().start_api_server_again(&self.cluster)
    }

    /// Stops its API server where it is, with SIGSTOP: connections stand, and new ones are accepted by the
    /// system, but nothing is answered.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.servers().signal_api_server(Signal::STOP)
    }

    /// Lets its API server go on after [`PrivateTestCluster::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.servers().signal_api_server(Signal::CONT)
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PrivateTestCluster {
    fn drop(&mut self) {
        // Quicker than the guardian, which asks politely first.
        self.servers().kill();
    }
}
