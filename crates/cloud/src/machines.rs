//! The machines role: the instances of a cluster as the service outside sees them. Controllers inside a cluster use
//! [`InstanceProvider`](crate::InstanceProvider).

use async_trait::async_trait;

use crate::{CloudError, ResourceId, ResourceState};

/// Lists, starts and stops the instances of a cluster. As in every role, calls return as soon as the cloud has accepted them.
#[async_trait]
pub trait Machines: std::fmt::Debug + Send + Sync + 'static {
    /// The machines of a resource group, ordered by id.
    async fn machines(&self, group: &ResourceId) -> Result<Vec<Machine>, CloudError>;
    /// Starts a machine. Starting a running machine changes nothing.
    async fn start_machine(&self, id: &ResourceId) -> Result<(), CloudError>;
    /// Stops a machine without deleting it. Stopping a stopped machine changes nothing.
    async fn stop_machine(&self, id: &ResourceId) -> Result<(), CloudError>;
}

/// A machine and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The resource id.
    pub id: ResourceId,
    /// The VM size.
    pub size: String,
    /// The availability zone.
    pub zone: Option<String>,
    /// The private address.
    pub address: Option<String>,
    /// Whether it is started.
    pub running: bool,
    /// The provisioning state.
    pub state: ResourceState,
}
