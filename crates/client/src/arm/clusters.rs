//! Clusters of the ARM API. Bodies are plain JSON, so that members of newer API versions pass unchanged in both directions.

use std::fmt;

use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::operations::OperationHandle;
use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

/// Path of clusters in a subscription or resource group.
const CLUSTERS: &str = "providers/Microsoft.RedHatOpenShift/openShiftClusters";

/// Change that the server has accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedChange {
    /// 201 when the cluster is new.
    pub status: StatusCode,
    /// The cluster when the change was accepted; null for a deletion.
    pub cluster: Value,
    /// Operation of the change.
    pub operation: OperationHandle,
}

/// Username and password of a cluster.
#[derive(Clone)]
pub struct Credentials {
    /// Username.
    pub username: String,
    /// Password.
    pub password: Secret<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl Client {
    /// Gets a cluster.
    pub async fn resource(&self, id: &str) -> Result<TypedResponse<Value>, ClientError> {
        self.get(&cluster_path(id)).await
    }

    /// Lists the clusters of a subscription, or of one of its resource groups.
    pub fn resources(&self, subscription: &str, group: Option<&str>) -> Pages<Value> {
        let within = match group {
            Some(group) => format!("subscriptions/{subscription}/resourceGroups/{group}"),
            None => format!("subscriptions/{subscription}"),
        };
        Pages::with_server_page_size(
            self,
            &ApiPath::from_resource_id("", &format!("{within}/{CLUSTERS}")).with_arm_version(),
        )
    }

    /// Creates or replaces a cluster.
    pub async fn put_resource(&self, id: &str, body: &Value) -> Result<AcceptedChange, ClientError> {
        self.start_change(Method::PUT, &cluster_path(id), self.json(body)?).await
    }

    /// Updates a cluster by a merge patch.
    pub async fn patch_resource(&self, id: &str, patch: &Value) -> Result<AcceptedChange, ClientError> {
        self.start_change(Method::PATCH, &cluster_path(id), self.json(patch)?).await
    }

    /// Deletes a cluster; none if it does not exist.
    pub async fn delete_resource(&self, id: &str) -> Result<Option<AcceptedChange>, ClientError> {
        let path = cluster_path(id).to_uri();
        let (head, body) = self.exchange(Method::DELETE, &path, Bytes::new(), None).await?;
        if head.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        self.accepted(&path, &head, &body).map(Some)
    }

    /// Validates a cluster without storing it. The `status` of the response is `Succeeded`, or `Failed` with an `error`.
    pub async fn preflight(&self, id: &str, body: &Value) -> Result<Value, ClientError> {
        let mut resource = body.clone();
        let mut segments = id.split('/').skip(1);
        if let Some(members) = resource.as_object_mut() {
            members.insert("id".to_owned(), json!(id));
            members.insert("name".to_owned(), json!(id.rsplit('/').next()));
            members.insert("type".to_owned(), json!("Microsoft.RedHatOpenShift/openShiftClusters"));
            members.insert("apiVersion".to_owned(), json!("2025-07-25"));
        }
        let within: Vec<&str> = segments.by_ref().take(4).collect();
        let scope =
            format!("{}/providers/Microsoft.RedHatOpenShift/deployments/cli/preflight", within.join("/"));
        let path = ApiPath::from_resource_id("", &scope).with_arm_version();
        Ok(self.post(&path, &json!({ "resources": [resource] })).await?.value)
    }

    /// Gets the username and password of a cluster.
    pub async fn credentials(&self, id: &str) -> Result<Credentials, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            kubeadmin_username: String,
            kubeadmin_password: String,
        }
        let form: Form = self.post_empty(&cluster_path(id).segment("listCredentials")).await?.value;
        Ok(Credentials { username: form.kubeadmin_username, password: Secret::new(form.kubeadmin_password) })
    }

    /// Gets the administrator's kubeconfig of a cluster; none until it exists.
    pub async fn kubeconfig(&self, id: &str) -> Result<Option<Secret<String>>, ClientError> {
        #[derive(Deserialize)]
        struct Form {
            #[serde(default)]
            kubeconfig: String,
        }
        let path = cluster_path(id).segment("listAdminCredentials");
        let form: Form = self.post_empty(&path).await?.value;
        if form.kubeconfig.is_empty() {
            return Ok(None);
        }
        let invalid_response = |cause: &dyn fmt::Display| self.invalid_response(&path.to_uri(), cause);
        let bytes = STANDARD.decode(form.kubeconfig).map_err(|error| invalid_response(&error))?;
        let text = String::from_utf8(bytes).map_err(|_| invalid_response(&"the kubeconfig is not UTF-8"))?;
        Ok(Some(Secret::new(text)))
    }

    async fn start_change(
        &self,
        method: Method,
        path: &ApiPath,
        body: Bytes,
    ) -> Result<AcceptedChange, ClientError> {
        let path = path.to_uri();
        let (head, body) = self.exchange(method, &path, body, None).await?;
        self.accepted(&path, &head, &body)
    }

    fn accepted(
        &self,
        path: &str,
        head: &http::response::Parts,
        body: &[u8],
    ) -> Result<AcceptedChange, ClientError> {
        let operation = OperationHandle::from_headers(&head.headers)
            .map_err(|cause| self.invalid_response(path, &cause))?;
        let cluster = if body.is_empty() { Value::Null } else { self.parse(path, body)? };
        Ok(AcceptedChange { status: head.status, cluster, operation })
    }
}

fn cluster_path(id: &str) -> ApiPath {
    ApiPath::from_resource_id("", id).with_arm_version()
}
