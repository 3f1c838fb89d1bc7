//! What will run, and why something does not yet: by the same decisions that the services make.

use api::admin::{PlanForm, WhyForm};
use api::duration::TimeSpan;
use axum::extract::State;
use jiff::Timestamp;
use std::str::FromStr;
use std::time::Duration;
use upkeep::plan::Question;
use upkeep::task::Catalogue;
use uuid::Uuid;

use super::params::{ClusterPath, Version};
use super::{Desk, manifests};
use crate::wire::{Answer, Ask, PageAsk, Refusal, ResourceId};

/// How far a plan looks when the caller does not say, and at most.
const HORIZON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const HORIZON_MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Every page is computed anew, so that pages are long.
const ENTRIES: usize = 10_000;
const ENTRIES_MAX: usize = 100_000;

/// Explains why a manifest waits: everything that stands in its way.
#[utoipa::path(
    get, path = "/maintenancemanifests/{manifestId}/why", operation_id = "explainManifest", tag = "manifests",
    params(ClusterPath, Version, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "All that stands in its way.", body = WhyForm))
)]
pub(super) async fn why(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let id = manifests::cluster(&desk, &ask).await?.uuid;
    let manifest = manifests::find(&desk, &ask, |manifest| manifest.cluster == id).await?;
    let catalogue = desk.catalogue().await?;
    let found = upkeep::why::explain(&desk.store, &catalogue, manifest.uuid, desk.clock.now()).await?;
    found.map(|why| Answer::ok(&why)).ok_or_else(|| Refusal::not_found(manifests::NO_MANIFEST))
}

/// Shows what will run where and when.
#[utoipa::path(
    get, path = "/admin/maintenanceplan", operation_id = "getPlan", tag = "plan",
    params(
        Version,
        ("horizon" = Option<String>, Query, description = "How far ahead, such as `12h` or `30d`; 30 days when absent, 400 at most."),
        ("cluster" = Option<String>, Query, description = "Only this cluster, by its resource id."),
        ("schedule" = Option<String>, Query, description = "Only this schedule."),
        ("task" = Option<String>, Query, description = "Only this task, by id or name."),
        ("limit" = Option<i64>, Query, description = "At most so many entries; 10000 when absent, 100000 at most.", minimum = 1, maximum = 4_294_967_295_i64),
        ("$skipToken" = Option<String>, Query, description = "Where to go on: from the `nextLink` of the page before."),
    ),
    responses((status = 200, description = "The plan.", body = PlanForm))
)]
pub(super) async fn plan(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page_within::<Place>(ENTRIES, ENTRIES_MAX)?;
    let place = from.unwrap_or_else(|| Place::first(desk.clock.now()));
    let catalogue = desk.catalogue().await?;
    let question = Question {
        horizon: horizon(&ask)?,
        cluster: ask.query.one("cluster")?.map(cluster).transpose()?,
        schedule: ask.query.one("schedule")?.map(str::to_lowercase),
        task: ask.query.one("task")?.map(|text| task(text, &catalogue)).transpose()?,
        skip: place.skip,
        limit,
    };
    // The plan of a large fleet keeps a core busy for seconds; one that computes must not hold up those who only ask.
    let _turn = desk.planning.acquire().await.map_err(Refusal::internal)?;
    let (reader, runtime) = (desk.store.reader(), tokio::runtime::Handle::current());
    let computed = tokio::task::spawn_blocking(move || {
        runtime.block_on(upkeep::plan::plan(&reader, &catalogue, &question, place.now))
    });
    let (mut plan, next) = computed.await.map_err(Refusal::internal)??;
    if let Some(skip) = next {
        plan.next_link = ask.next_link(&Place { skip, ..place }.to_string());
    }
    Ok(Answer::ok(&plan))
}

/// Where the next page begins: behind so many entries of the plan as it was made at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    skip: usize,
    now: Timestamp,
}

impl Place {
    /// The beginning; in microseconds, as it is written.
    fn first(now: Timestamp) -> Place {
        Place { skip: 0, now: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now) }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.skip, self.now.as_microsecond())
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Place, ()> {
        let (skip, now) = text.split_once('-').ok_or(())?;
        let now = now.parse().ok().and_then(|micros| Timestamp::from_microsecond(micros).ok()).ok_or(())?;
        // The plan goes forward from there; a time that nobody was given a plan at is none of ours.
        let is_sensible = now > Timestamp::UNIX_EPOCH && now.as_second() < 32_503_680_000;
        Ok(Place { skip: skip.parse().map_err(drop)?, now: is_sensible.then_some(now).ok_or(())? })
    }
}

fn horizon(ask: &Ask) -> Result<Duration, Refusal> {
    let Some(text) = ask.query.one("horizon")? else { return Ok(HORIZON) };
    let span = text.parse::<TimeSpan>().ok().map(TimeSpan::duration);
    span.filter(|span| !span.is_zero() && *span <= HORIZON_MAX).ok_or_else(|| {
        Refusal::parameter("horizon", "The horizon must be a time such as 12h or 30d, and at most 400d.")
    })
}

fn cluster(text: &str) -> Result<String, Refusal> {
    let id = ResourceId::within(text).map(|id| id.path);
    id.map_err(|_| Refusal::parameter("cluster", "The cluster is named by its resource id."))
}

fn task(text: &str, catalogue: &Catalogue) -> Result<Uuid, Refusal> {
    let found = catalogue.find(text).map(upkeep::task::Definition::id);
    found.ok_or_else(|| Refusal::parameter("task", "There is no such task."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_as_written_and_nonsense_is_none() {
        let place = Place { skip: 7, now: Timestamp::from_second(1_790_000_000).unwrap() };
        assert_eq!(place.to_string().parse(), Ok(place));
        for nonsense in ["", "7", "-1-5", "7-", "x-1", "7-99999999999999999999", "7-9223372036854775807"] {
            assert_eq!(nonsense.parse::<Place>(), Err(()), "{nonsense}");
        }
    }
}
