//! Holds the shared cluster, and with the argument `own` a private one, until it is killed. A test checks that
//! neither outlives the process. Prints the working directories of their programs, and then `ready`.

use anyhow::Context;
use testkit::kube;

fn main() -> anyhow::Result<()> {
    let shared = kube::shared().context(kube::MISSING)?;
    let place = shared.directory().parent().context("a shared cluster is in the place of its run")?;
    println!("directory {}", place.display());
    let own = match std::env::args().nth(1).as_deref() {
        Some("own") => Some(kube::private(kube::TestClusterOptions::default()).context(kube::MISSING)?),
        _ => None,
    };
    if let Some(own) = &own {
        println!("directory {}", own.directory().display());
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
