//! The event log of `up` on standard output: one line for each change of a cluster, manifest or
//! schedule.

use std::collections::HashMap;
use std::time::Duration;

use api::admin::{AdminCluster, ManifestForm, Phase};
use api::clock::{Clock as _, SystemClock};
use api::doc::ProvisioningState;
use api::work::WorkState;
use client::{Change, Client, ClientError, Event, Topic};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use cli::output;

/// Followed topics. Operations are visible in the states of their clusters.
const TOPICS: [Topic; 3] = [Topic::Clusters, Topic::Manifests, Topic::Schedules];

/// Delay before a failed stream is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(5);

/// Longest line; `shipshape manifest show` has the whole message.
const LINE_MAX: usize = 160;

/// Writes the event log until `shutdown`.
pub(crate) async fn run(client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let following = async {
        let mut reported = ReportedStates::default();
        loop {
            if let Err(error) = follow(&client, &mut reported).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "The event stream failed: {error}");
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    };
    shutdown.run_until_cancelled(following).await;
    Ok(())
}

async fn follow(client: &Client, reported: &mut ReportedStates) -> Result<(), ClientError> {
    let mut events = client.events(&TOPICS, None);
    // Existing clusters are not reported, only their changes.
    for cluster in client.clusters().all().await? {
        reported.cluster(&cluster, Timestamp::MIN);
    }
    while let Some(event) = events.next().await {
        let now = SystemClock.now();
        if let Some(line) = reported.line(&event?, now) {
            // A closed standard output does not stop the process.
            let _ = output::show(&format!("{}  {line}\n", now.strftime("%H:%M:%S")));
        }
    }
    Ok(())
}

/// The states that were reported last.
#[derive(Debug, Default)]
struct ReportedStates {
    clusters: HashMap<Uuid, (String, ProvisioningState)>,
    manifests: HashMap<Uuid, (WorkState, Phase, String)>,
    schedules: HashMap<String, String>,
}

impl ReportedStates {
    /// The line of an event, if it is a change.
    fn line(&mut self, event: &Event, now: Timestamp) -> Option<String> {
        let line = match &event.change {
            Change::Cluster(cluster) => self.cluster(cluster, now),
            Change::Manifest(manifest) => self.manifest(manifest, now),
            Change::Schedule(schedule) => {
                let before = self.schedules.insert(schedule.id.clone(), schedule.state.clone());
                let changed = before.as_ref() != Some(&schedule.state);
                changed.then(|| format!("schedule {}  {}", schedule.id, schedule.state.to_lowercase()))
            }
            Change::Deleted { topic, id } => self.deleted(topic, id),
            Change::Task(_) | Change::Other(_) | Change::Relist | Change::Interrupted { .. } => None,
        };
        line.map(|line| sanitize(&line))
    }

    fn cluster(&mut self, cluster: &AdminCluster, now: Timestamp) -> Option<String> {
        let state = cluster.properties.provisioning_state;
        let before = self.clusters.insert(cluster.properties.uuid, (cluster.name.clone(), state));
        let before = before.map(|(_, state)| state);
        if before == Some(state) {
            return None;
        }
        let what = match state {
            ProvisioningState::Succeeded if before == Some(ProvisioningState::Creating) => {
                format!("ready{}", after(cluster.properties.created_at, now))
            }
            ProvisioningState::Succeeded if cluster.properties.imported => "imported".to_owned(),
            ProvisioningState::Succeeded => "updated".to_owned(),
            ProvisioningState::Creating => format!("creating in {}", cluster.location),
            ProvisioningState::Updating | ProvisioningState::AdminUpdating => "updating".to_owned(),
            ProvisioningState::Deleting => "deleting".to_owned(),
            ProvisioningState::Failed => {
                format!("failed; run `shipshape cluster show {}` for the error", cluster.name)
            }
        };
        Some(format!("cluster {}  {what}", cluster.name))
    }

    fn manifest(&mut self, form: &ManifestForm, now: Timestamp) -> Option<String> {
        let state = (form.state, form.phase, form.reason.clone());
        let before = match form.phase {
            Phase::Finished => self.manifests.remove(&form.id),
            _ => self.manifests.insert(form.id, state.clone()),
        };
        if before.as_ref() == Some(&state) {
            return None;
        }
        let what = match form.phase {
            // `shipshape plan` shows future work.
            Phase::Queued if form.reason.is_empty() => return None,
            Phase::Queued | Phase::Waiting => format!("waiting: {}", form.status_text),
            // The next step of a running manifest is not reported.
            Phase::Running if before.is_some_and(|(_, phase, _)| phase == Phase::Running) => return None,
            Phase::Running => "started".to_owned(),
            Phase::Cancelling => "cancelling".to_owned(),
            Phase::Undoing => "undoing".to_owned(),
            Phase::Finished => {
                let duration = form.started_at.map(|started| after(started, form.finished_at.unwrap_or(now)));
                let message = match form.state {
                    WorkState::Completed => String::new(),
                    _ if form.status_text.is_empty() => String::new(),
                    _ => format!(": {}", form.status_text),
                };
                format!("{}{}{message}", form.state.as_str(), duration.unwrap_or_default())
            }
        };
        let cluster = form.cluster_resource_id.as_deref().unwrap_or_default();
        let cluster = cluster.rsplit('/').next().unwrap_or_default();
        let id = form.id.to_string();
        Some(format!("manifest {}  {} on {cluster}  {what}", short(&id), form.task_name))
    }

    fn deleted(&mut self, topic: &str, id: &str) -> Option<String> {
        let uuid = Uuid::parse_str(id).ok();
        match topic {
            "cluster" => {
                let reported = uuid.and_then(|uuid| self.clusters.remove(&uuid)).map(|(name, _)| name);
                // Usually identified by its path.
                let name = reported.as_deref().or(id.rsplit('/').next()).unwrap_or(id);
                Some(format!("cluster {name}  deleted"))
            }
            "schedule" => {
                self.schedules.remove(id);
                Some(format!("schedule {id}  deleted"))
            }
            _ => {
                uuid.and_then(|uuid| self.manifests.remove(&uuid));
                None
            }
        }
    }
}

/// A prefix of an id that commands accept. Ids of the same second share their first characters.
fn short(id: &str) -> &str {
    id.get(..18).unwrap_or(id)
}

fn after(start: Timestamp, end: Timestamp) -> String {
    let seconds = end.duration_since(start).as_secs();
    if seconds < 0 { String::new() } else { format!(" after {seconds} s") }
}

/// Replaces control characters and cuts long lines: names and messages are user input.
fn sanitize(line: &str) -> String {
    let line = line.replace(char::is_control, "\u{FFFD}");
    match line.char_indices().nth(LINE_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(phase: &str, state: &str, reason: &str, text: &str) -> Event {
        let form = json!({
            "id": "01890000-0000-7000-8000-000000000001", "clusterResourceID": "/subscriptions/s/x/web",
            "state": state, "statusText": text, "maintenanceTaskID": "01890000-0000-7000-8000-000000000002",
            "runAfter": 0, "runBefore": 1, "phase": phase, "reason": reason, "attempt": 1, "maxAttempts": 5,
            "createdAt": "2026-01-01T00:00:00Z", "createdBy": "me", "taskName": "rest",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:07Z",
        });
        let form: ManifestForm = serde_json::from_value(form).unwrap();
        Event { id: String::new(), change: Change::Manifest(Box::new(form)), data: Value::Null }
    }

    fn cluster(state: &str) -> Event {
        let form = json!({
            "id": "/subscriptions/s/x/web", "name": "web\u{1b}[31m", "type": "t", "location": "eastus",
            "properties": {
                "uuid": "01890000-0000-7000-8000-000000000003", "provisioningState": state,
                "createdAt": "2026-01-01T00:00:00Z",
            },
        });
        let form: AdminCluster = serde_json::from_value(form).unwrap();
        Event { id: String::new(), change: Change::Cluster(Box::new(form)), data: Value::Null }
    }

    fn lines(events: &[Event]) -> Vec<String> {
        let mut reported = ReportedStates::default();
        let now = "2026-01-01T00:00:09Z".parse().unwrap();
        events.iter().filter_map(|event| reported.line(event, now)).collect()
    }

    #[test]
    fn each_state_change_of_a_manifest_is_one_line() {
        let events = [
            manifest("queued", "Pending", "", ""),
            manifest("queued", "Pending", "Unreachable", "nobody is there"),
            manifest("running", "InProgress", "", ""),
            manifest("running", "InProgress", "", "the next step"),
            manifest("waiting", "Pending", "Unreachable", "no answer"),
            manifest("waiting", "Pending", "Unreachable", "no answer"),
            manifest("running", "InProgress", "", ""),
            manifest("finished", "Failed", "", "two\nlines"),
        ];
        let about = "manifest 01890000-0000-7000  rest on web";
        let expect = [
            "waiting: nobody is there",
            "started",
            "waiting: no answer",
            "started",
            "Failed after 7 s: two\u{FFFD}lines",
        ]
        .map(|it| format!("{about}  {it}"));
        assert_eq!(lines(&events), expect);
    }

    #[test]
    fn a_cluster_is_logged_when_its_state_changes_and_its_name_is_escaped() {
        let events = [cluster("Creating"), cluster("Creating"), cluster("Succeeded"), cluster("Deleting")];
        let about = "cluster web\u{FFFD}[31m";
        let expect = ["creating in eastus", "ready after 9 s", "deleting"].map(|it| format!("{about}  {it}"));
        assert_eq!(lines(&events), expect);
    }

    #[test]
    fn a_deleted_cluster_is_logged_by_its_name() {
        let gone = |id: &str| Event {
            id: String::new(),
            change: Change::Deleted { topic: "cluster".to_owned(), id: id.to_owned() },
            data: Value::Null,
        };
        let uuid = "01890000-0000-7000-8000-000000000003";
        let events = [cluster("Deleting"), gone(uuid), gone("/subscriptions/s/resourcegroups/g/x/y/harbour")];
        assert_eq!(lines(&events)[1..], ["cluster web\u{FFFD}[31m  deleted", "cluster harbour  deleted"]);
    }

    #[test]
    fn a_long_line_is_truncated() {
        let lines = lines(&[manifest("waiting", "Pending", "x", &"a".repeat(500))]);
        assert_eq!(lines[0].chars().count(), LINE_MAX + 1);
    }
}
