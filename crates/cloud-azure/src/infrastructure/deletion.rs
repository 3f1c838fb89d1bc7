//! Deletion: accepted and then seen in the resource's absence. What is not there is deleted already.

use azure_core::http::Method;
use cloud::{CloudError, ResourceId, ResourceKind, ResourceState};
use serde_json::Value;

use super::machines::own_interface;
use crate::arm::{Answer, Call};
use crate::client::AzureClient;
use crate::error::CallName;
use crate::json::set;
use crate::operations::{OperationKind, OperationState};
use crate::resources::{self, version};

impl AzureClient {
    /// Starts a deletion, unless one runs. A deletion that has failed since is the error, once.
    pub(super) async fn delete_resource(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
    ) -> Result<(), CloudError> {
        let operations = &self.inner.operations;
        if let Some(operation) = operations.of(id).filter(|it| matches!(it.kind, OperationKind::Delete)) {
            match operations.state(&self.inner.arm, id, &operation).await? {
                OperationState::InProgress => return Ok(()),
                OperationState::Failed(error) => {
                    operations.forget(id);
                    let principal = self.inner.credentials.principal();
                    return Err(error.into_cloud_error(CallName {
                        method: "DELETE",
                        subject: id.as_str(),
                        principal,
                    }));
                }
                OperationState::Succeeded | OperationState::Unknown => operations.forget(id),
            }
        }
        let was_gone = self.start_delete(id, kind).await?;
        if kind == ResourceKind::Machine && was_gone {
            self.delete_parts(id).await?;
        }
        Ok(())
    }

    /// Starts a deletion; whether the resource was gone already.
    async fn start_delete(&self, id: &ResourceId, kind: ResourceKind) -> Result<bool, CloudError> {
        let answer = match self.send_delete(id, kind).await {
            Err(CloudError::NotFound { .. }) => {
                self.inner.operations.forget(id);
                return Ok(true);
            }
            Err(error @ (CloudError::Conflict { .. } | CloudError::Invalid { .. }))
                if kind == ResourceKind::NetworkInterface =>
            {
                if !self.rewrite_failed(id, kind).await? {
                    return Err(error);
                }
                self.send_delete(id, kind).await?
            }
            answer => answer?,
        };
        match answer.operation() {
            Some(url) => self.inner.operations.remember(id, url, OperationKind::Delete),
            None => self.inner.operations.forget(id),
        }
        Ok(answer.status == 204)
    }

    async fn send_delete(&self, id: &ResourceId, kind: ResourceKind) -> Result<Answer, CloudError> {
        self.inner.arm.send(Call::new(Method::Delete, id.as_str(), version(kind))).await
    }

    /// Writes a failed resource back as it is: a failed interface cannot be deleted before. Whether there was one.
    async fn rewrite_failed(&self, id: &ResourceId, kind: ResourceKind) -> Result<bool, CloudError> {
        let body = self.read(id, kind).await?;
        let is_failed = |it: &Value| matches!(resources::state(it), ResourceState::Failed { .. });
        let Some(mut body) = body.filter(is_failed) else { return Ok(false) };
        set(&mut body, &["etag"], Value::Null);
        let call = Call { body: Some(&body), ..Call::new(Method::Put, id.as_str(), version(kind)) };
        self.inner.arm.send(call).await.map(|_| true)
    }

    /// Deletes interface and disk of a machine that is gone, for machines whose parts do not go with them.
    async fn delete_parts(&self, id: &ResourceId) -> Result<(), CloudError> {
        let disk = id.sibling("Microsoft.Compute", "disks", &resources::os_disk_name(id.name()));
        self.start_delete(&disk, ResourceKind::Disk).await?;
        self.start_delete(&own_interface(id), ResourceKind::NetworkInterface).await.map(drop)
    }
}
