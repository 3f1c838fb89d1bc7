//! The trait of the machine controllers on AWS.

use api::clock::SharedClock;
use async_trait::async_trait;
use cloud::{Instance, InstanceError, InstanceProvider, InstanceRequest, SecretRefs};
use serde_json::Value;

use crate::access::ClientCache;
use crate::errors::{Verb, failed, invalid};
use crate::find::{Target, creation_time, recorded_id};
use crate::settings::{AwsSettings, SettingsError};
use crate::spec::{ProviderSpec, SecretReference};
use crate::transport::Transport;
use crate::{state, tags, validate};

/// Longest idempotency token.
const TOKEN_CHARS_MAX: usize = 64;

/// Instances of EC2.
#[derive(Debug)]
pub struct AwsInstances {
    clients: ClientCache,
    settings: AwsSettings,
    clock: SharedClock,
}

impl AwsInstances {
    /// A provider. Nothing is sent yet.
    pub fn new(settings: AwsSettings, clock: SharedClock) -> Result<AwsInstances, SettingsError> {
        let transport = Transport::new(settings.ca_pem.as_deref())?;
        Ok(AwsInstances { clients: ClientCache::new(&settings, transport), settings, clock })
    }

    /// The Machine that a request is about.
    async fn target(&self, request: &InstanceRequest, verb: Verb) -> Result<Target, InstanceError> {
        let spec = ProviderSpec::read(&request.provider_spec)?;
        validate::check_region(&spec)?;
        let region = &spec.placement.region;
        let recorded = recorded_id(request, region).map_err(|why| failed(verb, why))?;
        // A Secret can be mended, so this is no reason to give a Machine up.
        let clients = self.clients.get(request.credentials.as_ref(), region).await;
        let clients = clients.map_err(|why| failed(verb, why))?;
        let is_token = |it: &str| !it.is_empty() && it.len() <= TOKEN_CHARS_MAX && it.is_ascii();
        if !is_token(&request.uid) {
            return Err(failed(verb, format!("metadata.uid is '{}'; expected a UUID", request.uid)));
        }
        let tags = tags::tags(&request.cluster_id, &request.name, &spec.tags, &request.tags);
        Ok(Target {
            clients,
            machine: request.name.clone(),
            cluster: request.cluster_id.clone(),
            token: request.uid.clone(),
            tags,
            recorded,
            creation: creation_time(request),
            deleted: request.deleted,
            now: self.clock.now(),
            consistency: self.settings.consistency,
            spec,
        })
    }
}

#[async_trait]
impl InstanceProvider for AwsInstances {
    fn secrets(&self, provider_spec: &Value) -> Result<SecretRefs, InstanceError> {
        let spec = ProviderSpec::read(provider_spec)?;
        let reference = |it: &Option<SecretReference>| it.as_ref().and_then(SecretReference::secret_ref);
        Ok(SecretRefs {
            user_data: reference(&spec.user_data_secret),
            credentials: reference(&spec.credentials_secret),
        })
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        let target = self.target(request, Verb::Find).await?;
        let found = target.find().await?;
        Ok(found.map(|it| state::instance(&it, &target.spec.placement.region)))
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        let target = self.target(request, Verb::Create).await?;
        validate::validate(&target.spec)?;
        if target.spec.user_data_secret.is_some() && request.user_data.is_none() {
            return Err(invalid("userDataSecret is set, but its Secret was not read"));
        }
        target.create(request.user_data.as_ref()).await
    }

    async fn update(&self, request: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        let target = self.target(request, Verb::Update).await?;
        target.update(found).await
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        self.target(request, Verb::Delete).await?.delete().await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use api::clock::ManualClock;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    pub(crate) fn request(provider_spec: Value) -> InstanceRequest {
        InstanceRequest {
            namespace: "openshift-machine-api".to_owned(),
            name: "m".to_owned(),
            uid: "uid-1".to_owned(),
            cluster_id: "one".to_owned(),
            labels: BTreeMap::new(),
            provider_spec,
            provider_id: None,
            provider_status: None,
            created: Timestamp::UNIX_EPOCH,
            deleted: None,
            user_data: None,
            credentials: None,
            tags: BTreeMap::new(),
        }
    }

    fn provider() -> AwsInstances {
        AwsInstances::new(AwsSettings::default(), ManualClock::at(Timestamp::UNIX_EPOCH)).unwrap()
    }

    #[test]
    fn the_secrets_are_those_of_the_machines_namespace() {
        let spec =
            json!({"userDataSecret": {"name": "worker-user-data"}, "credentialsSecret": {"name": "aws"}});
        let secrets = provider().secrets(&spec).unwrap();
        let (user_data, credentials) = (secrets.user_data.unwrap(), secrets.credentials.unwrap());
        assert_eq!((user_data.namespace, user_data.name.as_str()), (None, "worker-user-data"));
        assert_eq!((credentials.namespace, credentials.name.as_str()), (None, "aws"));
        assert_eq!(provider().secrets(&json!({})).unwrap(), SecretRefs::default());
    }

    #[tokio::test]
    async fn a_region_that_is_no_name_is_refused_before_anything_is_sent() {
        let request = request(json!({"placement": {"region": "eu-west-1.evil.example/"}}));
        let error = provider().find(&request).await.unwrap_err();
        assert!(matches!(error, InstanceError::InvalidConfiguration(_)), "{error}");
    }
}
