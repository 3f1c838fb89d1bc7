//! Reads the facts for the decisions of `planner` from the store.

use api::admin::WhyForm;
use api::doc::{Cluster, Document, Manifest, Schedule, Subscription, TaskStats};
use api::queue::WorkView;
use api::work::WorkKind;
use jiff::Timestamp;
use planner::plan::{FleetRecords, PlanInput};
use planner::task::{Catalogue, requires_met};
use planner::why::{self, OtherWork};
use std::time::Duration;
use steps::ClusterFacts;
use store::{Reader, StoreError, VersionedDocument};
use uuid::Uuid;

/// Most pieces of work ahead of a manifest that are read; beyond that the message says "at least".
const AHEAD_MAX: usize = 100;
/// Rows per read.
const PAGE: usize = 1000;

/// Explains why a manifest waits; none when there is no such manifest.
pub(super) async fn explain(
    reader: &Reader,
    catalogue: &Catalogue,
    manifest: Uuid,
    now: Timestamp,
) -> Result<Option<WhyForm>, StoreError> {
    let Some(document) = reader.documents::<Manifest>().get(manifest).await? else { return Ok(None) };
    let document = document.document;
    let Some(work) = reader.work(manifest).await? else { return Ok(None) };
    let lane = reader.lane(work.lane).await?;
    let ahead = reader.pending(work.lane, AHEAD_MAX).await?;
    let running = match lane.as_ref().and_then(|lane| lane.running) {
        Some(running) if running != manifest => reader.work(running).await?,
        _ => None,
    };
    let cluster = reader.documents::<Cluster>().get(document.cluster).await?;
    let health = reader.health(vec![document.cluster]).await?.pop();
    let unmet = match (&cluster, catalogue.get(document.task_id)) {
        (Some(cluster), Some(task)) => {
            let version = health.as_ref().and_then(|it| it.details.version.clone());
            let facts = ClusterFacts::of(cluster.uuid, &cluster.document, version);
            requires_met(&task.requires(), &facts, health.as_ref(), now).err()
        }
        _ => None,
    };
    let more_ahead = ahead.len() == AHEAD_MAX && !ahead.iter().any(|it| it.id == manifest);
    let budgets = reader.budgets().await?;
    let ahead =
        ahead.iter().take_while(|it| it.id != manifest).map(|it| OtherWork::new(it, &budgets)).collect();
    let observed = why::ManifestFacts {
        task_budget: catalogue.budget_name(&format!("task/{}", document.task_id)),
        manifest: document,
        work,
        running: running.as_ref().map(|it| OtherWork::new(it, &budgets)),
        ahead,
        more_ahead,
        budgets,
        health,
        unmet,
        actuators: reader.leases("actuator/").await?.len(),
    };
    Ok(Some(why::decide(&observed, now)))
}

/// Reads everything that a plan up to `now + horizon` depends on, page by page.
pub(super) async fn plan_input(
    reader: &Reader,
    now: Timestamp,
    horizon: Duration,
) -> Result<PlanInput, StoreError> {
    let clusters = all::<Cluster>(reader).await?;
    let mut health = Vec::new();
    for block in clusters.chunks(PAGE) {
        health.extend(reader.health(block.iter().map(|it| it.uuid).collect()).await?);
    }
    let mut live = Vec::new();
    for kind in WorkKind::ALL {
        live.extend(all_live(reader, kind).await?);
    }
    let schedules = all::<Schedule>(reader).await?.into_iter();
    let mut observed = PlanInput::new(FleetRecords {
        subscriptions: all::<Subscription>(reader).await?.into_iter().map(|it| it.document).collect(),
        clusters: clusters.into_iter().map(|it| (it.uuid, it.document)).collect(),
        health,
        schedules: schedules.map(|it| (it.document, it.changed)).collect(),
        stats: all::<TaskStats>(reader).await?.into_iter().map(|it| it.document).collect(),
        live,
        budgets: reader.budgets().await?,
        actuators: reader.leases("actuator/").await?.len(),
    });
    for block in observed.unsettled(now, horizon).chunks(PAGE) {
        observed.settle(&reader.works(block.to_vec()).await?);
    }
    Ok(observed)
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
