//! The instance provider: virtual machines of Azure for the machine controllers of a cluster, in the terms of OpenShift's Azure provider.
//!
//! A machine is created in steps, each of which is found by its name when the call is repeated: public address, availability set,
//! interface, virtual machine. Until the virtual machine has been created, it does not exist for `find`: `create` is then called again,
//! and waits for it or replaces a creation that failed, as it does when a zone has no capacity. Deletion confirms the absence of every
//! part (docs/decisions/0039-azure-instances.md).

mod access;
mod body;
mod create;
mod delete;
mod errors;
mod names;
mod spec;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{HttpClient, Method};
use cloud::{
    CloudError, Instance, InstanceError, InstanceProvider, InstanceRequest, ResourceId, ResourceKind,
    SecretRefs,
};
use serde_json::{Value, json};

use self::access::{Access, Clients};
use self::errors::{Verb, failed, instance_error};
use self::names::Names;
use self::spec::ProviderSpec;
use self::state::Stage;
use crate::arm::{Arm, Call, Condition};
use crate::json::text;
use crate::resources::version;
use crate::settings::{PUBLIC_SCOPE, Settings, SettingsError};
use crate::transport::Transport;

/// The label of the MachineSet that a Machine belongs to.
const MACHINE_SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
/// The label of the cluster that a Machine belongs to.
const CLUSTER_LABEL: &str = "machine.openshift.io/cluster-api-cluster";
/// Where the token of the controllers' service account is, when the Secret names no file.
const TOKEN_FILE: &str = "/var/run/secrets/openshift/serviceaccount/token";
/// Wait for a part that Azure makes within seconds.
const PART_WAIT: Duration = Duration::from_secs(5);
/// Wait for a virtual machine, which takes a minute.
const MACHINE_WAIT: Duration = Duration::from_secs(15);
/// Shortest wait, in clouds that are quicker than Azure.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// The api-version of availability sets.
const AVAILABILITY_SETS: &str = "2024-07-01";
/// The api-version of application security groups.
const APPLICATION_GROUPS: &str = "2024-05-01";

/// The cloud in which a cluster's machines are. The credential is in the cluster.
#[derive(Debug, Clone)]
pub struct InstanceSettings {
    /// The authority that issues tokens: the https URL of Entra ID.
    pub authority: String,
    /// The https URL of the resource manager.
    pub resource_manager: String,
    /// The scope of the resource manager's tokens.
    pub scope: String,
    /// The URL of the instance metadata service; `None` for its fixed address.
    pub metadata: Option<String>,
    /// Trusted authorities in PEM, besides those of the system.
    pub ca_pem: Option<String>,
    /// The file of the service account's token, for Secrets that name neither a secret nor a file.
    pub federated_token_file: PathBuf,
    /// How long things take there compared with Azure, which is 1: a factor on the waits between two looks.
    pub pace: f64,
}

impl InstanceSettings {
    /// The settings of a cloud by its name in `Infrastructure.status.platformStatus.azure.cloudName`; empty for the public cloud.
    pub fn of_cloud(name: &str) -> Result<InstanceSettings, SettingsError> {
        let (authority, resource_manager, scope) = match name {
            "" | "AzurePublicCloud" => {
                ("https://login.microsoftonline.com", "https://management.azure.com", PUBLIC_SCOPE)
            }
            "AzureUSGovernmentCloud" => (
                "https://login.microsoftonline.us",
                "https://management.usgovcloudapi.net",
                "https://management.core.usgovcloudapi.net/.default",
            ),
            other => {
                let why =
                    format!("'{other}' is not known; accepted are AzurePublicCloud, AzureUSGovernmentCloud");
                return Err(SettingsError { setting: "cloudName", why });
            }
        };
        Ok(InstanceSettings {
            authority: authority.to_owned(),
            resource_manager: resource_manager.to_owned(),
            scope: scope.to_owned(),
            metadata: None,
            ca_pem: None,
            federated_token_file: TOKEN_FILE.into(),
            pace: 1.0,
        })
    }
}

impl From<&Settings> for InstanceSettings {
    /// The cloud that a service's settings describe, such as an emulator.
    fn from(settings: &Settings) -> InstanceSettings {
        InstanceSettings {
            authority: settings.authority.clone(),
            resource_manager: settings.resource_manager.clone(),
            scope: settings.scope.clone(),
            metadata: settings.metadata.clone(),
            ca_pem: settings.ca_pem.clone(),
            federated_token_file: TOKEN_FILE.into(),
            pace: 1.0,
        }
    }
}

/// Virtual machines of Azure.
#[derive(Debug)]
pub struct AzureInstances {
    settings: InstanceSettings,
    http: Arc<dyn HttpClient>,
    clients: Clients,
}

impl AzureInstances {
    /// A provider in a cloud. Nothing is sent yet.
    pub fn new(settings: InstanceSettings) -> Result<AzureInstances, SettingsError> {
        let http = Transport::new(settings.ca_pem.as_deref(), settings.metadata.as_deref())?;
        Ok(AzureInstances::with_http(settings, Arc::new(http)))
    }

    /// A provider for another cluster of the same cloud. They share connections, and no credentials.
    pub fn for_another_cluster(&self) -> AzureInstances {
        AzureInstances::with_http(self.settings.clone(), self.http.clone())
    }

    pub(crate) fn with_http(settings: InstanceSettings, http: Arc<dyn HttpClient>) -> AzureInstances {
        AzureInstances { settings, http, clients: Clients::default() }
    }

    /// The machine that a request is about.
    fn target(&self, request: &InstanceRequest, verb: Verb) -> Result<Target, InstanceError> {
        let mut spec = ProviderSpec::read(&request.provider_spec)?;
        // A Secret can be mended, so this is no reason to give a Machine up.
        let unusable = |why: String| failed(verb, why);
        let Some(credentials) = &request.credentials else {
            let why = "providerSpec.value.credentialsSecret is missing; expected the name of a Secret with azure_client_id, \
                       azure_client_secret, azure_tenant_id and azure_subscription_id";
            return Err(match verb {
                Verb::Create => InstanceError::InvalidConfiguration(why.to_owned()),
                _ => unusable(why.to_owned()),
            });
        };
        let access =
            access::access(&self.clients, &self.settings, &self.http, credentials).map_err(unusable)?;
        access.complete(&mut spec);
        validate::check_names(&spec)?;
        let set = request.labels.get(MACHINE_SET_LABEL);
        let names = Names::new(&access.subscription, &spec, &request.name, &request.cluster_id, set);
        let tags = names::tags(&request.cluster_id, &request.tags, &spec.tags);
        let cluster = request.cluster_id.clone();
        let recorded = recorded_ids(request);
        if let Some((field, id)) = recorded.iter().find(|(_, id)| !is_id_of(id, &names.machine())) {
            return Err(failed(verb, contradiction(field, id, &names.machine())));
        }
        let Access { arm, .. } = access;
        let waits = Waits::at_pace(self.settings.pace);
        Ok(Target { arm, spec, names, tags, cluster, waits, is_recorded: !recorded.is_empty() })
    }
}

/// The ids of the virtual machine that the Machine has recorded, each with its field: those of the time when it was created.
fn recorded_ids(request: &InstanceRequest) -> Vec<(&'static str, &str)> {
    let status = request.provider_status.as_ref().map(|it| text(it, "/vmId")).unwrap_or_default();
    let provider_id = request.provider_id.as_deref().unwrap_or_default();
    let provider_id = provider_id.strip_prefix("azure://").unwrap_or(provider_id);
    let all = [("status.providerStatus.vmId", status), ("spec.providerID", provider_id)];
    all.into_iter().filter(|(_, id)| !id.is_empty()).collect()
}

fn is_id_of(id: &str, machine: &ResourceId) -> bool {
    id.eq_ignore_ascii_case(machine.as_str())
}

/// Why nothing is done: elsewhere the machine would not be found, and would be given up or left behind.
fn contradiction(field: &str, id: &str, machine: &ResourceId) -> String {
    format!(
        "{field} is the virtual machine {id}, but providerSpec.value.resourceGroup and the Secret of credentialsSecret lead to {machine}; \
         restore them"
    )
}

/// A machine with the way to it.
struct Target {
    arm: Arc<Arm>,
    spec: ProviderSpec,
    names: Names,
    tags: BTreeMap<String, String>,
    cluster: String,
    waits: Waits,
    /// Whether the Machine has recorded this virtual machine as its own.
    is_recorded: bool,
}

/// The waits for what the cloud has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waits {
    part: Duration,
    machine: Duration,
}

impl Waits {
    fn at_pace(pace: f64) -> Waits {
        let pace = if pace.is_finite() { pace.clamp(0.0, 1.0) } else { 1.0 };
        let scaled = |wait: Duration| wait.mul_f64(pace).max(WAIT_MIN);
        Waits { part: scaled(PART_WAIT), machine: scaled(MACHINE_WAIT) }
    }
}

impl Target {
    /// The virtual machine with its instance view. Where even the resource group of a recorded one is missing, nothing is known about it.
    async fn machine(&self) -> Result<Option<Value>, CloudError> {
        let id = self.names.machine();
        let query = [("$expand", "instanceView")];
        let call = Call { query: &query, ..Call::get(id.as_str(), version(ResourceKind::Machine)) };
        match self.arm.send(call).await {
            Ok(response) => response.json(&format!("GET {id}")).map(Some),
            Err(CloudError::NotFound { what }) if !self.is_recorded || is_id_of(&what, &id) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, id: &ResourceId, version: &str) -> Result<Option<Value>, CloudError> {
        self.arm.find(id.as_str(), version, &[]).await
    }

    /// Writes a resource, and returns it as Azure has accepted it.
    async fn put(
        &self,
        id: &ResourceId,
        version: &str,
        body: &Value,
        condition: Condition<'_>,
    ) -> Result<Value, CloudError> {
        let call = Call { body: Some(body), condition, ..Call::new(Method::Put, id.as_str(), version) };
        self.arm.send(call).await?.json(&format!("PUT {id}"))
    }

    fn is_foreign(&self, body: &Value) -> bool {
        names::is_foreign(body, &self.cluster)
    }

    /// Whether a resource is the Machine's by its tags. One of a recorded machine that is another cluster's is a contradiction: the label
    /// of the cluster or the tags were changed.
    fn is_own(&self, body: &Value, verb: Verb) -> Result<bool, InstanceError> {
        let is_foreign = self.is_foreign(body);
        if is_foreign && self.is_recorded {
            let (id, cluster) = (text(body, "/id"), &self.cluster);
            return Err(failed(
                verb,
                format!(
                    "{id} belongs to another cluster than '{cluster}', by its tags, but the Machine has recorded it as its own; restore \
                     the label {CLUSTER_LABEL} or the tags"
                ),
            ));
        }
        Ok(!is_foreign)
    }

    /// The instance, with the addresses of its interfaces. An interface that is gone has none.
    async fn instance(&self, machine: &Value) -> Result<Instance, CloudError> {
        let (mut interfaces, mut addresses) = (Vec::new(), Vec::new());
        for id in state::interfaces(machine) {
            let Some(interface) = self.read(&id, version(ResourceKind::NetworkInterface)).await? else {
                continue;
            };
            for id in state::public_addresses(&interface) {
                addresses.extend(self.read(&id, version(ResourceKind::PublicIp)).await?);
            }
            interfaces.push(interface);
        }
        Ok(state::instance(machine, &interfaces, &addresses))
    }
}

#[async_trait]
impl InstanceProvider for AzureInstances {
    fn secrets(&self, provider_spec: &Value) -> Result<SecretRefs, InstanceError> {
        let spec = ProviderSpec::read(provider_spec)?;
        let reference =
            |it: &Option<spec::SecretReference>| it.as_ref().and_then(spec::SecretReference::secret_ref);
        let mut user_data = reference(&spec.user_data_secret);
        if let Some(secret) = &mut user_data {
            // It is always a Secret of the Machine's namespace.
            secret.namespace = None;
        }
        Ok(SecretRefs { user_data, credentials: reference(&spec.credentials_secret) })
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        let target = self.target(request, Verb::Find)?;
        let wrong = |error| instance_error(error, Verb::Find);
        let Some(machine) = target.machine().await.map_err(wrong)? else { return Ok(None) };
        if !target.is_own(&machine, Verb::Find)? {
            return Ok(None);
        }
        match state::stage(&machine) {
            Stage::Creating | Stage::CreationFailed | Stage::Deleting if request.provider_id.is_none() => {
                Ok(None)
            }
            Stage::Creating | Stage::CreationFailed | Stage::Deleting | Stage::Present => {
                target.instance(&machine).await.map(Some).map_err(wrong)
            }
        }
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        let target = self.target(request, Verb::Create)?;
        let user_tags = target.tags.len().saturating_sub(1);
        validate::validate(&target.spec, &target.names, user_tags)?;
        target.create(request.user_data.as_ref()).await
    }

    async fn update(&self, request: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        let target = self.target(request, Verb::Update)?;
        let wrong = |error| instance_error(error, Verb::Update);
        let id = target.names.machine();
        let version = version(ResourceKind::Machine);
        let Some(machine) = target.read(&id, version).await.map_err(wrong)? else {
            return Err(failed(Verb::Update, format!("the virtual machine {} was not found", id.name())));
        };
        if state::stage(&machine) == Stage::Present
            && let Some(tags) = names::with_missing_tags(&machine, &target.tags)
        {
            let body = json!({ "tags": tags });
            let call = Call { body: Some(&body), ..Call::new(Method::Patch, id.as_str(), version) };
            target.arm.send(call).await.map_err(wrong)?;
        }
        Ok(found.clone())
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        self.target(request, Verb::Delete)?.delete().await
    }
}
