//! One link per cluster, shared by the whole process.
//!
//! A link is kept while the store holds its credential, it is used, and the API server accepts it. There is no task behind it:
//! stale links are removed at the next call.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::clock::SharedClock;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::LinkError;
use crate::kubeconfig::Kubeconfig;
use crate::link::{Link, Timeouts};

/// Limits of the kept links.
#[derive(Debug, Clone, Copy)]
pub struct LinksLimits {
    /// Most links; the least recently used one is closed first. Each may hold a few idle connections.
    pub count_max: usize,
    /// Idle time after which a link is closed.
    pub idle_max: Duration,
    /// Timeouts of each link.
    pub timeouts: Timeouts,
}

impl Default for LinksLimits {
    fn default() -> LinksLimits {
        LinksLimits { count_max: 1000, idle_max: Duration::from_secs(15 * 60), timeouts: Timeouts::default() }
    }
}

/// The links of this process.
#[derive(Debug)]
pub struct Links {
    limits: LinksLimits,
    clock: SharedClock,
    kept: Mutex<HashMap<Uuid, CachedLink>>,
}

#[derive(Debug)]
struct CachedLink {
    link: Link,
    credential: String,
    used_at: Timestamp,
}

impl Links {
    /// No links yet.
    pub fn new(limits: LinksLimits, clock: SharedClock) -> Links {
        Links { limits, clock, kept: Mutex::default() }
    }

    /// The link to `cluster`. `credential` is the version of its kubeconfig (the etag of the sealed secret, or the kubeconfig's
    /// digest); `load` returns the cluster's name for errors and its kubeconfig, and is called only if there is no link of that
    /// version or the API server has rejected it.
    pub async fn link<F, E>(&self, cluster: Uuid, credential: &str, load: F) -> Result<Link, E>
    where
        F: AsyncFnOnce() -> Result<(String, Kubeconfig), E>,
        E: From<LinkError>,
    {
        if let Some(link) = self.at_hand(cluster, credential) {
            return Ok(link);
        }
        let (name, kubeconfig) = load().await?;
        let link = Link::open(&name, &kubeconfig, self.limits.timeouts, self.clock.clone())?;
        let kept =
            CachedLink { link: link.clone(), credential: credential.to_owned(), used_at: self.clock.now() };
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(cluster, kept);
        while all.len() > self.limits.count_max.max(1) {
            let oldest = all.iter().filter(|(id, _)| **id != cluster).min_by_key(|(_, kept)| kept.used_at);
            let Some(oldest) = oldest.map(|(id, _)| *id) else { break };
            all.remove(&oldest);
        }
        Ok(link)
    }

    /// Closes the link to `cluster`, if there is one. Its current users may finish with it.
    pub fn forget(&self, cluster: Uuid) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&cluster);
    }

    /// Number of kept links.
    pub fn count(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn at_hand(&self, cluster: Uuid, credential: &str) -> Option<Link> {
        let now = self.clock.now();
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let idle_max = self.limits.idle_max;
        all.retain(|_, kept| now.duration_since(kept.used_at).unsigned_abs() <= idle_max);
        let kept = all.get_mut(&cluster)?;
        if kept.credential != credential || kept.link.is_denied() {
            all.remove(&cluster);
            return None;
        }
        kept.used_at = now;
        Some(kept.link.clone())
    }
}

#[cfg(test)]
mod tests;
