//! Built-in and stored tasks, on clusters that are reached by their kubeconfigs.

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

use super::service::SERVICE;
use super::{Assignment, ClusterProbe, PreparedTask, Tasks};
use crate::tasks;

/// Catalogue of built-in and stored tasks, with the connections to clusters.
#[derive(Debug)]
pub struct TaskCatalog {
    reader: Reader,
    connections: ClusterConnections,
    clock: SharedClock,
    builtin: Catalogue,
    provider: Option<Provider>,
    /// Cache of stored tasks by id, since reading one compiles its expressions.
    cache: Mutex<HashMap<Uuid, (Etag, Definition)>>,
}

/// Cloud services for the tasks on managed clusters.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Vault of the cloud.
    pub vault: Arc<dyn Vault>,
    /// Identity service of the cloud.
    pub identities: Arc<dyn Identities>,
    /// Store for the records of a cluster, written under the fence of the manifest.
    pub store: Store,
}

impl TaskCatalog {
    /// Catalogue of the tasks and clusters of a store.
    pub fn new(reader: Reader, connections: ClusterConnections, clock: SharedClock) -> TaskCatalog {
        let (builtin, cache) = (Catalogue::builtin(), Mutex::default());
        TaskCatalog { reader, connections, clock, builtin, provider: None, cache }
    }

    /// Adds the cloud services for tasks on managed clusters.
    #[must_use]
    pub fn with_provider(self, provider: Provider) -> TaskCatalog {
        TaskCatalog { provider: Some(provider), ..self }
    }

    /// Records and cloud services of a cluster; none unless it is managed.
    fn managed(&self, cluster: Uuid, document: &Cluster) -> Option<ManagedCluster> {
        let Provider { vault, identities, store } = self.provider.clone()?;
        let provisioned = document.provisioned.clone()?;
        let records = ClusterRecords { store, cluster, service: SERVICE };
        Some(ManagedCluster { records, provisioned, vault, identities })
    }

    /// Definition that the manifest started with, else the current one.
    async fn definition(&self, task: Uuid, journal: &Journal) -> Result<Definition, StepError> {
        if let Some(snapshot) = &journal.plan {
            return Definition::from_snapshot(snapshot)
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
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&task).cloned();
        if let Some((_, definition)) = cached.filter(|(etag, _)| *etag == stored.etag) {
            return Ok(definition);
        }
        let definition = Definition::from_document(&stored.document)
            .map_err(|problem| StepError::terminal("InvalidTask", problem.to_string()))?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(task, (stored.etag, definition.clone()));
        Ok(definition)
    }
}

impl Tasks for TaskCatalog {
    type Context = ClusterContext;

    async fn prepare(&self, assignment: Assignment<'_>) -> Result<PreparedTask<ClusterContext>, StepError> {
        let Assignment { manifest, cluster, document, health, journal } = assignment;
        let definition = self.definition(manifest.task_id, journal).await?;
        let link = self.connections.link(cluster).await?;
        let mut version = health.and_then(|it| it.details.version.clone());
        let is_first = !journal.has_begun();
        let now = self.clock.now();
        // What the monitor has just seen need not be asked again. A cluster that it could not reach may be back.
        let is_known = version.is_some() && health.is_some_and(|it| it.reachable && it.is_monitored(now));
        if is_first && !is_known {
            // Probed before the first step: a manifest whose cluster is unreachable has had no effect, so it can still
            // time out.
            version = Some(facts::version(&link).await.map_err(StepError::from)?);
        }
        let facts = ClusterFacts::of(cluster, document, version);
        if is_first {
            let unmet = |cause: String| StepError::new(StepErrorKind::Precondition, "Precondition", cause);
            requires_met(&definition.requires(), &facts, health, now).map_err(unmet)?;
        }
        let result = {
            let (definition, parameters, facts) =
                (definition.clone(), manifest.parameters.clone(), facts.clone());
            steps::offload(move |_| tasks::plan(&definition, &parameters, &facts)).await
        };
        let plan = check_plan(result)?;
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

    async fn probe(&self, cluster: Uuid, _: &Cluster) -> Result<ClusterProbe, StepError> {
        let link = self.connections.link(cluster).await?;
        Ok(ClusterProbe { version: facts::version(&link).await.map_err(StepError::from)? })
    }
}

/// Converts the result of building a plan. None means that the process is stopping, so the manifest is retried.
fn check_plan<T>(result: Option<Result<T, TaskProblem>>) -> Result<T, StepError> {
    let interrupted =
        || StepError::transient("PlanInterrupted", "building the plan of the task was interrupted");
    result
        .ok_or_else(interrupted)?
        .map_err(|problem| StepError::terminal("InvalidParameter", problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_plan_is_retried() {
        let kind = |result| check_plan::<()>(result).map_err(|error| error.kind());
        assert_eq!(kind(None), Err(StepErrorKind::Transient));
        let problem = TaskProblem { target: "parameters".to_owned(), message: "no".to_owned() };
        assert_eq!(kind(Some(Err(problem))), Err(StepErrorKind::Terminal));
        assert_eq!(kind(Some(Ok(()))), Ok(()));
    }
}
