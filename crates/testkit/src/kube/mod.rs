//! Real Kubernetes clusters for tests: one that the tests of a run share, and private ones that may fail.
//!
//! ```no_run
//! # use testkit::{kube, prerequisites};
//! fn a_test() {
//!     let Some(cluster) = kube::shared() else {
//!         return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
//!     };
//!     let namespace = cluster.namespace("drain").unwrap();
//!     // …
//! }
//! ```
//!
//! All of them are kube-apiservers on one etcd, each with its own key prefix, certificate authority and port on loopback.
//! There are no kubelets: nodes are objects, and a pod runs when a client writes so into its status. Everything ends
//! with the test run in any case ([`crate::scratch`]).
//!
//! `make kube` builds the programs, or `KUBEBUILDER_ASSETS` names them. Other builds often lack the controllers; a test
//! that needs them checks [`TestCluster::has_controllers`].

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Context;

mod binaries;
mod client;
mod cluster;
mod pki;
mod private;
mod program;
mod run_directory;
mod servers;
#[cfg(test)]
mod tests;

pub use cluster::TestCluster;
pub use private::PrivateTestCluster;

use binaries::Binaries;
use run_directory::RunDirectory;
use servers::Servers;

/// Why a test that needs a cluster is skipped.
pub const MISSING: &str = "no kube-apiserver was found; make kube builds it";

/// The cluster that tests share, with controllers if they are installed; `None` if this machine has no binaries. Each
/// test uses its own namespace, and unique names for cluster-scoped objects. It cannot be stopped: a test that needs a
/// cluster to fail starts a private one.
///
/// # Panics
/// When there are binaries but no cluster starts: that is a failure, not a missing prerequisite.
pub fn shared() -> Option<&'static TestCluster> {
    static SHARED: OnceLock<Result<Option<TestCluster>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| start_shared().map_err(|error| format!("{error:#}"))) {
        Ok(cluster) => cluster.as_ref(),
        Err(error) => panic!("failed to start the Kubernetes cluster for tests: {error}"),
    }
}

fn start_shared() -> anyhow::Result<Option<TestCluster>> {
    let Some(binaries) = Binaries::find()? else { return Ok(None) };
    let place = RunDirectory::shared()?;
    let files = place.once("cluster", || {
        let etcd = place.etcd(&binaries)?;
        let files = place.new_directory()?;
        let options =
            TestClusterOptions { controllers: binaries.has_controllers(), ..TestClusterOptions::default() };
        Servers::start(&binaries, place.path(), &files, &etcd, &options)?;
        Ok(files)
    })?;
    TestCluster::open(&files, &binaries).context("the cluster of this test run").map(Some)
}

/// Options of a private cluster.
#[derive(Clone, Debug, Default)]
pub struct TestClusterOptions {
    controllers: bool,
    api_server_flags: Vec<String>,
    controller_manager_flags: Vec<String>,
}

impl TestClusterOptions {
    /// Also starts a kube-controller-manager and a kube-scheduler.
    #[must_use]
    pub fn with_controllers(mut self) -> TestClusterOptions {
        self.controllers = true;
        self
    }

    /// Adds a flag of the kube-apiserver.
    #[must_use]
    pub fn api_server_flag(mut self, flag: &str) -> TestClusterOptions {
        self.api_server_flags.push(flag.to_owned());
        self
    }

    /// Adds a flag of the kube-controller-manager.
    #[must_use]
    pub fn controller_manager_flag(mut self, flag: &str) -> TestClusterOptions {
        self.controller_manager_flags.push(flag.to_owned());
        self
    }
}

/// A cluster of one test, to kill and pause; `None` if this machine lacks the binaries.
///
/// # Panics
/// When there are binaries but no cluster starts: that is a failure, not a missing prerequisite.
pub fn private(options: TestClusterOptions) -> Option<PrivateTestCluster> {
    let start = || {
        let binaries = Binaries::find()?.filter(|found| !options.controllers || found.has_controllers());
        binaries.map(|binaries| PrivateTestCluster::start(&binaries, &options)).transpose()
    };
    match start() {
        Ok(cluster) => cluster,
        Err(error) => panic!("failed to start the Kubernetes cluster for tests: {error:#}"),
    }
}

/// The kubectl of the servers' build, for other clusters; `None` if nothing is built.
pub fn kubectl() -> anyhow::Result<Option<PathBuf>> {
    Ok(Binaries::find()?.map(|found| found.program("kubectl")))
}

/// Whether the binaries of a cluster are installed.
pub fn is_installed() -> anyhow::Result<bool> {
    Ok(Binaries::find()?.is_some())
}
