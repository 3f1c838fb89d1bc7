//! Maintains the cached fleet: lists it once, then follows the change feed.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::doc::{Cluster, Document, Manifest, Schedule, ScheduleOutlook, Subscription};
use api::work::WorkKind;
use jiff::{SignedDuration, Timestamp};
use planner::schedule::{ManifestStatus, parameters_hash};
use serde::Deserialize;
use store::{Change, DocumentQuery, FeedBatch, PAGE_MAX, StoredDocument, Subject, Transaction, WorkView};
use uuid::Uuid;

use super::act::audit_context;
use super::{Deps, Error, Fleet, Scheduler};

/// Interval of reading the versions of clusters while a schedule selects by version.
const VERSIONS_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// Most ignored manifests that are remembered.
const IGNORED_MAX: usize = 100_000;

/// The id of a schedule whose other members cannot be read.
#[derive(Deserialize)]
struct ScheduleId {
    id: String,
}

impl Scheduler {
    /// Creates a scheduler with an empty cache, which the first read of the feed fills.
    pub(crate) fn new(deps: &Deps) -> Scheduler {
        let kinds = [Cluster::KIND, Subscription::KIND, Schedule::KIND, Manifest::KIND];
        Scheduler {
            deps: deps.clone(),
            fleet: Fleet::default(),
            feed: deps.store.follow_feed(kinds),
            ignored: HashSet::new(),
            versions_due: Timestamp::MIN,
            retry: Vec::new(),
        }
    }

    /// Clears the cache and lists everything.
    async fn list_all(&mut self) -> Result<(), Error> {
        self.fleet = Fleet::default();
        self.ignored.clear();
        self.versions_due = Timestamp::MIN;
        self.retry.clear();
        self.list::<Subscription>().await?;
        self.list::<Cluster>().await?;
        self.list::<Schedule>().await?;
        self.list_work().await?;
        for schedule in self.fleet.deleted_schedules() {
            self.detach_if_kept(&schedule).await?;
        }
        Ok(())
    }

    /// Lists untyped documents, so that one that cannot be parsed does not prevent the rest.
    async fn list<T: Document>(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let kind = T::KIND.to_owned();
            let listing =
                DocumentQuery { kind, after: after.take(), limit: PAGE_MAX, ..DocumentQuery::default() };
            let page = self.deps.store.list(listing).await?;
            if page.len() == PAGE_MAX {
                after = page.last().map(|last| (last.parent.clone(), last.id.clone()));
            }
            page.iter().for_each(|stored| self.put(stored));
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Caches a document.
    fn put(&mut self, stored: &StoredDocument) {
        let result = match stored.kind.as_str() {
            Cluster::KIND => {
                Cluster::deserialize(&stored.body).map(|it| self.fleet.put_cluster(stored.uuid, it))
            }
            Subscription::KIND => Subscription::deserialize(&stored.body).map(|it| {
                self.fleet.put_subscription(stored.uuid, Some((it.subscription_id, it.state)));
            }),
            Schedule::KIND => Schedule::deserialize(&stored.body)
                .map(|it| self.fleet.put_schedule(stored.uuid, &it, stored.changed)),
            _ => Ok(()),
        };
        if let Err(error) = result {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "Cannot parse {} {}; its manifests are not changed",
                stored.kind,
                stored.id
            );
            if stored.kind == Schedule::KIND
                && let Ok(schedule) = ScheduleId::deserialize(&stored.body)
            {
                self.fleet.put_invalid_schedule(stored.uuid, &schedule.id, error.to_string());
            }
        }
    }

    /// Lists all pending and running manifests.
    async fn list_work(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.deps.store.live(WorkKind::Manifest, after, PAGE_MAX).await?;
            after = page.last().map(|last| last.id);
            let full = page.len() == PAGE_MAX;
            self.update_statuses(page).await?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Updates the cached statuses of manifests.
    pub(super) async fn update_statuses(&mut self, works: Vec<WorkView>) -> Result<(), Error> {
        // Parameters are in the document, which is read only if the rest of the status changed.
        let is_unchanged = |work: &WorkView| match self.fleet.status(work.id) {
            Some(ManifestStatus::Fresh(window)) => {
                ManifestStatus::from_work(work, window.parameters) == ManifestStatus::Fresh(window)
            }
            _ => false,
        };
        let is_fresh =
            |work: &WorkView| matches!(ManifestStatus::from_work(work, 0), ManifestStatus::Fresh(_));
        let changed: Vec<Uuid> = works
            .iter()
            .filter(|work| work.origin.is_some() && is_fresh(work) && !is_unchanged(work))
            .map(|work| work.id)
            .collect();
        let mut hashes: HashMap<Uuid, u64> = HashMap::new();
        for block in changed.chunks(PAGE_MAX) {
            for stored in self.deps.store.get_many(block.to_vec()).await? {
                if let Ok(manifest) = Manifest::deserialize(&stored.body) {
                    hashes.insert(stored.uuid, parameters_hash(&manifest.parameters));
                }
            }
        }
        for work in works {
            let Some(schedule) = &work.origin else {
                self.ignore(work.id);
                continue;
            };
            let before = match self.fleet.status(work.id) {
                Some(ManifestStatus::Fresh(window)) => window.parameters,
                _ => 0,
            };
            let status = ManifestStatus::from_work(&work, hashes.get(&work.id).copied().unwrap_or(before));
            if status == ManifestStatus::Closed && self.fleet.status(work.id).is_none() {
                self.ignore(work.id); // never pending again
                continue;
            }
            self.fleet.set_status(schedule, work.lane, work.id, status);
        }
        Ok(())
    }

    /// Whether a change of a manifest may be relevant.
    fn is_relevant(&self, manifest: Uuid) -> bool {
        self.fleet.status(manifest) != Some(ManifestStatus::Closed) && !self.ignored.contains(&manifest)
    }

    /// Ignores all further changes of a manifest.
    fn ignore(&mut self, manifest: Uuid) {
        if self.ignored.len() >= IGNORED_MAX {
            self.ignored.clear();
        }
        self.ignored.insert(manifest);
    }

    /// Reads the feed to its end.
    pub(crate) async fn follow_feed(&mut self) -> Result<(), Error> {
        loop {
            match self.feed.read().await? {
                FeedBatch::StartOver => self.list_all().await?,
                FeedBatch::Changes(changes) => self.apply(&changes).await?,
            }
            self.feed.acknowledge();
            if self.feed.is_caught_up() {
                break;
            }
        }
        let now = self.deps.clock.now();
        if now >= self.versions_due && self.fleet.selects_by_version() {
            self.read_versions().await?;
            self.versions_due = now.saturating_add(VERSIONS_INTERVAL).unwrap_or(Timestamp::MAX);
        }
        Ok(())
    }

    async fn apply(&mut self, changes: &[Change]) -> Result<(), Error> {
        let (mut documents, mut deleted, mut works) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match (change.kind.as_str(), change.subject) {
                (
                    Cluster::KIND | Subscription::KIND | Schedule::KIND,
                    Subject::Document { deleted: is_deleted, .. },
                ) => {
                    documents.insert(change.uuid);
                    if is_deleted {
                        deleted.insert((change.kind.clone(), change.uuid));
                    }
                }
                (Manifest::KIND, Subject::Document { deleted: true, .. }) => {
                    // A deleted manifest is not created again.
                    if let Some((schedule, cluster)) = self.fleet.owner(change.uuid) {
                        self.fleet.set_status(&schedule, cluster, change.uuid, ManifestStatus::Closed);
                    }
                }
                (Manifest::KIND, _) if self.is_relevant(change.uuid) => {
                    works.insert(change.uuid);
                }
                _ => {}
            }
        }
        // The feed has only ids; the documents are read as they are now.
        let documents: Vec<Uuid> = documents.into_iter().collect();
        let mut existing = HashSet::new();
        for block in documents.chunks(PAGE_MAX) {
            for stored in self.deps.store.get_many(block.to_vec()).await? {
                existing.insert(stored.uuid);
                self.put(&stored);
            }
        }
        for (kind, uuid) in deleted.into_iter().filter(|(_, uuid)| !existing.contains(uuid)) {
            self.remove_document(&kind, uuid).await?;
        }
        let works: Vec<Uuid> = works.into_iter().collect();
        for block in works.chunks(PAGE_MAX) {
            let found = self.deps.store.works(block.to_vec()).await?;
            self.update_statuses(found).await?;
        }
        Ok(())
    }

    async fn remove_document(&mut self, kind: &str, uuid: Uuid) -> Result<(), Error> {
        match kind {
            Cluster::KIND => self.fleet.remove_cluster(uuid),
            Subscription::KIND => self.fleet.put_subscription(uuid, None),
            Schedule::KIND => {
                if let Some(schedule) = self.fleet.remove_schedule(uuid) {
                    self.detach_if_kept(&schedule).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Detaches the manifests of a deleted schedule if the request to delete it said to keep them.
    async fn detach_if_kept(&mut self, schedule: &str) -> Result<(), Error> {
        let path = ScheduleOutlook::path_of(schedule);
        match self.deps.store.documents::<ScheduleOutlook>().find(&path).await? {
            Some(outlook) if outlook.document.keep_pending => self.fleet.detach(schedule),
            // The status of a deleted schedule is obsolete. Another scheduler may have removed it.
            Some(outlook) => {
                let removed =
                    self.deps.store.commit(Transaction::new().remove(&outlook, &audit_context())).await;
                if let Err(error) = removed {
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        "Cannot remove the status of deleted schedule {schedule}"
                    );
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Reads the versions of clusters from the health samples, which the feed does not report.
    async fn read_versions(&mut self) -> Result<(), Error> {
        for block in self.fleet.cluster_ids().chunks(PAGE_MAX) {
            for sample in self.deps.store.health(block.to_vec()).await? {
                self.fleet.put_version(sample.cluster, sample.details.version);
            }
        }
        Ok(())
    }
}
