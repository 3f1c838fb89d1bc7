//! The versions and role sets that can be installed, cached in memory and reloaded when the change feed reports a change. Requests do
//! not read them from the store.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use api::doc::{Document, RoleSet, Version};
use api::rest::Semver;
use store::{FeedBatch, FeedFollower, Reader, StoreError};
use tokio_util::sync::CancellationToken;

/// Delay after a failed read of the store, and longest time between two reads.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Changes within this time are served by one read: most of them are of other kinds.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// The versions and role sets that can be installed. Clones share the cache.
#[derive(Debug, Clone)]
pub(crate) struct InstallCatalog {
    reader: Reader,
    cached: Arc<RwLock<Option<Arc<InstallOptions>>>>,
}

/// The versions and role sets at one time.
#[derive(Debug, Default)]
pub(crate) struct InstallOptions {
    /// All versions, in ascending order.
    pub(crate) versions: Vec<Version>,
    /// All role sets, in ascending order.
    pub(crate) role_sets: Vec<RoleSet>,
}

impl InstallOptions {
    /// Versions that customers may choose.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(|version| version.enabled)
    }

    /// The version of a cluster whose request names none.
    pub(crate) fn default_version(&self) -> Option<&Version> {
        self.enabled().find(|version| version.default)
    }
}

impl InstallCatalog {
    pub(crate) fn new(reader: Reader) -> InstallCatalog {
        InstallCatalog { reader, cached: Arc::default() }
    }

    /// The cached options; empty until they are loaded.
    pub(crate) fn current(&self) -> Arc<InstallOptions> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Whether the options were loaded at least once.
    pub(crate) fn is_loaded(&self) -> bool {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Reads all versions and role sets from the store.
    pub(crate) async fn load(&self) -> Result<(), StoreError> {
        let mut versions = self.all::<Version>().await?;
        versions.sort_by_cached_key(|it| order(&it.version));
        let mut role_sets = self.all::<RoleSet>().await?;
        role_sets.sort_by_cached_key(|it| order(&format!("{}.0", it.openshift_version)));
        let known = Arc::new(InstallOptions { versions, role_sets });
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(())
    }

    async fn all<T: Document>(&self) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.reader.documents::<T>().for_each(|it| found.push(it.document)).await?;
        Ok(found)
    }

    /// Follows the change feed until `closing`.
    pub(crate) async fn follow(self, closing: CancellationToken) {
        let mut feed = self.reader.follow_feed([Version::KIND, RoleSet::KIND]).debounce(BATCH_TIME);
        loop {
            let outcome = self.update(&mut feed).await;
            if let Err(error) = &outcome {
                let cause: &dyn std::error::Error = error;
                tracing::warn!(error = cause, "Cannot reload the versions: {error}");
            }
            let pause = async {
                match outcome {
                    Ok(()) => feed.wait(POLL_INTERVAL).await,
                    Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
                }
            };
            if closing.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Reads everything when a version or role set has changed.
    async fn update(&self, feed: &mut FeedFollower) -> Result<(), StoreError> {
        match feed.read().await? {
            FeedBatch::Changes(changes) if changes.is_empty() => {}
            FeedBatch::StartOver | FeedBatch::Changes(_) => self.load().await?,
        }
        feed.acknowledge();
        Ok(())
    }
}

/// The sort key of versions; invalid ones come first.
fn order(text: &str) -> Option<Semver> {
    text.parse().ok()
}
