//! A managed cluster.

mod provisioned;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use super::Document;
pub use provisioned::{
    Identity, Ingress, MasterPool, NetworkSpec, OutboundType, PlatformIdentity, Provisioned, Record,
    RegistryToken, Spec, Switch, SystemData, Visibility, WorkerPool, WorkerPoolStatus,
};

/// A managed cluster: created through the ARM API, or imported by its kubeconfig.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// The resource id as spelled at its creation.
    pub id: String,
    /// The subscription that it belongs to, in lower case.
    pub subscription_id: String,
    /// Its name, the last segment of the id.
    pub name: String,
    /// Its location; one of the configured locations.
    pub location: String,
    /// Labels for selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Provisioning state; derived from its operation.
    pub provisioning_state: ProvisioningState,
    /// The state before the present operation.
    #[serde(default)]
    pub last_provisioning_state: Option<ProvisioningState>,
    /// The provisioning state in which it failed; decides which requests are accepted next.
    #[serde(default)]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The operation in progress.
    #[serde(default)]
    pub operation: Option<Uuid>,
    /// Client id or identity that it uses in the cloud; unique among clusters.
    #[serde(default)]
    pub credential: Option<String>,
    /// Resource group that the service manages for it; unique among clusters.
    #[serde(default)]
    pub managed_resource_group: Option<String>,
    /// Whether it was imported by its kubeconfig instead of created by the service.
    #[serde(default)]
    pub imported: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// Specification and resources of a cluster that the service provisioned; none for an imported one.
    #[serde(default)]
    pub provisioned: Option<Box<Provisioned>>,
}

impl Cluster {
    /// A cluster with the members that every cluster has. Subscription and name come from the id; location, labels and the rest are
    /// empty or absent.
    pub fn new(id: impl Into<String>, state: ProvisioningState, created_at: Timestamp) -> Cluster {
        let id = id.into();
        let mut segments = id.split('/').skip_while(|it| !it.eq_ignore_ascii_case("subscriptions"));
        let subscription_id = segments.nth(1).unwrap_or_default().to_lowercase();
        let name = id.rsplit('/').next().unwrap_or_default().to_owned();
        Cluster {
            id,
            subscription_id,
            name,
            location: String::new(),
            labels: BTreeMap::new(),
            provisioning_state: state,
            last_provisioning_state: None,
            failed_provisioning_state: None,
            operation: None,
            credential: None,
            managed_resource_group: None,
            imported: false,
            created_at,
            provisioned: None,
        }
    }
}

/// Provisioning state of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProvisioningState {
    /// Being created.
    Creating,
    /// Being updated at its customer's request.
    Updating,
    /// Being updated at an operator's request; its customer does not see it.
    AdminUpdating,
    /// Being deleted.
    Deleting,
    /// No operation is in progress and the last one succeeded.
    Succeeded,
    /// No operation is in progress and the last one failed.
    Failed,
}

impl ProvisioningState {
    /// Whether no operation is in progress.
    pub fn is_terminal(self) -> bool {
        match self {
            ProvisioningState::Succeeded | ProvisioningState::Failed => true,
            ProvisioningState::Creating
            | ProvisioningState::Updating
            | ProvisioningState::AdminUpdating
            | ProvisioningState::Deleting => false,
        }
    }
}

impl Cluster {
    /// OpenShift version of a provisioned cluster, as recorded. Its API server reports the version of Kubernetes only; of
    /// an imported cluster nothing else is known.
    pub fn installed_version(&self) -> Option<&str> {
        let made = self.provisioned.as_deref()?;
        Some(made.record.running_version.as_ref().unwrap_or(&made.spec.version))
    }
}

impl Document for Cluster {
    const KIND: &'static str = "cluster";

    fn path(&self) -> String {
        self.id.to_lowercase()
    }

    fn scope(&self) -> String {
        format!("/subscriptions/{}", self.subscription_id.to_lowercase())
    }

    fn unique_keys(&self) -> Vec<String> {
        let credential = self.credential.iter().map(|it| format!("credential:{}", it.to_lowercase()));
        let group =
            self.managed_resource_group.iter().map(|it| format!("resource-group:{}", it.to_lowercase()));
        let named = self.provisioned.iter().filter_map(|it| it.managed_domain.as_ref());
        let domain = named.map(|it| format!("domain:{}", it.to_lowercase()));
        credential.chain(group).chain(domain).collect()
    }
}
