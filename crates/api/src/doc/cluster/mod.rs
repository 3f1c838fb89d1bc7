//! A managed cluster.

mod provisioned;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Document;
pub use provisioned::{
    Identity, Ingress, MasterPool, NetworkSpec, OutboundType, PlatformIdentity, Provisioned, Record,
    RegistryToken, Spec, Switch, SystemData, Visibility, WorkerPool, WorkerPoolStatus,
};

/// A managed cluster: created through the ARM API, or imported by its kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// The resource id in the spelling of whoever created it.
    pub id: String,
    /// The subscription that it belongs to, in lower case.
    pub subscription_id: String,
    /// Its name, the last segment of the id.
    pub name: String,
    /// The place where it runs; one of the configured locations.
    pub location: String,
    /// Labels by which selections find it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What its customer sees of its life; a projection of its operation.
    pub provisioning_state: ProvisioningState,
    /// The state before the present operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_provisioning_state: Option<ProvisioningState>,
    /// What it was doing when it failed; decides what may be asked of it next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The operation that is under way, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// The client id or identity that it works with; no two living clusters may share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The resource group that we manage for it; no two living clusters may share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_resource_group: Option<String>,
    /// Whether it was imported by its kubeconfig rather than created by us.
    #[serde(default)]
    pub imported: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// What a cluster of ours has and an imported one has not: what its customer asked for, and what we made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<Box<Provisioned>>,
}

/// What a customer sees of a cluster's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProvisioningState {
    /// Being made.
    Creating,
    /// Being changed as its customer asked.
    Updating,
    /// Being changed as an operator asked; its customer does not see it.
    AdminUpdating,
    /// Being removed.
    Deleting,
    /// Nothing is under way and the last operation succeeded.
    Succeeded,
    /// Nothing is under way and the last operation failed.
    Failed,
}

impl ProvisioningState {
    /// Whether no operation is under way.
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
    /// What runs in a cluster that we made: it is recorded. What its API server says of itself is Kubernetes' own version; of
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
