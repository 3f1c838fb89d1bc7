//! Real Kubernetes clusters for tests: one that the tests of a run share, and own ones that may fail.
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
//! All of them are kube-apiservers on one etcd, each with a key prefix, a certificate authority and a port on
//! loopback of its own. There are no kubelets: nodes are objects, and a pod runs when somebody writes so into
//! its status. Everything ends with the test run whatever happens to it ([`crate::scratch`]).
//!
//! The programs are built by `make kube`, or named by `KUBEBUILDER_ASSETS`. Other people's builds often lack
//! the controllers; a test that needs them asks [`TestCluster::has_controllers`].

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Context;

mod binaries;
mod client;
mod cluster;
mod pki;
mod place;
mod private;
mod program;
mod servers;
#[cfg(test)]
mod tests;

pub use cluster::TestCluster;
pub use private::PrivateTestCluster;

use binaries::Binaries;
use place::Place;
use servers::Servers;

/// Why a test that needs a cluster is skipped.
pub const MISSING: &str = "no kube-apiserver was found; make kube builds it";

/// The cluster that tests share, with controllers where they are installed; `None` when this machine has
/// none. Each test works in a namespace of its own, and takes care with what has no namespace. Nobody can stop
/// it: what needs a cluster to fail starts its own.
///
/// # Panics
/// When there are binaries but no cluster starts: that is a failure, not a missing part.
pub fn shared() -> Option<&'static TestCluster> {
    static SHARED: OnceLock<Result<Option<TestCluster>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| start_shared().map_err(|error| format!("{error:#}"))) {
        Ok(cluster) => cluster.as_ref(),
        Err(error) => panic!("the Kubernetes cluster for tests did not start: {error}"),
    }
}

fn start_shared() -> anyhow::Result<Option<TestCluster>> {
    let Some(binaries) = Binaries::find()? else { return Ok(None) };
    let place = Place::shared()?;
    let files = place.once("cluster", || {
        let etcd = place.etcd(&binaries)?;
        let files = place.new_directory()?;
        let options =
            TestClusterOptions { controllers: binaries.have_controllers(), ..TestClusterOptions::default() };
        Servers::start(&binaries, place.path(), &files, &etcd, &options)?;
        Ok(files)
    })?;
    TestCluster::open(&files, &binaries).context("the cluster of this test run").map(Some)
}

/// How a cluster of a test's own is made.
#[derive(Clone, Debug, Default)]
pub struct TestClusterOptions {
    controllers: bool,
    api_server_flags: Vec<String>,
    controller_manager_flags: Vec<String>,
}

impl TestClusterOptions {
    /// Starts a kube-controller-manager and a kube-scheduler too.
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

/// A cluster of the test's own, to kill and pause; `None` when this machine has not what it takes.
///
/// # Panics
/// When there are binaries but no cluster starts: that is a failure, not a missing part.
pub fn private(options: TestClusterOptions) -> Option<PrivateTestCluster> {
    let start = || {
        let binaries = Binaries::find()?.filter(|found| !options.controllers || found.have_controllers());
        binaries.map(|binaries| PrivateTestCluster::start(&binaries, &options)).transpose()
    };
    match start() {
        Ok(cluster) => cluster,
        Err(error) => panic!("the Kubernetes cluster for tests did not start: {error:#}"),
    }
}

/// The kubectl that was built with the servers, for clusters that others serve; `None` when nothing is built.
pub fn kubectl() -> anyhow::Result<Option<PathBuf>> {
    Ok(Binaries::find()?.map(|found| found.program("kubectl")))
}

/// Whether there are binaries to start a cluster with.
pub fn is_installed() -> anyhow::Result<bool> {
    Ok(Binaries::find()?.is_some())
}
