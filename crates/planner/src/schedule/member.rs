//! Cluster attributes that schedules use.

use api::doc::{Cluster, ProvisioningState, SubscriptionState};
use api::selector::ClusterAttributes;
use jiff::Timestamp;
use uuid::Uuid;

use super::spread::position_of;

/// Cluster of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Uuid; a later cluster of the same name has another.
    pub uuid: Uuid,
    /// Resource id in lower case.
    pub path: String,
    /// Attributes that selectors match.
    pub attributes: ClusterAttributes,
    /// Whether its provisioning state permits maintenance.
    pub maintained: bool,
    /// Time of creation or import; earlier periods do not apply to it.
    pub created_at: Timestamp,
    /// Position in spreads by cluster.
    pub position: u32,
    /// Location.
    pub location: String,
    /// Subscription id in lower case.
    pub subscription: String,
}

impl Member {
    /// Builds a member from the cluster's document, the state of its subscription and its last observed version.
    pub fn new(
        uuid: Uuid,
        cluster: &Cluster,
        subscription: Option<SubscriptionState>,
        version: Option<&str>,
    ) -> Member {
        Member {
            uuid,
            path: cluster.id.to_lowercase(),
            attributes: ClusterAttributes::of(cluster, subscription, version),
            maintained: is_maintained(cluster),
            created_at: cluster.created_at,
            position: position_of(&cluster.id),
            location: cluster.location.clone(),
            subscription: cluster.subscription_id.to_lowercase(),
        }
    }

    /// Keys of the budgets that count a task on this cluster.
    pub fn budgets(&self, task: Uuid) -> Vec<String> {
        vec![
            "fleet".to_owned(),
            format!("region/{}", self.location),
            format!("subscription/{}", self.subscription),
            format!("task/{task}"),
        ]
    }
}

/// False during creation and deletion, and after either failed: the cluster may be incomplete.
fn is_maintained(cluster: &Cluster) -> bool {
    match cluster.provisioning_state {
        ProvisioningState::Creating | ProvisioningState::Deleting => false,
        ProvisioningState::Failed => !matches!(
            cluster.failed_provisioning_state,
            Some(ProvisioningState::Creating | ProvisioningState::Deleting)
        ),
        ProvisioningState::Updating | ProvisioningState::AdminUpdating | ProvisioningState::Succeeded => true,
    }
}
