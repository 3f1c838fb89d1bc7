//! A customer's subscription, as the resource manager tells us of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Document;

/// A subscription and what it is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Its id, in lower case.
    pub subscription_id: String,
    /// Whether it may use us.
    pub state: SubscriptionState,
    /// The tenant that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Features that it is registered for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered_features: Vec<String>,
    /// What the resource manager told us, as it is given back: with members that we do not know, without the owner's address.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Whether a subscription may use us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubscriptionState {
    /// In good standing.
    Registered,
    /// No longer registered with this provider.
    Unregistered,
    /// In arrears; still served.
    Warned,
    /// Reads and deletes only.
    Suspended,
    /// To be removed with all that it holds.
    Deleted,
}

impl Document for Subscription {
    const KIND: &'static str = "subscription";

    fn path(&self) -> String {
        format!("/subscriptions/{}", self.subscription_id.to_lowercase())
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}
