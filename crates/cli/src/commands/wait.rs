//! `--wait` for manifests: progress and result.

use std::time::Duration;

use anyhow::bail;
use api::admin::{Entry, EntryEvent, ManifestForm, Phase};
use api::duration::TimeSpan;
use api::work::WorkState;
use client::Client;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Invocation;
use super::age::{age, duration_text};
use super::find::last_segment;
use super::outage::Outage;
use super::print::Output;
use super::progress::Progress;
use crate::output;

/// Interval between two requests.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Waits until each manifest finishes; fails unless all are Completed.
pub(super) async fn for_all(
    client: &Client,
    invocation: &Invocation<'_>,
    manifests: &[ManifestForm],
    timeout: Option<TimeSpan>,
    form: Output,
) -> anyhow::Result<()> {
    let limit = timeout.map(|timeout| Instant::now() + timeout.duration());
    let mut failed = Vec::new();
    for manifest in manifests {
        let finished = until_finished(client, invocation, manifest, limit).await?;
        if form.is_human() {
            output::show(&format!("manifest/{} {}\n", finished.id, outcome_text(&finished)))?;
        } else {
            form.print(invocation, &finished)?;
        }
        if finished.state != WorkState::Completed {
            failed.push(format!("manifest {} finished as {}", finished.id, outcome_text(&finished)));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{}", failed.join("; ")),
    }
}

/// Waits until a manifest finishes after a cancel request; fails unless it is Cancelled.
pub(super) async fn until_cancelled(
    client: &Client,
    invocation: &Invocation<'_>,
    manifest: &ManifestForm,
    form: Output,
) -> anyhow::Result<()> {
    let finished = until_finished(client, invocation, manifest, None).await?;
    if form.is_human() {
        output::show(&format!("manifest/{} {}\n", finished.id, outcome_text(&finished)))?;
    }
    match finished.state {
        WorkState::Cancelled => Ok(()),
        _ => bail!(
            "manifest {} could not be cancelled: it finished as {}",
            finished.id,
            outcome_text(&finished)
        ),
    }
}

async fn until_finished(
    client: &Client,
    invocation: &Invocation<'_>,
    manifest: &ManifestForm,
    limit: Option<Instant>,
) -> anyhow::Result<ManifestForm> {
    let cluster = manifest.cluster_resource_id.clone().unwrap_or_default();
    let progress = Progress::new(last_segment(&cluster));
    let mut printed = 0;
    let mut known: Option<ManifestForm> = None;
    let mut outage = Outage::default();
    loop {
        match read(client, &cluster, manifest, known.as_ref(), printed).await {
            Ok((mut form, entries)) => {
                outage.end(&progress);
                printed += entries.len();
                entries.iter().filter_map(line).for_each(|text| progress.line(&text));
                progress.show(&status(&form, invocation.now()));
                if form.state.is_terminal() {
                    form.cluster_resource_id = Some(cluster);
                    return Ok(form);
                }
                known = Some(form);
            }
            Err(error) => outage.tolerate(error, &progress)?,
        }
        if limit.is_some_and(|limit| Instant::now() >= limit) {
            bail!(
                "manifest {} did not finish within the timeout and continues; run `shipshape manifest show {}` or `shipshape why {}` to see its state",
                manifest.id,
                manifest.id,
                manifest.id
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads the manifest and the entries of its history after the first `printed`.
async fn read(
    client: &Client,
    cluster: &str,
    manifest: &ManifestForm,
    known: Option<&ManifestForm>,
    printed: usize,
) -> Result<(ManifestForm, Vec<Entry>), client::ClientError> {
    let form = client.manifest(cluster, manifest.id).await?.value;
    if known == Some(&form) {
        return Ok((form, Vec::new()));
    }
    let entries = client.history(cluster, manifest.id).all().await?;
    Ok((form, entries.into_iter().skip(printed).collect()))
}

/// Status for the progress line.
fn status(form: &ManifestForm, now: Timestamp) -> String {
    let step = form.step.as_ref().map(|step| {
        let message = if step.message.is_empty() { String::new() } else { format!(": {}", step.message) };
        format!("step {} of {}, {}{message} ({})", step.index, step.of, step.name, age(step.since, now))
    });
    match form.phase {
        Phase::Queued => match form.status_text.is_empty() {
            true => format!("queued, due {}", due(form, now)),
            false => format!("queued: {}", form.status_text),
        },
        Phase::Waiting => format!("waiting: {}", form.status_text),
        Phase::Running => step.unwrap_or_else(|| "running".to_owned()),
        Phase::Cancelling => format!("cancelling; {}", step.unwrap_or_default()),
        Phase::Undoing => format!("undoing; {}", step.unwrap_or_default()),
        Phase::Finished => form.state.as_str().to_owned(),
    }
}

fn due(form: &ManifestForm, now: Timestamp) -> String {
    match Timestamp::from_second(form.run_after) {
        Ok(time) if time > now => age(time, now),
        _ => "now".to_owned(),
    }
}

/// Result with duration and message.
fn outcome_text(form: &ManifestForm) -> String {
    let state = form.state.as_str();
    let duration_text = match (form.started_at, form.finished_at) {
        (Some(start), Some(end)) => {
            let span = end.duration_since(start).unsigned_abs();
            format!(" in {}", duration_text(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
        }
        _ => String::new(),
    };
    match form.status_text.is_empty() {
        true => format!("{state}{duration_text}"),
        false => format!("{state}{duration_text}: {}", form.status_text),
    }
}

/// An entry of the history as one line; `None` for entries that the command itself reports.
fn line(entry: &Entry) -> Option<String> {
    let step = entry.step.as_deref().unwrap_or("?");
    let message = entry.message.as_deref().and_then(|it| it.lines().next()).unwrap_or_default();
    let with = |text: String| if message.is_empty() { text } else { format!("{text}: {message}") };
    let duration_text = entry.duration_ms.map(|it| format!(" in {}", duration_text(it))).unwrap_or_default();
    let text = match &entry.event {
        EntryEvent::Created | EntryEvent::Finished => return None,
        EntryEvent::Claimed => format!("attempt {} started", entry.attempt),
        EntryEvent::StepStarted => format!("step {step} started"),
        EntryEvent::StepFinished => with(format!("step {step} done{duration_text}")),
        EntryEvent::StepFailed => with(format!("step {step} failed{duration_text}")),
        EntryEvent::Retried => with("retrying".to_owned()),
        EntryEvent::Yielded => with("released".to_owned()),
        EntryEvent::TakenOver => with("taken over from a lost worker".to_owned()),
        EntryEvent::CancelRequested => with(format!("cancel requested by {}", entry.actor)),
        EntryEvent::Undone => with(format!("step {step} undone")),
        EntryEvent::Expedited => with(format!("expedited by {}", entry.actor)),
        EntryEvent::Revived => with("scheduled again".to_owned()),
        EntryEvent::Other(name) => with(name.clone()),
    };
    Some(format!("{}  {text}", entry.time.strftime("%H:%M:%S")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: EntryEvent) -> Entry {
        let mut entry = Entry::new("2026-01-01T04:05:06Z".parse().unwrap(), event, "me", 2);
        entry.step = Some("drain".into());
        entry
    }

    #[test]
    fn an_entry_is_one_line() {
        assert_eq!(line(&entry(EntryEvent::StepStarted)).unwrap(), "04:05:06  step drain started");
        let mut failed = entry(EntryEvent::StepFailed);
        failed.message = Some("no\nspace".to_owned());
        failed.duration_ms = Some(1_250);
        assert_eq!(line(&failed).unwrap(), "04:05:06  step drain failed in 1.2s: no");
        assert_eq!(line(&entry(EntryEvent::Claimed)).unwrap(), "04:05:06  attempt 2 started");
        assert_eq!(line(&entry(EntryEvent::Created)), None);
        assert_eq!(line(&entry(EntryEvent::Other("hibernated".to_owned()))).unwrap(), "04:05:06  hibernated");
    }

    #[test]
    fn the_status_names_the_step_and_its_message() {
        let form: ManifestForm = serde_json::from_value(serde_json::json!({
            "id": uuid::Uuid::nil(), "state": "InProgress", "statusText": "", "maintenanceTaskID": uuid::Uuid::nil(),
            "runAfter": 0, "runBefore": 0, "phase": "running", "attempt": 1, "maxAttempts": 5,
            "createdAt": "2026-01-01T00:00:00Z", "createdBy": "me",
            "step": { "name": "drain", "index": 2, "of": 3, "since": "2026-01-01T00:00:00Z", "message": "web-1 is still there" },
        }))
        .unwrap();
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        assert_eq!(status(&form, now), "step 2 of 3, drain: web-1 is still there (30s)");
        let mut queued = form.clone();
        queued.phase = Phase::Queued;
        queued.run_after = 1_767_225_660;
        assert_eq!(status(&queued, now), "queued, due in 30s");
        let mut ended = form;
        ended.state = WorkState::Failed;
        ended.status_text = "no such node".to_owned();
        ended.started_at = Some("2026-01-01T00:00:00Z".parse().unwrap());
        ended.finished_at = Some("2026-01-01T00:00:12Z".parse().unwrap());
        assert_eq!(outcome_text(&ended), "Failed in 12.0s: no such node");
    }
}
