//! The plan of future runs, and why a manifest waits; computed by the same code as the services' decisions.

use api::admin::{PlanForm, PlanGrouping, PlanOutcome, WhyForm};
use api::duration::TimeSpan;
use axum::extract::State;
use jiff::Timestamp;
use planner::plan::PlanRequest;
use planner::task::Catalogue;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::params::Version;
use super::{AdminState, manifests, planning};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, PageRequest, ResourceId};

/// Default and maximum horizon of a plan.
const HORIZON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const HORIZON_MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Default and maximum length of a page. Every page is computed again, so pages are long, up to a few megabytes.
const ENTRIES: usize = 10_000;
const ENTRIES_MAX: usize = 20_000;

/// Explains why a manifest is waiting.
#[utoipa::path(
    get, path = "/maintenancemanifests/{manifestId}/why", operation_id = "explainManifest", tag = "manifests",
    params(ClusterPath, Version, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "The reasons.", body = WhyForm))
)]
pub(super) async fn why(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let manifest = manifests::find_in_cluster(&state, &request).await?;
    let catalogue = state.catalogue().await?;
    let found = planning::explain(&state.store, &catalogue, manifest.uuid, state.clock.now()).await?;
    found.map(|why| ApiResponse::ok(&why)).ok_or_else(|| ApiError::not_found(manifests::NO_MANIFEST))
}

/// Shows the planned runs.
#[utoipa::path(
    get, path = "/admin/maintenanceplan", operation_id = "getPlan", tag = "plan",
    params(
        Version,
        ("horizon" = Option<String>, Query, description = "How far ahead, such as `12h` or `30d`; 30 days when absent, 400 at most."),
        ("cluster" = Option<String>, Query, description = "Only this cluster, by its resource id."),
        ("schedule" = Option<String>, Query, description = "Only this schedule."),
        ("task" = Option<String>, Query, description = "Only this task, by id or name."),
        ("outcome" = Option<PlanOutcome>, Query, description = "Only runs that begin in time (`runs`), or only those that do not (`misses`)."),
        ("groupBy" = Option<PlanGrouping>, Query, description = "What is one entry: all runs of a schedule, its runs on one cluster, or each run; `schedule` when absent."),
        ("skip" = Option<i64>, Query, description = "Number of entries to skip.", minimum = 0, maximum = 4_294_967_295_i64),
        ("limit" = Option<i64>, Query, description = "Maximum number of entries, up to 20000; 10000 when absent.", minimum = 1, maximum = 4_294_967_295_i64),
        ("$skipToken" = Option<String>, Query, description = "The position from the `nextLink` of the page before."),
    ),
    responses((status = 200, description = "The plan.", body = PlanForm))
)]
pub(super) async fn plan(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page_within::<PlanCursor>(ENTRIES, ENTRIES_MAX)?;
    let place = match from {
        Some(place) => place,
        None => PlanCursor { skip: skip(&request)?, ..PlanCursor::first(state.clock.now()) },
    };
    let catalogue = state.catalogue().await?;
    let question = PlanRequest {
        horizon: horizon(&request)?,
        cluster: request.query.get("cluster")?.map(cluster).transpose()?,
        schedule: request.query.get("schedule")?.map(str::to_lowercase),
        task: request.query.get("task")?.map(|text| task(text, &catalogue)).transpose()?,
        outcome: outcome(&request)?,
        grouping: grouping(&request)?,
        skip: place.skip,
        limit,
    };
    let (mut plan, next) = computed(&state, catalogue, question, place.now).await?;
    if let Some(skip) = next {
        plan.next_link = request.next_link(&PlanCursor { skip, ..place }.to_string());
    }
    Ok(ApiResponse::ok(&plan))
}

/// Computes a plan while the request is open.
async fn computed(
    state: &AdminState,
    catalogue: Arc<Catalogue>,
    question: PlanRequest,
    now: Timestamp,
) -> Result<planner::plan::PlanPage, ApiError> {
    let (reader, runtime) = (state.store.reader(), tokio::runtime::Handle::current());
    let work = move |stop: &CancellationToken| {
        let input = planning::plan_input(&reader, now, question.horizon);
        match runtime.block_on(stop.run_until_cancelled(input)) {
            Some(input) => {
                Ok(planner::plan::compute(&input?, &catalogue, &question, now, &|| stop.is_cancelled()))
            }
            None => Ok::<_, StoreError>(None),
        }
    };
    let page = run_while_requested(state.planning.clone(), work).await??;
    page.ok_or_else(|| ApiError::internal("a plan was given up though somebody waits for it"))
}

/// Runs work that occupies a core for seconds on a blocking thread, a few at a time. Dropping this future cancels the token of the
/// work. The permit is released when the work has stopped, not when its request is dropped.
async fn run_while_requested<T: Send + 'static>(
    permits: Arc<Semaphore>,
    work: impl FnOnce(&CancellationToken) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let permit = permits.acquire_owned().await.map_err(ApiError::internal)?;
    let stop = CancellationToken::new();
    let _stop_on_drop = stop.clone().drop_guard();
    let task = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&stop)
    });
    task.await.map_err(ApiError::internal)
}

fn outcome(request: &ApiRequest) -> Result<Option<PlanOutcome>, ApiError> {
    match request.query.get("outcome")? {
        None => Ok(None),
        Some("runs") => Ok(Some(PlanOutcome::Runs)),
        Some("misses") => Ok(Some(PlanOutcome::Misses)),
        Some(_) => Err(ApiError::invalid_parameter("outcome", "The outcome must be runs or misses.")),
    }
}

fn grouping(request: &ApiRequest) -> Result<PlanGrouping, ApiError> {
    let all = [PlanGrouping::Schedule, PlanGrouping::Cluster, PlanGrouping::Run];
    let Some(text) = request.query.get("groupBy")? else { return Ok(PlanGrouping::default()) };
    all.into_iter().find(|it| it.as_str() == text).ok_or_else(|| {
        ApiError::invalid_parameter("groupBy", "The grouping must be schedule, cluster or run.")
    })
}

fn skip(request: &ApiRequest) -> Result<usize, ApiError> {
    let Some(text) = request.query.get("skip")? else { return Ok(0) };
    let skip = text.parse::<u32>().ok().and_then(|skip| usize::try_from(skip).ok());
    skip.ok_or_else(|| {
        ApiError::invalid_parameter("skip", "The number of entries to skip must be 0 to 4294967295.")
    })
}

/// The start of a page: after `skip` entries of the plan as computed at `now`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlanCursor {
    skip: usize,
    now: Timestamp,
}

impl PlanCursor {
    /// The first page; in microseconds, as in the token.
    fn first(now: Timestamp) -> PlanCursor {
        PlanCursor { skip: 0, now: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now) }
    }
}

impl std::fmt::Display for PlanCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.skip, self.now.as_microsecond())
    }
}

impl FromStr for PlanCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<PlanCursor, ()> {
        let (skip, now) = text.split_once('-').ok_or(())?;
        let now = now.parse().ok().and_then(|micros| Timestamp::from_microsecond(micros).ok()).ok_or(())?;
        // A time outside this range is in no token of this server.
        let is_sensible = now > Timestamp::UNIX_EPOCH && now.as_second() < 32_503_680_000;
        Ok(PlanCursor { skip: skip.parse().map_err(drop)?, now: is_sensible.then_some(now).ok_or(())? })
    }
}

fn horizon(request: &ApiRequest) -> Result<Duration, ApiError> {
    let Some(text) = request.query.get("horizon")? else { return Ok(HORIZON) };
    let span = text.parse::<TimeSpan>().ok().map(TimeSpan::duration);
    span.filter(|span| !span.is_zero() && *span <= HORIZON_MAX).ok_or_else(|| {
        ApiError::invalid_parameter(
            "horizon",
            "The horizon must be a time such as 12h or 30d, and at most 400d.",
        )
    })
}

fn cluster(text: &str) -> Result<String, ApiError> {
    let id = ResourceId::within(text).map(|id| id.path);
    id.map_err(|_| ApiError::invalid_parameter("cluster", "The cluster is named by its resource id."))
}

fn task(text: &str, catalogue: &Catalogue) -> Result<Uuid, ApiError> {
    let found = catalogue.find(text).map(planner::task::Definition::id);
    found.ok_or_else(|| ApiError::invalid_parameter("task", "There is no such task."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_written_and_invalid_text_is_rejected() {
        let cursor = PlanCursor { skip: 7, now: Timestamp::from_second(1_790_000_000).unwrap() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for invalid in ["", "7", "-1-5", "7-", "x-1", "7-99999999999999999999", "7-9223372036854775807"] {
            assert_eq!(invalid.parse::<PlanCursor>(), Err(()), "{invalid}");
        }
    }

    #[tokio::test]
    async fn work_of_a_dropped_request_is_cancelled_and_holds_its_permit_until_it_stops() {
        let permits = Arc::new(Semaphore::new(1));
        let (start, has_started) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let (stopped, was_stopped) = tokio::sync::oneshot::channel();
        let work = move |stop: &CancellationToken| {
            start.send(()).unwrap();
            may_end.recv().unwrap();
            stopped.send(stop.is_cancelled()).unwrap();
        };
        let mut requests = tokio::task::JoinSet::new();
        requests.spawn(run_while_requested(permits.clone(), work));
        has_started.await.unwrap();
        requests.abort_all();
        assert!(requests.join_next().await.unwrap().is_err_and(|error| error.is_cancelled()));
        assert_eq!(permits.available_permits(), 0, "it still computes");
        end.send(()).unwrap();
        assert!(was_stopped.await.unwrap(), "it was cancelled");
        drop(permits.acquire().await.unwrap());
    }

    #[tokio::test]
    async fn work_of_an_open_request_is_not_cancelled() {
        let permits = Arc::new(Semaphore::new(1));
        let stopped = run_while_requested(permits, CancellationToken::is_cancelled).await.unwrap();
        assert!(!stopped);
    }
}
