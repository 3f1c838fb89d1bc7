//! Whether clusters answer: one is asked once when it was imported or made; later it is told by what happens to manifests.
//! One that did not answer is asked again, ever more slowly, until it does: that costs as much as is out of reach, not as there
//! is. Only changes are written.

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

use super::crew::Crew;
use super::{ClusterProbe, Tasks};

/// Between two looks at the feed when no wake-up came.
const POLL: Duration = Duration::from_secs(15);
/// Wake-ups that come closer together than this are served by one look.
const GAP: Duration = Duration::from_millis(50);
/// So many clusters are asked at once.
const AT_ONCE: usize = 16;
/// A cluster that did not answer is asked again after this; it doubles.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest pause before a cluster that did not answer is asked again.
const AGAIN_MAX: Duration = Duration::from_secs(30 * 60);

/// The clusters that did not answer this process: when each is asked again, and the pause that led there.
#[derive(Debug, Default)]
pub(super) struct UnreachableClusters(Mutex<BTreeMap<Uuid, (Instant, Duration)>>);

impl UnreachableClusters {
    fn clusters(&self) -> MutexGuard<'_, BTreeMap<Uuid, (Instant, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer; asked for the first time or again.
    fn silent(&self, cluster: Uuid) {
        let mut clusters = self.clusters();
        let pause = clusters.get(&cluster).map_or(AGAIN, |(_, pause)| (*pause * 2).min(AGAIN_MAX));
        clusters.insert(cluster, (Instant::now() + pause, pause));
    }

    /// It does not answer somebody else; when it is asked stays as it is.
    fn reported(&self, cluster: Uuid) {
        self.clusters().entry(cluster).or_insert((Instant::now() + AGAIN, AGAIN));
    }

    /// It answers, or there is nothing to be asked any more.
    fn back(&self, cluster: Uuid) {
        self.clusters().remove(&cluster);
    }

    fn next(&self) -> Option<Instant> {
        self.clusters().values().map(|(at, _)| *at).min()
    }

    /// Those that are to be asked now, as many as are asked at once; they are not due again before the same pause has passed.
    fn due(&self, now: Instant) -> Vec<Uuid> {
        let mut clusters = self.clusters();
        let due = clusters.iter_mut().filter(|(_, (at, _))| *at <= now).take(AT_ONCE);
        due.map(|(cluster, (at, pause))| {
            *at = now + *pause;
            *cluster
        })
        .collect()
    }
}

/// Asks every cluster that nobody has asked yet, and each that is imported or made from now on.
pub(super) async fn watch<T: Tasks>(crew: Arc<Crew<T>>, over: CancellationToken) {
    let mut feed = crew.store.follow_feed([Cluster::KIND]).debounce(GAP);
    loop {
        if let Err(error) = follow(&crew, &mut feed, &over).await {
            tracing::debug!(error = %error, "The feed was not read");
        }
        if let Err(error) = ask_again(&crew, &over).await {
            tracing::debug!(error = %error, "Clusters that did not answer are asked later");
        }
        let again = crew.away.next().map(|at| at.saturating_duration_since(Instant::now()));
        let poll = again.map_or(POLL, |again| again.min(POLL));
        if over.run_until_cancelled(feed.wait(poll)).await.is_none() {
            return;
        }
    }
}

/// Asks the clusters that have changed; all of them at first.
async fn follow<T: Tasks>(
    crew: &Crew<T>,
    feed: &mut FeedFollower,
    over: &CancellationToken,
) -> Result<(), StoreError> {
    match feed.read().await? {
        FeedBatch::StartOver => look_through(crew, over).await?,
        FeedBatch::Changes(changes) => {
            let exists = |it: &&Change| matches!(it.subject, Subject::Document { deleted: false, .. });
            ask(crew, changes.iter().filter(exists).map(|it| it.uuid).collect(), over).await?;
        }
    }
    feed.acknowledge();
    Ok(())
}

async fn look_through<T: Tasks>(crew: &Crew<T>, over: &CancellationToken) -> Result<(), StoreError> {
    let mut from = None;
    loop {
        let selection = ListOptions { from, limit: PAGE_MAX, ..ListOptions::default() };
        let page = crew.store.documents::<Cluster>().list(selection).await?;
        let settled = page.items.iter().filter(|it| is_settled(&it.document)).map(|it| it.uuid).collect();
        ask(crew, settled, over).await?;
        from = page.next;
        if from.is_none() || over.is_cancelled() {
            return Ok(());
        }
    }
}

/// Whether a cluster can be asked at all: one that is being made or removed cannot.
fn is_settled(cluster: &Cluster) -> bool {
    cluster.imported || cluster.provisioning_state == ProvisioningState::Succeeded
}

/// Asks those settled clusters of which nothing good is known.
async fn ask<T: Tasks>(
    crew: &Crew<T>,
    mut clusters: Vec<Uuid>,
    over: &CancellationToken,
) -> Result<(), StoreError> {
    clusters.sort_unstable();
    clusters.dedup();
    if clusters.is_empty() {
        return Ok(());
    }
    let known = crew.store.health(clusters.clone()).await?;
    clusters.retain(|id| !known.iter().any(|it| it.cluster == *id && it.reachable));
    // Several at once: one that does not answer is waited for until its time is over.
    let asked: Vec<_> = clusters.into_iter().map(|id| ask_one(crew, id)).collect();
    let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    while let Some(Some(answer)) = over.run_until_cancelled(answers.next()).await {
        answer?;
    }
    Ok(())
}

/// Asks those again that did not answer and whose time has come.
async fn ask_again<T: Tasks>(crew: &Crew<T>, over: &CancellationToken) -> Result<(), StoreError> {
    let due = crew.away.due(Instant::now());
    if due.is_empty() {
        return Ok(());
    }
    // Others look too.
    for seen in crew.store.health(due.clone()).await?.iter().filter(|it| it.reachable) {
        crew.away.back(seen.cluster);
    }
    ask(crew, due, over).await
}

async fn ask_one<T: Tasks>(crew: &Crew<T>, id: Uuid) -> Result<(), StoreError> {
    match crew.store.documents::<Cluster>().get(id).await? {
        Some(cluster) if is_settled(&cluster.document) => look(crew, id, &cluster.document).await,
        Some(_) | None => crew.away.back(id),
    }
    Ok(())
}

/// Asks a cluster whether it is there, and writes what it answered.
pub(super) async fn look<T: Tasks>(crew: &Crew<T>, id: Uuid, cluster: &Cluster) {
    let answer = crew.tasks.contact(id, cluster).await;
    let before = crew.store.health(vec![id]).await.ok().and_then(|mut known| known.pop());
    match &answer {
        Ok(_) => crew.away.back(id),
        Err(_) => crew.away.silent(id),
    }
    let seen = before.as_ref().map(|it| it.details.clone()).unwrap_or_default();
    let (reachable, details) = match answer {
        Ok(ClusterProbe { version }) => (true, seen.answered(version)),
        Err(error) => (false, seen.unreachable(Some(error.full_message()))),
    };
    if before.is_none_or(|it| it.reachable != reachable || it.details != details) {
        write(crew, id, &cluster.name, reachable, details).await;
    }
}

/// A manifest met a cluster that does not answer, and was given back for that.
pub(super) async fn unreachable<T>(crew: &Crew<T>, facts: &WorkSummary, yielding: &Release) {
    crew.away.reported(yielding.lease.lane);
    if facts.health.as_ref().is_some_and(|it| !it.reachable) {
        return;
    }
    let journal = Journal::read(yielding.checkpoint.as_ref().map(|(_, data)| data));
    let seen = facts.health.as_ref().map(|it| it.details.clone()).unwrap_or_default();
    let details = seen.unreachable(journal.waiting.map(|it| it.message));
    let name = facts.cluster.as_ref().map_or("", |cluster| cluster.name.as_str());
    write(crew, yielding.lease.lane, name, false, details).await;
}

async fn write<T>(crew: &Crew<T>, cluster: Uuid, name: &str, reachable: bool, details: HealthDetails) {
    // The store sets both times by its own clock.
    let now = crew.clock.now();
    let sample = HealthSample { cluster, at: now, reachable, since: now, details };
    if let Err(error) = crew.store.health_writer().put(vec![sample]).await {
        tracing::warn!(cluster.id = %cluster, error = &error as &dyn std::error::Error, "The health of cluster {name} was not written");
    }
}
