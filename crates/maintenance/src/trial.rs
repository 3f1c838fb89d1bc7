//! For tests: tasks that follow a script, and the nouns that they need.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::doc::{Cluster, Manifest, ProvisioningState};
use jiff::{SignedDuration, Timestamp};
use steps::engine::{Plan, StepError};
use uuid::Uuid;

use crate::actuator::{Assignment, ClusterProbe, PreparedTask, Tasks};

/// Makes the plan of a manifest.
pub type Script<C> = Box<dyn Fn(Assignment<'_>) -> Result<Plan<C>, StepError> + Send + Sync>;
/// Answers for a cluster.
pub type Answer = Box<dyn Fn(Uuid) -> Result<ClusterProbe, StepError> + Send + Sync>;

/// Tasks that follow a script, on clusters that are not there.
pub struct ScriptedTasks<C> {
    /// What all steps are given.
    pub context: Arc<C>,
    /// Makes the plan of a manifest.
    pub script: Script<C>,
    /// Answers for a cluster.
    pub answer: Answer,
    /// How long a cluster takes to answer.
    pub takes: Box<dyn Fn(Uuid) -> Duration + Send + Sync>,
}

impl<C> ScriptedTasks<C> {
    /// Tasks that follow `script`, on clusters that answer.
    pub fn new(
        context: Arc<C>,
        script: impl Fn(Assignment<'_>) -> Result<Plan<C>, StepError> + Send + Sync + 'static,
    ) -> ScriptedTasks<C> {
        let answer = |_| Ok(ClusterProbe { version: "v1.0.0".to_owned() });
        let takes = Box::new(|_| Duration::ZERO);
        ScriptedTasks { context, script: Box::new(script), answer: Box::new(answer), takes }
    }
}

impl<C> fmt::Debug for ScriptedTasks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedTasks")
    }
}

impl<C: Send + Sync + 'static> Tasks for ScriptedTasks<C> {
    type Context = C;

    async fn ready(&self, assignment: Assignment<'_>) -> Result<PreparedTask<C>, StepError> {
        let plan = (self.script)(assignment)?;
        let context = self.context.clone();
        Ok(PreparedTask { task: "scripted".to_owned(), version: 1, definition: None, plan, context })
    }

    async fn name(&self, _: Uuid) -> Option<String> {
        Some("scripted".to_owned())
    }

    async fn contact(&self, cluster: Uuid, _: &Cluster) -> Result<ClusterProbe, StepError> {
        let takes = (self.takes)(cluster);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        (self.answer)(cluster)
    }
}

/// A cluster that was imported under that name.
pub fn cluster(name: &str) -> Cluster {
    let group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported";
    Cluster {
        id: format!("{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"),
        subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        name: name.to_owned(),
        location: "here".to_owned(),
        labels: [].into(),
        provisioning_state: ProvisioningState::Succeeded,
        last_provisioning_state: None,
        failed_provisioning_state: None,
        operation: None,
        credential: None,
        managed_resource_group: None,
        imported: true,
        provisioned: None,
        created_at: Timestamp::UNIX_EPOCH,
    }
}

/// A cluster under that name which is being changed: nobody asks by himself whether it answers.
pub fn changing(name: &str) -> Cluster {
    Cluster { imported: false, provisioning_state: ProvisioningState::Updating, ..cluster(name) }
}

/// A manifest for that cluster, due at `from` and for an hour.
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
        created_by: "trial".to_owned(),
        status_text: String::new(),
    }
}
