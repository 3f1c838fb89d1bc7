//! `shipshape agent`: the process inside a managed cluster. It has neither store nor simulators. It serves health and metrics; the
//! controllers of a cluster run in it.

use cli::output;

use crate::process::Process;
use crate::version::Version;

/// Runs until a signal.
pub(crate) async fn run(mut process: Process) -> anyhow::Result<()> {
    let health = process.open_health().await?;
    process.started();
    output::show(&format!("Shipshape {} agent is up\n  health   {health}\n", Version::current().version))?;
    Ok(process.tasks.run().await?)
}
