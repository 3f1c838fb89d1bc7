//! Writes that exclude each other: Azure refuses a second write to one network, load balancer or identity while another runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// One lock for each resource that is being written. A lock without a holder or a waiter is forgotten.
#[derive(Debug, Default)]
pub(crate) struct WriteLocks {
    locks: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl WriteLocks {
    /// Waits until no other write of this client to the same resource runs.
    pub(crate) async fn lock(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let entry = locks.entry(key.to_lowercase()).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let lock = Arc::new(AsyncMutex::new(()));
                *entry = Arc::downgrade(&lock);
                lock
            })
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn writes_to_one_resource_exclude_each_other_and_no_others() {
        let locks = WriteLocks::default();
        let first = locks.lock("/a/NETWORK").await;
        assert!(locks.lock("/a/network").now_or_never().is_none());
        let other = locks.lock("/a/other").now_or_never();
        assert!(other.is_some());
        drop((first, other));
        assert!(locks.lock("/a/network").now_or_never().is_some());
        // Locks without a holder leave nothing behind.
        drop(locks.lock("/a/third").await);
        assert_eq!(locks.locks.lock().unwrap().len(), 1);
    }
}
