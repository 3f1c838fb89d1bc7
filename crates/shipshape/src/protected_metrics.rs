//! The endpoint of the metrics of in-cluster commands: that of health, for everybody, or one that asks the API server who may read them.

use std::sync::Arc;

use api::clock::{SharedClock, SystemClock};
use kube::Client;
use machines::metrics_server::{MetricsConfig, MetricsServer};

use crate::arguments::ProtectedMetricsFlags;
use crate::process::Process;
use crate::supervisor::Stage;

/// Opens the health endpoint, with metrics unless they have their own; its URL.
pub(crate) async fn open_health(
    process: &mut Process,
    flags: &ProtectedMetricsFlags,
) -> anyhow::Result<String> {
    let metrics = flags.metrics.is_none().then(|| process.metrics.clone());
    process.open_health_with(metrics).await
}

/// Opens the endpoint of the metrics, if the flags name one.
pub(crate) async fn open(
    process: &mut Process,
    flags: &ProtectedMetricsFlags,
    client: &Client,
    namespace: &str,
) -> anyhow::Result<()> {
    let Some(listen) = flags.metrics else { return Ok(()) };
    let (clock, metrics): (SharedClock, _) = (Arc::new(SystemClock), process.metrics.clone());
    let config = MetricsConfig {
        listen,
        namespace: namespace.to_owned(),
        certificate: flags.metrics_certificate.clone(),
    };
    let render = Arc::new(move || metrics.to_text());
    let server = MetricsServer::bind(config, client.clone(), &clock, render).await?;
    tracing::info!("Metrics at https://{}/metrics", server.address());
    process.tasks.spawn(Stage::Infrastructure, "metrics", |shutdown| async move {
        server.serve(shutdown).await;
        Ok(())
    });
    Ok(())
}
