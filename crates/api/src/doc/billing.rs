//! Billing records: one for each cluster, kept after the cluster is deleted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use super::Document;

/// Billing period of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Billing {
    /// Uuid of the cluster; the record has another id, since it outlives the cluster.
    pub cluster: Uuid,
    /// That cluster's path.
    pub cluster_path: String,
    /// The subscription that pays, in lower case.
    pub subscription_id: String,
    /// The resource group of its resources.
    #[serde(default)]
    pub managed_resource_group: Option<String>,
    /// Prefix of the names of its resources.
    #[serde(default)]
    pub infra_id: Option<String>,
    /// The cluster's location.
    pub location: String,
    /// The tenant that owns the subscription.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// Start of billing.
    pub creation_time: Timestamp,
    /// End of billing; none while the cluster exists.
    #[serde(default)]
    pub deletion_time: Option<Timestamp>,
    /// Time up to which it has been billed.
    #[serde(default)]
    pub last_billing_time: Option<Timestamp>,
}

impl Document for Billing {
    const KIND: &'static str = "billing";

    fn path(&self) -> String {
        format!("/billing/{}", self.cluster)
    }

    fn scope(&self) -> String {
        format!("/subscriptions/{}", self.subscription_id.to_lowercase())
    }
}
