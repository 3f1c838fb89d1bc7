//! How the fleet comes into memory and stays true: listed once, then followed by the feed.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::doc::{Cluster, Document, Manifest, Schedule, ScheduleOutlook, Subscription};
use api::work::WorkKind;
use jiff::{SignedDuration, Timestamp};
use planner::schedule::{ManifestStatus, parameters_hash};
use serde::Deserialize as _;
use store::{Change, DocumentQuery, FeedBatch, PAGE_MAX, StoredDocument, Subject, Transaction, WorkView};
use uuid::Uuid;

use super::act::by;
use super::{Deps, Error, Fleet, Scheduler};

/// How often the clusters' versions are looked up while a schedule asks for them.
const VERSIONS_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Of manifests that need not be looked at, so many are remembered.
const FOREIGN_MAX: usize = 100_000;

impl Scheduler {
    /// Knows nothing before it follows the feed for the first time.
    pub(crate) fn new(deps: &Deps) -> Scheduler {
        let kinds = [Cluster::KIND, Subscription::KIND, Schedule::KIND, Manifest::KIND];
        Scheduler {
            deps: deps.clone(),
            fleet: Fleet::default(),
            feed: deps.store.follow_feed(kinds),
            foreign: HashSet::new(),
            versions_due: Timestamp::MIN,
            again: Vec::new(),
        }
    }

    /// Forgets everything and lists it.
    async fn list_all(&mut self) -> Result<(), Error> {
        self.fleet = Fleet::default();
        self.foreign.clear();
        self.versions_due = Timestamp::MIN;
        self.again.clear();
        self.list::<Subscription>().await?;
        self.list::<Cluster>().await?;
        self.list::<Schedule>().await?;
        self.list_work().await?;
        for schedule in self.fleet.gone() {
            self.let_go_if_kept(&schedule).await?;
        }
        Ok(())
    }

    /// Lists documents without their type: one that cannot be read must not keep all others from us.
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

    /// Takes a document as it is now.
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
                "{} {} cannot be read and is left as it is",
                stored.kind,
                stored.id
            );
            if let Some(id) = stored.body["id"].as_str().filter(|_| stored.kind == Schedule::KIND) {
                self.fleet.put_broken_schedule(stored.uuid, id, error.to_string());
            }
        }
    }

    /// All manifests that wait or run.
    async fn list_work(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.deps.store.live(WorkKind::Manifest, after, PAGE_MAX).await?;
            after = page.last().map(|last| last.id);
            let full = page.len() == PAGE_MAX;
            self.learn(page).await?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Learns what has happened to manifests.
    pub(super) async fn learn(&mut self, works: Vec<WorkView>) -> Result<(), Error> {
        // Parameters are in the document; those of a manifest that is as we know it need not be read again.
        let same = |work: &WorkView| match self.fleet.known(work.id) {
            Some(ManifestStatus::Fresh(window)) => {
                ManifestStatus::from_work(work, window.parameters) == ManifestStatus::Fresh(window)
            }
            _ => false,
        };
        let is_fresh =
            |work: &WorkView| matches!(ManifestStatus::from_work(work, 0), ManifestStatus::Fresh(_));
        let wanted: Vec<Uuid> = works
            .iter()
            .filter(|work| work.origin.is_some() && is_fresh(work) && !same(work))
            .map(|work| work.id)
            .collect();
        let mut marks: HashMap<Uuid, u64> = HashMap::new();
        for block in wanted.chunks(PAGE_MAX) {
            for stored in self.deps.store.get_many(block.to_vec()).await? {
                if let Ok(manifest) = Manifest::deserialize(&stored.body) {
                    marks.insert(stored.uuid, parameters_hash(&manifest.parameters));
                }
            }
        }
        for work in works {
            let Some(schedule) = &work.origin else {
                self.pass_over(work.id);
                continue;
            };
            let before = match self.fleet.known(work.id) {
                Some(ManifestStatus::Fresh(window)) => window.parameters,
                _ => 0,
            };
            let known = ManifestStatus::from_work(&work, marks.get(&work.id).copied().unwrap_or(before));
            if known == ManifestStatus::Closed && self.fleet.known(work.id).is_none() {
                self.pass_over(work.id); // it never comes back
                continue;
            }
            self.fleet.learn(schedule, work.lane, work.id, known);
        }
        Ok(())
    }

    /// Whether what happens to a manifest may matter.
    fn is_of_interest(&self, manifest: Uuid) -> bool {
        self.fleet.known(manifest) != Some(ManifestStatus::Closed) && !self.foreign.contains(&manifest)
    }

    /// Need not be looked at again, whatever the feed says of it.
    fn pass_over(&mut self, manifest: Uuid) {
        if self.foreign.len() >= FOREIGN_MAX {
            self.foreign.clear();
        }
        self.foreign.insert(manifest);
    }

    /// Reads the feed to its end.
    pub(crate) async fn follow(&mut self) -> Result<(), Error> {
        loop {
            match self.feed.read().await? {
                FeedBatch::StartOver => self.list_all().await?,
                FeedBatch::Changes(changes) => self.take(&changes).await?,
            }
            self.feed.acknowledge();
            if self.feed.is_caught_up() {
                break;
            }
        }
        let now = self.deps.clock.now();
        if now >= self.versions_due && self.fleet.asks_for_versions() {
            self.look_up_versions().await?;
            self.versions_due = now.saturating_add(VERSIONS_EVERY).unwrap_or(Timestamp::MAX);
        }
        Ok(())
    }

    async fn take(&mut self, changes: &[Change]) -> Result<(), Error> {
        let (mut documents, mut deleted, mut works) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match (change.kind.as_str(), change.subject) {
                (
                    Cluster::KIND | Subscription::KIND | Schedule::KIND,
                    Subject::Document { deleted: gone, .. },
                ) => {
                    documents.insert(change.uuid);
                    if gone {
                        deleted.insert((change.kind.clone(), change.uuid));
                    }
                }
                (Manifest::KIND, Subject::Document { deleted: true, .. }) => {
                    // Its slot is not made again.
                    if let Some((schedule, cluster)) = self.fleet.owner(change.uuid) {
                        self.fleet.learn(&schedule, cluster, change.uuid, ManifestStatus::Closed);
                    }
                }
                (Manifest::KIND, _) if self.is_of_interest(change.uuid) => {
                    works.insert(change.uuid);
                }
                _ => {}
            }
        }
        // The feed says where to look; the truth is what is there now.
        let documents: Vec<Uuid> = documents.into_iter().collect();
        let mut living = HashSet::new();
        for block in documents.chunks(PAGE_MAX) {
            for stored in self.deps.store.get_many(block.to_vec()).await? {
                living.insert(stored.uuid);
                self.put(&stored);
            }
        }
        for (kind, uuid) in deleted.into_iter().filter(|(_, uuid)| !living.contains(uuid)) {
            self.drop_document(&kind, uuid).await?;
        }
        let works: Vec<Uuid> = works.into_iter().collect();
        for block in works.chunks(PAGE_MAX) {
            let found = self.deps.store.works(block.to_vec()).await?;
            self.learn(found).await?;
        }
        Ok(())
    }

    async fn drop_document(&mut self, kind: &str, uuid: Uuid) -> Result<(), Error> {
        match kind {
            Cluster::KIND => self.fleet.drop_cluster(uuid),
            Subscription::KIND => self.fleet.put_subscription(uuid, None),
            Schedule::KIND => {
                if let Some(schedule) = self.fleet.drop_schedule(uuid) {
                    self.let_go_if_kept(&schedule).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What a deleted schedule has made stays when whoever deleted it said so.
    async fn let_go_if_kept(&mut self, schedule: &str) -> Result<(), Error> {
        let path = ScheduleOutlook::path_of(schedule);
        match self.deps.store.documents::<ScheduleOutlook>().find(&path).await? {
            Some(outlook) if outlook.document.keep_pending => self.fleet.let_go(schedule),
            // Nobody asks for it any more. Should another scheduler have removed it, that is as well.
            Some(outlook) => {
                let removed = self.deps.store.commit(Transaction::new().remove(&outlook, &by())).await;
                if let Err(error) = removed {
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        "The outlook of schedule {schedule} stays"
                    );
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Versions are in the health samples, of which the feed says nothing.
    async fn look_up_versions(&mut self) -> Result<(), Error> {
        for block in self.fleet.cluster_ids().chunks(PAGE_MAX) {
            for sample in self.deps.store.health(block.to_vec()).await? {
                self.fleet.put_version(sample.cluster, sample.details.version);
            }
        }
        Ok(())
    }
}
