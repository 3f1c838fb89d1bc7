//! Virtual machines with the interface and the disk that are made for them.

use azure_core::http::Method;
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use serde_json::Value;

use super::with_state;
use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::{items, set, text};
use crate::resources::{self, version};

/// The id of a machine's first interface.
pub(super) fn interface_id(body: &Value) -> Option<ResourceId> {
    items(body, "/properties/networkProfile/networkInterfaces")
        .first()
        .and_then(|it| text(it, "/id").parse().ok())
}

/// The interface that is made for a machine.
pub(super) fn own_interface(machine: &ResourceId) -> ResourceId {
    machine.sibling("Microsoft.Network", "networkInterfaces", &resources::nic_name(machine.name()))
}

impl AzureClient {
    /// Makes the interface and then the machine, or starts or stops the one that is there.
    pub(super) async fn put_machine(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::Machine { subnet, running, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let present = self.read(&put.id, ResourceKind::Machine).await?;
        if present.is_none() {
            let interface = self.put_interface(put, subnet).await?;
            if let ResourceState::Failed { failure } = interface.state {
                return Ok(with_state(put, ResourceState::Failed { failure }));
            }
        }
        let mut body = self.put_plain(put).await?;
        if let Some(view) = present.as_ref().and_then(|it| it.pointer("/properties/instanceView"))
            && body.pointer("/properties/instanceView").is_none()
        {
            // The response to a put tells no power state; that of the read does.
            set(&mut body, &["properties", "instanceView"], view.clone());
        }
        let interface = match interface_id(&body) {
            Some(id) => self.read(&id, ResourceKind::NetworkInterface).await?,
            None => None,
        };
        let mut resource = self.machine(&put.id, &body, interface.as_ref()).await?;
        if present.is_some()
            && resources::running(&body) != *running
            && resource.state == ResourceState::Succeeded
        {
            self.power(&put.id, *running).await?;
            resource.state = ResourceState::Updating;
        }
        Ok(resource)
    }

    async fn put_interface(
        &self,
        machine: &ResourceRequest,
        subnet: &ResourceId,
    ) -> Result<Resource, CloudError> {
        let request = ResourceRequest {
            id: own_interface(&machine.id),
            location: machine.location.clone(),
            tags: machine.tags.clone(),
            properties: Properties::NetworkInterface {
                subnet: subnet.clone(),
                pools: Vec::new(),
                address: None,
                machine: None,
            },
        };
        let body = self.put_plain(&request).await?;
        let mut interface = self.resource(&request.id, ResourceKind::NetworkInterface, &body)?;
        self.explain_failure(&request.id, &mut interface).await?;
        Ok(interface)
    }

    /// A machine from its body and that of its interface.
    pub(super) async fn machine(
        &self,
        id: &ResourceId,
        body: &Value,
        interface: Option<&Value>,
    ) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::Machine, body)?;
        resource.properties = resources::decode_machine(body, interface);
        if resource.state == ResourceState::Succeeded && resources::power_change(body) {
            resource.state = ResourceState::Updating;
        }
        self.explain_failure(id, &mut resource).await?;
        Ok(resource)
    }

    /// Starts or deallocates a machine. The call is sent once; whether it took effect is seen in the machine's state.
    pub(crate) async fn power(&self, id: &ResourceId, running: bool) -> Result<(), CloudError> {
        let path = format!("{id}/{}", if running { "start" } else { "deallocate" });
        let call = Call::new(Method::Post, &path, version(ResourceKind::Machine));
        self.inner.arm.send(call).await.map(drop)
    }
}
