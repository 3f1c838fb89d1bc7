//! The instance provider of Azure on the emulator, over HTTP: crashes at every call, faults, and machines that join their cluster.

mod booting;
mod crashes;
mod failures;
mod interruptions;

use std::collections::BTreeMap;

use api::install::InstallRequest;
use api::secret::Secret;
use cloud::{Infrastructure as _, Instance, InstanceError, InstanceProvider as _, InstanceRequest};
use cloud_azure::{AzureInstances, InstanceSettings, Settings};
use cloudsim::Options;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::environment::{Environment, SUBSCRIPTION, eventually};

/// An emulator with what a cluster needs, and the provider for its machines.
struct InstanceEnvironment {
    emulator: Environment,
    install: InstallRequest,
    provider: AzureInstances,
}

impl InstanceEnvironment {
    async fn new() -> InstanceEnvironment {
        InstanceEnvironment::with(Options::default()).await
    }

    async fn with(options: Options) -> InstanceEnvironment {
        let emulator = Environment::with(options).await;
        let install = emulator.prepared("one").await;
        let provider = provider(&emulator);
        InstanceEnvironment { emulator, install, provider }
    }

    /// A Machine of the cluster.
    fn machine(&self, name: &str) -> InstanceRequest {
        let endpoints = &self.emulator.endpoints;
        let secret = std::fs::read_to_string(&endpoints.client_secret_file).unwrap();
        let credentials = [
            ("azure_client_id", endpoints.client_id.as_str()),
            ("azure_client_secret", &secret),
            ("azure_tenant_id", &endpoints.tenant_id),
            ("azure_subscription_id", SUBSCRIPTION),
            ("azure_region", "westeurope"),
        ];
        let bytes = |text: &str| Secret::new(text.as_bytes().to_vec());
        InstanceRequest {
            namespace: "openshift-machine-api".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            cluster_id: self.install.infra_id.clone(),
            labels: BTreeMap::new(),
            provider_spec: self.spec(),
            provider_id: None,
            provider_status: None,
            created: Timestamp::UNIX_EPOCH,
            deleted: None,
            user_data: Some(bytes(&user_data(&self.install.domain))),
            credentials: Some(credentials.map(|(name, text)| (name.to_owned(), bytes(text))).into()),
            tags: BTreeMap::new(),
        }
    }

    fn spec(&self) -> Value {
        json!({
            "kind": "AzureMachineProviderSpec", "zone": "1", "vmSize": "Standard_D4s_v5", "publicIP": true,
            "image": { "publisher": "azureopenshift", "offer": "aro4", "sku": "aro_417", "version": "417.94.1" },
            "osDisk": { "diskSizeGB": 128, "osType": "Linux", "managedDisk": { "storageAccountType": "Premium_LRS" } },
            "dataDisks": [
                { "nameSuffix": "cache", "diskSizeGB": 16, "lun": 0, "deletionPolicy": "Delete" },
            ],
            "resourceGroup": self.install.group.resource_group(), "networkResourceGroup": "net",
            "vnet": "v", "subnet": "worker", "internalLoadBalancer": self.install.load_balancer.name(),
        })
    }

    /// The names of everything in the cluster's group that holds a text.
    async fn parts(&self, text: &str) -> Vec<String> {
        let all = self.emulator.cloud.azure().list(&self.install.group).await.unwrap();
        let mut names: Vec<String> =
            all.iter().map(|it| it.id.name().to_owned()).filter(|it| it.contains(text)).collect();
        names.sort();
        names
    }

    /// Creates an instance as the machine controller does: it looks, and creates what is not there.
    async fn created(&self, request: &InstanceRequest) -> Instance {
        eventually("the instance is there", async || match self.provider.find(request).await {
            Ok(Some(found)) => Some(found),
            Ok(None) => match self.provider.create(request).await {
                Ok(_) | Err(InstanceError::RequeueAfter(..) | InstanceError::Create(_)) => None,
                Err(InstanceError::Unavailable(_)) => None,
                Err(error) => panic!("{error}"),
            },
            Err(InstanceError::Unavailable(_) | InstanceError::RequeueAfter(..)) => None,
            Err(error) => panic!("{error}"),
        })
        .await
    }

    /// Deletes an instance until nothing is left.
    async fn deleted(&self, request: &InstanceRequest) {
        eventually("the instance is deleted", async || match self.provider.delete(request).await {
            Ok(()) => Some(()),
            Err(InstanceError::InvalidConfiguration(why)) => panic!("{why}"),
            Err(_) => None,
        })
        .await;
        assert_eq!(self.provider.find(request).await, Ok(None));
    }

    /// Deletes an instance, and checks that nothing of it is left.
    async fn deleted_with_all_parts(&self, request: &InstanceRequest) {
        self.deleted(request).await;
        assert_eq!(self.parts(&request.name).await, [""; 0]);
    }
}

/// The parts of a machine of [`InstanceEnvironment::spec`].
fn all_parts(cluster: &str, machine: &str) -> Vec<String> {
    let mut names = vec![
        machine.to_owned(),
        format!("{machine}-nic"),
        format!("{machine}_OSDisk"),
        format!("{machine}_cache"),
        format!("{cluster}-{machine}"),
    ];
    names.sort();
    names
}

fn provider(emulator: &Environment) -> AzureInstances {
    let settings = serde_json::to_string(&emulator.endpoints).unwrap();
    let settings = Settings::from_endpoints_json(&settings).unwrap();
    AzureInstances::new(InstanceSettings::from(&settings)).unwrap()
}

/// The user data that an installer makes for workers: where the rest of the configuration is.
fn user_data(domain: &str) -> String {
    let source = format!("https://api-int.{domain}:22623/config/worker");
    json!({ "ignition": { "config": { "merge": [{ "source": source }] }, "version": "3.2.0" } }).to_string()
}
