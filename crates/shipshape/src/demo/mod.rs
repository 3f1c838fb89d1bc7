//! `up --demo`: a demonstration. It creates clusters as a customer and tasks, schedules and manifests as an operator,
//! all through the APIs of the server; it stops machines in the simulated cloud.
//!
//! It repeats nothing: existing objects stay as they are, and objects that the user removed or changed are not created again. It gives up
//! on failing requests after a while, and never stops the server.

mod fleet;
mod record;
mod scenes;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::admin::AdminCluster;
use api::clock::SharedClock;
use api::doc::ProvisioningState;
use client::Client;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::Flag;
use cli::commands::{self, SimulatedCloud};
use fleet::{FIRST, LOCATIONS, Member, Scene, TEAMS};
use record::Record;

/// Default number of clusters.
pub(crate) const CLUSTERS: &str = "12";

/// Largest number of clusters.
pub(crate) const CLUSTERS_MAX: i64 = 500;

/// Pace of the simulated cloud: a cluster in a few seconds, slow enough to watch.
const PACE: &str = "0.002";

/// Longest delay between the creation of two clusters after the first ones.
const DELAY_MAX: Duration = Duration::from_secs(3);

/// All clusters are created within this time; with many clusters it shortens the delay between them.
const ALL_WITHIN: Duration = Duration::from_secs(20);

/// Largest number of clusters that are prepared concurrently.
const AT_ONCE: usize = 8;

/// Interval between checks whether clusters are ready.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Number of attempts of a failing request, and the delay between them.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(2);

/// Tasks of the demonstration.
const TASKS: [&str; 2] = [
    include_str!("../../../../examples/tasks/drain-node.yaml"),
    include_str!("../../../../examples/tasks/restart-when-steady.yaml"),
];

/// Default settings of `up` with a demonstration.
pub(crate) fn defaults() -> Vec<Flag> {
    let locations = toml::Value::from(LOCATIONS.to_vec()).to_string();
    vec![
        Flag::Default { key: "clusters.locations", value: locations },
        Flag::Default { key: "cloud.pace", value: PACE.to_owned() },
    ]
}

/// Whether a demonstration was started in this data directory: its clusters keep their locations.
pub(crate) fn was_started_in(data_dir: &Path) -> bool {
    record::is_in(data_dir)
}

/// A prepared demonstration.
pub(crate) struct Demo {
    stage: Arc<Stage>,
    count: u16,
}

/// Shared state of the demonstration.
struct Stage {
    client: Client,
    simulated: SimulatedCloud,
    record: Record,
    clock: SharedClock,
    /// The clusters as last read.
    seen: watch::Sender<HashMap<String, AdminCluster>>,
    /// The versions that can be installed.
    versions: Vec<String>,
    /// The ids of tasks, by name.
    tasks: HashMap<String, Uuid>,
}

impl Demo {
    /// Prepares a demonstration of `count` clusters. It reads from the server, which must be running.
    pub(crate) async fn prepare(
        count: u16,
        client: Client,
        simulated: SimulatedCloud,
        data_dir: &Path,
        clock: SharedClock,
    ) -> anyhow::Result<Demo> {
        let record = Record::open(data_dir)?;
        let (subscription, _) = TEAMS[0];
        let installable = client.installable_versions(subscription, LOCATIONS[1]).all().await?;
        let versions = installable.into_iter().map(|it| it.properties.version).collect();
        let stage = Stage {
            client,
            simulated,
            record,
            clock,
            seen: watch::Sender::new(HashMap::new()),
            versions,
            tasks: HashMap::new(),
        };
        Ok(Demo { stage: Arc::new(stage), count })
    }

    /// Runs the demonstration, then waits for `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let demonstration = async {
            if let Err(error) = self.execute().await {
                tracing::warn!(error = &*error, "The demonstration is not complete: {error:#}");
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(demonstration).await;
        Ok(())
    }

    async fn execute(self) -> anyhow::Result<()> {
        let Demo { mut stage, count } = self;
        let prepared = Arc::get_mut(&mut stage).context("the state is already shared")?;
        prepared.tasks = retry("tasks", || ensure_tasks(&prepared.client, &prepared.record)).await?;
        retry("subscriptions", || ensure_subscriptions(&stage)).await?;

        let mut tasks = JoinSet::new();
        tasks.spawn(poll_clusters(stage.clone()));
        tasks.spawn(create_schedules(stage.clone()));
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let followers = u32::from(count).saturating_sub(u32::try_from(FIRST)?).max(1);
        let delay = DELAY_MAX.min(ALL_WITHIN / followers);
        for member in fleet::fleet(count) {
            if member.number >= FIRST && !stage.record.has(&member.action()) {
                tokio::time::sleep(delay).await;
            }
            tasks.spawn(run_member(stage.clone(), permits.clone(), member));
        }
        // The poller never ends; all others do.
        while tasks.len() > 1 {
            if let Some(Err(error)) = tasks.join_next().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "A task of the demonstration failed: {error}"
                );
            }
        }
        Ok(())
    }
}

impl Member {
    /// Key of its creation in the record.
    fn action(&self) -> String {
        format!("cluster {}", self.place.name)
    }
}

/// Retries an action, logs its first error, and gives up in the end.
async fn retry<T, F>(what: &str, mut work: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut attempt = 1;
    loop {
        match work().await {
            Ok(done) => return Ok(done),
            Err(error) if attempt >= TRIES => return Err(error.context(what.to_owned())),
            Err(error) if attempt == 1 => {
                tracing::warn!(error = &*error, "Demonstration: retrying {what}: {error:#}");
            }
            Err(_) => {}
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Creates the schedules.
async fn create_schedules(stage: Arc<Stage>) {
    if let Err(error) = retry("schedules", || ensure_schedules(&stage)).await {
        tracing::warn!(error = &*error, "The demonstration continues without some schedules: {error:#}");
    }
}

/// Polls the clusters for all tasks of the demonstration.
async fn poll_clusters(stage: Arc<Stage>) {
    loop {
        match stage.client.clusters().all().await {
            Ok(clusters) => {
                let by_id = clusters.into_iter().map(|it| (it.id.to_lowercase(), it)).collect();
                stage.seen.send_replace(by_id);
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "The clusters could not be listed");
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Creates one cluster and runs its scene.
async fn run_member(stage: Arc<Stage>, permits: Arc<Semaphore>, member: Member) {
    let name = &member.place.name;
    let scene = async {
        {
            let _permit = permits.acquire().await?;
            retry(&format!("cluster {name}"), || ensure_cluster(&stage, &member)).await?;
        }
        let is_done = member.scene == Scene::Quiet || stage.record.has(&member.scene_key());
        if is_done || !retry(&format!("state of cluster {name}"), || ready(&stage, &member)).await? {
            return anyhow::Ok(());
        }
        retry(&format!("scene of cluster {name}"), || scenes::run(&stage, &member)).await?;
        stage.record.add(&member.scene_key())
    };
    if let Err(error) = scene.await {
        tracing::warn!(
            error = &*error,
            "The demonstration continues without the scene of cluster {name}: {error:#}"
        );
    }
}

impl Member {
    fn scene_key(&self) -> String {
        format!("scene of {}", self.place.name)
    }
}

/// Creates a cluster, unless the record has it.
async fn ensure_cluster(stage: &Stage, member: &Member) -> anyhow::Result<()> {
    if stage.record.has(&member.action()) {
        return Ok(());
    }
    let id = member.place.id();
    let exists = match stage.client.cluster(&id).await {
        Ok(_) => true,
        Err(error) if error.is_not_found() => false,
        Err(error) => return Err(error.into()),
    };
    if !exists {
        let version = stage.versions.get(member.number % stage.versions.len().max(1)).cloned();
        let tags = BTreeMap::from([("team".to_owned(), member.labels["team"].clone())]);
        commands::create_simulated(&stage.client, &stage.simulated, &member.place, version, tags).await?;
    }
    stage.client.label_cluster(&id, &member.labels, None).await?;
    stage.record.add(&member.action())
}

/// Waits until a cluster is ready; returns whether it is.
async fn ready(stage: &Stage, member: &Member) -> anyhow::Result<bool> {
    match stage.client.cluster(&member.place.id()).await {
        // The user removed it.
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let id = member.place.id().to_lowercase();
    let mut seen = stage.seen.subscribe();
    let terminal = seen.wait_for(|clusters| {
        clusters.get(&id).is_some_and(|it| it.properties.provisioning_state.is_terminal())
    });
    let clusters = terminal.await?;
    let state = clusters.get(&id).map(|it| it.properties.provisioning_state);
    Ok(state == Some(ProvisioningState::Succeeded))
}

/// Creates the tasks of the demonstration; returns the ids of all tasks by name.
async fn ensure_tasks(client: &Client, record: &Record) -> anyhow::Result<HashMap<String, Uuid>> {
    let tasks_by_name = async || -> anyhow::Result<HashMap<String, Uuid>> {
        let tasks = client.tasks().all().await?;
        Ok(tasks.into_iter().filter_map(|it| Some((it.name, it.id?))).collect())
    };
    let present = tasks_by_name().await?;
    for text in TASKS {
        let task: Value = serde_saphyr::from_str(text).context("task of the demonstration")?;
        let name = task["name"].as_str().unwrap_or_default();
        let action = format!("task {name}");
        if !present.contains_key(name) && !record.has(&action) {
            client.put_task(Uuid::now_v7(), &task, None).await.with_context(|| action.clone())?;
        }
        record.add(&action)?;
    }
    tasks_by_name().await
}

/// Creates three schedules: every five minutes, every night and every week.
async fn ensure_schedules(stage: &Stage) -> anyhow::Result<()> {
    let selector = |label: &str, value: &str| json!([{ "key": format!("label.{label}"), "operator": "eq", "value": value }]);
    let schedules = [
        json!({
            "id": "health-of-canaries", "task": "cluster-health", "schedule": "*:0/5", "lookForwardCount": 3,
            "startWithin": "4m", "selectors": selector("ring", "canary"),
        }),
        json!({
            "id": "restart-web-at-night", "task": "restart-when-steady", "schedule": "*-*-* 02:00",
            "timeZone": "Europe/Amsterdam", "scheduleAcross": "2h", "startWithin": "4h", "lookForwardCount": 2,
            "selectors": selector("env", "prod"),
        }),
        json!({
            "id": "certificates-on-sundays", "task": "rotate-certificates", "schedule": "Sun *-*-* 03:00",
            "scheduleAcross": "6h", "startWithin": "12h", "lookForwardCount": 1, "selectors": selector("fleet", "demo"),
        }),
    ];
    for mut schedule in schedules {
        let id = schedule["id"].as_str().unwrap_or_default().to_owned();
        let action = format!("schedule {id}");
        if stage.record.has(&action) {
            continue;
        }
        let task = schedule["task"].as_str().unwrap_or_default().to_owned();
        let Some(task_id) = stage.tasks.get(&task) else { bail!("task {task} not found") };
        if let Some(members) = schedule.as_object_mut() {
            members.remove("task");
            members.insert("maintenanceTaskID".to_owned(), json!(task_id));
            members.insert("state".to_owned(), json!("Enabled"));
        }
        match stage.client.schedule(&id).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                stage.client.put_schedule(&schedule, None).await.with_context(|| action.clone())?;
            }
            Err(error) => return Err(error.into()),
        }
        stage.record.add(&action)?;
    }
    Ok(())
}

/// Registers the subscriptions of the teams, as the resource manager would.
async fn ensure_subscriptions(stage: &Stage) -> anyhow::Result<()> {
    for (subscription, team) in TEAMS {
        let action = format!("subscription {team}");
        if !stage.record.has(&action) {
            stage.client.set_subscription(subscription, "Registered").await?;
            stage.record.add(&action)?;
        }
    }
    Ok(())
}
