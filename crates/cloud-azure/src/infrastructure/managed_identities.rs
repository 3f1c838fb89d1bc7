//! Managed identities with their federated credentials, which are written one at a time.

use std::collections::BTreeMap;

use azure_core::http::Method;
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest};
use serde_json::Value;

use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::text;
use crate::resources::{self, version};

/// A federated credential of an identity.
struct Federated {
    name: String,
    subject: String,
    /// Whether it is one of a cluster. Others are the customer's and stay.
    is_of_cluster: bool,
}

impl AzureClient {
    pub(super) async fn put_identity(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::Identity { federated, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let body = self.put_plain(put).await?;
        let mut present = self.federated(&put.id).await?;
        let version = version(ResourceKind::Identity);
        let path = |name: &str| format!("{}/federatedIdentityCredentials/{name}", put.id);
        let is_stale = |key: &String, it: &Federated| {
            it.is_of_cluster && federated.get(key).is_none_or(|subject| *subject != it.subject)
        };
        let stale: Vec<String> =
            present.iter().filter(|(key, it)| is_stale(key, it)).map(|(key, _)| key.clone()).collect();
        for key in stale {
            let Some(credential) = present.remove(&key) else { continue };
            match self.inner.arm.send(Call::new(Method::Delete, &path(&credential.name), version)).await {
                Ok(_) | Err(CloudError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for (key, subject) in federated {
            if present.contains_key(key) {
                continue;
            }
            let (path, body) =
                (path(&resources::credential_name(key)), resources::credential_body(key, subject));
            let call = Call { body: Some(&body), ..Call::new(Method::Put, &path, version) };
            let written = self.inner.arm.send(call).await;
            written.map_err(|error| self.inner.operations.with_visibility(error, &put.id))?;
        }
        let mut resource = self.resource(&put.id, ResourceKind::Identity, &body)?;
        let mut all = federated.clone();
        all.extend(present.into_iter().map(|(key, it)| (key, it.subject)));
        resource.properties = resources::decode_identity(&body, all);
        Ok(resource)
    }

    /// An identity with its federated credentials.
    pub(super) async fn identity(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let federated = self.federated(id).await?.into_iter().map(|(key, it)| (key, it.subject)).collect();
        let mut resource = self.resource(id, ResourceKind::Identity, body)?;
        resource.properties = resources::decode_identity(body, federated);
        Ok(resource)
    }

    async fn federated(&self, id: &ResourceId) -> Result<BTreeMap<String, Federated>, CloudError> {
        let path = format!("{id}/federatedIdentityCredentials");
        let listed = match self.inner.arm.list(&path, version(ResourceKind::Identity), &[], None).await {
            Err(CloudError::NotFound { .. }) => Vec::new(),
            listed => listed?,
        };
        let entry = |it: &Value| {
            let (key, subject) = resources::credential_key(it);
            let name = text(it, "/name").to_owned();
            (key, Federated { name, subject, is_of_cluster: resources::is_credential_of_cluster(it) })
        };
        Ok(listed.iter().map(entry).collect())
    }
}
