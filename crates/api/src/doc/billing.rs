//! What is billed: one record for each cluster, which outlives it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Document;

/// From when to when a cluster is billed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Billing {
    /// The cluster; the record has an identity of its own, since it outlives it.
    pub cluster: Uuid,
    /// That cluster's path.
    pub cluster_path: String,
    /// The subscription that pays, in lower case.
    pub subscription_id: String,
    /// The group in which its resources were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_resource_group: Option<String>,
    /// By which its resources were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_id: Option<String>,
    /// Where the cluster ran.
    pub location: String,
    /// The tenant that owns the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Billed from.
    pub creation_time: Timestamp,
    /// Billed up to; none while the cluster lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_time: Option<Timestamp>,
    /// Up to when it has been billed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
