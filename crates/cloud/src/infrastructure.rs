//! The infrastructure role: the resources of a cluster, and what a subscription may use.

use async_trait::async_trait;

use crate::{CloudError, ProviderRegistration, Resource, ResourceId, ResourceRequest, Size, Usage};

/// Resource groups, networks, DNS, storage, endpoints, load balancers and machines as resources, and the offers and limits of a
/// subscription. Every call has a time limit of its own, can be repeated at any moment, and returns as soon as the cloud has
/// accepted it: callers poll states, no call waits for one.
#[async_trait]
pub trait Infrastructure: std::fmt::Debug + Send + Sync + 'static {
    /// Creates or updates a resource and returns its current state, which may still be in progress.
    async fn put(&self, put: ResourceRequest) -> Result<Resource, CloudError>;
    /// The current state of a resource; `None` when it does not exist.
    async fn get(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError>;
    /// The resources of a group, ordered by id; empty when the group does not exist.
    async fn list(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError>;
    /// Starts the deletion of a resource; a group is deleted with everything in it. Deleting a missing resource succeeds.
    async fn delete(&self, id: &ResourceId) -> Result<(), CloudError>;
    /// The VM sizes of a location, with the restrictions of this subscription.
    async fn sizes(&self, subscription: &str, location: &str) -> Result<Vec<Size>, CloudError>;
    /// The quotas of a subscription in a location, with their current usage.
    async fn usages(&self, subscription: &str, location: &str) -> Result<Vec<Usage>, CloudError>;
    /// The registration state of the resource providers that clusters need.
    async fn providers(&self, subscription: &str) -> Result<Vec<ProviderRegistration>, CloudError>;
    /// Whether a subscription has registered a feature, such as `Microsoft.Compute/EncryptionAtHost`; `None` when the feature is
    /// unknown.
    async fn feature(&self, subscription: &str, feature: &str) -> Result<Option<bool>, CloudError>;
    /// Starts the registration of a resource provider; registering a registered one changes nothing.
    async fn register_provider(&self, subscription: &str, namespace: &str) -> Result<(), CloudError> {
        Err(not_offered("the registration of providers", &format!("{namespace} in {subscription}")))
    }
    /// Starts the registration of a feature, such as `Microsoft.Compute/EncryptionAtHost`.
    async fn register_feature(&self, subscription: &str, feature: &str) -> Result<(), CloudError> {
        Err(not_offered("the registration of features", &format!("{feature} in {subscription}")))
    }
}

/// The error of a call that a provider does not implement.
pub(crate) fn not_offered(call: &str, subject: &str) -> CloudError {
    let why = format!("this cloud does not offer {call} ({subject})");
    CloudError::Invalid { code: "NotSupported".to_owned(), why }
}
