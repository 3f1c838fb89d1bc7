//! The process of the controllers at rest: it says on request what it has used.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::clock::SystemClock;
use controller::Observability;
use machines::{Metrics, Settings};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clouds::Everything;
use crate::recorder::Recorder;

/// The argument that makes a process a worker; the next one is its kubeconfig.
pub(crate) const ARGUMENT: &str = "worker";
pub(crate) const NAMESPACE: &str = "openshift-machine-api";

/// Machines at rest are compared with their instances ten times as often as by default: else the few seconds of a measurement would show
/// none of it.
const RESYNC: Duration = Duration::from_secs(60);

/// What a worker has used since its start.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) resident_mib: f64,
    pub(crate) cpu: Duration,
    pub(crate) requests: u64,
}

/// Runs the controllers until the input ends; each line of input is answered by a line with the usage.
pub(crate) async fn run(kubeconfig: String) -> anyhow::Result<()> {
    let connection = controller::connect(Some(kubeconfig.as_ref()), Some(NAMESPACE)).await?;
    let (recorder, shutdown) = (Recorder::default(), CancellationToken::new());
    let settings =
        Settings { lease: None, resync: RESYNC, ..Settings::new(NAMESPACE, "bench", "everything") };
    let controllers = machines::run(
        recorder.counting_client(&connection.client),
        Arc::new(Everything::default()),
        settings,
        Arc::new(SystemClock),
        Observability::default(),
        Metrics::default(),
        shutdown.clone(),
    );
    let answering = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            line?;
            println!("{}", serde_json::to_string(&usage(&recorder)?)?);
        }
        shutdown.cancel();
        anyhow::Ok(())
    });
    let (controllers, answered) = tokio::join!(controllers, answering);
    controllers?;
    answered?
}

fn usage(recorder: &Recorder) -> anyhow::Result<Usage> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    let resident: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(Usage { resident_mib: resident / 1024.0, cpu: cpu()?, requests: recorder.requests() })
}

/// The CPU time of all threads, in nanoseconds as the scheduler counts it.
fn cpu() -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total += Duration::from_nanos(text.split_whitespace().next().context("a number")?.parse()?);
    }
    Ok(total)
}
