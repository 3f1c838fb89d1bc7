//! The tasks of the product: those of the catalogue, on clusters that are reached by their kubeconfigs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::SharedClock;
use api::doc::{Cluster, Task};
use cloud::{Identities, Vault};
use kubelink::facts;
use planner::task::{Catalogue, Definition, TaskProblem, requires_met};
use steps::credentials::ManagedCluster;
use steps::engine::{Journal, StepError, StepErrorKind};
use steps::lifecycle::{ClusterRecords, store_unavailable};
use steps::{ClusterConnections, ClusterContext, ClusterFacts};
use store::{Etag, Reader, Store};
use uuid::Uuid;

use super::crew::SERVICE;
use super::{Assignment, ClusterProbe, PreparedTask, Tasks};
use crate::tasks;

/// The catalogue of the product, and the links to its clusters.
#[derive(Debug)]
pub struct TaskCatalog {
    reader: Reader,
    connections: ClusterConnections,
    clock: SharedClock,
    builtin: Catalogue,
    provider: Option<Provider>,
    /// Tasks as data, as they were last read: reading one compiles its expressions.
    read: Mutex<HashMap<Uuid, (Etag, Definition)>>,
}

/// What the tasks for clusters that we made need besides the way to them.
#[derive(Debug, Clone)]
pub struct Provider {
    /// The vault of the cloud that they run in.
    pub vault: Arc<dyn Vault>,
    /// The identity service of that cloud.
    pub identities: Arc<dyn Identities>,
    /// Where what was made is recorded, under the fence of the manifest.
    pub store: Store,
}

impl TaskCatalog {
    /// The tasks and clusters of a store.
    pub fn new(reader: Reader, connections: ClusterConnections, clock: SharedClock) -> TaskCatalog {
        let (builtin, read) = (Catalogue::builtin(), Mutex::default());
        TaskCatalog { reader, connections, clock, builtin, provider: None, read }
    }

    /// The same, with what the tasks for clusters that we made need.
    #[must_use]
    pub fn with_provider(self, provider: Provider) -> TaskCatalog {
        TaskCatalog { provider: Some(provider), ..self }
    }

    /// What tasks on a managed cluster need besides the connection to it.
    fn managed(&self, cluster: Uuid, document: &Cluster) -> Option<ManagedCluster> {
        let Provider { vault, identities, store } = self.provider.clone()?;
        let provisioned = document.provisioned.clone()?;
        let records = ClusterRecords { store, cluster, service: SERVICE };
        Some(ManagedCluster { records, provisioned, vault, identities })
    }

    /// The task that a manifest began with, or the one that it names.
    async fn definition(&self, task: Uuid, journal: &Journal) -> Result<Definition, StepError> {
        if let Some(frozen) = &journal.plan {
            return Definition::from_snapshot(frozen)
                .map_err(|problem| StepError::terminal("UnknownTask", problem.to_string()));
        }
        if let Some(builtin) = self.builtin.get(task) {
            return Ok(builtin.clone());
        }
        let unknown = || StepError::terminal("UnknownTask", "task ID not registered");
        let path = api::doc::Document::path(&Task {
            id: task,
            name: String::new(),
            title: String::new(),
            version: 0,
            definition: serde_json::Value::Null,
        });
        let stored = self.reader.documents::<Task>().find(&path).await.map_err(store_unavailable)?;
        let stored = stored.ok_or_else(unknown)?;
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&task).cloned();
        if let Some((_, definition)) = known.filter(|(etag, _)| *etag == stored.etag) {
            return Ok(definition);
        }
        let definition = Definition::from_document(&stored.document)
            .map_err(|problem| StepError::terminal("InvalidTask", problem.to_string()))?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(task, (stored.etag, definition.clone()));
        Ok(definition)
    }
}

impl Tasks for TaskCatalog {
    type Context = ClusterContext;

    async fn ready(&self, assignment: Assignment<'_>) -> Result<PreparedTask<ClusterContext>, StepError> {
        let Assignment { manifest, cluster, document, version, journal } = assignment;
        let definition = self.definition(manifest.task_id, journal).await?;
        let link = self.connections.link(cluster).await?;
        let mut version = version.map(str::to_owned);
        let fresh = !journal.has_begun();
        if fresh {
            // Asked before anything is begun: a manifest whose cluster does not answer has taken no effect, and can still be
            // too late.
            version = Some(facts::version(&link).await.map_err(StepError::from)?);
        }
        let facts = ClusterFacts::of(cluster, document, version);
        if fresh {
            let unmet = |why: String| StepError::new(StepErrorKind::Precondition, "Precondition", why);
            requires_met(&definition.requires(), &facts).map_err(unmet)?;
        }
        let made = {
            let (definition, parameters, facts) =
                (definition.clone(), manifest.parameters.clone(), facts.clone());
            steps::offload(move |_| tasks::plan(&definition, &parameters, &facts)).await
        };
        let plan = plan_made(made)?;
        let mut context = ClusterContext::new(link, facts, self.clock.clone());
        if let Some(managed) = self.managed(cluster, document) {
            context = context.with_managed(managed);
        }
        Ok(PreparedTask {
            task: definition.name().to_owned(),
            version: definition.version(),
            definition: Some(definition.snapshot()),
            plan,
            context: Arc::new(context),
        })
    }

    async fn name(&self, task: Uuid) -> Option<String> {
        let definition = self.definition(task, &Journal::default()).await.ok()?;
        Some(definition.name().to_owned())
    }

    async fn contact(&self, cluster: Uuid, _: &Cluster) -> Result<ClusterProbe, StepError> {
        let link = self.connections.link(cluster).await?;
        Ok(ClusterProbe { version: facts::version(&link).await.map_err(StepError::from)? })
    }
}

/// The plan of a manifest. One that was not made for want of an answer is tried again.
fn plan_made<T>(made: Option<Result<T, TaskProblem>>) -> Result<T, StepError> {
    let interrupted = || StepError::transient("PlanInterrupted", "the plan of the task was not finished");
    made.ok_or_else(interrupted)?
        .map_err(|problem| StepError::terminal("InvalidParameter", problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_was_not_finished_is_tried_again() {
        let kind = |made| plan_made::<()>(made).map_err(|error| error.kind());
        assert_eq!(kind(None), Err(StepErrorKind::Transient));
        let problem = TaskProblem { target: "parameters".to_owned(), message: "no".to_owned() };
        assert_eq!(kind(Some(Err(problem))), Err(StepErrorKind::Terminal));
        assert_eq!(kind(Some(Ok(()))), Ok(()));
    }
}
