//! Why a manifest waits: every reason, who can do something about each, and the earliest time at which it can begin.
//!
//! [`explain`] reads what there is to know in a handful of queries; [`decide`] is what the answer follows from.

mod decide;

#[cfg(test)]
mod tests;

use api::admin::WhyForm;
use jiff::Timestamp;
use steps::ClusterFacts;
use store::{Reader, StoreError};
use uuid::Uuid;

pub use decide::{Observed, Other, decide};

use crate::task::{Catalogue, requires_met};

/// So many pieces of work ahead of a manifest are looked at; the message says "at least" beyond that.
const AHEAD_MAX: usize = 100;

/// Why the manifest waits; none when there is no such manifest.
pub async fn explain(
    reader: &Reader,
    catalogue: &Catalogue,
    manifest: Uuid,
    now: Timestamp,
) -> Result<Option<WhyForm>, StoreError> {
    let Some(document) = reader.documents::<api::doc::Manifest>().get(manifest).await? else {
        return Ok(None);
    };
    let Some(work) = reader.work(manifest).await? else { return Ok(None) };
    let lane = reader.lane(work.lane).await?;
    let ahead = reader.pending(work.lane, AHEAD_MAX).await?;
    let running = match lane.as_ref().and_then(|lane| lane.running) {
        Some(running) if running != manifest => reader.work(running).await?,
        _ => None,
    };
    let cluster = reader.documents::<api::doc::Cluster>().get(document.document.cluster).await?;
    let health = reader.health(vec![document.document.cluster]).await?.pop();
    let unmet = match (&cluster, catalogue.get(document.document.task_id)) {
        (Some(cluster), Some(task)) => {
            let version = health.as_ref().and_then(|it| it.details.version.clone());
            let facts = ClusterFacts::of(cluster.uuid, &cluster.document, version);
            requires_met(&task.requires(), &facts).err()
        }
        _ => None,
    };
    let more_ahead = ahead.len() == AHEAD_MAX && !ahead.iter().any(|it| it.id == manifest);
    let budgets = reader.budgets().await?;
    let ahead = ahead.iter().take_while(|it| it.id != manifest).map(|it| Other::of(it, &budgets)).collect();
    let task_budget = catalogue.budget_name(&format!("task/{}", document.document.task_id));
    let observed = Observed {
        manifest: document.document,
        work,
        running: running.as_ref().map(|it| Other::of(it, &budgets)),
        ahead,
        more_ahead,
        budgets,
        task_budget,
        health,
        unmet,
        actuators: reader.leases("actuator/").await?.len(),
    };
    Ok(Some(decide(&observed, now)))
}
