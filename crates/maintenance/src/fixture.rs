//! Fixtures for tests: scripted tasks, clusters and manifests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::doc::{Cluster, Manifest, ProvisioningState};
use jiff::{SignedDuration, Timestamp};
use steps::engine::{Plan, StepError};
use uuid::Uuid;

use crate::actuator::{Assignment, ClusterProbe, PreparedTask, Tasks};

/// Builds the plan of a manifest.
pub type Script<C> = Box<dyn Fn(Assignment<'_>) -> Result<Plan<C>, StepError> + Send + Sync>;
/// Result of probing a cluster.
pub type ProbeScript = Box<dyn Fn(Uuid) -> Result<ClusterProbe, StepError> + Send + Sync>;

/// Tasks whose plans a script builds, on clusters that do not exist.
pub struct ScriptedTasks<C> {
    /// Context of all steps.
    pub context: Arc<C>,
    /// Builds the plan of a manifest.
    pub script: Script<C>,
    /// Result of probing a cluster.
    pub probe: ProbeScript,
    /// Duration of probing a cluster.
    pub probe_duration: Box<dyn Fn(Uuid) -> Duration + Send + Sync>,
}

impl<C> ScriptedTasks<C> {
    /// Tasks with plans by `script`, on reachable clusters.
    pub fn new(
        context: Arc<C>,
        script: impl Fn(Assignment<'_>) -> Result<Plan<C>, StepError> + Send + Sync + 'static,
    ) -> ScriptedTasks<C> {
        let probe = |_| Ok(ClusterProbe { version: "v1.0.0".to_owned() });
        let probe_duration = Box::new(|_| Duration::ZERO);
        ScriptedTasks { context, script: Box::new(script), probe: Box::new(probe), probe_duration }
    }
}

impl<C> fmt::Debug for ScriptedTasks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedTasks")
    }
}

impl<C: Send + Sync + 'static> Tasks for ScriptedTasks<C> {
    type Context = C;

    async fn prepare(&self, assignment: Assignment<'_>) -> Result<PreparedTask<C>, StepError> {
        let plan = (self.script)(assignment)?;
        let context = self.context.clone();
        Ok(PreparedTask { task: "scripted".to_owned(), version: 1, definition: None, plan, context })
    }

    async fn name(&self, _: Uuid) -> Option<String> {
        Some("scripted".to_owned())
    }

    async fn probe(&self, cluster: Uuid, _: &Cluster) -> Result<ClusterProbe, StepError> {
        let duration = (self.probe_duration)(cluster);
        if !duration.is_zero() {
            tokio::time::sleep(duration).await;
        }
        (self.probe)(cluster)
    }
}

/// Imported cluster with this name.
pub fn cluster(name: &str) -> Cluster {
    let group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported";
    Cluster {
        subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        name: name.to_owned(),
        location: "here".to_owned(),
        imported: true,
        ..Cluster::new(
            format!("{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"),
            ProvisioningState::Succeeded,
            Timestamp::UNIX_EPOCH,
        )
    }
}

/// Cluster with this name that is being updated, so that the actuator does not probe it by itself.
pub fn updating_cluster(name: &str) -> Cluster {
    Cluster { imported: false, provisioning_state: ProvisioningState::Updating, ..cluster(name) }
}

/// Manifest of a cluster with a window of one hour from `from`.
pub fn manifest(id: Uuid, cluster: Uuid, task: Uuid, from: Timestamp) -> Manifest {
    Manifest {
        id,
        cluster,
        cluster_path: String::new(),
        task_id: task,
        created_by_schedule: None,
        priority: 0,
        run_after: from,
        run_before: from.saturating_add(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MAX),
        parameters: serde_json::Map::new(),
        created_by: "test".to_owned(),
        status_text: String::new(),
    }
}
