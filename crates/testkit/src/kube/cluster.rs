//! A running cluster as a test sees it: how to reach it, a namespace to work in, kubectl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::binaries::Binaries;
use super::client::Client;
use super::pki::{Identity, kubeconfig};
use super::place::scratch;
use crate::scratch::ScratchDirectory;
use crate::{random, wait_until};

/// The controllers answer within two seconds, unless the machine also compiles.
pub(super) const CONTROLLERS_DEADLINE: Duration = Duration::from_secs(120);

const URL: &str = "url";
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "admin.crt";
const KEY: &str = "admin.key";
const CONTROLLERS: &str = "controllers";

/// A real cluster: a kube-apiserver on loopback, with a certificate authority and an administrator's
/// certificate of its own.
///
/// Its methods block the thread, so asynchronous tests call them before they have much to do.
#[derive(Debug)]
pub struct TestCluster {
    url: String,
    authority: String,
    kubeconfig: String,
    controllers: bool,
    client: Client,
    directory: PathBuf,
    kubectl: PathBuf,
    /// This process's own, so that a kubectl which it leaves behind ends with it.
    home: ScratchDirectory,
}

/// What is written down of a cluster for the other processes of a run.
pub(super) struct Access {
    pub(super) port: u16,
    pub(super) authority: String,
    pub(super) admin: Identity,
    pub(super) controllers: bool,
}

impl Access {
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).with_context(|| format!("{name} was not written"))
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
    /// The cluster whose [`Access`] is in `directory`.
    pub(super) fn open(directory: &Path, binaries: &Binaries) -> anyhow::Result<TestCluster> {
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name)).with_context(|| format!("{name} cannot be read"))
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

    /// A kubeconfig of the administrator, with everything inline.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// A file with [`TestCluster::kubeconfig`].
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// The directory with its keys and the logs of its programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a kube-controller-manager and a kube-scheduler run: without them Deployments get no pods,
    /// owned objects outlive their owners and deleted namespaces stay.
    pub fn has_controllers(&self) -> bool {
        self.controllers
    }

    /// Makes a namespace that nobody else uses, and returns its name when its service account is there,
    /// without which no pod is accepted. It stays when the test ends: its deletion takes seconds.
    pub fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let name = format!("{prefix}-{}", random::word());
        self.create("/api/v1/namespaces", &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))?;
        let path = format!("/api/v1/namespaces/{name}");
        if self.controllers {
            // The controllers make both at about the same time.
            self.wait_for(&format!("{path}/serviceaccounts/default"), CONTROLLERS_DEADLINE)?;
            self.wait_for(&format!("{path}/configmaps/kube-root-ca.crt"), CONTROLLERS_DEADLINE)?;
        } else {
            self.create(&format!("{path}/serviceaccounts"), r#"{"metadata":{"name":"default"}}"#)?;
        }
        Ok(name)
    }

    /// The kubectl that was built with the server, as the administrator, without any setting or cache of
    /// the user who runs the test. It works in a directory that is removed after the test process, and ends
    /// with it.
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

    /// Whether it answers that it is ready.
    pub fn is_ready(&self) -> bool {
        self.client.get("/readyz").is_ok_and(|answer| answer.status == 200)
    }

    /// Waits until there is an object at `path`.
    pub(super) fn wait_for(&self, path: &str, deadline: Duration) -> anyhow::Result<()> {
        wait_until(&format!("there is {path}"), deadline, || {
            self.client.get(path).is_ok_and(|answer| answer.status == 200).then_some(())
        })
    }

    fn create(&self, path: &str, json: &str) -> anyhow::Result<()> {
        let answer = self.client.post(path, json)?;
        ensure!(answer.status == 201, "POST {path} answered {}: {}", answer.status, answer.body.trim());
        Ok(())
    }
}
