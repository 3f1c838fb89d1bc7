//! What a plan is made from.

use std::collections::{HashMap, HashSet};

use api::doc::{Cluster, Document, ResultCode, Schedule, Subscription, TaskStats};
use api::work::WorkKind;
use store::{Budget, Reader, StoreError, VersionedDocument, WorkView};
use uuid::Uuid;

use crate::schedule::{Member, Rule};

/// Read so many at a time.
const PAGE: usize = 1000;

/// The fleet, its rules and its work, as read.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Every cluster, with its resource id as it was spelled.
    pub clusters: Vec<(Member, String)>,
    /// The clusters that do not answer.
    pub unreachable: HashSet<Uuid>,
    /// Every schedule that can be read and is enabled.
    pub rules: Vec<Rule>,
    /// All work that is pending or runs.
    pub live: Vec<WorkView>,
    /// The limits.
    pub budgets: Vec<Budget>,
    /// How long tasks took lately.
    pub stats: HashMap<Uuid, TaskStats>,
    /// Slots whose manifests are at their end.
    pub settled: HashSet<Uuid>,
    /// How many actuators there are.
    pub actuators: usize,
}

impl Observed {
    /// Reads everything, page by page.
    pub async fn gather(reader: &Reader) -> Result<Observed, StoreError> {
        let subscriptions: HashMap<String, _> = all::<Subscription>(reader)
            .await?
            .into_iter()
            .map(|it| (it.document.subscription_id.to_lowercase(), it.document.state))
            .collect();
        let (mut clusters, mut unreachable) = (Vec::new(), HashSet::new());
        for block in all::<Cluster>(reader).await?.chunks(PAGE) {
            let seen = reader.health(block.iter().map(|it| it.uuid).collect()).await?;
            let versions: HashMap<Uuid, &str> =
                seen.iter().filter_map(|it| Some((it.cluster, it.details.version.as_deref()?))).collect();
            unreachable.extend(seen.iter().filter(|it| !it.reachable).map(|it| it.cluster));
            for cluster in block {
                let state = subscriptions.get(&cluster.document.subscription_id.to_lowercase()).copied();
                let version = versions.get(&cluster.uuid).copied();
                let member = Member::of(cluster.uuid, &cluster.document, state, version);
                clusters.push((member, cluster.document.id.clone()));
            }
        }
        let schedules = all::<Schedule>(reader).await?;
        let rules = schedules.iter().filter_map(|it| Rule::read(&it.document, it.changed).ok());
        let stats = all::<TaskStats>(reader).await?.into_iter();
        let mut live = Vec::new();
        for kind in WorkKind::ALL {
            live.extend(all_live(reader, kind).await?);
        }
        Ok(Observed {
            clusters,
            unreachable,
            rules: rules.filter(|rule| rule.enabled).collect(),
            live,
            budgets: reader.budgets().await?,
            stats: stats.map(|it| (it.document.task, it.document)).collect(),
            settled: HashSet::new(),
            actuators: reader.leases("actuator/").await?.len(),
        })
    }

    /// Finds out which of these manifests are at their end.
    pub async fn settle(&mut self, reader: &Reader, doubtful: Vec<Uuid>) -> Result<(), StoreError> {
        for block in doubtful.chunks(PAGE) {
            let known = reader.works(block.to_vec()).await?;
            self.settled.extend(known.into_iter().filter(|it| !is_superseded(it)).map(|it| it.id));
        }
        Ok(())
    }
}

/// Whether its schedule withdrew it, and would bring it back.
fn is_superseded(work: &WorkView) -> bool {
    work.result.as_ref().is_some_and(|it| it.has_code(&ResultCode::SUPERSEDED))
}

async fn all<T: Document>(reader: &Reader) -> Result<Vec<VersionedDocument<T>>, StoreError> {
    let mut found = Vec::new();
    reader.documents::<T>().for_each(|read| found.push(read)).await?;
    Ok(found)
}

async fn all_live(reader: &Reader, kind: WorkKind) -> Result<Vec<WorkView>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = reader.live(kind, after, PAGE).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|it| it.id);
        found.extend(page);
        if !full {
            return Ok(found);
        }
    }
}
