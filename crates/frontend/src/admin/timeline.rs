//! Completed and running manifests over time, for charts. Future runs are in the plan.

use api::admin::{TimelineForm, TimelineRun};
use api::doc::Manifest;
use api::work::{WorkKind, WorkState};
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use store::WorkView;

use super::params::Version;
use super::{AdminState, forms};
use crate::wire::{ApiError, ApiRequest, ApiResponse};

/// Default length of the timeline.
const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// Default and maximum number of runs.
const RUNS: usize = 1_000;
const RUNS_MAX: usize = 5_000;

/// Shows the runs between two times.
#[utoipa::path(
    get, path = "/admin/maintenancetimeline", operation_id = "getTimeline", tag = "plan",
    params(
        Version,
        ("from" = Option<String>, Query, description = "From when, in RFC 3339; a day ago when absent."),
        ("to" = Option<String>, Query, description = "Until when; now when absent."),
        ("limit" = Option<i64>, Query, description = "Maximum number of runs, up to 5000; 1000 when absent.", minimum = 1, maximum = 4_294_967_295_i64),
    ),
    responses((status = 200, description = "The runs.", body = TimelineForm))
)]
pub(super) async fn timeline(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let now = state.clock.now();
    let time = |name: &'static str, fallback: Timestamp| match request.query.get(name)? {
        None => Ok(fallback),
        Some(text) => text.parse::<Timestamp>().map_err(|_| {
            ApiError::invalid_parameter(name, "The time must have the form 2026-01-31T12:00:00Z.")
        }),
    };
    let to = time("to", now)?;
    let from = time("from", to.checked_sub(DEFAULT_PERIOD).unwrap_or(to))?;
    if from >= to {
        return Err(ApiError::invalid_parameter("from", "The start must be before the end."));
    }
    let limit = request.page_within::<i64>(RUNS, RUNS_MAX)?.limit;
    let mut works = state.store.running(WorkKind::Manifest, store::PAGE_MAX).await?;
    works.retain(|work| work.started.is_some_and(|at| at < to));
    let remaining = (limit + 1).saturating_sub(works.len()).max(1);
    works.extend(state.store.finished(WorkKind::Manifest, from, to, remaining).await?);
    let is_cut = works.len() > limit;
    works.truncate(limit);
    let documents = state.store.get_many(works.iter().map(|work| work.id).collect()).await?;
    let manifests: std::collections::HashMap<_, Manifest> =
        documents.iter().filter_map(|stored| Some((stored.uuid, forms::read::<Manifest>(stored)?))).collect();
    let catalogue = state.catalogue().await?;
    let run = |work: &WorkView| {
        let manifest = manifests.get(&work.id)?;
        let text = work.result.as_ref().map(|result| result.message().to_owned());
        Some(TimelineRun {
            manifest: work.id,
            cluster: manifest.cluster_path.clone(),
            task: manifest.task_id,
            task_name: catalogue.get(manifest.task_id).map(|task| task.name().to_owned()).unwrap_or_default(),
            schedule: manifest.created_by_schedule.clone(),
            state: work.state,
            start: work.started,
            end: work.finished.filter(|_| work.state != WorkState::InProgress),
            status_text: text.unwrap_or_default(),
        })
    };
    Ok(ApiResponse::ok(&TimelineForm { from, to, value: works.iter().filter_map(run).collect(), is_cut }))
}
