//! `shipshape operation`: asynchronous operations on clusters, and `--wait` for them.

use std::time::Duration;

use anyhow::{Context as _, bail};
use api::duration::TimeSpan;
use api::rest::OperationStatus;
use clap::{Args, Subcommand};
use client::{Client, OperationHandle};
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::outage::Outage;
use super::print::{Output, Printable};
use super::progress::Progress;
use super::table::{Column, View, Width, with_age};
use super::target::{LOCATION, SUBSCRIPTION};
use super::{Connect, Invocation};
use crate::output;

/// Longest interval between two requests; shorter than Retry-After, because a user is watching.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Commands of operations.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Show the status of an operation
    #[command(visible_alias = "get")]
    Show {
        /// Its id, or the path of its status
        operation: String,
        /// The subscription of its cluster [default: searched among those of the clusters]
        #[arg(long, value_name = "ID")]
        subscription: Option<String>,
        /// The location of its cluster [default: searched among those of the clusters]
        #[arg(long, value_name = "NAME")]
        location: Option<String>,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Flags of `--wait`.
#[derive(Debug, Clone, Args)]
pub struct Wait {
    /// Show progress and wait until it finishes; fails unless it succeeds
    #[arg(short, long)]
    wait: bool,
    /// Longest wait, such as 30m; the operation continues after it
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<TimeSpan>,
}

impl Wait {
    /// Whether `--wait` was given.
    pub(super) fn is_set(&self) -> bool {
        self.wait
    }
}

/// The user interrupted the wait.
#[derive(Debug, thiserror::Error)]
#[error(
    "stopped waiting; operation {operation} continues, run `shipshape operation show {operation} --wait` to follow it"
)]
pub struct Interrupted {
    operation: Uuid,
}

/// Runs the command.
pub async fn run(command: &OperationCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let OperationCommand::Show { operation, subscription, location, wait, output, connect } = command;
    let client = invocation.client(connect)?;
    let (started, status) = find(&client, operation, subscription.as_deref(), location.as_deref()).await?;
    if !wait.wait {
        return output.print(invocation, &status);
    }
    let finished = follow(&client, &started, &short(started.id), wait.timeout).await?;
    output.print(invocation, &finished)?;
    check_succeeded(&finished, "the operation").map(drop)
}

/// Reports the id of a started operation, and waits for it with `--wait`.
pub(super) async fn report_started(
    client: &Client,
    invocation: &Invocation<'_>,
    operation: &OperationHandle,
    cluster: &str,
    verb: &str,
    wait: &Wait,
) -> anyhow::Result<()> {
    let id = operation.id;
    if !wait.wait {
        output::note(&format!(
            "operation {id} started; run `shipshape operation show {id} --wait` to follow it"
        ));
        return Ok(());
    }
    let started_at = invocation.now();
    let finished = follow(client, operation, cluster, wait.timeout).await?;
    check_succeeded(&finished, &format!("the {verb} of cluster {cluster}"))?;
    let duration_text = super::age::span_text(invocation.now().duration_since(started_at).unsigned_abs());
    output::note(&format!("{cluster}  {verb} succeeded in {duration_text}"));
    Ok(())
}

/// Finds an operation and its status.
async fn find(
    client: &Client,
    text: &str,
    subscription: Option<&str>,
    location: Option<&str>,
) -> anyhow::Result<(OperationHandle, OperationStatus)> {
    let text = text.strip_prefix("operation/").unwrap_or(text);
    let id = text.trim_end_matches('/').rsplit('/').next().unwrap_or(text);
    let Ok(id) = Uuid::parse_str(id) else {
        bail!(
            "{text:?} is not the id of an operation; commands that start an operation print it, such as `shipshape cluster update`"
        );
    };
    for (subscription, location) in candidate_locations(client, text, subscription, location).await? {
        let started = OperationHandle::new(&subscription, &location, id);
        match client.poll_operation(&started).await {
            Ok(poll) => return Ok((started, poll.status)),
            // Another subscription or location.
            Err(error) if error.status().is_some_and(|it| matches!(it.as_u16(), 400 | 404)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!(
        "operation {id} not found in the subscriptions of the clusters; it may have been removed a week after it finished, or pass --subscription and --location"
    )
}

/// Subscriptions and locations to search: from the flags, else from the path, else those of all clusters.
async fn candidate_locations(
    client: &Client,
    text: &str,
    subscription: Option<&str>,
    location: Option<&str>,
) -> anyhow::Result<Vec<(String, String)>> {
    let segments: Vec<&str> = text.split('/').collect();
    let after = |segment: &str| {
        let at = segments.iter().position(|it| it.eq_ignore_ascii_case(segment))?;
        segments.get(at + 1).copied()
    };
    let subscription = subscription.or_else(|| after("subscriptions"));
    let location = location.or_else(|| after("locations"));
    if let (Some(subscription), Some(location)) = (subscription, location) {
        return Ok(vec![(subscription.to_owned(), location.to_owned())]);
    }
    let mut candidate_locations =
        vec![(subscription.unwrap_or(SUBSCRIPTION).to_owned(), location.unwrap_or(LOCATION).to_owned())];
    for cluster in client.clusters().all().await? {
        let own_subscription = cluster.id.split('/').nth(2).unwrap_or_default();
        let location = (
            subscription.unwrap_or(own_subscription).to_owned(),
            location.unwrap_or(&cluster.location).to_owned(),
        );
        if !candidate_locations.contains(&location) {
            candidate_locations.push(location);
        }
    }
    Ok(candidate_locations)
}

/// Shows the progress of an operation until it finishes or the user interrupts.
async fn follow(
    client: &Client,
    operation: &OperationHandle,
    cluster: &str,
    timeout: Option<TimeSpan>,
) -> anyhow::Result<OperationStatus> {
    let progress = Progress::in_percent(cluster);
    tokio::select! {
        finished = wait_until_finished(client, operation, &progress, timeout) => finished,
        // The operation continues on the server.
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot listen for signals")?;
            Err(Interrupted { operation: operation.id }.into())
        }
    }
}

async fn wait_until_finished(
    client: &Client,
    operation: &OperationHandle,
    progress: &Progress,
    timeout: Option<TimeSpan>,
) -> anyhow::Result<OperationStatus> {
    let limit = timeout.map(|timeout| Instant::now() + timeout.duration());
    let mut step = String::new();
    let mut outage = Outage::default();
    loop {
        let mut pause = POLL_INTERVAL;
        match client.poll_operation(operation).await {
            Ok(poll) => {
                outage.end(progress);
                if let Some(now) = &poll.status.properties {
                    if !now.step.is_empty() && now.step != step {
                        step.clone_from(&now.step);
                        progress.line(&format!("step {step} started, {}% done", now.percent));
                    }
                    progress.percent(now.percent);
                    progress.show(&progress_text(&step, &now.message));
                }
                match poll.retry_after {
                    Some(retry_after) => pause = pause.min(retry_after.max(Duration::from_millis(100))),
                    None => return Ok(poll.status),
                }
            }
            Err(error) => outage.tolerate(error, progress)?,
        }
        if limit.is_some_and(|limit| Instant::now() + pause > limit) {
            bail!(
                "operation {id} did not finish within the timeout and continues; run `shipshape operation show {id} --wait` to follow it",
                id = operation.id
            );
        }
        tokio::time::sleep(pause).await;
    }
}

fn progress_text(step: &str, message: &str) -> String {
    match (step.is_empty(), message.is_empty()) {
        (true, _) => "queued".to_owned(),
        (false, true) => step.to_owned(),
        (false, false) => format!("{step}: {message}"),
    }
}

/// Fails unless the operation succeeded.
fn check_succeeded(finished: &OperationStatus, what: &str) -> anyhow::Result<()> {
    if finished.status.eq_ignore_ascii_case("succeeded") {
        return Ok(());
    }
    match &finished.error {
        None => bail!("{what} finished as {}", finished.status),
        Some(error) => bail!("{what} failed: {}", reason(error)),
    }
}

/// Message and code of an operation error and of its details.
pub(super) fn reason(error: &api::doc::OperationError) -> String {
    let message = error.message.trim_end_matches('.');
    let target = error.target.as_deref().filter(|target| !message.contains(target));
    let mut text = match target {
        Some(target) => format!("{message} ({}, {target})", error.code),
        None => format!("{message} ({})", error.code),
    };
    for detail in &error.details {
        text += &format!("; {}", reason(detail));
    }
    text
}

fn short(id: Uuid) -> String {
    id.to_string().chars().take(8).collect()
}

impl Printable for OperationStatus {
    const KIND: &'static str = "operation";
    const COLUMNS: &'static [Column] = &[
        Column("ID", Width::Always),
        Column("STATUS", Width::Always),
        Column("STEP", Width::Always),
        Column("DONE", Width::Always),
        Column("MESSAGE", Width::Wide),
        Column("AGE", Width::Always),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let progress = self.properties.clone().unwrap_or_default();
        vec![
            self.name.clone(),
            self.status.clone(),
            progress.step,
            if self.properties.is_some() { format!("{}%", progress.percent) } else { String::new() },
            progress.message,
            view.optional_time(self.start_time.parse().ok()),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let time =
            |text: &str| text.parse::<Timestamp>().map_or(text.to_owned(), |time| with_age(time, view.now));
        let progress = self.properties.as_ref();
        vec![
            ("ID", self.name.clone()),
            ("Status", self.status.clone()),
            ("Step", progress.map(|it| it.step.clone()).unwrap_or_default()),
            ("Done", progress.map(|it| format!("{}%", it.percent)).unwrap_or_default()),
            ("Message", progress.map(|it| it.message.clone()).unwrap_or_default()),
            ("Started", time(&self.start_time)),
            ("Finished", self.end_time.as_deref().map(time).unwrap_or_default()),
            ("Error", self.error.as_ref().map(reason).unwrap_or_default()),
            ("Path", self.id.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: &str, error: Option<serde_json::Value>) -> OperationStatus {
        serde_json::from_value(serde_json::json!({
            "id": "/x", "name": "n", "status": status, "startTime": "2026-01-01T00:00:00Z", "error": error,
        }))
        .unwrap()
    }

    #[test]
    fn only_a_succeeded_operation_passes_and_a_failed_one_reports_its_errors() {
        assert!(check_succeeded(&ended("Succeeded", None), "it").is_ok());
        let error = serde_json::json!({
            "code": "InvalidLinkedVNet", "message": "The network was not found.", "target": "properties.masterProfile.subnetId",
            "details": [{ "code": "NotFound", "message": "v" }],
        });
        let message = check_succeeded(&ended("Failed", Some(error)), "the create of cluster a")
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "the create of cluster a failed: The network was not found (InvalidLinkedVNet, properties.masterProfile.subnetId); v (NotFound)"
        );
    }

    #[test]
    fn progress_names_the_step_and_its_message() {
        assert_eq!(progress_text("", "x"), "queued");
        assert_eq!(progress_text("ensure-network", ""), "ensure-network");
        assert_eq!(progress_text("nodes-ready", "2 of 3 masters ready"), "nodes-ready: 2 of 3 masters ready");
    }
}
