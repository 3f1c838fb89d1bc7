//! The controllers at work and at rest.
//!
//! - A MachineSet is scaled from 0 to 1,000 Machines with a cloud without latency, on a real kube-apiserver. The same writes are then
//!   repeated by a bare loop with 16 in flight, which is the speed that the API server allows.
//! - 100 and 10,000 Machines at rest in a simulated cluster, with the controllers in a process of their own: its memory and CPU, what one
//!   changed Node costs, and how soon a Node is remediated after its timeout.
//!
//! A missed goal is printed and does not fail the run: speed depends on the machine.

mod clouds;
mod population;
mod recorder;
mod rest;
mod scale;
mod worker;

use std::time::Duration;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let is_worker = arguments.next().as_deref() == Some(worker::ARGUMENT);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if is_worker {
        return runtime.block_on(worker::run(arguments.next().unwrap_or_default()));
    }
    // The arguments of `cargo bench` are ignored.
    runtime.block_on(async {
        scale::measure().await?;
        rest::measure().await
    })
}

/// Prints a line of the result.
fn report(what: &str, measured: &str, goal: &str, is_met: bool) {
    println!("{what:<52} {measured:>26}   goal {goal:<16} {}", if is_met { "pass" } else { "MISS" });
}

/// Waits until `reached` holds.
async fn until(what: &str, limit: Duration, mut reached: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let waiting = async {
        while !reached().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, waiting).await.map_err(|_| anyhow::anyhow!("not within {limit:?}: {what}"))
}
