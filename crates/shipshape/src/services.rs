//! The services, each built from the settings and started by the supervisor under its name and stage.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::clock::{Clock as _, SystemClock};
use api::domain::DOMAIN;
use backend::OperationTiming;
use cli::Environment;
use cli::contexts::{self, ContextFile, PublishedContext};
use client::Client;
use cloud::Cloud;
use kubelink::LinksLimits;
use maintenance::{actuator, scheduler};
use serve::pki::{CertificatePair, PkiDirectory};
use steps::{ClusterConnections, lifecycle};
use store::{Reader, Store, housekeeping};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cloud::CloudProvider;
use crate::config::{ClustersConfig, Config};
use crate::data_dir::ensure_writable;
use crate::open_store;
use crate::portal::CertificatePaths;
use crate::process::Process;
use crate::readiness::Condition;
use crate::supervisor::Stage;
use crate::version::Version;

/// Interval between checks of the generated certificates, which are renewed months before they expire.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);

/// Interval between pings of the store.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Opens the shared parts of all services: the health endpoint, the store and its housekeeping. Returns the URL of the health endpoint and
/// the store.
pub(crate) async fn open_base(process: &mut Process) -> anyhow::Result<(String, Store)> {
    ensure_writable(process.config.data_dir.as_ref())?;
    let store_ready = process.readiness.condition("store");
    let health = process.open_health().await?;
    store_ready.not_ready("opening");
    let store = open_store::open_store(&process.config.store).await?;
    tracing::info!("The store is {}", store.location());

    let counts = process.metrics.register("store", housekeeping::Metrics::register);
    let retention = open_store::retention(&process.config.retention);
    let housekeeping_store = store.clone();
    process.tasks.spawn(Stage::Infrastructure, "housekeeping", move |shutdown| async move {
        housekeeping::run(housekeeping_store, retention, counts, shutdown).await;
        Ok(())
    });
    let watched = store.reader();
    store_ready.ready();
    process
        .tasks
        .spawn(Stage::Infrastructure, "store-watch", move |shutdown| watch(watched, store_ready, shutdown));
    Ok((health, store))
}

/// Updates the readiness by pings of the database.
async fn watch(reader: Reader, store_ready: Condition, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut is_reachable = true;
    while shutdown.run_until_cancelled(tokio::time::sleep(PING_INTERVAL)).await.is_some() {
        let pinged = reader.ping().await;
        match &pinged {
            Ok(()) => store_ready.ready(),
            Err(error) => store_ready.not_ready(error.to_string()),
        }
        if pinged.is_ok() != is_reachable {
            is_reachable = pinged.is_ok();
            match pinged {
                Ok(()) => tracing::info!("The store is reachable again"),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "The store is not reachable");
                }
            }
        }
    }
    Ok(())
}

/// The running API.
pub(crate) struct Api {
    /// URL for clients.
    pub(crate) url: String,
    /// Paths of its certificate and key.
    pub(crate) pair: Option<CertificatePaths>,
    /// In-process client for the portal.
    pub(crate) portal: Client,
    /// In-process client for this process itself.
    pub(crate) internal: Client,
    /// The API for a resource manager in this process.
    #[cfg(feature = "sim")]
    pub(crate) for_resource_manager: frontend::LocalService,
}

/// Starts the Admin API.
pub(crate) async fn frontend(
    process: &mut Process,
    store: &Store,
    config: frontend::Config,
    cloud: Option<&Cloud>,
) -> anyhow::Result<Api> {
    let open = process.readiness.condition("frontend");
    let metrics = process.metrics.register("frontend", frontend::Metrics::register);
    process.record_connection_limit("frontend.connections", config.connections);
    let pair = config.certificate.clone().zip(config.key.clone());
    let deps = frontend::Deps {
        store: store.clone(),
        clock: Arc::new(SystemClock),
        metrics,
        cloud: cloud.map(Into::into),
    };
    let server = frontend::Server::bind(config, deps).await?;
    let in_process = |name: &str| Client::in_process(server.local(name));
    let api = Api {
        url: server.url(),
        pair,
        portal: in_process("portal"),
        internal: in_process("up"),
        #[cfg(feature = "sim")]
        for_resource_manager: server.for_resource_manager(),
    };
    tracing::info!("The API is at {}", api.url);
    process.tasks.spawn(Stage::Listeners, "frontend", move |shutdown| async move {
        Ok(server.serve(shutdown).await?)
    });
    open.ready();
    Ok(api)
}

/// Starts the Admin API with its own certificates where none are configured, and publishes a context for it.
pub(crate) async fn frontend_with_context(
    process: &mut Process,
    store: &Store,
    environment: &Environment,
    cloud: Option<&Cloud>,
) -> anyhow::Result<(Api, PublishedContext)> {
    let mut config = process.config.frontend();
    let data_dir: &Path = process.config.data_dir.as_ref();
    let mut file = ContextFile::open(String::new());
    let mut generated = None;
    if !config.insecure {
        let address = config.listen.ip();
        let names = if address.is_unspecified() { Vec::new() } else { vec![address.to_string()] };
        let pki =
            PkiDirectory::ensure(&data_dir.join("pki"), &names, SystemClock.now()).context("certificates")?;
        match &config.certificate {
            // A configured certificate file contains its issuers as well.
            Some(certificate) => {
                let certificate = certificate.canonicalize();
                file.authority_file = Some(certificate.context("frontend.certificate cannot be found")?);
            }
            None => file.authority = Some(pki.authority_pem()?),
        }
        let has_operator = config.client_ca.is_none();
        if has_operator {
            set_operator_credential(&mut file, &pki)?;
        }
        config.complete_from(&pki);
        generated = Some((pki, names, has_operator));
    }
    let data_dir = data_dir.to_owned();
    let api = frontend(process, store, config, cloud).await?;
    file.server = api.url.clone();
    let published = contexts::publish(&data_dir, &file, environment)?;
    if let Some((pki, names, has_operator)) = generated {
        let environment = environment.clone();
        process.tasks.spawn(Stage::Listeners, "certificates", move |shutdown| async move {
            while shutdown.run_until_cancelled(tokio::time::sleep(RENEWAL_INTERVAL)).await.is_some() {
                let renewed = pki.renew(&names, SystemClock.now()).map_err(anyhow::Error::from);
                let renewed = renewed.and_then(|is_new| {
                    if is_new && has_operator {
                        // Clients that use the published context keep access.
                        set_operator_credential(&mut file, &pki)?;
                        contexts::publish(&data_dir, &file, &environment)?;
                    }
                    Ok(())
                });
                if let Err(error) = renewed {
                    tracing::error!(error = &*error, "Renewal of the certificates failed: {error:#}");
                }
            }
            Ok(())
        });
    }
    Ok((api, published))
}

/// Sets the operator certificate as the credential of a context.
fn set_operator_credential(file: &mut ContextFile, pki: &PkiDirectory) -> anyhow::Result<()> {
    let CertificatePair { certificate, key } = pki.operator_pair()?;
    file.certificate = Some(certificate);
    file.key = Some(key);
    Ok(())
}

/// Creates, updates and deletes the clusters of customers.
pub(crate) fn backend(process: &mut Process, store: &Store, provider: &CloudProvider) {
    let deps = backend::Deps {
        store: store.clone(),
        cloud: provider.cloud.clone(),
        installer: provider.installer.clone(),
        service: Arc::new(service_resources(&process.config)),
        connections: Arc::new(connections(process, store)),
        clock: Arc::new(SystemClock),
        metrics: process.metrics.register("backend", backend::Metrics::register),
        config: backend::Config {
            operation_timing: OperationTiming::with_poll_interval(process.config.cloud.poll.duration()),
            ..process.config.backend.clone()
        },
        owner: Uuid::new_v4(),
        release: Version::current().version.to_owned(),
        seed: 0,
    };
    process.run_service(Stage::Workers, "backend", |shutdown| backend::run(deps, shutdown));
}

/// Connections to clusters, by the kubeconfigs that are sealed in the store.
fn connections(process: &Process, store: &Store) -> ClusterConnections {
    let allow = process.config.clusters.allow_kubeconfig.clone();
    ClusterConnections::new(store.reader(), LinksLimits::default(), allow, Arc::new(SystemClock))
}

/// Resources of the service itself in the cloud.
pub(crate) fn service_resources(config: &Config) -> lifecycle::Service {
    let ClustersConfig { locations, zone, .. } = &config.clusters;
    let location = locations.first().map_or("local", String::as_str);
    let subscription = config.cloud.subscription.to_string();
    let service = lifecycle::Service::new(DOMAIN, &subscription, "shipshape", location);
    // Clusters that ask for a single label are named in the zone of their location.
    service.with_zones(zone.as_deref())
}

/// Runs manifests.
pub(crate) fn actuator(process: &mut Process, store: &Store, cloud: Option<&Cloud>) {
    let clock = Arc::new(SystemClock);
    let mut tasks = actuator::TaskCatalog::new(store.reader(), connections(process, store), clock.clone());
    if let Some(cloud) = cloud {
        tasks = tasks.with_provider(actuator::Provider {
            vault: cloud.vault.clone(),
            identities: cloud.identities.clone(),
            store: store.clone(),
        });
    }
    let deps = actuator::Deps {
        store: store.clone(),
        tasks: Arc::new(tasks),
        clock,
        metrics: process.metrics.register("actuator", actuator::Metrics::register),
        config: process.config.actuator.clone(),
        owner: Uuid::new_v4(),
    };
    process.run_service(Stage::Workers, "actuator", |shutdown| actuator::run(deps, shutdown));
}

/// Creates the manifests of schedules.
pub(crate) fn scheduler(process: &mut Process, store: &Store) {
    let deps = scheduler::Deps {
        store: store.clone(),
        clock: Arc::new(SystemClock),
        metrics: process.metrics.register("scheduler", scheduler::Metrics::register),
        owner: Uuid::new_v4(),
        timing: scheduler::Timing::default(),
    };
    process.run_service(Stage::Workers, "scheduler", |shutdown| scheduler::run(deps, shutdown));
}

/// Interval between two looks whether the monitor is ready.
const MONITOR_READINESS_INTERVAL: Duration = Duration::from_secs(2);

/// Visits every cluster.
pub(crate) fn monitor(process: &mut Process, store: &Store) {
    let status = monitor::Status::default();
    let metrics = process.metrics.register("monitor", monitor::Metrics::register);
    process.metrics.register_clusters(|registry| metrics.register_clusters(registry));
    let deps = monitor::Deps {
        reader: store.reader(),
        health: store.health_writer(),
        registry: store.worker_registry("monitor"),
        allow_kubeconfig: process.config.clusters.allow_kubeconfig.clone(),
        clock: Arc::new(SystemClock),
        metrics,
        config: process.config.monitor.clone(),
        status: status.clone(),
    };
    let ready = process.readiness.condition("monitor");
    ready.ready();
    process.tasks.spawn(Stage::Workers, "monitor", |shutdown| async move {
        let watched = async {
            loop {
                match status.obstacle() {
                    None => ready.ready(),
                    Some(obstacle) => ready.not_ready(obstacle),
                }
                tokio::time::sleep(MONITOR_READINESS_INTERVAL).await;
            }
        };
        tokio::select! {
            ended = monitor::run(deps, shutdown) => Ok(ended?),
            never = watched => never,
        }
    });
}
