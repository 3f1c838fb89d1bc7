//! A customer's subscription, as the resource manager reports it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Document;

/// A subscription and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Its id, in lower case.
    pub subscription_id: String,
    /// Its state, which decides whether it may use the service.
    pub state: SubscriptionState,
    /// The tenant that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Features that it is registered for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered_features: Vec<String>,
    /// Properties from the resource manager, as they are returned: with members that we do not know, without the owner's address.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// State of a subscription.
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
    /// To be deleted with all its clusters.
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
