//! Interface between the actuator and a catalogue of tasks. Implemented by the product and by scripted tests.

use std::future::Future;
use std::sync::Arc;

use api::doc::{Cluster, Manifest};
use api::health::HealthSample;
use serde_json::Value;
use steps::engine::{Journal, Plan, StepError};
use uuid::Uuid;

/// Catalogue of tasks, with the connections to their clusters.
pub trait Tasks: Send + Sync + 'static {
    /// Context of the steps.
    type Context: Send + Sync + 'static;

    /// Builds the plan of a manifest and the context of its steps. An unknown task and invalid parameters are terminal errors;
    /// an unmet requirement of the task is a precondition error.
    fn prepare(
        &self,
        assignment: Assignment<'_>,
    ) -> impl Future<Output = Result<PreparedTask<Self::Context>, StepError>> + Send;

    /// Name of a task, for metrics; none if it does not exist.
    fn name(&self, task: Uuid) -> impl Future<Output = Option<String>> + Send;

    /// Checks that a cluster is reachable.
    fn probe(
        &self,
        cluster: Uuid,
        document: &Cluster,
    ) -> impl Future<Output = Result<ClusterProbe, StepError>> + Send;
}

/// Manifest to prepare, with its cluster.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// Uuid of the cluster.
    pub cluster: Uuid,
    /// Document of the cluster.
    pub document: &'a Cluster,
    /// Last health sample of the cluster.
    pub health: Option<&'a HealthSample>,
    /// Checkpoint of earlier attempts, such as the definition that the first one used.
    pub journal: &'a Journal,
}

/// Plan and context of a manifest.
#[derive(Debug)]
pub struct PreparedTask<C> {
    /// Name of the task, for metrics.
    pub task: String,
    /// Version of the task.
    pub version: u32,
    /// Definition of the task, stored in the checkpoint.
    pub definition: Option<Value>,
    /// Plan of the manifest.
    pub plan: Plan<C>,
    /// Context of its steps.
    pub context: Arc<C>,
}

/// Result of probing a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterProbe {
    /// Version of its API server.
    pub version: String,
}
