//! Storage accounts with their containers.

use azure_core::http::Method;
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use serde_json::{Value, json};

use super::with_state;
use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::text;
use crate::resources::{self, STORAGE};

impl AzureClient {
    /// Makes the account, and its containers one by one once it is ready.
    pub(super) async fn put_account(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::StorageAccount { containers, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let body = self.put_plain(put).await?;
        match resources::state(&body) {
            // A body without an id is the one that was sent: the account follows.
            ResourceState::Succeeded if body.get("id").is_some() => {}
            ResourceState::Succeeded => return Ok(with_state(put, ResourceState::Creating)),
            state => {
                let mut resource = with_state(put, state);
                self.explain_failure(&put.id, &mut resource).await?;
                return Ok(resource);
            }
        }
        let mut resource = self.account(&put.id, &body).await?;
        if let Properties::StorageAccount { containers: present, .. } = &mut resource.properties {
            for container in containers {
                if present.contains(container) {
                    continue;
                }
                let path = format!("{}/blobServices/default/containers/{container}", put.id);
                let empty = json!({});
                let call = Call { body: Some(&empty), ..Call::new(Method::Put, &path, STORAGE) };
                let made = self.inner.arm.send(call).await;
                made.map_err(|error| self.inner.operations.with_visibility(error, &put.id))?;
                present.push(container.clone());
            }
        }
        Ok(resource)
    }

    /// An account with the names of its containers.
    pub(super) async fn account(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::StorageAccount, body)?;
        if resource.state != ResourceState::Succeeded {
            return Ok(resource);
        }
        let path = format!("{id}/blobServices/default/containers");
        let listed = match self.inner.arm.list(&path, STORAGE, &[], None).await {
            Err(CloudError::NotFound { .. }) => Vec::new(),
            listed => listed?,
        };
        if let Properties::StorageAccount { containers, .. } = &mut resource.properties {
            *containers = listed.iter().map(|it| text(it, "/name").to_owned()).collect();
        }
        Ok(resource)
    }
}
