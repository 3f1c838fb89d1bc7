//! Clusters, in the form of the contract. Bodies are JSON as it is: a customer may send members that this client does not know, and
//! is shown all that the server answers.

use std::fmt;

use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::operations::Begun;
use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

/// Where clusters are in a subscription or a group.
const CLUSTERS: &str = "providers/Microsoft.RedHatOpenShift/openShiftClusters";

/// A change that the server has begun.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// 201 when the cluster is new.
    pub status: StatusCode,
    /// The cluster as it is at the beginning; null when it is being removed.
    pub cluster: Value,
    /// What carries the change out.
    pub operation: Begun,
}

/// With what a person signs in to a cluster.
#[derive(Clone)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl Client {
    /// A cluster, as its customer sees it.
    pub async fn resource(&self, id: &str) -> Result<Answer<Value>, ClientError> {
        self.get(&one(id)).await
    }

    /// The clusters of a subscription, or of one of its groups.
    pub fn resources(&self, subscription: &str, group: Option<&str>) -> Pages<Value> {
        let within = match group {
            Some(group) => format!("subscriptions/{subscription}/resourceGroups/{group}"),
            None => format!("subscriptions/{subscription}"),
        };
        Pages::of_any_length(self, &Path::of_cluster("", &format!("{within}/{CLUSTERS}")).for_customers())
    }

    /// Asks for a cluster to be made, or to be made as `body` says.
    pub async fn put_resource(&self, id: &str, body: &Value) -> Result<Accepted, ClientError> {
        self.begin(Method::PUT, &one(id), self.json(body)?).await
    }

    /// Asks for a cluster to be changed where `patch` says something.
    pub async fn patch_resource(&self, id: &str, patch: &Value) -> Result<Accepted, ClientError> {
        self.begin(Method::PATCH, &one(id), self.json(patch)?).await
    }

    /// Asks for a cluster and all that was made for it to be removed; none when there is no such cluster.
    pub async fn delete_resource(&self, id: &str) -> Result<Option<Accepted>, ClientError> {
        let path = one(id).text();
        let (head, body) = self.exchange(Method::DELETE, &path, Bytes::new(), None).await?;
        if head.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        self.accepted(&path, &head, &body).map(Some)
    }

    /// Whether a cluster would be accepted as it is said here; nothing is stored. The answer is the contract's: `status` is
    /// `Succeeded`, or `Failed` with an `error`.
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
        let place =
            format!("{}/providers/Microsoft.RedHatOpenShift/deployments/cli/preflight", within.join("/"));
        let path = Path::of_cluster("", &place).for_customers();
        Ok(self.post(&path, &json!({ "resources": [resource] })).await?.value)
    }

    /// With what a person signs in to a cluster.
    pub async fn credentials(&self, id: &str) -> Result<Credentials, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            kubeadmin_username: String,
            kubeadmin_password: String,
        }
        let form: Form = self.post_empty(&one(id).segment("listCredentials")).await?.value;
        Ok(Credentials { username: form.kubeadmin_username, password: Secret::new(form.kubeadmin_password) })
    }

    /// The kubeconfig of a cluster's administrator; none while there is none.
    pub async fn kubeconfig(&self, id: &str) -> Result<Option<Secret<String>>, ClientError> {
        #[derive(Deserialize)]
        struct Form {
            #[serde(default)]
            kubeconfig: String,
        }
        let path = one(id).segment("listAdminCredentials");
        let form: Form = self.post_empty(&path).await?.value;
        if form.kubeconfig.is_empty() {
            return Ok(None);
        }
        let garbled = |why: &dyn fmt::Display| self.garbled(&path.text(), why);
        let bytes = STANDARD.decode(form.kubeconfig).map_err(|error| garbled(&error))?;
        let text = String::from_utf8(bytes).map_err(|_| garbled(&"the kubeconfig is not text"))?;
        Ok(Some(Secret::new(text)))
    }

    async fn begin(&self, method: Method, path: &Path, body: Bytes) -> Result<Accepted, ClientError> {
        let path = path.text();
        let (head, body) = self.exchange(method, &path, body, None).await?;
        self.accepted(&path, &head, &body)
    }

    fn accepted(
        &self,
        path: &str,
        head: &http::response::Parts,
        body: &[u8],
    ) -> Result<Accepted, ClientError> {
        let operation = Begun::of(&head.headers).map_err(|why| self.garbled(path, &why))?;
        let cluster = if body.is_empty() { Value::Null } else { self.read(path, body)? };
        Ok(Accepted { status: head.status, cluster, operation })
    }
}

fn one(id: &str) -> Path {
    Path::of_cluster("", id).for_customers()
}
