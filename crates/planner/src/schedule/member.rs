//! A cluster as schedules see it.

use api::doc::{Cluster, ProvisioningState, SubscriptionState};
use api::selector::ClusterAttributes;
use jiff::Timestamp;
use uuid::Uuid;

use super::spread::position_of;

/// A cluster of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its identity, which no later cluster of the same name has.
    pub uuid: Uuid,
    /// Its resource id, in lower case.
    pub path: String,
    /// What selectors see of it.
    pub attributes: ClusterAttributes,
    /// Whether it is there to be maintained at all.
    pub maintained: bool,
    /// When it was created or imported; earlier periods are none of its.
    pub created_at: Timestamp,
    /// Where it stands in spreads by cluster.
    pub position: u32,
    /// Where it runs.
    pub location: String,
    /// Its subscription, in lower case.
    pub subscription: String,
}

impl Member {
    /// From a cluster's document, the state of its subscription and the version that was last seen in it.
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

    /// The budgets that count a task's work on it.
    pub fn budgets(&self, task: Uuid) -> Vec<String> {
        vec![
            "fleet".to_owned(),
            format!("region/{}", self.location),
            format!("subscription/{}", self.subscription),
            format!("task/{task}"),
        ]
    }
}

/// Not while it is made or removed, nor when that failed: there is nothing to be kept in order then.
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
