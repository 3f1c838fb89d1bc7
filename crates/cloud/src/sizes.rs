//! What a subscription can have in a location: sizes of machines, quotas, providers.

use serde::{Deserialize, Serialize};

/// A size of machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// Its name, as `Standard_D8s_v5`.
    pub name: String,
    /// The family whose quota it counts against.
    pub family: String,
    /// Its cores.
    pub cores: u32,
    /// The zones where it can be had.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Whether disks can be encrypted where it runs.
    #[serde(default)]
    pub encryption_at_host: bool,
    /// Whether this subscription may have it here.
    #[serde(default)]
    pub availability: Availability,
}

/// Whether a subscription may have something.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Availability {
    /// It may.
    #[default]
    Available,
    /// It may not.
    Restricted(Restriction),
}

/// Why a subscription may not have something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// The cloud's word for it, as `NotAvailableForSubscription`.
    pub reason: String,
}

/// How much of a limit is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The quota's name, as `cores` or `PublicIPAddresses`.
    pub quota: String,
    /// In use.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

/// A provider of the cloud, and whether a subscription has registered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// Its namespace, as `Microsoft.Compute`.
    pub namespace: String,
    /// Whether it is registered.
    pub registered: bool,
}
