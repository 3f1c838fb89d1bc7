//! Schedules: stored, listed with how they fare, previewed, deleted.

use std::collections::HashMap;
use std::sync::Arc;

use api::admin::{Page, PreviewForm, ScheduleForm, ScheduleStatus};
use api::doc::{Schedule, ScheduleOutlook};
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use planner::schedule::{self, Check, Limits, PREVIEW_PERIODS_MAX, Pending, RefusalCode, Rule};
use planner::task::{Catalogue, check_parameters};
use serde_json::{Map, Value};
use store::{ListOptions, PageToken, Reader, StoreError, VersionedDocument};
use uuid::Uuid;

use super::clusters::TURNS_MAX;
use super::params::{IfMatch, Paging, Reason, Version};
use super::{Desk, aside, fleet};
use crate::wire::{Answer, Ask, Code, LIMIT_DEFAULT, PageAsk, Refusal, sentence};

const NO_SCHEDULE: &str = "schedule not found";

/// A preview shows so many periods and clusters when the caller does not say.
const PREVIEW_COUNT: usize = 10;
const PREVIEW_CLUSTERS: usize = 100;
const PREVIEW_CLUSTERS_MAX: usize = 1000;

/// Lists all schedules, by id.
#[utoipa::path(
    get, path = "/admin/maintenanceschedules", operation_id = "listSchedules", tag = "schedules",
    params(Version, Paging),
    responses((status = 200, description = "A page of schedules.", body = Page<ScheduleForm>))
)]
pub(super) async fn list(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page::<PageToken>(LIMIT_DEFAULT)?;
    let page = desk.store.schedules().list(ListOptions { from, limit, ..ListOptions::default() }).await?;
    let statuses = statuses(&desk.store, page.items.len()).await?;
    let show = |read: &VersionedDocument<Schedule>| {
        schedule::form(&read.document, statuses.get(&read.document.id).cloned())
    };
    Ok(ask.paged(page.items.iter().map(show).collect(), page.next))
}

/// How all schedules fare, by their ids; one query for many of them.
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
pub(super) async fn show(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let read =
        find(&desk, ask.segment("scheduleId")).await?.ok_or_else(|| Refusal::not_found(NO_SCHEDULE))?;
    shown(&desk, &read.document).await.map(|form| Answer::ok(&form).etag(read.etag))
}

async fn shown(desk: &Desk, document: &Schedule) -> Result<ScheduleForm, Refusal> {
    let status = schedule::status(&desk.store, &document.id).await?;
    Ok(schedule::form(document, status))
}

/// The schedule of that id. Ids are in lower case and have no slash, so no other path can be meant.
async fn find(desk: &Desk, id: &str) -> Result<Option<VersionedDocument<Schedule>>, StoreError> {
    desk.store.schedules().find(&format!("/maintenanceschedules/{id}")).await
}

/// Stores a schedule, or changes the one of that id.
#[utoipa::path(
    put, path = "/admin/maintenanceschedules", operation_id = "putSchedule", tag = "schedules",
    params(Version, Reason, IfMatch), request_body = ScheduleForm,
    responses(
        (status = 200, description = "It was there and is changed.", body = ScheduleForm),
        (status = 201, description = "It is new.", body = ScheduleForm),
        (status = 409, description = "It was changed at the same moment."),
    )
)]
pub(super) async fn put(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let form: ScheduleForm = ask.json()?;
    let by = ask.by(form.reason.as_deref())?;
    let catalogue = desk.catalogue().await?;
    let (now, new_id) = (desk.clock.now(), Uuid::now_v7());
    for _ in 0..TURNS_MAX {
        let found = if form.id.is_empty() { None } else { find(&desk, &form.id).await? };
        ask.check_version(found.as_ref().map(|read| read.etag))?;
        let stored = found.as_ref().map(|read| &read.document);
        let wanted = checked(&form, &catalogue, now, new_id, stored).await?;
        let written = match &found {
            None => desk.store.schedules().create(&wanted, &by).await.map(|(_, etag)| etag),
            // Nothing changes, so nobody need plan anew.
            Some(read) if read.document == wanted => Ok(read.etag),
            Some(read) => desk.store.schedules().update(read, &wanted, &by).await,
        };
        match written {
            Ok(etag) => {
                let form = shown(&desk, &wanted).await?;
                return Ok(Answer::put(found.is_none(), &form).etag(etag));
            }
            Err(StoreError::Changed { .. } | StoreError::Exists { .. }) if ask.has_precondition() => {
                return Err(Refusal::stale());
            }
            Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::contended())
}

/// The schedule that a form describes.
async fn checked(
    form: &ScheduleForm,
    catalogue: &Arc<Catalogue>,
    now: Timestamp,
    new_id: Uuid,
    stored: Option<&Schedule>,
) -> Result<Schedule, Refusal> {
    let (form, catalogue, stored) = (form.clone(), catalogue.clone(), stored.cloned());
    let checked = aside(move || {
        let task = |text: &str, parameters: &Map<String, Value>| {
            let Some(task) = catalogue.find(text) else {
                return Err(schedule::Refusal::invalid(
                    "maintenanceTaskID",
                    format!("there is no task {text:?}"),
                ));
            };
            check_parameters(task, parameters)
                .map_err(|problem| schedule::Refusal::invalid(problem.target, problem.message))?;
            Ok(task.id())
        };
        let check = Check { now, limits: Limits::default(), new_id, stored: stored.as_ref(), task: &task };
        schedule::check(&form, &check)
    });
    checked.await?.map_err(refused)
}

fn refused(refusal: schedule::Refusal) -> Refusal {
    let code = match refusal.code {
        RefusalCode::InvalidParameter => Code::InvalidParameter,
        RefusalCode::PropertyChangeNotAllowed => Code::PropertyChangeNotAllowed,
    };
    Refusal::new(StatusCode::BAD_REQUEST, code, sentence(&refusal.message)).at(refusal.target)
}

/// Deletes a schedule, and withdraws what it has planned unless that is to be kept.
#[utoipa::path(
    delete, path = "/admin/maintenanceschedules/{scheduleId}", operation_id = "deleteSchedule", tag = "schedules",
    params(
        Version, Reason, IfMatch,
        ("scheduleId" = String, Path, description = "Its id."),
        ("pending" = Option<String>, Query, description = "What becomes of its manifests that wait: `cancel` (the default) or `keep`."),
    ),
    responses(
        (status = 200, description = "It is gone.", body = Object),
        (status = 409, description = "It was changed at the same moment."),
    )
)]
pub(super) async fn delete(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let by = ask.by(None)?;
    let pending = match ask.query.one("pending")? {
        None | Some("cancel") => Pending::Cancel,
        Some("keep") => Pending::Keep,
        Some(_) => return Err(Refusal::parameter("pending", "The parameter pending is cancel or keep.")),
    };
    for _ in 0..TURNS_MAX {
        let found = find(&desk, ask.segment("scheduleId")).await?;
        let read = found.ok_or_else(|| Refusal::not_found(NO_SCHEDULE))?;
        ask.check_version(Some(read.etag))?;
        match schedule::delete(&desk.store, &read, pending, &by).await {
            Ok(()) => return Ok(Answer::done()),
            Err(StoreError::Gone { .. }) => return Err(Refusal::not_found(NO_SCHEDULE)),
            Err(StoreError::Changed { .. }) if ask.has_precondition() => return Err(Refusal::stale()),
            Err(StoreError::Changed { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::contended())
}

/// Shows what a schedule would make, by the function that makes it; stores nothing.
#[utoipa::path(
    post, path = "/admin/maintenanceschedules/preview", operation_id = "previewSchedule", tag = "schedules",
    params(
        Version,
        ("count" = Option<u32>, Query, description = "So many periods; 10 when absent, 1000 at most.", minimum = 1, maximum = 1000),
        ("clusters" = Option<u32>, Query, description = "So many clusters; 100 when absent, 1000 at most.", minimum = 0, maximum = 1000),
        ("now" = Option<String>, Query, description = "As if at this time.", format = DateTime),
    ),
    request_body = ScheduleForm,
    responses((status = 200, description = "What it would make.", body = PreviewForm))
)]
pub(super) async fn preview(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let count = number(&ask, "count", PREVIEW_COUNT, 1..=PREVIEW_PERIODS_MAX)?;
    let clusters = number(&ask, "clusters", PREVIEW_CLUSTERS, 0..=PREVIEW_CLUSTERS_MAX)?;
    let now = match ask.query.one("now")? {
        None => desk.clock.now(),
        Some(text) => text.parse().map_err(|_| {
            Refusal::parameter("now", "The parameter now must be a time such as 2026-03-01T00:00:00Z.")
        })?,
    };
    let mut form: ScheduleForm = ask.json()?;
    if form.state.is_empty() {
        form.state = "Enabled".to_owned();
    }
    let catalogue = desk.catalogue().await?;
    let schedule = checked(&form, &catalogue, now, Uuid::now_v7(), None).await?;
    let rule = Rule::read(&schedule, now).map_err(refused)?;
    let fleet = fleet::members(&desk.store).await?;
    Ok(Answer::ok(&schedule::preview(&rule, &fleet, now, count, clusters)))
}

fn number(
    ask: &Ask,
    name: &'static str,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, Refusal> {
    let Some(text) = ask.query.one(name)? else { return Ok(default) };
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let message =
            format!("The parameter {name} must be a number from {} to {}.", range.start(), range.end());
        Refusal::parameter(name, message)
    })
}
