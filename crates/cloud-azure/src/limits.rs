//! Limits of the services, counted by them for each principal and subscription. What throttles is not asked again before its time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cloud::CloudError;
use tokio::time::Instant;

use crate::headers::WAIT_MAX;

/// Wait after a 429 that names none.
const WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// What a service counts requests by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LimitKey {
    /// The host of the service.
    pub(crate) host: String,
    /// The subscription, empty for calls outside one.
    pub(crate) subscription: String,
    /// The principal that calls.
    pub(crate) principal: String,
}

/// The waits that services have asked for.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    until: Mutex<HashMap<LimitKey, Instant>>,
}

impl Limits {
    /// Remembers that a service throttles.
    pub(crate) fn throttle(&self, key: &LimitKey, wait: Option<Duration>) {
        let until = Instant::now() + wait.unwrap_or(WAIT_DEFAULT).min(WAIT_MAX);
        let mut all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(key.clone()).or_insert(until);
        *entry = (*entry).max(until);
    }

    /// An error while a service throttles.
    pub(crate) fn check(&self, key: &LimitKey) -> Result<(), CloudError> {
        let now = Instant::now();
        let mut all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, until| *until > now);
        match all.get(key) {
            Some(until) => Err(CloudError::Throttled { after: Some(*until - now) }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_holds_for_its_principal_and_subscription_alone() {
        let key = |subscription: &str, principal: &str| LimitKey {
            host: "h".to_owned(),
            subscription: subscription.to_owned(),
            principal: principal.to_owned(),
        };
        let limits = Limits::default();
        limits.throttle(&key("a", "p"), Some(Duration::from_secs(30)));
        // A shorter wait does not end a longer one.
        limits.throttle(&key("a", "p"), Some(Duration::from_secs(5)));
        let error = limits.check(&key("a", "p")).unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
        limits.check(&key("b", "p")).unwrap();
        limits.check(&key("a", "q")).unwrap();
        tokio::time::advance(Duration::from_secs(31)).await;
        limits.check(&key("a", "p")).unwrap();
        limits.throttle(&key("a", "p"), None);
        assert_eq!(limits.check(&key("a", "p")).unwrap_err().retry_after(), Some(WAIT_DEFAULT));
    }
}
