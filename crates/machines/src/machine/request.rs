//! What a provider needs to know about a Machine: its Secrets and the tags of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use api::crd::machine::{Machine, names};
use api::secret;
use cloud::{InstanceError, InstanceRequest, SecretRef};
use controller::ObjectKey;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::MachineController;
use super::decide::provider_spec;

/// Key of the user data in its Secret.
const USER_DATA: &str = "userData";
/// Time for which the tags of the cluster are kept.
const TAGS_MAX_AGE: Duration = Duration::from_secs(300);

/// Data of a Secret.
type SecretData = BTreeMap<String, secret::Secret<Vec<u8>>>;

/// The tags that the cluster's Infrastructure prescribes, read at most every five minutes.
#[derive(Debug, Default)]
pub(super) struct ClusterTags(Mutex<Option<(Instant, BTreeMap<String, String>)>>);

impl MachineController {
    /// The Machine as its provider sees it, without user data.
    pub(super) async fn request(&self, machine: &Machine) -> Result<InstanceRequest, InstanceError> {
        let spec = provider_spec(machine).cloned().unwrap_or_default();
        let refs = self.provider.secrets(&spec)?;
        let credentials = match &refs.credentials {
            None => None,
            Some(reference) => Some(
                self.secret(machine, reference, None)
                    .await?
                    .ok_or_else(|| InstanceError::Unavailable(missing(machine, "credentials", reference)))?,
            ),
        };
        let labels = machine.labels().clone();
        Ok(InstanceRequest {
            namespace: machine.namespace().unwrap_or_default(),
            name: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
            cluster_id: labels.get(names::CLUSTER_LABEL).cloned().unwrap_or_default(),
            labels,
            provider_spec: spec,
            provider_id: machine.spec.provider_id.clone().filter(|id| !id.is_empty()),
            provider_status: machine.status.as_ref().and_then(|status| status.provider_status.clone()),
            deleted: machine.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            created: machine.creation_timestamp().map_or_else(|| self.cx.clock.now(), |time| time.0),
            user_data: None,
            credentials,
            tags: self.cluster_tags().await?,
        })
    }

    /// The request with the user data of a new instance. A Machine whose user data does not exist is invalid.
    pub(super) async fn with_user_data(
        &self,
        machine: &Machine,
        request: InstanceRequest,
    ) -> Result<InstanceRequest, InstanceError> {
        let Some(reference) = self.provider.secrets(&request.provider_spec)?.user_data else {
            return Ok(request);
        };
        let invalid = |text: String| Err(InstanceError::InvalidConfiguration(text));
        let Some(mut data) = self.secret(machine, &reference, Some(USER_DATA)).await? else {
            return invalid(missing(machine, "user data", &reference));
        };
        match data.remove(USER_DATA) {
            Some(user_data) => Ok(InstanceRequest { user_data: Some(user_data), ..request }),
            None => {
                let key = secret_key(machine, &reference);
                invalid(format!("Secret {key} with the user data has no key {USER_DATA}"))
            }
        }
    }

    /// The data of a Secret. A cache may be behind, and what it lacks would make a Machine invalid for good: then the API server is asked,
    /// as it is for a Secret of another namespace, which is not watched.
    async fn secret(
        &self,
        machine: &Machine,
        reference: &SecretRef,
        required: Option<&str>,
    ) -> Result<Option<SecretData>, InstanceError> {
        let key = secret_key(machine, reference);
        let watched = machine.namespace().as_deref() == Some(key.namespace());
        let cached = watched.then(|| self.secrets.get(&key)).flatten();
        let found = match cached.filter(|cached| is_complete(cached, required)) {
            Some(cached) => Some(Secret::clone(&cached)),
            None => {
                let api: Api<Secret> = Api::namespaced(self.cx.client.clone(), key.namespace());
                let found = api.get_opt(&key.name).await;
                found.map_err(|error| {
                    InstanceError::Unavailable(format!("Secret {key} could not be read: {error}"))
                })?
            }
        };
        let data = found.map(|secret| secret.data.unwrap_or_default());
        Ok(data
            .map(|data| data.into_iter().map(|(key, value)| (key, secret::Secret::new(value.0))).collect()))
    }

    /// The tags that the cluster prescribes; none where there is no Infrastructure.
    async fn cluster_tags(&self) -> Result<BTreeMap<String, String>, InstanceError> {
        let mut kept = self.tags.0.lock().await;
        if let Some((read, tags)) = &*kept
            && read.elapsed() < TAGS_MAX_AGE
        {
            return Ok(tags.clone());
        }
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
        let resource = ApiResource::from_gvk_with_plural(&kind, "infrastructures");
        let api: Api<DynamicObject> = Api::all_with(self.cx.client.clone(), &resource);
        let found = match api.get("cluster").await {
            Ok(found) => Some(found),
            // It does not exist, or its whole API does not: this is no cluster of OpenShift.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => {
                let text = format!("Infrastructure cluster could not be read: {error}");
                return Err(InstanceError::Unavailable(text));
            }
        };
        let tags = found.map(|found| resource_tags(&found.data)).unwrap_or_default();
        *kept = Some((Instant::now(), tags.clone()));
        Ok(tags)
    }
}

/// Whether a cached Secret has the key that is required of it.
fn is_complete(cached: &Secret, required: Option<&str>) -> bool {
    required.is_none_or(|key| cached.data.as_ref().is_some_and(|data| data.contains_key(key)))
}

fn secret_key(machine: &Machine, reference: &SecretRef) -> ObjectKey {
    let namespace = reference.namespace.clone().or_else(|| machine.namespace()).unwrap_or_default();
    ObjectKey::namespaced(&namespace, &reference.name)
}

fn missing(machine: &Machine, what: &str, reference: &SecretRef) -> String {
    format!("Secret {} with the {what} does not exist", secret_key(machine, reference))
}

/// `status.platformStatus.<platform>.resourceTags` of an Infrastructure.
fn resource_tags(infrastructure: &Value) -> BTreeMap<String, String> {
    let platforms = infrastructure.pointer("/status/platformStatus").and_then(Value::as_object);
    let lists = platforms.into_iter().flatten().filter_map(|(_, platform)| platform.get("resourceTags"));
    let tags = lists.filter_map(Value::as_array).flatten();
    let text = |tag: &Value, key: &str| tag.get(key).and_then(Value::as_str).map(str::to_owned);
    tags.filter_map(|tag| Some((text(tag, "key")?, text(tag, "value")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_secret_without_the_required_key_is_read_again() {
        let secret = |data: Value| serde_json::from_value(serde_json::json!({ "data": data })).unwrap();
        let (empty, full): (Secret, Secret) =
            (secret(Value::Null), secret(serde_json::json!({"userData": "YQ=="})));
        assert!(!is_complete(&empty, Some(USER_DATA)));
        assert!(!is_complete(&secret(serde_json::json!({"other": "YQ=="})), Some(USER_DATA)));
        assert!(is_complete(&full, Some(USER_DATA)));
        assert!(is_complete(&empty, None));
    }
}
