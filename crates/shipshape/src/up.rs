//! `shipshape up`: every service in one process; and each of them alone, for many processes on one PostgreSQL.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use ::cloud::SharedCloud;
use anyhow::Context as _;
use store::{By, Store};

use crate::cloud;
use crate::config::Environment;
use crate::contexts::Published;
use crate::output;
use crate::process::Process;
use crate::services;
use crate::version::Version;

/// A service that can run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Answers the Admin API.
    Frontend,
    /// Works manifests.
    Actuator,
    /// Makes the manifests that schedules want.
    Scheduler,
    /// Carries out what customers ask of their clusters.
    Backend,
}

/// Where everything is, once it runs.
struct Running {
    store: Store,
    health: String,
    api: String,
    context: Published,
}

/// Runs every service there is until a signal ends it.
pub(crate) async fn run(mut process: Process, environment: &Environment) -> anyhow::Result<()> {
    let running = start(&mut process, environment).await?;
    output::show(&banner(&process, &running))?;
    if process.config.frontend.insecure {
        output::warn(
            "INSECURE: the API asks nobody who they are; whoever is on this machine may do everything",
            environment.allows_colour(),
        );
    }
    end(process, running.store).await
}

/// Runs one service until a signal ends it.
pub(crate) async fn alone(mut process: Process, service: Service) -> anyhow::Result<()> {
    let (health, store) = services::keel(&mut process).await?;
    let cloud = cloud::elsewhere(&process.config.cloud)?;
    let shared = cloud.clone().map(|it| Arc::new(it) as SharedCloud);
    let api = match service {
        Service::Frontend => {
            let config = process.config.frontend.clone();
            Some(services::frontend(&mut process, &store, config, shared).await?)
        }
        Service::Backend => {
            let cloud = cloud.context(
                "cloud.file is not set, and without a cloud no cluster can be made; name the cloud.json of a simulated one",
            )?;
            services::backend(&mut process, &store, &cloud);
            None
        }
        Service::Actuator => {
            services::actuator(&mut process, &store, shared);
            None
        }
        Service::Scheduler => {
            services::scheduler(&mut process, &store);
            None
        }
    };
    let name = match service {
        Service::Frontend => "frontend",
        Service::Actuator => "actuator",
        Service::Scheduler => "scheduler",
        Service::Backend => "backend",
    };
    let api = api.map(|api| format!("  api      {api}\n")).unwrap_or_default();
    output::show(&format!(
        "Shipshape {} {name} is up\n{api}  health   {health}\n  store    {}\n",
        Version::current().version,
        store.place()
    ))?;
    end(process, store).await
}

async fn end(process: Process, store: Store) -> anyhow::Result<()> {
    let ended = process.tasks.run().await;
    // Last of all: whatever the tasks wrote while they ended is on disk when this returns.
    store.close().await;
    Ok(ended?)
}

/// Starts the services; returns when all are ready.
#[tracing::instrument(name = "start", skip_all)]
async fn start(process: &mut Process, environment: &Environment) -> anyhow::Result<Running> {
    let (health, store) = services::keel(process).await?;
    let cloud = cloud::ensure(process).await?;
    frontend::seed_defaults(&store, &By::service("frontend"))
        .await
        .context("the versions that clusters can be installed with")?;
    let shared: SharedCloud = Arc::new(cloud.clone());
    let (api, context) = services::own_frontend(process, &store, environment, Some(shared.clone())).await?;
    services::backend(process, &store, &cloud);
    services::scheduler(process, &store);
    services::actuator(process, &store, Some(shared));
    Ok(Running { store, health, api, context })
}

/// Makes the data directory, for its owner only, and makes sure that it can be written to: better a
/// sentence now than a failed write in the middle of the night.
pub(crate) fn ensure_writable(directory: &Path) -> anyhow::Result<()> {
    let name = directory.display();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("data_dir {name}: the directory cannot be made"))?;
    let probe = directory.join(".write-probe");
    let written = File::create(&probe).and_then(|_| match std::fs::remove_file(&probe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error), // another process probed too
        _ => Ok(()),
    });
    written.with_context(|| format!("data_dir {name}: the directory cannot be written to"))
}

fn banner(process: &Process, running: &Running) -> String {
    let Running { store, health, api, context } = running;
    // Commands use the current context by themselves; another must be named.
    let (note, flag) = match context.current {
        true => (String::new(), String::new()),
        false => (", which is not the current one".to_owned(), format!(" --context {}", context.name)),
    };
    let place = if context.current { String::new() } else { format!("SHIPSHAPE_CONTEXT={} ", context.name) };
    format!(
        "Shipshape {version} is up\n\
         \x20 api      {api}\n\
         \x20 context  {name}{note}\n\
         \x20 health   {health}\n\
         \x20 data     {data}\n\
         \x20 store    {store}\n\
         Try\n\
         \x20 {place}shipshape cluster create NAME --wait\n\
         \x20 shipshape cluster import NAME --kubeconfig FILE{flag}\n\
         \x20 shipshape task list{flag}\n\
         \x20 shipshape plan --for 7d{flag}\n",
        version = Version::current().version,
        name = context.name,
        data = process.config.data_dir,
        store = store.place(),
    )
}
