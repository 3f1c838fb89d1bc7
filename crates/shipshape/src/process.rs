//! What every subcommand that runs services starts from: settings, a supervisor, readiness, metrics.

#[cfg(feature = "services")]
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::health::HealthServer;
use crate::metrics::Metrics;
use crate::open_files;
use crate::readiness::{Condition, Readiness};
use crate::supervisor::{Stage, Supervisor};

/// A process under way.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its settings.
    pub(crate) config: Config,
    /// Its tasks.
    pub(crate) tasks: Supervisor,
    /// Whether it may be sent work.
    pub(crate) readiness: Readiness,
    /// What it counts.
    pub(crate) metrics: Metrics,
    /// Not ready until everything that this process is to run has begun, its listeners among it: services add conditions of their
    /// own one after the other, and between two of them nothing else would say that more is to come.
    startup: Condition,
    /// The settings that limit the connections of its listeners, and what they allow.
    connections: Vec<(&'static str, usize)>,
}

impl Process {
    /// A process without tasks. From now on signals begin an orderly shutdown, and as many files can be open as the system allows.
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

    /// Notes that a listener accepts as many connections as a setting allows.
    #[cfg(feature = "services")]
    pub(crate) fn accepts(&mut self, setting: &'static str, connections: usize) {
        self.connections.push((setting, connections));
    }

    /// Says that everything has begun, and that all addresses are listened on.
    pub(crate) fn started(&self) {
        open_files::check_limit(&self.connections);
        self.startup.ready();
    }

    /// Opens the health endpoint and returns its base URL. Before anything slow, so that whoever
    /// watches sees a process that starts rather than one that is dead.
    pub(crate) async fn open_health(&mut self) -> anyhow::Result<String> {
        let listen = self.config.health.listen;
        let admin = HealthServer::bind(listen, self.readiness.clone(), self.metrics.clone()).await?;
        let url = admin.url();
        tracing::info!("Health and metrics at {url}");
        self.tasks.spawn(Stage::Infrastructure, "health", |shutdown| admin.serve(shutdown));
        Ok(url)
    }
}
