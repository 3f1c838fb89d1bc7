//! The clusters to monitor, kept current by the change feed: creations, changes and deletions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::doc::{Cluster, Document, ProvisioningState, Subscription, SubscriptionState};
use api::work::WorkKind;
use store::{Change, FeedBatch, FeedFollower, PAGE_MAX, Reader, StoreError, Subject};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::Timing;
use crate::metrics::Metrics;

/// Most running manifests that are read.
const RUNNING_MAX: usize = PAGE_MAX;

/// A cluster as the monitor needs it; much less than its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitoredCluster {
    pub(crate) uuid: Uuid,
    /// Resource id in lower case.
    pub(crate) id: String,
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) state: ProvisioningState,
    pub(crate) failed_state: Option<ProvisioningState>,
    pub(crate) created_at: jiff::Timestamp,
    pub(crate) provisioned: Option<ProvisionedFacts>,
}

/// Facts of a cluster that the service provisioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProvisionedFacts {
    pub(crate) provisioned_by: String,
    /// Whether its names are in the service's own zones.
    pub(crate) is_domain_managed: bool,
    pub(crate) has_managed_identity: bool,
    /// Whether its customer brings the security groups.
    pub(crate) has_own_security_groups: bool,
}

impl MonitoredCluster {
    fn new(uuid: Uuid, document: &Cluster) -> MonitoredCluster {
        let id = document.path();
        let group = segment(&id, "resourcegroups").unwrap_or_default().to_owned();
        let facts = document.provisioned.as_deref().map(|it| ProvisionedFacts {
            provisioned_by: it.provisioned_by.clone(),
            is_domain_managed: it.is_domain_managed(),
            has_managed_identity: matches!(it.spec.identity, api::doc::Identity::Workload { .. }),
            has_own_security_groups: it.spec.network.preconfigured_nsg == api::doc::Switch::Enabled,
        });
        MonitoredCluster {
            uuid,
            id,
            subscription: document.subscription_id.clone(),
            resource_group: group,
            name: document.name.clone(),
            location: document.location.clone(),
            state: document.provisioning_state,
            failed_state: document.failed_provisioning_state,
            created_at: document.created_at,
            provisioned: facts,
        }
    }
}

/// The segment of a resource id behind the one with this name.
fn segment<'a>(id: &'a str, name: &str) -> Option<&'a str> {
    id.split('/').skip_while(|it| *it != name).nth(1)
}

/// Whether a cluster in this state has something to monitor: not before it was created, and not once it is being deleted.
fn is_monitored(document: &Cluster) -> bool {
    use ProvisioningState::{AdminUpdating, Creating, Deleting, Failed, Succeeded, Updating};
    match document.provisioning_state {
        Creating | Deleting => false,
        Failed => !matches!(document.failed_provisioning_state, Some(Creating | Deleting)),
        Updating | AdminUpdating | Succeeded => true,
    }
}

/// The clusters to monitor and what is known about all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    /// The clusters by identity.
    pub(crate) clusters: Arc<HashMap<Uuid, Arc<MonitoredCluster>>>,
    /// Subscriptions whose clusters are not monitored: suspended, in arrears or deleted. A subscription without a document is
    /// valid, as that of imported clusters.
    pub(crate) invalid_subscriptions: Arc<HashSet<String>>,
    /// Running manifests by cluster.
    pub(crate) maintenance: Arc<HashMap<Uuid, Uuid>>,
    /// When the feed was last read to its end.
    pub(crate) read_at: Option<Instant>,
}

impl Fleet {
    /// Why this cluster is not monitored although it is in the fleet.
    pub(crate) fn skip_reason(&self, cluster: &MonitoredCluster) -> Option<&'static str> {
        self.invalid_subscriptions.contains(&cluster.subscription).then_some("subscription")
    }
}

/// Keeps `fleet` current until shutdown.
pub(crate) async fn follow(
    reader: Reader,
    timing: Timing,
    metrics: Metrics,
    fleet: watch::Sender<Fleet>,
    shutdown: CancellationToken,
) {
    let feed = reader.follow_feed([Cluster::KIND, Subscription::KIND]).debounce(timing.flush / 20);
    let mut cache = Cache { reader, feed, clusters: HashMap::new(), subscriptions: HashMap::new() };
    let mut is_failing = false;
    loop {
        let read = async {
            let changed = cache.read().await?;
            Ok::<_, StoreError>((changed, cache.maintenance().await?))
        };
        match read.await {
            Ok((changed, maintenance)) => {
                metrics.cached(cache.clusters.len(), cache.subscriptions.len());
                fleet.send_modify(|fleet| {
                    if changed {
                        fleet.clusters = Arc::new(cache.clusters.clone());
                        fleet.invalid_subscriptions = Arc::new(cache.invalid_subscriptions());
                    }
                    if *fleet.maintenance != maintenance {
                        fleet.maintenance = Arc::new(maintenance);
                    }
                    fleet.read_at = Some(Instant::now());
                });
                if std::mem::take(&mut is_failing) {
                    tracing::info!("The change feed can be read again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "Cannot read the change feed; going on with the clusters as they were"
                    );
                }
            }
        }
        if shutdown.run_until_cancelled(cache.feed.wait(timing.poll)).await.is_none() {
            return;
        }
    }
}

#[derive(Debug)]
struct Cache {
    reader: Reader,
    feed: FeedFollower,
    clusters: HashMap<Uuid, Arc<MonitoredCluster>>,
    /// State and id of each subscription.
    subscriptions: HashMap<Uuid, (String, SubscriptionState)>,
}

impl Cache {
    /// Reads the feed to its end; returns whether anything changed.
    async fn read(&mut self) -> Result<bool, StoreError> {
        let mut changed = false;
        loop {
            match self.feed.read().await? {
                FeedBatch::StartOver => {
                    self.list().await?;
                    changed = true;
                }
                FeedBatch::Changes(changes) if changes.is_empty() => {}
                FeedBatch::Changes(changes) => {
                    self.apply(&changes).await?;
                    changed = true;
                }
            }
            self.feed.acknowledge();
            if self.feed.is_caught_up() {
                return Ok(changed);
            }
        }
    }

    async fn list(&mut self) -> Result<(), StoreError> {
        let (mut clusters, mut subscriptions) = (HashMap::new(), HashMap::new());
        let documents = self.reader.documents::<Cluster>();
        documents
            .for_each(|read| {
                if is_monitored(&read.document) {
                    clusters.insert(read.uuid, Arc::new(MonitoredCluster::new(read.uuid, &read.document)));
                }
            })
            .await?;
        let documents = self.reader.documents::<Subscription>();
        documents
            .for_each(|read| {
                let Subscription { subscription_id, state, .. } = read.document;
                subscriptions.insert(read.uuid, (subscription_id, state));
            })
            .await?;
        (self.clusters, self.subscriptions) = (clusters, subscriptions);
        Ok(())
    }

    async fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let of_kind = |kind: &str| -> Vec<Uuid> {
            let documents =
                changes.iter().filter(|it| it.kind == kind && matches!(it.subject, Subject::Document { .. }));
            let uuids: HashSet<Uuid> = documents.map(|it| it.uuid).collect();
            uuids.into_iter().collect()
        };
        // Each is read as it is now: a change says only that there was one.
        for block in of_kind(Cluster::KIND).chunks(PAGE_MAX) {
            let read = self.read_many::<Cluster>(block).await?;
            block.iter().for_each(|uuid| drop(self.clusters.remove(uuid)));
            for (uuid, document) in read.iter().filter(|(_, document)| is_monitored(document)) {
                self.clusters.insert(*uuid, Arc::new(MonitoredCluster::new(*uuid, document)));
            }
        }
        for block in of_kind(Subscription::KIND).chunks(PAGE_MAX) {
            let read = self.read_many::<Subscription>(block).await?;
            block.iter().for_each(|uuid| drop(self.subscriptions.remove(uuid)));
            let read = read.into_iter();
            self.subscriptions.extend(read.map(|(uuid, it)| (uuid, (it.subscription_id, it.state))));
        }
        Ok(())
    }

    /// The documents that exist; one that this release cannot read is left out.
    async fn read_many<T: Document>(&self, uuids: &[Uuid]) -> Result<Vec<(Uuid, T)>, StoreError> {
        let stored = self.reader.get_many(uuids.to_vec()).await?;
        let read = stored.into_iter().filter_map(|it| Some((it.uuid, serde_json::from_value(it.body).ok()?)));
        Ok(read.collect())
    }

    fn invalid_subscriptions(&self) -> HashSet<String> {
        let is_invalid = |state: SubscriptionState| match state {
            SubscriptionState::Registered | SubscriptionState::Unregistered => false,
            SubscriptionState::Warned | SubscriptionState::Suspended | SubscriptionState::Deleted => true,
        };
        let invalid = self.subscriptions.values().filter(|(_, state)| is_invalid(*state));
        invalid.map(|(id, _)| id.clone()).collect()
    }

    async fn maintenance(&self) -> Result<HashMap<Uuid, Uuid>, StoreError> {
        let running = self.reader.running(WorkKind::Manifest, RUNNING_MAX).await?;
        Ok(running.into_iter().map(|it| (it.lane, it.id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_monitored_from_its_creation_to_its_deletion() {
        use ProvisioningState::{AdminUpdating, Creating, Deleting, Failed, Succeeded, Updating};
        let cluster = |state, failed| {
            let id = "/subscriptions/S/resourceGroups/RG/providers/p/clusters/C";
            let document = Cluster::new(id, state, jiff::Timestamp::UNIX_EPOCH);
            Cluster { failed_provisioning_state: failed, ..document }
        };
        for (state, failed, expect) in [
            (Creating, None, false),
            (Deleting, None, false),
            (Failed, Some(Creating), false),
            (Failed, Some(Deleting), false),
            (Failed, Some(Updating), true),
            (Failed, None, true),
            (Updating, None, true),
            (AdminUpdating, None, true),
            (Succeeded, None, true),
        ] {
            assert_eq!(is_monitored(&cluster(state, failed)), expect, "{state:?} {failed:?}");
        }
        let read = MonitoredCluster::new(Uuid::nil(), &cluster(Succeeded, None));
        assert_eq!(
            (read.resource_group.as_str(), read.name.as_str(), read.subscription.as_str()),
            ("rg", "C", "s")
        );
    }
}
