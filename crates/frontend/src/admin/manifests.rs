//! Manifests: list, show with history, cancel, expedite, delete.

use api::admin::{CancelRequest, Entry, ManifestForm, Page};
use api::doc::{Cluster, Manifest, ProvisioningState, WorkResult};
use api::work::{WorkKind, WorkState};
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use store::{CancelOutcome, ManifestView, PageToken, StoreError, VersionedDocument};
use utoipa::ToSchema;
use uuid::Uuid;

use super::params::{Paging, Reason, Version};
use super::{AdminState, forms, history_page, manifest_form};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, LIMIT_DEFAULT, PageRequest};

/// Work items in one query.
const BLOCK: usize = 500;

pub(super) const NO_MANIFEST: &str = "manifest not found";

/// Lists the manifests of a cluster, in the order of their ids.
#[utoipa::path(
    get, path = "/maintenancemanifests", operation_id = "listManifests", tag = "manifests",
    params(ClusterPath, Version, Paging),
    responses((status = 200, description = "A page of manifests.", body = Page<ManifestForm>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<PageToken>(LIMIT_DEFAULT)?;
    let cluster = cluster(&state, &request).await?;
    let (views, next) = state.store.manifests().list_for_cluster(cluster.uuid, from, limit).await?;
    Ok(request.page_response(manifest_forms(&state, &views).await?, next))
}

/// Lists the manifests of all clusters, in every state, in the order of their ids.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests", operation_id = "listAllManifests", tag = "manifests",
    params(Version, Paging),
    responses((status = 200, description = "A page of manifests, each with its cluster.", body = Page<ManifestForm>))
)]
pub(super) async fn list_all(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<PageToken>(LIMIT_DEFAULT)?;
    let (views, next) = state.store.manifests().list_all(from, limit).await?;
    let mut forms = manifest_forms(&state, &views).await?;
    for (form, view) in forms.iter_mut().zip(&views) {
        form.cluster_resource_id = Some(view.manifest.document.cluster_path.clone());
    }
    Ok(request.page_response(forms, next))
}

/// The forms of manifests.
async fn manifest_forms(state: &AdminState, views: &[ManifestView]) -> Result<Vec<ManifestForm>, ApiError> {
    let lanes =
        manifest_form::lanes(&state.store, views.iter().filter_map(|view| view.work.as_ref())).await?;
    let catalogue = state.catalogue().await?;
    let names = state.names(&catalogue, views.iter().map(|view| view.manifest.document.task_id));
    let show = |view: &ManifestView| {
        let manifest = &view.manifest.document;
        let lane = lanes.get(&manifest.cluster);
        manifest_form::form(manifest, view.manifest.created, view.work.as_ref(), lane, &names)
    };
    Ok(views.iter().map(show).collect())
}

/// Shows one manifest.
#[utoipa::path(
    get, path = "/maintenancemanifests/{manifestId}", operation_id = "getManifest", tag = "manifests",
    params(ClusterPath, Version, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "The manifest.", body = ManifestForm))
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let manifest = find_in_cluster(&state, &request).await?;
    Ok(ApiResponse::ok(&current_form(&state, manifest.uuid).await?))
}

/// Shortest prefix of an id by which a manifest is found.
const ID_PREFIX_MIN: usize = 8;

/// Shows one manifest of any cluster, by its id or a prefix of it.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests/{manifestId}", operation_id = "findManifest", tag = "manifests",
    params(
        Version,
        ("manifestId" = String, Path, description = "The manifest's id, or at least 8 characters of its beginning."),
    ),
    responses((status = 200, description = "The manifest, with its cluster.", body = ManifestForm))
)]
pub(super) async fn show_any(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let text = request.path_param("manifestId");
    let is_prefix = (ID_PREFIX_MIN..=36).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    // Other text matches nothing.
    let found =
        if is_prefix { state.store.manifests().find_by_id_prefix(text, 2).await? } else { Vec::new() };
    let read = match found.as_slice() {
        [] => return Err(ApiError::not_found(NO_MANIFEST)),
        [read] => read,
        [_, ..] => {
            let message =
                format!("More than one manifest has an id that begins with {text}; use a longer prefix.");
            return Err(ApiError::invalid_parameter("manifestId", message));
        }
    };
    let form = current_form(&state, read.uuid).await?;
    let cluster_resource_id = Some(read.document.cluster_path.clone());
    Ok(ApiResponse::ok(&ManifestForm { cluster_resource_id, ..form }))
}

/// The current form of a manifest.
pub(super) async fn current_form(state: &AdminState, id: Uuid) -> Result<ManifestForm, ApiError> {
    let view = state.store.manifests().view(id).await?.ok_or_else(|| ApiError::not_found(NO_MANIFEST))?;
    manifest_forms(state, &[view]).await?.pop().ok_or_else(|| ApiError::not_found(NO_MANIFEST))
}

/// Deletes a manifest with its history, also after its cluster was deleted. A running manifest must be cancelled first.
#[utoipa::path(
    delete, path = "/maintenancemanifests/{manifestId}", operation_id = "deleteManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "It was deleted.", body = Object), (status = 409, description = "It is running or was started."))
)]
pub(super) async fn delete(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let by = request.by(None)?;
    let path = request.resource_id()?.path;
    let read = find(&state, &request, |manifest| manifest.cluster_path.eq_ignore_ascii_case(&path)).await?;
    match state.store.manifests().delete(&read, &by).await {
        Ok(()) => Ok(ApiResponse::empty_object()),
        Err(StoreError::WrongState { state, .. }) => {
            let how = if state == WorkState::Pending { "has begun" } else { "runs" };
            let message = format!("The manifest {how}; cancel it and wait for its end before it is deleted.");
            Err(ApiError::conflict(message))
        }
        Err(StoreError::Gone { .. }) => Err(ApiError::not_found(NO_MANIFEST)),
        Err(other) => Err(other.into()),
    }
}

/// Lists the history of a manifest, oldest first.
#[utoipa::path(
    get, path = "/maintenancemanifests/{manifestId}/history", operation_id = "getHistory", tag = "manifests",
    params(ClusterPath, Version, Paging, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "A page of entries.", body = Page<Entry>))
)]
pub(super) async fn history(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let page = request.page(LIMIT_DEFAULT)?;
    let manifest = find_in_cluster(&state, &request).await?;
    history_page(&state, &request, manifest.uuid, page).await
}

/// Cancels a pending manifest, or requests the cancellation of a running one.
#[utoipa::path(
    post, path = "/maintenancemanifests/{manifestId}/cancel", operation_id = "cancelManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    request_body = Option<CancelRequest>,
    responses(
        (status = 200, description = "It was pending and is cancelled.", body = ManifestForm),
        (status = 202, description = "It is running; its cancellation was requested.", body = ManifestForm),
        (status = 406, description = "It is finished."),
    )
)]
pub(super) async fn cancel(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let body: CancelRequest = request.json_or_default()?;
    let by = request.by(body.reason.as_deref())?;
    let read = find_in_cluster(&state, &request).await?;
    let status = match state.store.manifests().cancel(&read, &by).await {
        Ok(CancelOutcome::Cancelled) => StatusCode::OK,
        Ok(CancelOutcome::Requested) => StatusCode::ACCEPTED,
        Err(StoreError::WrongState { state, .. }) => {
            return Err(wrong_state(&format!("cannot cancel task in state {state}")));
        }
        Err(other) => return Err(other.into()),
    };
    Ok(ApiResponse::with_status(status, &current_form(&state, read.uuid).await?))
}

/// Makes a pending manifest the next of its cluster.
#[utoipa::path(
    post, path = "/maintenancemanifests/{manifestId}/expedite", operation_id = "expediteManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    responses(
        (status = 200, description = "It is the next manifest of its cluster.", body = ManifestForm),
        (status = 406, description = "It is not pending."),
    )
)]
pub(super) async fn expedite(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let body: CancelRequest = request.json_or_default()?;
    let by = request.by(body.reason.as_deref())?;
    let read = find_in_cluster(&state, &request).await?;
    match state.store.manifests().expedite(&read, &by).await {
        Ok(()) => Ok(ApiResponse::ok(&current_form(&state, read.uuid).await?)),
        Err(StoreError::WrongState { state, .. }) => {
            Err(wrong_state(&format!("cannot expedite task in state {state}")))
        }
        Err(other) => Err(other.into()),
    }
}

fn wrong_state(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_ACCEPTABLE, Code::PropertyChangeNotAllowed, message)
}

/// Lists the pending manifests of all clusters, including those that are not due yet.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests/queued", operation_id = "listQueued", tag = "manifests",
    params(Version, Paging),
    responses((status = 200, description = "A page of manifests.", body = Page<ManifestForm>))
)]
pub(super) async fn queued(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, mut from } = request.page::<Uuid>(LIMIT_DEFAULT)?;
    let mut pending = Vec::new();
    let next = loop {
        let live = state.store.live(WorkKind::Manifest, from, limit).await?;
        let is_last = live.len() < limit;
        let mut seen = None;
        for work in live {
            if pending.len() == limit {
                break;
            }
            seen = Some(work.id);
            if work.state == WorkState::Pending {
                pending.push(work.id);
            }
        }
        from = seen.or(from);
        match (is_last, pending.len() == limit) {
            (_, true) => break from,
            (true, false) => break None,
            (false, false) => {}
        }
    };
    let documents = state.store.get_many(pending.clone()).await?;
    let mut manifests: Vec<_> =
        documents.iter().filter_map(|it| Some((forms::read::<Manifest>(it)?, it.created))).collect();
    manifests.sort_by_key(|(manifest, _)| manifest.id);
    let catalogue = state.catalogue().await?;
    let names = state.names(&catalogue, manifests.iter().map(|(manifest, _)| manifest.task_id));
    Ok(request.page_response(manifest_form::for_manifests(&state.store, manifests, &names).await?, next))
}

/// The result of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Batch {
    /// Number of cancelled manifests.
    cancelled: usize,
    /// Number of manifests that could not be cancelled.
    errors: usize,
}

/// Cancels the manifests of a schedule that are not due yet.
#[utoipa::path(
    post, path = "/admin/maintenancemanifests/cancel", operation_id = "cancelOfSchedule", tag = "manifests",
    params(Version, Reason, ("scheduleID" = String, Query, description = "The schedule.")),
    responses((status = 200, description = "The result.", body = Batch))
)]
pub(super) async fn cancel_batch(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let body: CancelRequest = request.json_or_default()?;
    let by = request.by(body.reason.as_deref())?;
    let Some(schedule) = request.query.get("scheduleID")? else {
        return Err(ApiError::invalid_parameter(
            "scheduleID",
            "The query parameter scheduleID must name a schedule.",
        ));
    };
    let (schedule, now) = (schedule.to_lowercase(), state.clock.now());
    let reason = Some(by.reason.as_str()).filter(|it| !it.is_empty());
    let result = WorkResult::cancelled(by.actor.clone(), reason);
    let (mut after, mut cancelled) = (None, 0);
    loop {
        let block = state.store.pending_for_origin(&schedule, after, BLOCK).await?;
        after = block.last().map(|work| work.id);
        let is_last = block.len() < BLOCK;
        let later: Vec<Uuid> = block.iter().filter(|work| work.run_after > now).map(|work| work.id).collect();
        cancelled += state.store.manifests().withdraw(&later, result.clone(), &by).await?.len();
        if is_last {
            return Ok(ApiResponse::ok(&Batch { cancelled, errors: 0 }));
        }
    }
}

/// The cluster in the path of a maintenance route; a cluster that is being deleted is not found.
pub(super) async fn cluster(
    state: &AdminState,
    request: &ApiRequest,
) -> Result<VersionedDocument<Cluster>, ApiError> {
    let found = state.store.clusters().find(&request.resource_id()?.path).await?;
    let read = found.ok_or_else(|| ApiError::not_found("cluster not found"))?;
    match read.document.provisioning_state {
        ProvisioningState::Deleting => Err(ApiError::not_found("cluster being deleted")),
        ProvisioningState::Creating
        | ProvisioningState::Updating
        | ProvisioningState::AdminUpdating
        | ProvisioningState::Succeeded
        | ProvisioningState::Failed => Ok(read),
    }
}

/// The manifest in the path, if it belongs to the cluster in the path.
pub(super) async fn find_in_cluster(
    state: &AdminState,
    request: &ApiRequest,
) -> Result<VersionedDocument<Manifest>, ApiError> {
    let id = cluster(state, request).await?.uuid;
    find(state, request, |manifest| manifest.cluster == id).await
}

/// The manifest in the path, if it satisfies the condition.
async fn find(
    state: &AdminState,
    request: &ApiRequest,
    belongs: impl Fn(&Manifest) -> bool,
) -> Result<VersionedDocument<Manifest>, ApiError> {
    let id = request.uuid("manifestId", NO_MANIFEST)?;
    let found = state.store.manifests().get(id).await?.filter(|read| belongs(&read.document));
    found.ok_or_else(|| ApiError::not_found(NO_MANIFEST))
}
