//! `shipshape sim`: simulated clusters without services, for kubectl and experiments.

mod control;
mod fault;

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::clock::SystemClock;
use clap::{Args, Subcommand};
use kubesim::kubelet::{Kubelets, NodeTemplate};
use kubesim::{ClusterOptions, SimulatedClusters};

use crate::config::Config;
use crate::data_dir::ensure_writable;
use crate::process::Process;
use crate::supervisor::Stage;
use cli::output;
use cli::private_file;
pub(crate) use fault::FaultArg;

/// Largest numbers of clusters and nodes.
const CLUSTERS_MAX: u16 = 1000;
const NODES_MAX: u16 = 1000;

/// `shipshape sim` and its subcommands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimCommand {
    #[command(subcommand)]
    subcommand: Option<SimSubcommand>,
    /// Number of clusters
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=i64::from(CLUSTERS_MAX)))]
    clusters: u16,
    /// Number of nodes of each cluster; with 0 there are no kubelets either, for tests of kubelets of your own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=i64::from(NODES_MAX)))]
    nodes: u16,
    /// Run the controllers and the scheduler; with false only the API server runs, for tests of controllers of your own
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    controllers: bool,
    /// The same seed gives the same delays
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

/// Commands for a simulation that runs with the same data directory.
#[derive(Debug, Clone, Subcommand)]
enum SimSubcommand {
    /// List its clusters
    List,
    /// Inject a fault into the API server of a cluster
    Fault {
        /// The cluster, such as sim-1
        cluster: String,
        /// latency=500ms, 429=5s, 500, reset, unreachable, drop-watches, or none to remove all faults
        fault: FaultArg,
        /// Only the next N requests [default: all]
        #[arg(long, value_name = "N")]
        times: Option<u32>,
        /// Only requests whose path contains this
        #[arg(long, value_name = "TEXT")]
        path: Option<String>,
    },
}

impl SimCommand {
    /// Whether this starts a simulation.
    pub(crate) fn runs(&self) -> bool {
        self.subcommand.is_none()
    }
}

/// Sends a command to the simulation that runs with the same data directory.
pub(crate) async fn send_command(command: &SimCommand, config: &Config) -> anyhow::Result<()> {
    let directory = directory(config);
    match &command.subcommand {
        None => bail!("no subcommand was given"),
        Some(SimSubcommand::List) => {
            let clusters = control::list(&directory).await?;
            let heading = ["NAME", "URL", "FAULTS"].map(str::to_owned);
            let rows: Vec<[String; 3]> = std::iter::once(heading)
                .chain(clusters.into_iter().map(|it| [it.name, it.url, it.faults.join(",")]))
                .collect();
            output::show(&output::columns(&rows))
        }
        Some(SimSubcommand::Fault { cluster, fault, times, path }) => {
            let request = control::FaultRequest { fault: fault.clone(), times: *times, path: path.clone() };
            control::inject(&directory, cluster, &request).await?;
            output::show(&format!("{cluster}: {fault}\n"))
        }
    }
}

/// Runs simulated clusters until a signal.
pub(crate) async fn run(mut process: Process, command: &SimCommand) -> anyhow::Result<()> {
    ensure_writable(process.config.data_dir.as_ref())?;
    let directory = directory(&process.config);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("{}: the directory cannot be created", directory.display()))?;
    let _lock = lock(&directory)?;
    let sim = Arc::new(SimulatedClusters::new());
    let mut kubelets = Vec::new();
    let mut kubeconfigs = Vec::new();
    for number in 1..=command.clusters {
        let name = format!("sim-{number}");
        let cluster_directory = directory.join(&name);
        let options = ClusterOptions {
            directory: Some(cluster_directory.clone()),
            clock: Arc::new(SystemClock),
            seed: command.seed.wrapping_add(number.into()),
            controllers: command.controllers,
        };
        let cluster = sim.start(&name, options).await.with_context(|| format!("cluster {name}"))?;
        let kubeconfig = cluster_directory.join("kubeconfig");
        private_file::write(&kubeconfig, &cluster.kubeconfig())?;
        kubeconfigs.push(kubeconfig);
        if command.nodes > 0 {
            kubelets.push(Kubelets::for_cluster(&cluster, nodes(command.nodes)));
        }
    }
    // Separate from the cloud of an `up` with the same data directory, which may run at the same time.
    crate::cloud::simulated::start(&mut process, directory.join(crate::cloud::simulated::DIRECTORY)).await?;
    let control = control::ControlServer::open(&directory, sim.clone())?;
    process.tasks.spawn(Stage::Listeners, "sim-control", |shutdown| control.serve(shutdown));
    process.tasks.spawn(Stage::Workers, "sim-kubelets", |shutdown| async move {
        shutdown.cancelled().await;
        for kubelets in kubelets {
            kubelets.stop().await;
        }
        Ok(())
    });
    let clusters = sim.clone();
    process.tasks.spawn(Stage::Infrastructure, "sim-clusters", |shutdown| async move {
        shutdown.cancelled().await;
        clusters.stop().await;
        Ok(())
    });
    output::show(&banner(command, &sim, &kubeconfigs))?;
    Ok(process.tasks.run().await?)
}

fn directory(config: &Config) -> PathBuf {
    let data: &Path = config.data_dir.as_ref();
    data.join("sim")
}

/// Of three or more nodes, one belongs to the control plane.
fn nodes(count: u16) -> Vec<NodeTemplate> {
    (1..=count)
        .map(|number| match number {
            1 if count >= 3 => NodeTemplate::control_plane("control-plane-1"),
            _ => NodeTemplate::worker(format!("worker-{}", if count >= 3 { number - 1 } else { number })),
        })
        .collect()
}

/// Locks the directory against a second simulation.
fn lock(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join("lock");
    let file =
        private_file::open_lock(&path).with_context(|| format!("{}: cannot be written", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "{}: another simulation uses this directory; stop it, or pass another --data-dir",
            directory.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("{}: cannot be locked", path.display()))
        }
    }
}

fn banner(command: &SimCommand, sim: &SimulatedClusters, kubeconfigs: &[PathBuf]) -> String {
    let paths: Vec<String> = kubeconfigs.iter().map(|path| path.display().to_string()).collect();
    let clusters = if command.clusters == 1 { "cluster" } else { "clusters" };
    let nodes = match command.nodes {
        0 => "without nodes".to_owned(),
        1 => "with 1 node each".to_owned(),
        nodes => format!("with {nodes} nodes each"),
    };
    let controllers = if command.controllers { "" } else { ", without controllers" };
    let mut text = format!("{} simulated {clusters} {nodes}{controllers}\n", command.clusters);
    for (cluster, path) in sim.list().iter().zip(by_name(&paths)) {
        text += &format!("  {}   {}   {path}\n", cluster.name(), cluster.url());
    }
    text += &format!(
        "Try\n\
         \x20 export KUBECONFIG={}\n\
         \x20 kubectl get nodes\n\
         \x20 kubectl --context sim-1 create deployment web --image=example.test/web:1 --replicas=3\n\
         \x20 shipshape sim fault sim-1 latency=500ms\n",
        paths.join(":")
    );
    text
}

/// Sorted by name, like the list of clusters.
fn by_name(paths: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = paths.iter().collect();
    sorted.sort();
    sorted
}
