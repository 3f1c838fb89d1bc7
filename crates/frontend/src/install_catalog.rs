//! What can be installed: the versions and the role sets, held in memory and read again when the change feed tells of one. No
//! request asks the store for them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use api::doc::{Document, RoleSet, Version};
use api::rest::Semver;
use store::{FeedBatch, FeedFollower, Reader, StoreError};
use tokio_util::sync::CancellationToken;

/// How long after a failure the store is asked again, and how long at most without any wake-up.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// News that come closer together than this are served by one look: most of them are of something else.
const GAP: Duration = Duration::from_millis(50);

/// What can be installed. Cheap to clone; all clones see the same.
#[derive(Debug, Clone)]
pub(crate) struct InstallCatalog {
    reader: Reader,
    known: Arc<RwLock<Option<Arc<InstallOptions>>>>,
}

/// What was read last.
#[derive(Debug, Default)]
pub(crate) struct InstallOptions {
    /// All versions, in ascending order.
    pub(crate) versions: Vec<Version>,
    /// All role sets, in ascending order.
    pub(crate) role_sets: Vec<RoleSet>,
}

impl InstallOptions {
    /// Those that customers may choose.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(|version| version.enabled)
    }

    /// The one that is taken when a customer names none.
    pub(crate) fn default_version(&self) -> Option<&Version> {
        self.enabled().find(|version| version.default)
    }
}

impl InstallCatalog {
    pub(crate) fn new(reader: Reader) -> InstallCatalog {
        InstallCatalog { reader, known: Arc::default() }
    }

    /// What is known; nothing until it was read for the first time.
    pub(crate) fn now(&self) -> Arc<InstallOptions> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Whether it was ever read.
    pub(crate) fn is_loaded(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Reads everything anew.
    pub(crate) async fn load(&self) -> Result<(), StoreError> {
        let mut versions = self.all::<Version>().await?;
        versions.sort_by_cached_key(|it| order(&it.version));
        let mut role_sets = self.all::<RoleSet>().await?;
        role_sets.sort_by_cached_key(|it| order(&format!("{}.0", it.openshift_version)));
        let known = Arc::new(InstallOptions { versions, role_sets });
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(())
    }

    async fn all<T: Document>(&self) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.reader.documents::<T>().for_each(|it| found.push(it.document)).await?;
        Ok(found)
    }

    /// Follows the change feed until `closing`.
    pub(crate) async fn follow(self, closing: CancellationToken) {
        let mut feed = self.reader.follow_feed([Version::KIND, RoleSet::KIND]).debounce(GAP);
        loop {
            let outcome = self.update(&mut feed).await;
            if let Err(error) = &outcome {
                let cause: &dyn std::error::Error = error;
                tracing::warn!(error = cause, "The versions could not be read again: {error}");
            }
            let pause = async {
                match outcome {
                    Ok(()) => feed.wait(LOOK_AGAIN).await,
                    Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
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

/// By which versions are put in order; what is none comes first.
fn order(text: &str) -> Option<Semver> {
    text.parse().ok()
}
