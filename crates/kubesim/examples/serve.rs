//! Serves simulated clusters until it is interrupted: `cargo run -p kubesim --example serve -- DIRECTORY [COUNT]`. Each
//! cluster's kubeconfig is written into its directory.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use api::clock::SystemClock;
use kubesim::{ClusterOptions, SimulatedClusters};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().context("the first argument must be a directory")?);
    let count: u64 = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let sim = SimulatedClusters::new();
    for number in 0..count {
        let name = format!("sim-{number}");
        let place = directory.join(&name);
        let options =
            ClusterOptions { directory: Some(place.clone()), clock: Arc::new(SystemClock), seed: number };
        let cluster = sim.start(&name, options).await?;
        let kubeconfig = place.join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig())?;
        println!("{} {}", cluster.url(), kubeconfig.display());
    }
    tokio::signal::ctrl_c().await?;
    sim.stop().await;
    Ok(())
}
