//! `shipshape up`: every service in one process.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use store::{Reader, Store, housekeeping};
use tokio_util::sync::CancellationToken;

use crate::opening;
use crate::output;
use crate::process::Process;
use crate::readiness::Condition;
use crate::supervisor::Stage;
use crate::version::Version;

/// How often the store is asked whether it answers.
const WATCH: Duration = Duration::from_secs(5);

/// Runs every service there is until a signal ends it.
pub(crate) async fn run(mut process: Process) -> anyhow::Result<()> {
    let (health, store) = start(&mut process).await?;
    output::show(&banner(&process, &health, &store))?;
    let ended = process.tasks.run().await;
    // Last of all: whatever the tasks wrote while they ended is on disk when this returns.
    store.close().await;
    Ok(ended?)
}

/// Starts the services; returns the URL of the health endpoint and the store once all are ready.
#[tracing::instrument(name = "start", skip_all)]
async fn start(process: &mut Process) -> anyhow::Result<(String, Store)> {
    ensure_writable(process.config.data_dir.as_ref())?;
    let answers = process.readiness.condition("store");
    let health = process.open_health().await?;
    answers.not_ready("opening");
    let store = opening::open_store(&process.config.store).await?;
    tracing::info!("The store is {}", store.place());

    let counts = housekeeping::Metrics::default();
    process.metrics.room("store", |registry| counts.register(registry));
    let retention = opening::retention(&process.config.retention);
    let keeper = store.clone();
    process.tasks.spawn(Stage::Keel, "housekeeping", move |shutdown| async move {
        housekeeping::run(keeper, retention, counts, shutdown).await;
        Ok(())
    });
    let watched = store.reader();
    answers.ready();
    process.tasks.spawn(Stage::Keel, "store-watch", move |shutdown| watch(watched, answers, shutdown));
    Ok((health, store))
}

/// Says in the readiness whether the database answers.
async fn watch(reader: Reader, answers: Condition, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut answered = true;
    while shutdown.run_until_cancelled(tokio::time::sleep(WATCH)).await.is_some() {
        let pinged = reader.ping().await;
        match &pinged {
            Ok(()) => answers.ready(),
            Err(error) => answers.not_ready(error.to_string()),
        }
        if pinged.is_ok() != answered {
            answered = pinged.is_ok();
            match pinged {
                Ok(()) => tracing::info!("The store answers again"),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "The store does not answer");
                }
            }
        }
    }
    Ok(())
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

fn banner(process: &Process, health: &str, store: &Store) -> String {
    format!(
        "Shipshape {version} is up\n\
         \x20 health   {health}\n\
         \x20 data     {data}\n\
         \x20 store    {store}\n\
         Try\n\
         \x20 curl {health}/readyz\n\
         \x20 shipshape store check\n\
         \x20 shipshape config show --origin\n",
        version = Version::current().version,
        data = process.config.data_dir,
        store = store.place(),
    )
}
