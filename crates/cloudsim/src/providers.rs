//! Resource providers outside the emulator: services of this process to which the resource manager forwards requests, as Azure's does for
//! every provider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;

/// The providers to which the resource manager forwards requests. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ResourceProviders(Arc<RwLock<BTreeMap<String, RegisteredProvider>>>);

#[derive(Debug)]
struct RegisteredProvider {
    service: Router,
    /// Subscriptions that the provider knows to be registered.
    notified: BTreeSet<String>,
}

impl ResourceProviders {
    /// Forwards requests below a namespace, such as `Microsoft.RedHatOpenShift`, to a service. The resource manager authenticates and
    /// authorizes the callers; the service trusts the headers of each request as those of the resource manager.
    pub fn register(&self, namespace: &str, service: Router) {
        let provider = RegisteredProvider { service, notified: BTreeSet::new() };
        let mut providers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        providers.insert(namespace.to_lowercase(), provider);
    }

    /// The service of a namespace.
    pub(crate) fn find(&self, namespace: &str) -> Option<Router> {
        let providers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        providers.get(&namespace.to_lowercase()).map(|it| it.service.clone())
    }

    /// Whether a provider knows that a subscription is registered.
    pub(crate) fn is_notified(&self, namespace: &str, subscription: &str) -> bool {
        let providers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let provider = providers.get(&namespace.to_lowercase());
        provider.is_some_and(|it| it.notified.contains(&subscription.to_lowercase()))
    }

    pub(crate) fn set_notified(&self, namespace: &str, subscription: &str, is_registered: bool) {
        let mut providers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = providers.get_mut(&namespace.to_lowercase()) {
            let subscription = subscription.to_lowercase();
            match is_registered {
                true => provider.notified.insert(subscription),
                false => provider.notified.remove(&subscription),
            };
        }
    }
}
