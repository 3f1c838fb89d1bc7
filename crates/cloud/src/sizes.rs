//! VM sizes, quotas and resource providers of a subscription in a location.

use serde::{Deserialize, Serialize};

/// A VM size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// The name, such as `Standard_D8s_v5`.
    pub name: String,
    /// The family whose quota it counts against.
    pub family: String,
    /// The number of cores.
    pub cores: u32,
    /// The zones that offer it.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Whether it supports encryption at host.
    #[serde(default)]
    pub encryption_at_host: bool,
    /// Whether the subscription may use it in the location.
    #[serde(default)]
    pub availability: Availability,
}

/// Whether a subscription may use a size.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Availability {
    /// Without restriction.
    #[default]
    Available,
    /// The cloud restricts it.
    Restricted(Restriction),
}

/// A restriction of a size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// The cloud's code, such as `NotAvailableForSubscription`.
    pub reason: String,
}

/// The usage of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The quota's name, such as `cores` or `PublicIPAddresses`.
    pub quota: String,
    /// The current usage.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

/// The registration of a resource provider in a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderRegistration {
    /// The namespace, such as `Microsoft.Compute`.
    pub namespace: String,
    /// Whether it is registered.
    pub registered: bool,
}
