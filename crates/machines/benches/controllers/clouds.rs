//! Clouds without latency.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use cloud::{
    AddressKind, Instance, InstanceAddress, InstanceError, InstanceProvider, InstanceRequest, SecretRefs,
};
use serde_json::{Value, json};

/// The instance with this providerID and address.
fn instance(provider_id: String, address: String) -> Instance {
    Instance {
        provider_id,
        addresses: vec![InstanceAddress { kind: AddressKind::Hostname, address }],
        state: "Running".to_owned(),
        provider_status: json!({"vmState": "Running"}),
        region: Some("here".to_owned()),
        zone: Some("1".to_owned()),
        instance_type: Some("small".to_owned()),
        interruptible: false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives each new Machine the next of the Nodes that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<BTreeMap<String, Instance>>);

impl Pool {
    /// The providerID of a Node that waits.
    pub(crate) fn provider_id(number: usize) -> String {
        format!("pool:///{number}")
    }
}

#[async_trait]
impl InstanceProvider for Pool {
    fn secrets(&self, _: &Value) -> Result<SecretRefs, InstanceError> {
        Ok(SecretRefs::default())
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        Ok(lock(&self.0).get(&request.name).cloned())
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        let mut instances = lock(&self.0);
        let number = instances.len();
        let new = || instance(Pool::provider_id(number), request.name.clone());
        Ok(instances.entry(request.name.clone()).or_insert_with(new).clone())
    }

    async fn update(&self, _: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        Ok(found.clone())
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        lock(&self.0).remove(&request.name);
        Ok(())
    }
}

/// Has an instance for every Machine until it is deleted.
#[derive(Debug, Default)]
pub(crate) struct Everything(Mutex<HashSet<String>>);

/// The instance that [`Everything`] has for a Machine.
pub(crate) fn instance_of(machine: &str) -> Instance {
    instance(format!("everything:///{machine}"), machine.to_owned())
}

#[async_trait]
impl InstanceProvider for Everything {
    fn secrets(&self, _: &Value) -> Result<SecretRefs, InstanceError> {
        Ok(SecretRefs::default())
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        Ok((!lock(&self.0).contains(&request.name)).then(|| instance_of(&request.name)))
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        Ok(instance_of(&request.name))
    }

    async fn update(&self, _: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        Ok(found.clone())
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        lock(&self.0).insert(request.name.clone());
        Ok(())
    }
}
