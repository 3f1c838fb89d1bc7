//! A running cluster: its address, namespaces for tests, and kubectl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::binaries::Binaries;
use super::client::Client;
use super::pki::{Identity, kubeconfig};
use super::run_directory::scratch;
use crate::scratch::ScratchDirectory;
use crate::{random, wait_until};

/// The controllers need about two seconds, and much more on a busy machine.
pub(super) const CONTROLLERS_DEADLINE: Duration = Duration::from_secs(120);

const URL: &str = "url";
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "admin.crt";
const KEY: &str = "admin.key";
const CONTROLLERS: &str = "controllers";

/// A real cluster: a kube-apiserver on loopback with its own certificate authority and an administrator's
/// certificate.
///
/// Its methods block the thread, so asynchronous tests should call them at their start.
#[derive(Debug)]
pub struct TestCluster {
    url: String,
    authority: String,
    kubeconfig: String,
    controllers: bool,
    client: Client,
    directory: PathBuf,
    kubectl: PathBuf,
    /// A directory of this process, so that its guardian also ends a kubectl that the test leaves running.
    home: ScratchDirectory,
}

/// The files with which other processes of the test run reach the cluster.
pub(super) struct Access {
    pub(super) port: u16,
    pub(super) authority: String,
    pub(super) admin: Identity,
    pub(super) controllers: bool,
}

impl Access {
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).with_context(|| format!("failed to write {name}"))
        };
        write(URL, &format!("https://127.0.0.1:{}", self.port))?;
        write(AUTHORITY, &self.authority)?;
        write(CERTIFICATE, &self.admin.certificate)?;
        write(KEY, &self.admin.key)?;
        if self.controllers {
            write(CONTROLLERS, "")?;
        }
        Ok(())
    }
}

impl TestCluster {
    /// Opens the cluster whose [`Access`] is in `directory`.
    pub(super) fn open(directory: &Path, binaries: &Binaries) -> anyhow::Result<TestCluster> {
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name)).with_context(|| format!("failed to read {name}"))
        };
        let (url, authority) = (read(URL)?, read(AUTHORITY)?);
        let admin = Identity { certificate: read(CERTIFICATE)?, key: read(KEY)? };
        let port =
            url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).context("a URL with a port")?;
        let kubeconfig = kubeconfig(&url, &authority, &admin);
        let home = scratch()?;
        std::fs::write(home.path().join("kubeconfig"), &kubeconfig)?;
        Ok(TestCluster {
            client: Client::new(port, &authority, &admin)?,
            url,
            authority,
            kubeconfig,
            controllers: directory.join(CONTROLLERS).exists(),
            directory: directory.to_owned(),
            kubectl: binaries.program("kubectl"),
            home,
        })
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate authority that signed the server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority
    }

    /// A kubeconfig for the administrator, with everything inline.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The path of a file with [`TestCluster::kubeconfig`].
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// The directory with its keys and the logs of its programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a kube-controller-manager and a kube-scheduler run. Without them Deployments get no pods, owned
    /// objects outlive their owners and deleted namespaces stay.
    pub fn has_controllers(&self) -> bool {
        self.controllers
    }

    /// Creates a namespace with a unique name and waits for its service account, without which no pod is accepted.
    /// The namespace is not deleted, because that takes seconds.
    pub fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let name = format!("{prefix}-{}", random::suffix());
        self.create("/api/v1/namespaces", &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))?;
        let path = format!("/api/v1/namespaces/{name}");
        if self.controllers {
            // The controllers create both at about the same time.
            self.wait_for(&format!("{path}/serviceaccounts/default"), CONTROLLERS_DEADLINE)?;
            self.wait_for(&format!("{path}/configmaps/kube-root-ca.crt"), CONTROLLERS_DEADLINE)?;
        } else {
            self.create(&format!("{path}/serviceaccounts"), r#"{"metadata":{"name":"default"}}"#)?;
        }
        Ok(name)
    }

    /// A command for the kubectl of the server's build, as the administrator, without settings or caches of the user
    /// who runs the test. Its working directory is removed with the test process, and it ends with the process.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"KUBE") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.kubeconfig_path())
            .env("KUBECACHEDIR", self.home.path().join("cache"));
        command
    }

    /// Whether the API server reports that it is ready.
    pub fn is_ready(&self) -> bool {
        self.client.get("/readyz").is_ok_and(|response| response.status == 200)
    }

    /// Waits until an object exists at `path`.
    pub(super) fn wait_for(&self, path: &str, deadline: Duration) -> anyhow::Result<()> {
        wait_until(&format!("{path} exists"), deadline, || {
            self.client.get(path).is_ok_and(|response| response.status == 200).then_some(())
        })
    }

    fn create(&self, path: &str, json: &str) -> anyhow::Result<()> {
        let response = self.client.post(path, json)?;
        ensure!(response.status == 201, "POST {path} returned {}: {}", response.status, response.body.trim());
        Ok(())
    }
}
