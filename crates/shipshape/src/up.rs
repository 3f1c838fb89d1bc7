//! `shipshape up`: all services in one process; and each service alone, for several processes on one PostgreSQL.

use std::path::{Path, PathBuf};
#[cfg(feature = "sim")]
use std::sync::Arc;

use anyhow::Context as _;
#[cfg(feature = "sim")]
use api::clock::SystemClock;
use cli::Environment;
#[cfg(feature = "sim")]
use cli::commands::SimulatedCloud;
use cli::contexts::PublishedContext;
use cli::output;
use client::Client;
use store::{AuditContext, Store};

use crate::cloud;
#[cfg(feature = "sim")]
use crate::cloud::CloudProvider;
use crate::config::Config;
use crate::data_dir::{ensure_writable, lock};
#[cfg(feature = "sim")]
use crate::demo::Demo;
use crate::event_log;
use crate::listening::Listen;
use crate::portal::{self, PortalAddress};
use crate::process::Process;
use crate::services::{self, Api};
use crate::supervisor::Stage;
use crate::version::Version;

/// The namespace of our resources in the resource manager.
#[cfg(feature = "sim")]
const PROVIDER_NAMESPACE: &str = "Microsoft.RedHatOpenShift";

/// A service that can run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Serves the Admin API.
    Frontend,
    /// Runs manifests.
    Actuator,
    /// Creates the manifests of schedules.
    Scheduler,
    /// Creates, updates and deletes clusters.
    Backend,
    /// Says how every cluster is.
    Monitor,
}

/// The running services.
struct Running {
    store: Store,
    health: String,
    api: Api,
    portal: PortalAddress,
    context: PublishedContext,
    /// For the demonstration.
    #[cfg(feature = "sim")]
    provider: Option<CloudProvider>,
}

/// Runs all services until a signal; with a demonstration of `demo` clusters.
pub(crate) async fn run(
    mut process: Process,
    environment: &Environment,
    demo: Option<u16>,
) -> anyhow::Result<()> {
    // Everything that prevents a start is checked before anything is opened or changed.
    let data_dir: PathBuf = AsRef::<Path>::as_ref(&process.config.data_dir).to_owned();
    ensure_writable(&data_dir)?;
    let _lock = lock(&data_dir).await?;
    for listen in listens(&process.config) {
        listen.ensure_free().await?;
    }
    let running = start(&mut process, environment).await?;
    process.started();
    let client = running.api.internal.clone();
    #[cfg(feature = "sim")]
    if let Some(count) = demo {
        let simulated = running.provider.as_ref().and_then(|it| it.simulated.clone()).context(
            "the demonstration needs a simulated cloud, but cloud.provider is azure; start `up` without --demo",
        )?;
        let simulated = SimulatedCloud::new(simulated, cloud::simulated::directory(&process.config));
        let demo = Demo::prepare(count, client.clone(), simulated, &data_dir, Arc::new(SystemClock)).await?;
        process.tasks.spawn(Stage::Listeners, "demo", |shutdown| demo.run(shutdown));
    }
    process.tasks.spawn(Stage::Listeners, "event-log", |shutdown| event_log::run(client, shutdown));
    output::show(&banner(&process, &running, demo))?;
    if process.config.frontend.insecure {
        output::warn(
            "INSECURE: the API requires no authentication; everybody on this machine has full access",
            environment.allows_colour(),
        );
    }
    end(process, running.store).await
}

/// Runs one service until a signal.
pub(crate) async fn run_service(mut process: Process, service: Service) -> anyhow::Result<()> {
    let (health, store) = services::open_base(&mut process).await?;
    let provider = cloud::configured(&process.config.cloud)?;
    let cloud = provider.as_ref().map(|it| &it.cloud);
    let api = match service {
        Service::Frontend => {
            let config = process.config.frontend();
            Some(services::frontend(&mut process, &store, config, cloud).await?.url)
        }
        Service::Backend => {
            let provider = provider.context(
                "the backend needs a cloud: set cloud.provider to azure, or cloud.file to the endpoints.json of a simulated one",
            )?;
            services::backend(&mut process, &store, &provider);
            None
        }
        Service::Actuator => {
            services::actuator(&mut process, &store, cloud);
            None
        }
        Service::Scheduler => {
            services::scheduler(&mut process, &store);
            None
        }
        Service::Monitor => {
            services::monitor(&mut process, &store);
            None
        }
    };
    process.started();
    let name = match service {
        Service::Frontend => "frontend",
        Service::Actuator => "actuator",
        Service::Scheduler => "scheduler",
        Service::Backend => "backend",
        Service::Monitor => "monitor",
    };
    let api = api.map(|api| format!("  api      {api}\n")).unwrap_or_default();
    output::show(&format!(
        "Shipshape {} {name} is up\n{api}  health   {health}\n  store    {}\n",
        Version::current().version,
        store.location()
    ))?;
    end(process, store).await
}

/// Runs the portal as a client of an API in another process until a signal. It has no store.
pub(crate) async fn run_portal(mut process: Process, admin: anyhow::Result<Client>) -> anyhow::Result<()> {
    let admin = admin?;
    let server = admin.server().to_owned();
    let health = process.open_health().await?;
    let pair = portal::configured_certificate(&process.config);
    let PortalAddress { url, link } = portal::open(&mut process, admin, pair).await?;
    process.started();
    let link = link.map(|link| format!("  sign in  {link}  (once)\n")).unwrap_or_default();
    output::show(&format!(
        "Shipshape {} portal is up\n  portal   {url}\n{link}  health   {health}\n  api      {server}\n",
        Version::current().version,
    ))?;
    Ok(process.tasks.run().await?)
}

async fn end(process: Process, store: Store) -> anyhow::Result<()> {
    let ended = process.tasks.run().await;
    // Last, so that all writes of the ending tasks are on disk when this returns.
    store.close().await;
    Ok(ended?)
}

/// Starts the services; returns when all are ready.
#[tracing::instrument(name = "start", skip_all)]
async fn start(process: &mut Process, environment: &Environment) -> anyhow::Result<Running> {
    let (health, store) = services::open_base(process).await?;
    let provider = cloud::ensure(process).await?;
    frontend::seed_defaults(&store, &AuditContext::service("frontend"))
        .await
        .context("the versions that clusters can be installed with")?;
    let cloud = provider.as_ref().map(|it| &it.cloud);
    let (api, context) = services::frontend_with_context(process, &store, environment, cloud).await?;
    #[cfg(feature = "sim")]
    if let Some(providers) = provider.as_ref().and_then(|it| it.resource_providers.as_ref()) {
        let service = axum::Router::new().fallback_service(api.for_resource_manager.clone());
        providers.register(PROVIDER_NAMESPACE, service);
    }
    let portal = portal::open(process, api.portal.clone(), api.pair.clone()).await?;
    if let Some(provider) = &provider {
        services::backend(process, &store, provider);
    }
    services::scheduler(process, &store);
    services::actuator(process, &store, cloud);
    services::monitor(process, &store);
    Ok(Running {
        store,
        health,
        api,
        portal,
        context,
        #[cfg(feature = "sim")]
        provider,
    })
}

/// The addresses on which this process listens.
fn listens(config: &Config) -> [Listen; 3] {
    [
        Listen { key: "health.listen", flag: "--health", address: config.health.listen },
        Listen { key: "frontend.listen", flag: "--api", address: config.frontend.listen },
        portal::listen(config),
    ]
}

fn banner(process: &Process, running: &Running, demo: Option<u16>) -> String {
    let Running { store, health, api, portal, context, .. } = running;
    let link = portal.link.as_ref().map(|link| format!("  sign in  {link}  (once)\n")).unwrap_or_default();
    // Commands use the current context by default; any other must be named.
    let (note, flag) = match context.current {
        true => (String::new(), String::new()),
        false => (", which is not the current one".to_owned(), format!(" --context {}", context.name)),
    };
    let place = if context.current { String::new() } else { format!("SHIPSHAPE_CONTEXT={} ", context.name) };
    let (fleet, first) = match demo {
        Some(count) => (
            format!("  demo     {count} simulated clusters, the first within seconds\n"),
            format!("shipshape cluster list --watch{flag}"),
        ),
        None => (String::new(), format!("{place}shipshape cluster create NAME --wait")),
    };
    format!(
        "Shipshape {version} is up\n\
         \x20 portal   {pages}\n\
         {link}\
         \x20 api      {url}\n\
         \x20 context  {name}{note}\n\
         \x20 health   {health}\n\
         \x20 data     {data}\n\
         \x20 store    {store}\n\
         {fleet}\
         Try\n\
         \x20 {first}\n\
         \x20 shipshape task list{flag}\n\
         \x20 shipshape plan --for 7d{flag}\n",
        version = Version::current().version,
        pages = portal.url,
        url = api.url,
        name = context.name,
        data = process.config.data_dir,
        store = store.location(),
    )
}
