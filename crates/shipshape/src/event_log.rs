//! What happens, while `up` runs: a line for each thing, on standard output. Whoever wants to know more asks; whoever wants less sends
//! it away.

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

/// What is listened to. Operations are told of by their clusters, tasks change when somebody changes them.
const TOPICS: [Topic; 3] = [Topic::Clusters, Topic::Manifests, Topic::Schedules];

/// A stream that could not be begun is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// The rest of a long sentence is for `shipshape manifest show`.
const SENTENCE_MAX: usize = 160;

/// Tells what happens until the end.
pub(crate) async fn run(client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let telling = async {
        let mut known = Known::default();
        loop {
            if let Err(error) = follow(&client, &mut known).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "What happens is not heard: {error}"
                );
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    shutdown.run_until_cancelled(telling).await;
    Ok(())
}

async fn follow(client: &Client, known: &mut Known) -> Result<(), ClientError> {
    let mut events = client.events(&TOPICS, None);
    // What is there already is not told: only what becomes of it.
    for cluster in client.clusters().all().await? {
        known.cluster(&cluster, Timestamp::MIN);
    }
    while let Some(event) = events.next().await {
        let now = SystemClock.now();
        if let Some(line) = known.line(&event?, now) {
            // Standard output may be gone; that is no reason to stop.
            let _ = output::show(&format!("{}  {line}\n", now.strftime("%H:%M:%S")));
        }
    }
    Ok(())
}

/// What was told already.
#[derive(Debug, Default)]
struct Known {
    clusters: HashMap<Uuid, (String, ProvisioningState)>,
    manifests: HashMap<Uuid, (WorkState, Phase, String)>,
    schedules: HashMap<String, String>,
}

impl Known {
    /// What is to be said of an event; mostly nothing.
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
        line.map(|line| tame(&line))
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
                format!("is ready{}", after(cluster.properties.created_at, now))
            }
            ProvisioningState::Succeeded if cluster.properties.imported => "is looked after".to_owned(),
            ProvisioningState::Succeeded => "is as it should be".to_owned(),
            ProvisioningState::Creating => format!("is being made in {}", cluster.location),
            ProvisioningState::Updating | ProvisioningState::AdminUpdating => "is being changed".to_owned(),
            ProvisioningState::Deleting => "is being removed".to_owned(),
            ProvisioningState::Failed => {
                format!("failed; `shipshape cluster show {}` tells why", cluster.name)
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
            // What is for later is in the plan.
            Phase::Queued if form.reason.is_empty() => return None,
            Phase::Queued | Phase::Waiting => format!("waits: {}", form.status_text),
            // Between two steps it is no other than before.
            Phase::Running if before.is_some_and(|(_, phase, _)| phase == Phase::Running) => return None,
            Phase::Running => "begins".to_owned(),
            Phase::Cancelling => "is called off".to_owned(),
            Phase::Undoing => "is taken back".to_owned(),
            Phase::Finished => {
                let took = form.started_at.map(|begun| after(begun, form.finished_at.unwrap_or(now)));
                let said = match form.state {
                    WorkState::Completed => String::new(),
                    _ if form.status_text.is_empty() => String::new(),
                    _ => format!(": {}", form.status_text),
                };
                format!("{}{}{said}", form.state.as_str(), took.unwrap_or_default())
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
                let known = uuid.and_then(|uuid| self.clusters.remove(&uuid)).map(|(name, _)| name);
                // Mostly it is told by its path.
                let name = known.as_deref().or(id.rsplit('/').next()).unwrap_or(id);
                Some(format!("cluster {name}  is gone"))
            }
            "schedule" => {
                self.schedules.remove(id);
                Some(format!("schedule {id}  is gone"))
            }
            _ => {
                uuid.and_then(|uuid| self.manifests.remove(&uuid));
                None
            }
        }
    }
}

/// The part of an id by which commands find the whole. Ids of one second begin alike; their ends do not, but nothing finds them by that.
fn short(id: &str) -> &str {
    id.get(..18).unwrap_or(id)
}

fn after(begun: Timestamp, ended: Timestamp) -> String {
    let seconds = ended.duration_since(begun).as_secs();
    if seconds < 0 { String::new() } else { format!(" after {seconds} s") }
}

/// Names and messages come from elsewhere: a terminal must not obey them, nor be filled by them.
fn tame(line: &str) -> String {
    let line = line.replace(char::is_control, "\u{FFFD}");
    match line.char_indices().nth(SENTENCE_MAX) {
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

    fn told(events: &[Event]) -> Vec<String> {
        let mut known = Known::default();
        let now = "2026-01-01T00:00:09Z".parse().unwrap();
        events.iter().filter_map(|event| known.line(event, now)).collect()
    }

    #[test]
    fn each_thing_that_happens_to_a_manifest_is_one_line() {
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
            "waits: nobody is there",
            "begins",
            "waits: no answer",
            "begins",
            "Failed after 7 s: two\u{FFFD}lines",
        ]
        .map(|it| format!("{about}  {it}"));
        assert_eq!(told(&events), expect);
    }

    #[test]
    fn a_cluster_is_told_of_when_its_state_changes_and_its_name_is_not_obeyed() {
        let events = [cluster("Creating"), cluster("Creating"), cluster("Succeeded"), cluster("Deleting")];
        let about = "cluster web\u{FFFD}[31m";
        let expect = ["is being made in eastus", "is ready after 9 s", "is being removed"]
            .map(|it| format!("{about}  {it}"));
        assert_eq!(told(&events), expect);
    }

    #[test]
    fn a_cluster_that_is_gone_is_told_by_its_name() {
        let gone = |id: &str| Event {
            id: String::new(),
            change: Change::Deleted { topic: "cluster".to_owned(), id: id.to_owned() },
            data: Value::Null,
        };
        let uuid = "01890000-0000-7000-8000-000000000003";
        let events = [cluster("Deleting"), gone(uuid), gone("/subscriptions/s/resourcegroups/g/x/y/harbour")];
        assert_eq!(told(&events)[1..], ["cluster web\u{FFFD}[31m  is gone", "cluster harbour  is gone"]);
    }

    #[test]
    fn a_long_sentence_is_cut() {
        let lines = told(&[manifest("waiting", "Pending", "x", &"a".repeat(500))]);
        assert_eq!(lines[0].chars().count(), SENTENCE_MAX + 1);
    }
}
