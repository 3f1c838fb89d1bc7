//! The machines role.

use async_trait::async_trait;
use cloud::{CloudError, Machine, Machines, Properties, ResourceId, ResourceKind};

use crate::client::AzureClient;
use crate::resources;

#[async_trait]
impl Machines for AzureClient {
    async fn machines(&self, group: &ResourceId) -> Result<Vec<Machine>, CloudError> {
        let machines = self.list_machines(group).await?.into_iter().filter_map(|it| {
            let Properties::Machine { size, zone, address, running, .. } = it.properties else { return None };
            Some(Machine { id: it.id, size, zone, address, running, state: it.state })
        });
        Ok(machines.collect())
    }

    async fn start_machine(&self, id: &ResourceId) -> Result<(), CloudError> {
        self.set_power(id, true).await
    }

    async fn stop_machine(&self, id: &ResourceId) -> Result<(), CloudError> {
        self.set_power(id, false).await
    }
}

impl AzureClient {
    /// Starts or deallocates a machine unless it is so already.
    async fn set_power(&self, id: &ResourceId, running: bool) -> Result<(), CloudError> {
        let Some(body) = self.read(id, ResourceKind::Machine).await? else {
            return Err(CloudError::NotFound { what: id.to_string() });
        };
        if resources::running(&body) == running {
            return Ok(());
        }
        self.power(id, running).await
    }
}
