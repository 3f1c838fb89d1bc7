//! `shipshape machines controllers`: the controllers of the machine API, inside a cluster or with a kubeconfig from outside.

#[cfg(feature = "sim")]
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::clock::SystemClock;
use cli::output;
use cloud_azure::InstanceSettings;
use controller::{Observability, connect};
use machines::webhooks::WebhookConfig;
#[cfg(feature = "sim")]
use machines::webhooks::{WebhookEndpoint, Webhooks};
use machines::{Settings, certificates::UnexplainedRequests};
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::{MachineControllerFlags, WebhookAccess};
use crate::machine_provider;
use crate::process::Process;
use crate::protected_metrics;
#[cfg(feature = "sim")]
use crate::roles::SimulatedPod;
use crate::supervisor::Stage;
use crate::version::Version;

/// File with the name of this host.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Time between two checks of the loops.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until a signal.
pub(crate) async fn run(mut process: Process, flags: &MachineControllerFlags) -> anyhow::Result<()> {
    let health = protected_metrics::open_health(&mut process, &flags.protected_metrics).await?;
    let connection = connect(flags.kubeconfig.as_deref(), Some(&flags.namespace)).await?;
    let (client, namespace) = (&connection.client, &connection.namespace);
    protected_metrics::open(&mut process, &flags.protected_metrics, client, namespace).await?;
    let provider = machine_provider::choose(&connection, flags).await?;
    let settings = settings(flags, &connection.namespace, &host_name(), provider.name);
    let observability = Observability::default();
    let metrics = machines::Metrics::default();
    process.metrics.register_controllers(
        "controllers",
        |registry| observability.metrics.register(registry),
        |registry| metrics.register(registry),
    );
    if let Some(config) = webhooks(flags, &connection.namespace) {
        let client = connection.client.clone();
        process.tasks.spawn(Stage::Workers, "webhooks", move |shutdown| async move {
            Ok(machines::webhooks::run(client, Arc::new(SystemClock), config, shutdown).await?)
        });
    }
    let (loops, running) = (observability.health.clone(), process.readiness.condition("controllers"));
    process.tasks.spawn(Stage::Workers, "controllers", move |shutdown| async move {
        let clock = Arc::new(SystemClock);
        let client = connection.client;
        machines::run(client, provider.instances, settings, clock, observability, metrics, shutdown).await?;
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

/// Runs in a pod of a simulated cluster until the pod stops. Health and metrics are not served there.
#[cfg(feature = "sim")]
pub(crate) async fn run_in_simulated_pod(
    flags: MachineControllerFlags,
    pod: SimulatedPod,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        flags.kubeconfig.is_none() && flags.cloud_endpoints.is_none(),
        "--kubeconfig and --cloud-endpoints name files, which simulated pods do not have; remove the flags"
    );
    let settings = settings(&flags, &flags.namespace, pod.pod_name(), "azure");
    let provider = Arc::new(pod.instances()?);
    let (observability, metrics) = (Observability::default(), machines::Metrics::default());
    let (clock, stopping) = (pod.clock(), pod.stopping());
    let controllers =
        machines::run(pod.client(), provider, settings, clock, observability, metrics, stopping);
    pod.log(&format!("Shipshape {} machine controllers are up", Version::current().version));
    tokio::try_join!(
        async { Ok::<(), anyhow::Error>(controllers.await?) },
        serve_webhooks_of_pod(&flags, &pod)
    )?;
    Ok(())
}

/// Serves the webhooks to the simulated API server, which finds the listener by the Service.
#[cfg(feature = "sim")]
async fn serve_webhooks_of_pod(flags: &MachineControllerFlags, pod: &SimulatedPod) -> anyhow::Result<()> {
    let Some(config) = webhooks(flags, &flags.namespace) else { return Ok(()) };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let webhooks =
        Webhooks::bind(pod.client(), pod.clock(), WebhookConfig { listen, ..config.clone() }).await?;
    if let Some(WebhookEndpoint::Service { namespace, name, .. }) = &config.endpoint {
        pod.publish(namespace, name, webhooks.address()).await?;
    }
    Ok(webhooks.run(pod.stopping()).await?)
}

/// The name of this host, which in a pod is the pod's.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned()
}

/// The settings of the controllers of a process.
fn settings(flags: &MachineControllerFlags, namespace: &str, process: &str, provider: &str) -> Settings {
    Settings {
        migration: flags.migration,
        unexplained_requests: match flags.deny_unexplained_requests {
            true => UnexplainedRequests::Deny,
            false => UnexplainedRequests::Leave,
        },
        ..Settings::new(namespace, process, provider)
    }
}

/// The webhooks to serve, if any.
fn webhooks(flags: &MachineControllerFlags, namespace: &str) -> Option<WebhookConfig> {
    let access = flags.webhooks.unwrap_or(match flags.kubeconfig {
        None => WebhookAccess::Service,
        Some(_) => WebhookAccess::Off,
    });
    match access {
        WebhookAccess::Off => None,
        WebhookAccess::Service => Some(WebhookConfig::in_cluster(namespace)),
        WebhookAccess::Loopback => Some(WebhookConfig::on_loopback(namespace)),
    }
}

/// What `endpoints.json` of a simulated cloud says about it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SimulatedEndpoints {
    authority: String,
    resource_manager: String,
    ca_file: PathBuf,
    metadata: Option<String>,
    pace: Option<f64>,
}

/// The settings of a simulated cloud by the file of its endpoints.
pub(crate) fn simulated_cloud(file: &Path) -> anyhow::Result<InstanceSettings> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("--cloud-endpoints {}", file.display()))?;
    let endpoints: SimulatedEndpoints = serde_json::from_str(&text).with_context(|| {
        format!("--cloud-endpoints {}: not the endpoints.json of a simulated cloud", file.display())
    })?;
    let ca_pem = std::fs::read_to_string(&endpoints.ca_file)
        .with_context(|| format!("caFile {} of {}", endpoints.ca_file.display(), file.display()))?;
    let azure = InstanceSettings::of_cloud("")?;
    Ok(InstanceSettings {
        authority: endpoints.authority,
        resource_manager: endpoints.resource_manager,
        metadata: endpoints.metadata,
        ca_pem: Some(ca_pem),
        pace: endpoints.pace.unwrap_or(azure.pace),
        ..azure
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoints_of_a_simulated_cloud_are_read_and_nonsense_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (file, ca) = (directory.path().join("endpoints.json"), directory.path().join("ca.pem"));
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let error = || format!("{:#}", simulated_cloud(&file).unwrap_err());
        assert!(error().starts_with(&format!("--cloud-endpoints {}", file.display())), "{}", error());
        write("{}");
        assert!(
            error().contains("not the endpoints.json of a simulated cloud: missing field"),
            "{}",
            error()
        );
        let mut endpoints = serde_json::json!({
            "authority": "https://127.0.0.1:1", "resourceManager": "https://127.0.0.1:2", "caFile": ca, "subscriptionId": "s"
        });
        write(&endpoints.to_string());
        assert!(error().starts_with("caFile "), "{}", error());
        std::fs::write(&ca, "PEM").unwrap();
        let settings = simulated_cloud(&file).unwrap();
        assert_eq!(settings.resource_manager, "https://127.0.0.1:2");
        assert_eq!((settings.ca_pem.as_deref(), settings.pace), (Some("PEM"), 1.0));
        endpoints["pace"] = 0.5.into();
        write(&endpoints.to_string());
        assert_eq!(simulated_cloud(&file).unwrap().pace, 0.5);
    }
}
