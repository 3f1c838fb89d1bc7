//! Completion of names by the shell, with names from the server.
//!
//! Errors and slow servers yield no candidates: the user pressed the tab key and expects no error message.

use std::future::Future;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use client::Client;

use crate::Environment;
use crate::contexts::{self, Contexts, ServerSelection};

/// Environment variable by which the shell requests completions.
pub const VARIABLE: &str = "SHIPSHAPE_COMPLETE";

/// Longest wait for the server.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Largest number of candidates.
const CANDIDATES_MAX: usize = 200;

/// The registered contexts.
pub fn contexts() -> Vec<CompletionCandidate> {
    let contexts = Contexts::load(&Environment::from_process()).unwrap_or_default();
    contexts.names().map(CompletionCandidate::new).collect()
}

/// The names of the clusters.
pub fn clusters() -> Vec<CompletionCandidate> {
    names(|client| async move {
        let clusters = client.clusters().first(CANDIDATES_MAX).await?;
        Ok(clusters.into_iter().map(|it| (it.name, it.location)).collect())
    })
}

/// The names of the tasks.
pub fn tasks() -> Vec<CompletionCandidate> {
    names(|client| async move {
        let tasks = client.tasks().first(CANDIDATES_MAX).await?;
        Ok(tasks.into_iter().map(|it| (it.name, it.title)).collect())
    })
}

/// The ids of the schedules.
pub fn schedules() -> Vec<CompletionCandidate> {
    names(|client| async move {
        let schedules = client.schedules().first(CANDIDATES_MAX).await?;
        Ok(schedules.into_iter().map(|it| (it.id, it.state)).collect())
    })
}

/// The ids of queued manifests.
pub fn manifests() -> Vec<CompletionCandidate> {
    names(|client| async move {
        let manifests = client.queued_manifests().first(CANDIDATES_MAX).await?;
        Ok(manifests.into_iter().map(|it| (it.id.to_string(), it.task_name)).collect())
    })
}

/// The versions of OpenShift that can be installed.
pub fn versions() -> Vec<CompletionCandidate> {
    names(|client| async move {
        let versions = client.versions().first(CANDIDATES_MAX).await?;
        let name = |it: &serde_json::Value| it["properties"]["version"].as_str().map(str::to_owned);
        Ok(versions.iter().filter_map(name).map(|it| (it, String::new())).collect())
    })
}

type NamesWithHelp = Vec<(String, String)>;

fn names<F>(request: impl FnOnce(Client) -> F) -> Vec<CompletionCandidate>
where
    F: Future<Output = Result<NamesWithHelp, client::ClientError>>,
{
    let fetch = || -> anyhow::Result<NamesWithHelp> {
        let client = contexts::connect(&ServerSelection::default(), &Environment::from_process())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let named = runtime.block_on(async { tokio::time::timeout(TIME_MAX, request(client)).await });
        runtime.shutdown_background();
        Ok(named??)
    };
    let named = fetch().unwrap_or_default();
    let candidate = |(name, help): (String, String)| {
        let help = (!help.is_empty()).then(|| help.into());
        CompletionCandidate::new(name).help(help)
    };
    named.into_iter().map(candidate).collect()
}
