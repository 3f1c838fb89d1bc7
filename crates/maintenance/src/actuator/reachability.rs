//! Reachability of clusters. Where a monitor visits them, its record says it, and the actuator contacts none on its own account.
//! Without a current record the actuator probes a cluster once after its import or creation; later its manifests show whether it
//! is reachable. An unreachable cluster is probed again with a growing interval, so the cost follows the number of unreachable
//! clusters, not of all. Only changes are written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::doc::{Cluster, Document as _, HealthDetails, ProvisioningState};
use futures_util::stream::{self, StreamExt as _};
use steps::engine::Journal;
use store::{
    Change, FeedBatch, FeedFollower, HealthSample, ListOptions, PAGE_MAX, Release, StoreError, Subject,
    WorkSummary,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::service::Actuator;
use super::{ClusterProbe, Tasks};

/// Interval between two reads of the feed without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Notifications within this time are served by one read.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Concurrent probes.
const CONCURRENT_PROBES: usize = 16;
/// First interval between probes of an unreachable cluster; it doubles.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest interval between probes of an unreachable cluster.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(30 * 60);

/// Unreachable clusters: time of the next probe, and the interval before it.
#[derive(Debug, Default)]
pub(super) struct UnreachableClusters(Mutex<BTreeMap<Uuid, (Instant, Duration)>>);

impl UnreachableClusters {
    fn clusters(&self) -> MutexGuard<'_, BTreeMap<Uuid, (Instant, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failed probe.
    fn probe_failed(&self, cluster: Uuid) {
        let mut clusters = self.clusters();
        let interval = clusters
            .get(&cluster)
            .map_or(PROBE_INTERVAL, |(_, interval)| (*interval * 2).min(PROBE_INTERVAL_MAX));
        clusters.insert(cluster, (Instant::now() + interval, interval));
    }

    /// Records that a manifest found the cluster unreachable; the time of the next probe stays.
    fn report(&self, cluster: Uuid) {
        self.clusters().entry(cluster).or_insert((Instant::now() + PROBE_INTERVAL, PROBE_INTERVAL));
    }

    /// Removes a cluster that is reachable or no longer exists.
    fn remove(&self, cluster: Uuid) {
        self.clusters().remove(&cluster);
    }

    /// Time of the next probe.
    fn next_probe(&self) -> Option<Instant> {
        self.clusters().values().map(|(at, _)| *at).min()
    }

    /// Clusters to probe now, at most [`CONCURRENT_PROBES`]; each is due again after its current interval.
    fn due(&self, now: Instant) -> Vec<Uuid> {
        let mut clusters = self.clusters();
        let due = clusters.iter_mut().filter(|(_, (at, _))| *at <= now).take(CONCURRENT_PROBES);
        due.map(|(cluster, (at, interval))| {
            *at = now + *interval;
            *cluster
        })
        .collect()
    }
}

/// Probes every cluster without a health sample, and each that is imported or created from now on.
pub(super) async fn watch<T: Tasks>(actuator: Arc<Actuator<T>>, stopped: CancellationToken) {
    let mut feed = actuator.store.follow_feed([Cluster::KIND]).debounce(DEBOUNCE);
    loop {
        if let Err(error) = follow(&actuator, &mut feed, &stopped).await {
            tracing::debug!(error = %error, "Cannot read the change feed");
        }
        if let Err(error) = probe_due(&actuator, &stopped).await {
            tracing::debug!(error = %error, "Cannot probe unreachable clusters; probing them later");
        }
        let delay =
            actuator.unreachable_clusters.next_probe().map(|at| at.saturating_duration_since(Instant::now()));
        let poll = delay.map_or(POLL_INTERVAL, |delay| delay.min(POLL_INTERVAL));
        if stopped.run_until_cancelled(feed.wait(poll)).await.is_none() {
            return;
        }
    }
}

/// Probes the clusters that have changed; all of them at first.
async fn follow<T: Tasks>(
    actuator: &Actuator<T>,
    feed: &mut FeedFollower,
    stopped: &CancellationToken,
) -> Result<(), StoreError> {
    match feed.read().await? {
        FeedBatch::StartOver => probe_all(actuator, stopped).await?,
        FeedBatch::Changes(changes) => {
            let exists = |it: &&Change| matches!(it.subject, Subject::Document { deleted: false, .. });
            probe_unhealthy(actuator, changes.iter().filter(exists).map(|it| it.uuid).collect(), stopped)
                .await?;
        }
    }
    feed.acknowledge();
    Ok(())
}

async fn probe_all<T: Tasks>(actuator: &Actuator<T>, stopped: &CancellationToken) -> Result<(), StoreError> {
    let mut from = None;
    loop {
        let selection = ListOptions { from, limit: PAGE_MAX, ..ListOptions::default() };
        let page = actuator.store.documents::<Cluster>().list(selection).await?;
        let probeable = page.items.iter().filter(|it| is_probeable(&it.document)).map(|it| it.uuid).collect();
        probe_unhealthy(actuator, probeable, stopped).await?;
        from = page.next;
        if from.is_none() || stopped.is_cancelled() {
            return Ok(());
        }
    }
}

/// Whether a cluster can be probed: one that is being created or deleted cannot.
fn is_probeable(cluster: &Cluster) -> bool {
    cluster.imported || cluster.provisioning_state == ProvisioningState::Succeeded
}

/// Probes those of the clusters that have no health sample or an unreachable one.
async fn probe_unhealthy<T: Tasks>(
    actuator: &Actuator<T>,
    mut clusters: Vec<Uuid>,
    stopped: &CancellationToken,
) -> Result<(), StoreError> {
    clusters.sort_unstable();
    clusters.dedup();
    if clusters.is_empty() {
        return Ok(());
    }
    let samples = actuator.store.health(clusters.clone()).await?;
    let now = actuator.clock.now();
    let is_known = |it: &HealthSample| it.reachable || it.is_monitored(now);
    clusters.retain(|id| !samples.iter().any(|it| it.cluster == *id && is_known(it)));
    // Concurrently, because the probe of an unreachable cluster lasts until its timeout.
    let probes: Vec<_> = clusters.into_iter().map(|id| probe_by_id(actuator, id)).collect();
    let mut results = stream::iter(probes).buffer_unordered(CONCURRENT_PROBES);
    while let Some(Some(result)) = stopped.run_until_cancelled(results.next()).await {
        result?;
    }
    Ok(())
}

/// Probes the unreachable clusters whose next probe is due.
async fn probe_due<T: Tasks>(actuator: &Actuator<T>, stopped: &CancellationToken) -> Result<(), StoreError> {
    let due = actuator.unreachable_clusters.due(Instant::now());
    if due.is_empty() {
        return Ok(());
    }
    // Other actuators may have reached them.
    for sample in actuator.store.health(due.clone()).await?.iter().filter(|it| it.reachable) {
        actuator.unreachable_clusters.remove(sample.cluster);
    }
    probe_unhealthy(actuator, due, stopped).await
}

async fn probe_by_id<T: Tasks>(actuator: &Actuator<T>, id: Uuid) -> Result<(), StoreError> {
    match actuator.store.documents::<Cluster>().get(id).await? {
        Some(cluster) if is_probeable(&cluster.document) => probe(actuator, id, &cluster.document).await,
        Some(_) | None => actuator.unreachable_clusters.remove(id),
    }
    Ok(())
}

/// Probes a cluster, and writes the result if it changed.
pub(super) async fn probe<T: Tasks>(actuator: &Actuator<T>, id: Uuid, cluster: &Cluster) {
    let result = actuator.tasks.probe(id, cluster).await;
    let before = actuator.store.health(vec![id]).await.ok().and_then(|mut samples| samples.pop());
    match &result {
        Ok(_) => actuator.unreachable_clusters.remove(id),
        Err(_) => actuator.unreachable_clusters.probe_failed(id),
    }
    let details = before.as_ref().map(|it| it.details.clone()).unwrap_or_default();
    let (reachable, details) = match result {
        Ok(ClusterProbe { version }) => (true, details.answered(version)),
        Err(error) => (false, details.unreachable(Some(error.full_message()))),
    };
    if before.is_none_or(|it| it.reachable != reachable || it.details != details) {
        write(actuator, id, &cluster.name, reachable, details).await;
    }
}

/// Records that a manifest was released because its cluster is unreachable.
pub(super) async fn record_unreachable<T>(actuator: &Actuator<T>, facts: &WorkSummary, release: &Release) {
    actuator.unreachable_clusters.report(release.lease.lane);
    if facts.health.as_ref().is_some_and(|it| !it.reachable) {
        return;
    }
    let journal = Journal::read(release.checkpoint.as_ref().map(|(_, data)| data));
    let details = facts.health.as_ref().map(|it| it.details.clone()).unwrap_or_default();
    let details = details.unreachable(journal.waiting.map(|it| it.message));
    let name = facts.cluster.as_ref().map_or("", |cluster| cluster.name.as_str());
    write(actuator, release.lease.lane, name, false, details).await;
}

async fn write<T>(
    actuator: &Actuator<T>,
    cluster: Uuid,
    name: &str,
    reachable: bool,
    details: HealthDetails,
) {
    // The store replaces both times by its own clock.
    let now = actuator.clock.now();
    let sample = HealthSample { cluster, at: now, reachable, since: now, details };
    if let Err(error) = actuator.store.health_writer().put(vec![sample]).await {
        tracing::warn!(cluster.id = %cluster, error = &error as &dyn std::error::Error, "Cannot write the health of cluster {name}");
    }
}
