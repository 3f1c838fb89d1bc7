//! `shipshape machines operator`: rolls out the machine API in a cluster and reports its state.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use cli::{Environment, output};
use controller::{Observability, connect};
use machines::operator::{self, OperatorMetrics, OperatorSettings};
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::MachineOperatorFlags;
use crate::process::Process;
use crate::protected_metrics;
#[cfg(feature = "sim")]
use crate::roles::SimulatedPod;
use crate::supervisor::Stage;
use crate::version::Version;

/// Variable with the version that the operator reports, which its Deployment sets.
const RELEASE_VERSION: &str = "RELEASE_VERSION";
/// Time between two checks of the loops.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until a signal.
pub(crate) async fn run(
    mut process: Process,
    flags: &MachineOperatorFlags,
    environment: &Environment,
) -> anyhow::Result<()> {
    let health = protected_metrics::open_health(&mut process, &flags.protected_metrics).await?;
    let connection = connect(flags.kubeconfig.as_deref(), Some(&flags.namespace)).await?;
    let (client, namespace) = (&connection.client, &connection.namespace);
    protected_metrics::open(&mut process, &flags.protected_metrics, client, namespace).await?;
    let host = crate::machine_controllers::host_name();
    let settings = settings(flags, environment.text(RELEASE_VERSION), &host);
    let version = settings.version.clone();
    let (observability, metrics) = (Observability::default(), OperatorMetrics::default());
    process.metrics.register_controllers(
        "operator",
        |registry| observability.metrics.register(registry),
        |registry| metrics.register(registry),
    );
    let (loops, running) = (observability.health.clone(), process.readiness.condition("operator"));
    process.tasks.spawn(Stage::Workers, "operator", move |shutdown| async move {
        let clock = Arc::new(SystemClock);
        Ok(operator::run(connection.client, settings, clock, observability, metrics, shutdown).await?)
    });
    process.tasks.spawn(Stage::Infrastructure, "operator-health", move |shutdown| async move {
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
    output::show(&format!("Shipshape machine operator is up\n  release  {version}\n  health   {health}\n"))?;
    Ok(process.tasks.run().await?)
}

/// Runs in a pod of a simulated cluster until the pod stops.
#[cfg(feature = "sim")]
pub(crate) async fn run_in_simulated_pod(
    flags: MachineOperatorFlags,
    pod: SimulatedPod,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        flags.kubeconfig.is_none(),
        "--kubeconfig names a file, which simulated pods do not have; remove the flag"
    );
    let release = pod.variable(RELEASE_VERSION).map(str::to_owned);
    let usual = settings(&flags, release, pod.pod_name());
    let settings = OperatorSettings { available_min: usual.available_min.mul_f64(pod.pace()), ..usual };
    pod.log(&format!("Shipshape machine operator is up; release {}", settings.version));
    let (observability, metrics) = (Observability::default(), OperatorMetrics::default());
    Ok(operator::run(pod.client(), settings, pod.clock(), observability, metrics, pod.stopping()).await?)
}

fn settings(flags: &MachineOperatorFlags, release: Option<String>, process: &str) -> OperatorSettings {
    let release = flags.release_version.clone().or(release).filter(|it| !it.is_empty());
    let release = release.unwrap_or_else(|| Version::current().version.to_owned());
    OperatorSettings {
        platform: flags.platform.clone(),
        ..OperatorSettings::new(&flags.namespace, process, &release)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::{Cli, Command, MachinesCommand};

    fn settings_of(arguments: &str, release: Option<&str>) -> OperatorSettings {
        let words = ["shipshape", "machines", "operator"].into_iter().chain(arguments.split_whitespace());
        let Command::Machines(MachinesCommand::Operator(flags)) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("{arguments}")
        };
        settings(&flags, release.map(str::to_owned), "pod")
    }

    #[test]
    fn the_release_is_that_of_the_flag_of_the_environment_or_of_the_executable() {
        assert_eq!(settings_of("--release-version=2", Some("1")).version, "2");
        assert_eq!(settings_of("", Some("1")).version, "1");
        for nothing in [None, Some("")] {
            assert_eq!(settings_of("", nothing).version, Version::current().version);
        }
        let found = settings_of("--platform=Azure --namespace=elsewhere", None);
        assert_eq!((found.platform.as_deref(), found.namespace.as_str()), (Some("Azure"), "elsewhere"));
    }
}
