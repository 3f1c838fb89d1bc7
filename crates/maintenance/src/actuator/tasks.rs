//! What the actuator asks of a catalogue of tasks. There are two: that of the product, and that of the simulation.

use std::future::Future;
use std::sync::Arc;

use api::doc::{Cluster, Manifest};
use serde_json::Value;
use steps::engine::{Journal, Plan, StepError};
use uuid::Uuid;

/// A catalogue of tasks, and the way to the clusters that they work on.
pub trait Tasks: Send + Sync + 'static {
    /// What the steps of its plans are given.
    type Context: Send + Sync + 'static;

    /// Makes a manifest's plan, with what its steps are given. An error says whether that is for now or for good: an unknown
    /// task and wrong parameters are terminal, what the task requires of the cluster is a precondition.
    fn ready(
        &self,
        assignment: Assignment<'_>,
    ) -> impl Future<Output = Result<PreparedTask<Self::Context>, StepError>> + Send;

    /// The name of a task, for metrics; none when nobody knows it any more.
    fn name(&self, task: Uuid) -> impl Future<Output = Option<String>> + Send;

    /// Asks a cluster whether it is there.
    fn contact(
        &self,
        cluster: Uuid,
        document: &Cluster,
    ) -> impl Future<Output = Result<ClusterProbe, StepError>> + Send;
}

/// One manifest to be worked.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    /// What was asked.
    pub manifest: &'a Manifest,
    /// The cluster's identity.
    pub cluster: Uuid,
    /// The cluster.
    pub document: &'a Cluster,
    /// The version that was last seen in it.
    pub version: Option<&'a str>,
    /// What is remembered of the work: the definition that it began with, for one.
    pub journal: &'a Journal,
}

/// A manifest that can be worked.
#[derive(Debug)]
pub struct PreparedTask<C> {
    /// The task's name, for metrics.
    pub task: String,
    /// The task's version.
    pub version: u32,
    /// The task's definition, to be kept with the work, if the task is written as data.
    pub definition: Option<Value>,
    /// The plan.
    pub plan: Plan<C>,
    /// What its steps are given.
    pub context: Arc<C>,
}

/// What a cluster answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterProbe {
    /// The version of its API server.
    pub version: String,
}
