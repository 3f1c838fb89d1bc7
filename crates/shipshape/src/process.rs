//! The parts that every process with services has: settings, a supervisor, readiness, metrics.

#[cfg(feature = "services")]
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::health::HealthServer;
use crate::metrics::Metrics;
use crate::open_files;
use crate::readiness::{Condition, Readiness};
use crate::supervisor::{Stage, Supervisor};

/// A process with services.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its settings.
    pub(crate) config: Config,
    /// Its tasks.
    pub(crate) tasks: Supervisor,
    /// Its readiness.
    pub(crate) readiness: Readiness,
    /// Its metrics.
    pub(crate) metrics: Metrics,
    /// Not ready until all services of this process have started, including listeners: services add their conditions one after
    /// the other, and without this one the process would be ready in between.
    startup: Condition,
    /// The settings that limit the connections of its listeners, and what they allow.
    connections: Vec<(&'static str, usize)>,
}

impl Process {
    /// A process without tasks. Signals start a shutdown from now on, and the limit on open files is raised.
    pub(crate) fn new(config: Config) -> anyhow::Result<Process> {
        open_files::raise_limit();
        let tasks = Supervisor::new(config.shutdown_deadline.duration())?;
        let readiness = Readiness::new(tasks.stopping());
        let metrics = Metrics::new(readiness.clone());
        let startup = readiness.condition("startup");
        Ok(Process { config, tasks, readiness, metrics, startup, connections: Vec::new() })
    }

    /// Runs a service that is ready as soon as it runs, as a task of its own name.
    #[cfg(feature = "services")]
    pub(crate) fn run_service<F, E>(
        &mut self,
        stage: Stage,
        name: &'static str,
        service: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error>,
    {
        let running = self.readiness.condition(name);
        self.tasks.spawn(stage, name, |shutdown| {
            let service = service(shutdown);
            async move { service.await.map_err(Into::into) }
        });
        running.ready();
    }

    /// Records the connection limit of a listener.
    #[cfg(feature = "services")]
    pub(crate) fn record_connection_limit(&mut self, setting: &'static str, connections: usize) {
        self.connections.push((setting, connections));
    }

    /// Marks the process as started: all services run and all addresses are bound.
    pub(crate) fn started(&self) {
        open_files::check_limit(&self.connections);
        self.startup.ready();
    }

    /// Opens the health endpoint and returns its base URL. It comes before anything slow, so that
    /// probes see a starting process rather than a dead one.
    pub(crate) async fn open_health(&mut self) -> anyhow::Result<String> {
        self.open_health_with(Some(self.metrics.clone())).await
    }

    /// As [`Process::open_health`], with these metrics; without any, another endpoint serves them.
    pub(crate) async fn open_health_with(&mut self, metrics: Option<Metrics>) -> anyhow::Result<String> {
        let listen = self.config.health.listen;
        let server = HealthServer::bind(listen, self.readiness.clone(), metrics).await?;
        let url = server.url();
        tracing::info!("Health and metrics at {url}");
        self.tasks.spawn(Stage::Infrastructure, "health", |shutdown| server.serve(shutdown));
        Ok(url)
    }
}
