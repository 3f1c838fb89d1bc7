//! `shipshape machines controllers`: the controllers of the machine API, inside a cluster or with a kubeconfig from outside.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use cli::output;
use cloud_azure::{AzureInstances, InstanceSettings};
use controller::{Observability, connect};
use machines::{Settings, certificates::UnexplainedRequests};
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::MachineControllerFlags;
use crate::process::Process;
use crate::supervisor::Stage;
use crate::version::Version;

/// File with the name of this host, which in a pod is the pod's.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Time between two checks of the loops.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until a signal.
pub(crate) async fn run(mut process: Process, flags: &MachineControllerFlags) -> anyhow::Result<()> {
    let health = process.open_health().await?;
    let connection = connect(flags.kubeconfig.as_deref(), Some(&flags.namespace)).await?;
    let provider = Arc::new(AzureInstances::new(InstanceSettings::of_cloud(&flags.azure_cloud)?)?);
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let host = host.trim();
    let settings = Settings {
        migration: flags.migration,
        unexplained_requests: match flags.deny_unexplained_requests {
            true => UnexplainedRequests::Deny,
            false => UnexplainedRequests::Leave,
        },
        ..Settings::new(&connection.namespace, host, "azure")
    };
    let observability = Observability::default();
    let metrics = machines::Metrics::default();
    process.metrics.register_controllers(
        "controllers",
        |registry| observability.metrics.register(registry),
        |registry| metrics.register(registry),
    );
    let (loops, running) = (observability.health.clone(), process.readiness.condition("controllers"));
    process.tasks.spawn(Stage::Workers, "controllers", move |shutdown| async move {
        let clock = Arc::new(SystemClock);
        let client = connection.client;
        machines::run(client, provider, settings, clock, observability, metrics, shutdown).await?;
        Ok(())
    });
    process.tasks.spawn(Stage::Infrastructure, "controllers-health", move |shutdown| async move {
        let mut ticks = interval(HEALTH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                _ = ticks.tick() => match loops.check() {
                    Ok(()) => running.ready(),
                    Err(unhealthy) => running.not_ready(unhealthy.to_string()),
                },
            }
        }
    });
    process.started();
    let version = Version::current().version;
    output::show(&format!("Shipshape {version} machine controllers are up\n  health   {health}\n"))?;
    Ok(process.tasks.run().await?)
}
