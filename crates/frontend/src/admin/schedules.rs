//! Schedules: store, list with status, preview, delete.

use std::collections::HashMap;
use std::sync::Arc;

use api::admin::{Page, PreviewForm, ScheduleForm, ScheduleStatus};
use api::doc::{Schedule, ScheduleOutlook};
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use planner::schedule::{self, Check, Limits, PREVIEW_PERIODS_MAX, Rule, ScheduleErrorCode};
use planner::task::{Catalogue, check_parameters};
use serde_json::{Map, Value};
use store::{ListOptions, PageToken, PendingManifests, Reader, StoreError, VersionedDocument};
use uuid::Uuid;

use super::params::{Paging, Reason, Version};
use super::{AdminState, members, offload};
use crate::params::IfMatch;
use crate::wire::{
    ApiError, ApiRequest, ApiResponse, Code, LIMIT_DEFAULT, PageRequest, WRITE_ATTEMPTS_MAX, as_sentence,
};

const NO_SCHEDULE: &str = "schedule not found";

/// Default number of periods and clusters of a preview, and the maximum number of clusters.
const PREVIEW_COUNT: usize = 10;
const PREVIEW_CLUSTERS: usize = 100;
const PREVIEW_CLUSTERS_MAX: usize = 1000;

/// Lists all schedules, by id.
#[utoipa::path(
    get, path = "/admin/maintenanceschedules", operation_id = "listSchedules", tag = "schedules",
    params(Version, Paging),
    responses((status = 200, description = "A page of schedules.", body = Page<ScheduleForm>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<PageToken>(LIMIT_DEFAULT)?;
    let page = state.store.schedules().list(ListOptions { from, limit, ..ListOptions::default() }).await?;
    let statuses = statuses(&state.store, page.items.len()).await?;
    let show = |read: &VersionedDocument<Schedule>| {
        schedule::form(&read.document, statuses.get(&read.document.id).cloned())
    };
    Ok(request.page_response(page.items.iter().map(show).collect(), page.next))
}

/// The statuses of all schedules by id, with one query for many of them.
pub(super) async fn statuses(
    reader: &Reader,
    wanted: usize,
) -> Result<HashMap<String, ScheduleStatus>, StoreError> {
    let mut found = HashMap::new();
    if wanted == 0 {
        return Ok(found);
    }
    let outlooks = reader.documents::<ScheduleOutlook>();
    outlooks
        .for_each(|read| {
            found.insert(read.document.schedule, read.document.status);
        })
        .await?;
    Ok(found)
}

/// Shows one schedule.
#[utoipa::path(
    get, path = "/admin/maintenanceschedules/{scheduleId}", operation_id = "getSchedule", tag = "schedules",
    params(Version, ("scheduleId" = String, Path, description = "Its id.")),
    responses((status = 200, description = "The schedule.", body = ScheduleForm))
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let read = find(&state, request.path_param("scheduleId"))
        .await?
        .ok_or_else(|| ApiError::not_found(NO_SCHEDULE))?;
    shown(&state, &read.document).await.map(|form| ApiResponse::ok(&form).with_etag(read.etag))
}

async fn shown(state: &AdminState, document: &Schedule) -> Result<ScheduleForm, ApiError> {
    let status = state.store.schedule_status(&document.id).await?;
    Ok(schedule::form(document, status))
}

/// The schedule with this id. Ids are in lower case and have no slash, so the path is unambiguous.
async fn find(state: &AdminState, id: &str) -> Result<Option<VersionedDocument<Schedule>>, StoreError> {
    state.store.schedules().find(&format!("/maintenanceschedules/{id}")).await
}

/// Stores a schedule, or changes the one of that id.
#[utoipa::path(
    put, path = "/admin/maintenanceschedules", operation_id = "putSchedule", tag = "schedules",
    params(Version, Reason, IfMatch), request_body = ScheduleForm,
    responses(
        (status = 200, description = "It was changed.", body = ScheduleForm),
        (status = 201, description = "It was created.", body = ScheduleForm),
        (status = 409, description = "It was changed by another request at the same time."),
    )
)]
pub(super) async fn put(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let form: ScheduleForm = request.json()?;
    let by = request.by(form.reason.as_deref())?;
    let catalogue = state.catalogue().await?;
    let (now, new_id) = (state.clock.now(), Uuid::now_v7());
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let found = if form.id.is_empty() { None } else { find(&state, &form.id).await? };
        request.check_preconditions(found.as_ref().map(|read| read.etag))?;
        let stored = found.as_ref().map(|read| &read.document);
        let wanted = checked(&form, &catalogue, now, new_id, stored).await?;
        let written = match &found {
            None => state.store.schedules().create(&wanted, &by).await.map(|(_, etag)| etag),
            // Nothing changes, so the scheduler need not run again.
            Some(read) if read.document == wanted => Ok(read.etag),
            Some(read) => state.store.schedules().update(read, &wanted, &by).await,
        };
        match written {
            Ok(etag) => {
                let form = shown(&state, &wanted).await?;
                return Ok(ApiResponse::put(found.is_none(), &form).with_etag(etag));
            }
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// The schedule that a form describes.
async fn checked(
    form: &ScheduleForm,
    catalogue: &Arc<Catalogue>,
    now: Timestamp,
    new_id: Uuid,
    stored: Option<&Schedule>,
) -> Result<Schedule, ApiError> {
    let (form, catalogue, stored) = (form.clone(), catalogue.clone(), stored.cloned());
    let checked = offload(move || {
        let task = |text: &str, parameters: &Map<String, Value>| {
            let Some(task) = catalogue.find(text) else {
                return Err(schedule::ScheduleError::invalid(
                    "maintenanceTaskID",
                    format!("there is no task {text:?}"),
                ));
            };
            check_parameters(task, parameters)
                .map_err(|problem| schedule::ScheduleError::invalid(problem.target, problem.message))?;
            Ok(task.id())
        };
        let check = Check { now, limits: Limits::default(), new_id, stored: stored.as_ref(), task: &task };
        schedule::check(&form, &check)
    });
    checked.await?.map_err(refused)
}

fn refused(error: schedule::ScheduleError) -> ApiError {
    let code = match error.code {
        ScheduleErrorCode::InvalidParameter => Code::InvalidParameter,
        ScheduleErrorCode::PropertyChangeNotAllowed => Code::PropertyChangeNotAllowed,
    };
    ApiError::new(StatusCode::BAD_REQUEST, code, as_sentence(&error.message)).with_target(error.target)
}

/// Deletes a schedule and cancels its pending manifests, unless `pending=keep`.
#[utoipa::path(
    delete, path = "/admin/maintenanceschedules/{scheduleId}", operation_id = "deleteSchedule", tag = "schedules",
    params(
        Version, Reason, IfMatch,
        ("scheduleId" = String, Path, description = "Its id."),
        ("pending" = Option<String>, Query, description = "Whether its pending manifests are cancelled: `cancel` (the default) or `keep`."),
    ),
    responses(
        (status = 200, description = "It was deleted.", body = Object),
        (status = 409, description = "It was changed by another request at the same time."),
    )
)]
pub(super) async fn delete(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let by = request.by(None)?;
    let pending = match request.query.get("pending")? {
        None | Some("cancel") => PendingManifests::Cancel,
        Some("keep") => PendingManifests::Keep,
        Some(_) => {
            return Err(ApiError::invalid_parameter("pending", "The parameter pending is cancel or keep."));
        }
    };
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let found = find(&state, request.path_param("scheduleId")).await?;
        let read = found.ok_or_else(|| ApiError::not_found(NO_SCHEDULE))?;
        request.check_preconditions(Some(read.etag))?;
        match state.store.delete_schedule(&read, pending, &by).await {
            Ok(()) => return Ok(ApiResponse::empty_object()),
            Err(StoreError::Gone { .. }) => return Err(ApiError::not_found(NO_SCHEDULE)),
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// Previews the manifests of a schedule with the scheduler's own function; stores nothing.
#[utoipa::path(
    post, path = "/admin/maintenanceschedules/preview", operation_id = "previewSchedule", tag = "schedules",
    params(
        Version,
        ("count" = Option<u32>, Query, description = "Number of periods, up to 1000; 10 when absent.", minimum = 1, maximum = 1000),
        ("clusters" = Option<u32>, Query, description = "Number of clusters, up to 1000; 100 when absent.", minimum = 0, maximum = 1000),
        ("now" = Option<String>, Query, description = "Preview at this time.", format = DateTime),
    ),
    request_body = ScheduleForm,
    responses((status = 200, description = "What it would make.", body = PreviewForm))
)]
pub(super) async fn preview(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let count = number(&request, "count", PREVIEW_COUNT, 1..=PREVIEW_PERIODS_MAX)?;
    let clusters = number(&request, "clusters", PREVIEW_CLUSTERS, 0..=PREVIEW_CLUSTERS_MAX)?;
    let now = match request.query.get("now")? {
        None => state.clock.now(),
        Some(text) => text.parse().map_err(|_| {
            ApiError::invalid_parameter(
                "now",
                "The parameter now must be a time such as 2026-03-01T00:00:00Z.",
            )
        })?,
    };
    let mut form: ScheduleForm = request.json()?;
    if form.state.is_empty() {
        form.state = "Enabled".to_owned();
    }
    let catalogue = state.catalogue().await?;
    let schedule = checked(&form, &catalogue, now, Uuid::now_v7(), None).await?;
    let rule = Rule::read(&schedule, now).map_err(refused)?;
    let fleet = members::members(&state.store).await?;
    Ok(ApiResponse::ok(&schedule::preview(&rule, &fleet, now, count, clusters)))
}

fn number(
    request: &ApiRequest,
    name: &'static str,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, ApiError> {
    let Some(text) = request.query.get(name)? else { return Ok(default) };
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let message =
            format!("The parameter {name} must be a number from {} to {}.", range.start(), range.end());
        ApiError::invalid_parameter(name, message)
    })
}
