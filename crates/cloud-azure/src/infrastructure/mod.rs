//! The infrastructure role: resources by their own contracts, each call returning as soon as Azure has accepted it.

mod accounts;
mod deletion;
mod endpoints;
mod lists;
mod machines;
mod managed_identities;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use azure_core::http::Method;
use cloud::{
    CloudError, Infrastructure, ProviderRegistration, Resource, ResourceId, ResourceKind, ResourceRequest,
    ResourceState, Size, Usage,
};
use serde_json::{Value, json};

use crate::arm::{CHANGE_ATTEMPTS_MAX, Call, Condition};
use crate::client::AzureClient;
use crate::json::{same, set, text};
use crate::operations::{OperationKind, OperationState};
use crate::resources::{self, version};

#[async_trait]
impl Infrastructure for AzureClient {
    async fn put(&self, put: ResourceRequest) -> Result<Resource, CloudError> {
        let kind = put.properties.kind();
        if ResourceKind::of_id(&put.id) != Some(kind) {
            let why = format!("{} is no id of a resource of kind {kind:?}", put.id);
            return Err(CloudError::Invalid { code: "InvalidResourceId".to_owned(), why });
        }
        let _guard = self.inner.arm.exclusive(&resources::write_key(&put.id, kind)).await;
        match kind {
            ResourceKind::Machine => self.put_machine(&put).await,
            ResourceKind::StorageAccount => self.put_account(&put).await,
            ResourceKind::Identity => self.put_identity(&put).await,
            ResourceKind::PrivateEndpoint => self.put_endpoint(&put).await,
            _ => {
                let body = self.put_plain(&put).await?;
                let mut resource = self.resource(&put.id, kind, &body)?;
                self.explain_failure(&put.id, &mut resource).await?;
                Ok(resource)
            }
        }
    }

    async fn get(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError> {
        let kind = known_kind(id)?;
        match self.read(id, kind).await? {
            Some(body) => self.complete(id, kind, &body).await.map(Some),
            None => self.absent(id).await,
        }
    }

    async fn list(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError> {
        self.list_group(group).await
    }

    async fn delete(&self, id: &ResourceId) -> Result<(), CloudError> {
        let kind = known_kind(id)?;
        let _guard = self.inner.arm.exclusive(&resources::write_key(id, kind)).await;
        self.delete_resource(id, kind).await
    }

    async fn sizes(&self, subscription: &str, location: &str) -> Result<Vec<Size>, CloudError> {
        self.list_sizes(subscription, location).await
    }

    async fn usages(&self, subscription: &str, location: &str) -> Result<Vec<Usage>, CloudError> {
        self.list_usages(subscription, location).await
    }

    async fn providers(&self, subscription: &str) -> Result<Vec<ProviderRegistration>, CloudError> {
        self.list_providers(subscription).await
    }

    async fn feature(&self, subscription: &str, feature: &str) -> Result<Option<bool>, CloudError> {
        self.find_feature(subscription, feature).await
    }

    async fn register_provider(&self, subscription: &str, namespace: &str) -> Result<(), CloudError> {
        self.start_provider_registration(subscription, namespace).await
    }

    async fn register_feature(&self, subscription: &str, feature: &str) -> Result<(), CloudError> {
        self.start_feature_registration(subscription, feature).await
    }
}

fn known_kind(id: &ResourceId) -> Result<ResourceKind, CloudError> {
    ResourceKind::of_id(id).ok_or_else(|| CloudError::Invalid {
        code: "InvalidResourceType".to_owned(),
        why: format!("{id} is of a type that is not managed here"),
    })
}

impl AzureClient {
    pub(crate) async fn read(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
    ) -> Result<Option<Value>, CloudError> {
        self.inner.arm.find(id.as_str(), version(kind), resources::expansion(kind)).await
    }

    /// Reads, changes and writes a resource under its etag, unless it is as requested; the body that is then in force.
    async fn put_plain(&self, put: &ResourceRequest) -> Result<Value, CloudError> {
        let kind = put.properties.kind();
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let present = self.read(&put.id, kind).await?;
            let body = resources::target(put, present.as_ref(), &self.inner.settings.machines)?;
            let written = match &present {
                Some(present) if is_as_requested(present, &body) => return Ok(present.clone()),
                // Only tags can differ; a put could take the customer's subnets.
                Some(present) if kind == ResourceKind::VirtualNetwork => return Ok(present.clone()),
                Some(present) => {
                    let etag = text(present, "/etag");
                    let is_guarded = resources::has_etag(kind) && !etag.is_empty();
                    let condition = if is_guarded { Condition::Unchanged(etag) } else { Condition::None };
                    self.write(put, kind, &body, condition).await
                }
                // The claim on a name: of two who create it, one succeeds.
                None if resources::is_claim(kind) => self.write(put, kind, &body, Condition::Absent).await,
                None => self.write(put, kind, &body, Condition::None).await,
            };
            match written {
                Err(CloudError::PreconditionFailed { .. }) => {}
                written => return written,
            }
        }
        Err(CloudError::PreconditionFailed { what: put.id.to_string() })
    }

    async fn write(
        &self,
        put: &ResourceRequest,
        kind: ResourceKind,
        body: &Value,
        condition: Condition<'_>,
    ) -> Result<Value, CloudError> {
        let path = put.id.as_str();
        let call = Call { body: Some(body), condition, ..Call::new(Method::Put, path, version(kind)) };
        let operations = &self.inner.operations;
        let answer = self.inner.arm.send(call).await;
        let answer = answer.map_err(|error| operations.with_visibility(error, &put.id))?;
        operations.note_write(&put.id);
        match answer.operation() {
            Some(url) => {
                operations.remember(&put.id, url, OperationKind::Put(Box::new(put.clone())));
            }
            None => operations.forget(&put.id),
        }
        let mut written = answer.json(&format!("PUT {path}"))?;
        if !written.is_object() {
            // Accepted without a body: the resource follows.
            written = body.clone();
            set(&mut written, &["properties", "provisioningState"], json!("Creating"));
        }
        Ok(written)
    }

    /// A resource from its body alone.
    pub(crate) fn resource(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Resource, CloudError> {
        let properties = resources::decode(id, kind, body).ok_or_else(|| CloudError::UnexpectedResponse {
            what: format!("GET {id} (members of a {kind:?} are missing)"),
            source: None,
        })?;
        Ok(Resource {
            id: id.clone(),
            location: text(body, "/location").to_owned(),
            tags: resources::tags(kind, body),
            properties,
            state: resources::state(body),
        })
    }

    /// A resource from its body and what further calls tell: the reason of a failure, containers, credentials, addresses.
    async fn complete(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Resource, CloudError> {
        let mut resource = match kind {
            ResourceKind::Machine => {
                let interface = match machines::interface_id(body) {
                    Some(id) => self.read(&id, ResourceKind::NetworkInterface).await?,
                    None => None,
                };
                return self.machine(id, body, interface.as_ref()).await;
            }
            ResourceKind::StorageAccount => self.account(id, body).await?,
            ResourceKind::Identity => self.identity(id, body).await?,
            ResourceKind::PrivateEndpoint => self.endpoint(id, body).await?,
            _ => self.resource(id, kind, body)?,
        };
        self.explain_failure(id, &mut resource).await?;
        Ok(resource)
    }

    /// Asks the operation why a resource failed.
    async fn explain_failure(&self, id: &ResourceId, resource: &mut Resource) -> Result<(), CloudError> {
        let ResourceState::Failed { failure } = &mut resource.state else { return Ok(()) };
        if let Some(operation) = self.inner.operations.of(id)
            && let OperationState::Failed(error) =
                self.inner.operations.state(&self.inner.arm, id, &operation).await?
        {
            *failure = error.into_failure();
        }
        Ok(())
    }

    /// What is known of a resource that is not there: an accepted put may not be visible yet, or has failed.
    async fn absent(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError> {
        let Some(operation) = self.inner.operations.of(id) else { return Ok(None) };
        let OperationKind::Put(request) = &operation.kind else {
            self.inner.operations.forget(id);
            return Ok(None);
        };
        let state = match self.inner.operations.state(&self.inner.arm, id, &operation).await? {
            OperationState::InProgress => ResourceState::Creating,
            OperationState::Failed(error) => ResourceState::Failed { failure: error.into_failure() },
            OperationState::Succeeded | OperationState::Unknown => {
                self.inner.operations.forget(id);
                return Ok(None);
            }
        };
        let ResourceRequest { id, location, tags, properties, .. } = request.as_ref().clone();
        Ok(Some(Resource { id, location, tags, properties, state }))
    }
}

fn with_state(put: &ResourceRequest, state: ResourceState) -> Resource {
    let ResourceRequest { id, location, tags, properties, .. } = put.clone();
    Resource { id, location, tags, properties, state }
}

/// Whether a resource is as the body of a put asks, apart from what the cloud alone reports. A failed one never is.
fn is_as_requested(present: &Value, body: &Value) -> bool {
    let comparable = |body: &Value| {
        let mut body = body.clone();
        for assigned in ["etag", "systemData", "resources"] {
            set(&mut body, &[assigned], Value::Null);
        }
        for reported in ["instanceView", "vmId", "timeCreated"] {
            set(&mut body, &["properties", reported], Value::Null);
        }
        body
    };
    let is_failed = matches!(resources::state(present), ResourceState::Failed { .. });
    !is_failed && same(&comparable(body), &comparable(present))
}
