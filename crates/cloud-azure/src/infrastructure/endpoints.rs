//! Private endpoints, whose connections this service approves where it owns the other side.

use azure_core::http::Method;
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest};
use serde_json::{Value, json};

use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::{set, text};
use crate::resources::{self, version};

impl AzureClient {
    pub(super) async fn put_endpoint(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let body = self.put_plain(put).await?;
        self.approve(&put.id, &put.properties).await?;
        let mut resource = self.endpoint(&put.id, &body).await?;
        self.explain_failure(&put.id, &mut resource).await?;
        Ok(resource)
    }

    /// Approves the connection of an endpoint to a link service that this service owns. It may not be visible yet: the next put
    /// approves it then.
    async fn approve(&self, id: &ResourceId, properties: &Properties) -> Result<(), CloudError> {
        let Properties::PrivateEndpoint { target, .. } = properties else { return Ok(()) };
        let Some(service) = self.link_service(target).await? else { return Ok(()) };
        let Some(connection) = resources::connection_of(&service, id) else { return Ok(()) };
        let status = text(connection, "/properties/privateLinkServiceConnectionState/status");
        if !status.eq_ignore_ascii_case("Pending") {
            return Ok(());
        }
        let path = format!("{target}/privateEndpointConnections/{}", text(connection, "/name"));
        let mut body = connection.clone();
        set(&mut body, &["etag"], Value::Null);
        let approved = json!({"status": "Approved", "description": "Approved by the service"});
        set(&mut body, &["properties", "privateLinkServiceConnectionState"], approved);
        let call = Call {
            body: Some(&body),
            ..Call::new(Method::Put, &path, version(ResourceKind::PrivateLinkService))
        };
        self.inner.arm.send(call).await.map(drop)
    }

    async fn link_service(&self, target: &ResourceId) -> Result<Option<Value>, CloudError> {
        if ResourceKind::of_id(target) != Some(ResourceKind::PrivateLinkService) {
            return Ok(None);
        }
        match self.read(target, ResourceKind::PrivateLinkService).await {
            // The service of another owner cannot be read.
            Err(CloudError::Denied { .. }) => Ok(None),
            found => found,
        }
    }

    /// An endpoint with the id that its link service knows it by.
    pub(super) async fn endpoint(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::PrivateEndpoint, body)?;
        if let Properties::PrivateEndpoint { target, link_id, .. } = &mut resource.properties
            && let Some(service) = self.link_service(target).await?
        {
            let connections = resources::link_connections(&service).into_iter();
            let own = connections
                .filter(|it| it.endpoint.eq_ignore_ascii_case(id.as_str()))
                .map(|it| it.link_id)
                .next();
            *link_id = own.filter(|it| !it.is_empty());
        }
        Ok(resource)
    }
}
