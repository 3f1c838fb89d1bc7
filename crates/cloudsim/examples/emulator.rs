//! Runs the emulator in a directory until standard input closes, and prints its endpoints as one line of JSON. Its log goes to standard
//! error; `RUST_LOG` chooses what is logged besides errors.
//!
//! `cargo run -p cloudsim --example emulator -- DIRECTORY [--pace NUMBER] [--seed NUMBER]`

use std::path::PathBuf;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::from_default_env())
        .init();
    let mut options = cloudsim::Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--pace" => options.pace = value()?.parse().context("--pace needs a number")?,
            "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
            directory => options.directory = Some(PathBuf::from(directory)),
        }
    }
    let service = cloudsim::Service::open(options).await?;
    println!("{}", serde_json::to_string(&service.endpoints())?);
    let shutdown = CancellationToken::new();
    let serving = service.serve(shutdown.clone());
    // A thread of its own: the runtime would wait for a blocking task that still reads.
    std::thread::spawn(move || {
        // Whatever is written there is ignored; its end is the signal.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        shutdown.cancel();
    });
    Ok(serving.await?)
}
