//! Tasks: the catalogue, and tasks that are defined as data.

use api::admin::{Page, TaskForm};
use api::doc::{ScheduleState, Task};
use api::work::WorkKind;
use axum::extract::State;
use http::StatusCode;
use planner::task::{Catalogue, Definition, Format, TaskProblem};
use store::{ListOptions, StoreError, VersionedDocument};
use uuid::Uuid;

use super::params::{Paging, Reason, Version};
use super::{AdminState, offload};
use crate::params::IfMatch;
use crate::wire::{
    ApiError, ApiRequest, ApiResponse, Code, LIMIT_DEFAULT, Media, PageRequest, WRITE_ATTEMPTS_MAX,
    as_sentence,
};

const NO_TASK: &str = "task not found";

/// Lists all tasks, by name.
#[utoipa::path(
    get, path = "/admin/maintenancetasks", operation_id = "listTasks", tag = "tasks",
    params(Version, Paging),
    responses((status = 200, description = "A page of tasks.", body = Page<TaskForm>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<String>(LIMIT_DEFAULT)?;
    let catalogue = state.catalogue().await?;
    let mut tasks = catalogue.list();
    tasks.retain(|task| from.as_ref().is_none_or(|from| task.name() > from.as_str()));
    let next = (tasks.len() > limit).then(|| tasks[limit - 1].name().to_owned());
    Ok(request.page_response(tasks.into_iter().take(limit).map(Definition::form).collect(), next))
}

/// Shows one task.
#[utoipa::path(
    get, path = "/admin/maintenancetasks/{task}", operation_id = "getTask", tag = "tasks",
    params(Version, ("task" = String, Path, description = "Its id or its name.")),
    responses((status = 200, description = "The task.", body = TaskForm))
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let catalogue = state.catalogue().await?;
    let task = catalogue.find(request.path_param("task")).ok_or_else(|| ApiError::not_found(NO_TASK))?;
    let response = ApiResponse::ok(&task.form());
    // Built-in tasks have no stored version.
    Ok(match stored(&state, task.id()).await? {
        Some(read) => response.with_etag(read.etag),
        None => response,
    })
}

async fn stored(state: &AdminState, id: Uuid) -> Result<Option<VersionedDocument<Task>>, StoreError> {
    state.store.tasks().find(&format!("/maintenancetasks/{id}")).await
}

/// Stores a task that is defined as data, or a new version of it.
#[utoipa::path(
    put, path = "/admin/maintenancetasks/{task}", operation_id = "putTask", tag = "tasks",
    params(Version, Reason, IfMatch, ("task" = String, Path, description = "Its id.")),
    request_body(content((TaskForm = "application/json"), (String = "application/yaml"))),
    responses(
        (status = 200, description = "It was changed.", body = TaskForm),
        (status = 201, description = "It was created.", body = TaskForm),
        (status = 409, description = "Another task has its name."),
    )
)]
pub(super) async fn put(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let id = task_id(&request)?;
    let (media, body) = request.text()?;
    let format = match media {
        Media::Json => Format::Json,
        Media::Yaml => Format::Yaml,
    };
    let mut form = planner::task::read(body, format).map_err(refused)?;
    if form.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid_parameter("id", "The id in the body is not the one in the path."));
    }
    let by = request.by(form.reason.take().as_deref())?;
    form.id = Some(id);
    let wanted = offload(move || planner::task::check(&form)).await?.map_err(refused)?.with_id(id);
    if let Some(other) = Catalogue::builtin().find(wanted.name()) {
        let message = format!("A built-in task is called {}; choose another name.", other.name());
        return Err(ApiError::invalid_parameter("name", message));
    }
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let found = stored(&state, id).await?;
        request.check_preconditions(found.as_ref().map(|read| read.etag))?;
        let written = match &found {
            None => state
                .store
                .tasks()
                .create(&wanted.at_version(1).document(), &by)
                .await
                .map(|(_, etag)| (1, etag)),
            Some(read) => {
                let same = wanted.at_version(read.document.version).document();
                if same == read.document {
                    Ok((read.document.version, read.etag))
                } else {
                    let version = read.document.version.saturating_add(1);
                    let document = wanted.at_version(version).document();
                    state.store.tasks().update(read, &document, &by).await.map(|etag| (version, etag))
                }
            }
        };
        match written {
            Ok((version, etag)) => {
                let shown = wanted.at_version(version).form();
                return Ok(ApiResponse::put(found.is_none(), &shown).with_etag(etag));
            }
            Err(StoreError::KeyTaken { .. }) => {
                let message = format!("Another task is called {}; names are unique.", wanted.name());
                return Err(ApiError::conflict(message).with_target("name"));
            }
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// The task id in the path; built-in tasks cannot be changed.
fn task_id(request: &ApiRequest) -> Result<Uuid, ApiError> {
    let text = request.path_param("task");
    let id = Uuid::try_parse(text).ok().filter(|id| text.len() == 36 && !id.is_nil());
    let id = id
        .ok_or_else(|| ApiError::invalid_parameter("id", "A task is stored under a UUID that is not nil."))?;
    if Catalogue::is_builtin(id) {
        let message = "The task is built in and cannot be changed.";
        return Err(
            ApiError::new(StatusCode::BAD_REQUEST, Code::PropertyChangeNotAllowed, message).with_target("id")
        );
    }
    Ok(id)
}

fn refused(problem: TaskProblem) -> ApiError {
    let message = as_sentence(&problem.message);
    if problem.target.is_empty() {
        ApiError::invalid_content(message)
    } else {
        ApiError::invalid_parameter(problem.target, message)
    }
}

/// Deletes a task that is defined as data.
#[utoipa::path(
    delete, path = "/admin/maintenancetasks/{task}", operation_id = "deleteTask", tag = "tasks",
    params(Version, Reason, IfMatch, ("task" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "It was deleted.", body = Object),
        (status = 409, description = "An enabled schedule or an unfinished manifest uses it."),
    )
)]
pub(super) async fn delete(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let by = request.by(None)?;
    let id = match Uuid::try_parse(request.path_param("task")) {
        Ok(_) => task_id(&request)?,
        Err(_) => return Err(ApiError::not_found(NO_TASK)),
    };
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let read = stored(&state, id).await?.ok_or_else(|| ApiError::not_found(NO_TASK))?;
        request.check_preconditions(Some(read.etag))?;
        if let Some(user) = user_of(&state, id).await? {
            return Err(ApiError::conflict(format!("The task is in use: {user}.")));
        }
        match state.store.tasks().delete(&read, &by).await {
            Ok(()) => return Ok(ApiResponse::empty_object()),
            Err(StoreError::Gone { .. }) => return Err(ApiError::not_found(NO_TASK)),
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// The user of a task: an enabled schedule, or an unfinished manifest.
async fn user_of(state: &AdminState, id: Uuid) -> Result<Option<String>, StoreError> {
    let mut from = None;
    loop {
        let selection = ListOptions { from, limit: store::PAGE_MAX, ..ListOptions::default() };
        let page = state.store.schedules().list(selection).await?;
        let mut schedules = page.items.iter().map(|read| &read.document);
        if let Some(user) = schedules.find(|it| it.task_id == id && it.state == ScheduleState::Enabled) {
            return Ok(Some(format!("schedule {} is enabled", user.id)));
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    let (key, mut after) = (format!("task/{id}"), None);
    loop {
        let block = state.store.live(WorkKind::Manifest, after, store::PAGE_MAX).await?;
        if let Some(work) = block.iter().find(|work| work.budgets.contains(&key)) {
            return Ok(Some(format!("manifest {} is {}", work.id, work.state)));
        }
        if block.len() < store::PAGE_MAX {
            return Ok(None);
        }
        after = block.last().map(|work| work.id);
    }
}
