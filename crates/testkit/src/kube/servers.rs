//! The programs of one cluster and their flags.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::TestClusterOptions;
use super::binaries::Binaries;
use super::cluster::{Access, CONTROLLERS_DEADLINE, TestCluster};
use super::pki::{Authority, SigningKey, kubeconfig};
use super::program::Program;
use crate::{port, random, wait_until};

/// A start takes three seconds, and much more on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(180);
/// How long a restarted server waits for its port if another process holds it.
const PORT_DEADLINE: Duration = Duration::from_secs(30);
const PORTS_TRIED_MAX: usize = 10;

/// Controllers that act on the objects of tests; node pools, volumes and clouds are left out.
const CONTROLLERS: &[&str] = &[
    "clusterrole-aggregation",
    "cronjob",
    "daemonset",
    "deployment",
    "disruption",
    "endpointslice",
    "garbage-collector",
    "job",
    "namespace",
    "node-lifecycle",
    "persistentvolumeclaim-protection",
    "pod-garbage-collector",
    "replicaset",
    "root-ca-certificate-publisher",
    "serviceaccount",
    "serviceaccount-token",
    "statefulset",
    "taint-eviction",
    "ttl-after-finished",
];

/// The running programs. Like [`Program`], they keep running when this value is dropped.
#[derive(Debug)]
pub(super) struct Servers {
    binaries: Binaries,
    place: PathBuf,
    files: PathBuf,
    flags: Vec<String>,
    port: u16,
    api_server: Program,
    controllers: Vec<Program>,
}

impl Servers {
    /// Starts a cluster with its own key prefix in etcd. Its files are in `files`; the working directory of its
    /// programs is `place`.
    pub(super) fn start(
        binaries: &Binaries,
        place: &Path,
        files: &Path,
        etcd: &Path,
        options: &TestClusterOptions,
    ) -> anyhow::Result<(Servers, TestCluster)> {
        let authority = Authority::new()?;
        write_keys(&authority, files)?;
        let mut flags = api_server_flags(files, etcd);
        flags.extend(options.api_server_flags.iter().cloned());
        let mut access = Access {
            port: 0,
            authority: authority.pem(),
            admin: authority.client("admin", Some("system:masters"))?,
            controllers: options.controllers,
        };
        for _ in 0..PORTS_TRIED_MAX {
            access.port = port::free()?;
            access.write(files)?;
            let cluster = TestCluster::open(files, binaries)?;
            match launch_api_server(binaries, place, files, &flags, access.port, &cluster)? {
                Launch::PortTaken => continue,
                Launch::Ready(api_server) => {
                    let mut servers = Servers {
                        binaries: binaries.clone(),
                        place: place.to_owned(),
                        files: files.to_owned(),
                        flags,
                        port: access.port,
                        api_server,
                        controllers: Vec::new(),
                    };
                    cluster.wait_for("/api/v1/namespaces/default", START_DEADLINE)?;
                    if options.controllers {
                        servers.start_controllers(&authority, &cluster, options)?;
                    }
                    return Ok((servers, cluster));
                }
            }
        }
        bail!("{PORTS_TRIED_MAX} ports in a row were taken by others before kube-apiserver could bind them")
    }

    fn start_controllers(
        &mut self,
        authority: &Authority,
        cluster: &TestCluster,
        options: &TestClusterOptions,
    ) -> anyhow::Result<()> {
        let names: Vec<String> = CONTROLLERS.iter().map(|name| format!("{name}-controller")).collect();
        let mut flags = common_controller_flags(&self.files, authority, cluster, "kube-controller-manager")?;
        flags.extend([
            format!("--controllers={}", names.join(",")),
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", self.files.join("sa.key").display()),
            format!("--root-ca-file={}", self.files.join("ca.crt").display()),
        ]);
        flags.extend(options.controller_manager_flags.iter().cloned());
        self.start_controller("kube-controller-manager", &flags)?;
        let flags = common_controller_flags(&self.files, authority, cluster, "kube-scheduler")?;
        self.start_controller("kube-scheduler", &flags)?;

        let waited =
            cluster.wait_for("/api/v1/namespaces/default/serviceaccounts/default", CONTROLLERS_DEADLINE);
        for program in &mut self.controllers {
            program.ensure_running()?;
        }
        waited
    }

    fn start_controller(&mut self, name: &'static str, flags: &[String]) -> anyhow::Result<()> {
        self.controllers.push(Program::start(&self.binaries, name, &self.place, &self.files, flags)?);
        Ok(())
    }

    /// The process id of the API server while it runs.
    pub(super) fn pid(&mut self) -> Option<u32> {
        matches!(self.api_server.exit_status(), Ok(None)).then(|| self.api_server.pid())
    }

    /// The process ids of the controllers.
    pub(super) fn controller_pids(&self) -> Vec<u32> {
        self.controllers.iter().map(Program::pid).collect()
    }

    pub(super) fn kill_api_server(&mut self) -> anyhow::Result<()> {
        self.api_server.ensure_running()?;
        self.api_server.kill()
    }

    pub(super) fn signal_api_server(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.api_server.signal(signal)
    }

    pub(super) fn restart_api_server(&mut self, cluster: &TestCluster) -> anyhow::Result<()> {
        if self.pid().is_some() {
            bail!("kube-apiserver is already running");
        }
        let until = format!("port {} is free again", self.port);
        let program = wait_until(&until, PORT_DEADLINE, || {
            match launch_api_server(&self.binaries, &self.place, &self.files, &self.flags, self.port, cluster)
            {
                Ok(Launch::Ready(program)) => Some(Ok(program)),
                Ok(Launch::PortTaken) => None,
                Err(error) => Some(Err(error)),
            }
        })??;
        self.api_server = program;
        Ok(())
    }

    /// Kills all programs.
    pub(super) fn kill(&mut self) {
        for program in self.controllers.iter_mut().chain([&mut self.api_server]) {
            // The guardian ends what cannot be killed here.
            let _ = program.kill();
        }
    }
}

enum Launch {
    Ready(Program),
    /// Another process took the port between our check and the server's start.
    PortTaken,
}

/// Starts an API server and waits until it is ready.
fn launch_api_server(
    binaries: &Binaries,
    place: &Path,
    files: &Path,
    flags: &[String],
    port: u16,
    cluster: &TestCluster,
) -> anyhow::Result<Launch> {
    let mut flags = flags.to_vec();
    flags.push(format!("--secure-port={port}"));
    let mut program = Program::start(binaries, "kube-apiserver", place, files, &flags)?;
    // Another server on the port fails this check, because its certificate has another issuer.
    let outcome = wait_until("kube-apiserver is ready", START_DEADLINE, || match program.ensure_running() {
        Ok(()) => cluster.is_ready().then_some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    match outcome {
        Ok(Ok(())) => Ok(Launch::Ready(program)),
        Ok(Err(error)) if program.log_tail().contains("address already in use") => {
            drop(error);
            Ok(Launch::PortTaken)
        }
        Ok(Err(error)) => Err(error),
        Err(error) => {
            let _ = program.kill();
            Err(error.context(format!("its log: {}", program.log_tail())))
        }
    }
}

fn write_keys(authority: &Authority, files: &Path) -> anyhow::Result<()> {
    let (server, signing) = (authority.server()?, SigningKey::new()?);
    for (name, text) in [
        ("apiserver.crt", server.certificate),
        ("apiserver.key", server.key),
        ("sa.key", signing.private),
        ("sa.pub", signing.public),
    ] {
        std::fs::write(files.join(name), text).with_context(|| format!("failed to write {name}"))?;
    }
    Ok(())
}

fn api_server_flags(files: &Path, etcd: &Path) -> Vec<String> {
    let file = |name: &str| files.join(name).display().to_string();
    vec![
        format!("--etcd-servers=unix://{}", etcd.display()),
        format!("--etcd-prefix=/{}", random::suffix()),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // The default reconciler refuses to advertise loopback to pods.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--cert-dir={}", files.display()),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
    ]
}

fn common_controller_flags(
    files: &Path,
    authority: &Authority,
    cluster: &TestCluster,
    name: &str,
) -> anyhow::Result<Vec<String>> {
    let identity = authority.client(&format!("system:{name}"), None)?;
    let config = files.join(format!("{name}.kubeconfig"));
    std::fs::write(&config, kubeconfig(cluster.url(), cluster.ca_pem(), &identity))
        .with_context(|| format!("failed to write {}", config.display()))?;
    Ok(vec![
        format!("--kubeconfig={}", config.display()),
        "--leader-elect=false".to_owned(),
        // Many tests share the controllers; the default limits are meant for the steady state of a cluster.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        // Nothing connects to the controllers.
        "--secure-port=0".to_owned(),
        "--authentication-skip-lookup=true".to_owned(),
        "--profiling=false".to_owned(),
    ])
}
