//! Serves simulated clusters until it is interrupted:
//! `cargo run -p kubesim --example serve -- DIRECTORY [COUNT] [--nodes N] [--controllers=false]`. Each cluster's
//! kubeconfig is written into its directory. Without `--nodes` there are neither nodes nor kubelets.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::clock::SystemClock;
use kubesim::kubelet::{Kubelets, NodeTemplate};
use kubesim::{ClusterOptions, SimulatedClusters};

struct Arguments {
    directory: PathBuf,
    count: u64,
    nodes: u32,
    controllers: bool,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
        let (mut places, mut nodes, mut controllers) = (Vec::new(), 0, true);
        let mut rest = arguments;
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            let mut value =
                || value.clone().or_else(|| rest.next()).with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--nodes" => nodes = value()?.parse().context("--nodes must be a number")?,
                "--controllers" => {
                    controllers = value()?.parse().context("--controllers must be true or false")?;
                }
                other if other.starts_with('-') => bail!("{other}: only --nodes and --controllers are known"),
                _ => places.push(name),
            }
        }
        let mut places = places.into_iter();
        let directory = PathBuf::from(places.next().context("the first argument must be a directory")?);
        let count = places.next().map_or(Ok(1), |count| count.parse()).context("COUNT must be a number")?;
        Ok(Arguments { directory, count, nodes, controllers })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let sim = SimulatedClusters::new();
    let mut kubelets = Vec::new();
    for number in 0..arguments.count {
        let name = format!("sim-{number}");
        let place = arguments.directory.join(&name);
        let options = ClusterOptions {
            directory: Some(place.clone()),
            clock: Arc::new(SystemClock),
            seed: number,
            controllers: arguments.controllers,
        };
        let cluster = sim.start(&name, options).await?;
        let nodes: Vec<NodeTemplate> =
            (1..=arguments.nodes).map(|node| NodeTemplate::worker(format!("worker-{node}"))).collect();
        if !nodes.is_empty() {
            kubelets.push(Kubelets::for_cluster(&cluster, nodes));
        }
        let kubeconfig = place.join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig())?;
        println!("{} {}", cluster.url(), kubeconfig.display());
    }
    tokio::signal::ctrl_c().await?;
    for kubelets in kubelets {
        kubelets.stop().await;
    }
    sim.stop().await;
    Ok(())
}
