//! Manifests: asked for, listed, shown with their history, cancelled, expedited, deleted.

use api::admin::{CancelRequest, Entry, ManifestForm, Page};
use api::doc::{Cluster, Manifest, ProvisioningState, WorkResult};
use api::work::{WorkKind, WorkState};
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use store::{CancelOutcome, ManifestView, PageToken, StoreError, VersionedDocument};
use utoipa::ToSchema;
use uuid::Uuid;

use super::params::{ClusterPath, Paging, Reason, Version};
use super::{Desk, forms, manifest_form};
use crate::wire::{Answer, Ask, Code, LIMIT_DEFAULT, PageAsk, Refusal};

/// So much of the queue is read at once when many manifests are looked through.
const BLOCK: usize = 500;

pub(super) const NO_MANIFEST: &str = "manifest not found";

/// Lists the manifests of a cluster, in the order of their ids.
#[utoipa::path(
    get, path = "/maintenancemanifests", operation_id = "listManifests", tag = "manifests",
    params(ClusterPath, Version, Paging),
    responses((status = 200, description = "A page of manifests.", body = Page<ManifestForm>))
)]
pub(super) async fn list(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page::<PageToken>(LIMIT_DEFAULT)?;
    let cluster = cluster(&desk, &ask).await?;
    let (views, next) = desk.store.manifests().of_cluster(cluster.uuid, from, limit).await?;
    Ok(ask.paged(shown(&desk, &views).await?, next))
}

/// Lists the manifests of all clusters, in every state, in the order of their ids.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests", operation_id = "listAllManifests", tag = "manifests",
    params(Version, Paging),
    responses((status = 200, description = "A page of manifests, each with its cluster.", body = Page<ManifestForm>))
)]
pub(super) async fn list_all(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page::<PageToken>(LIMIT_DEFAULT)?;
    let (views, next) = desk.store.manifests().of_fleet(from, limit).await?;
    let mut forms = shown(&desk, &views).await?;
    for (form, view) in forms.iter_mut().zip(&views) {
        form.cluster_resource_id = Some(view.manifest.document.cluster_path.clone());
    }
    Ok(ask.paged(forms, next))
}

/// The forms of manifests.
async fn shown(desk: &Desk, views: &[ManifestView]) -> Result<Vec<ManifestForm>, Refusal> {
    let lanes = manifest_form::lanes(&desk.store, views.iter().filter_map(|view| view.work.as_ref())).await?;
    let catalogue = desk.catalogue().await?;
    let names = desk.names(&catalogue, views.iter().map(|view| view.manifest.document.task_id));
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
pub(super) async fn show(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let id = cluster(&desk, &ask).await?.uuid;
    let manifest = find(&desk, &ask, |manifest| manifest.cluster == id).await?;
    Ok(Answer::ok(&shown_now(&desk, manifest.uuid).await?))
}

/// The fewest characters by which a manifest is looked for.
const BEGINNING_MIN: usize = 8;

/// Shows one manifest of whatever cluster, by its id or the beginning of it.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests/{manifestId}", operation_id = "findManifest", tag = "manifests",
    params(
        Version,
        ("manifestId" = String, Path, description = "The manifest's id, or at least 8 characters of its beginning."),
    ),
    responses((status = 200, description = "The manifest, with its cluster.", body = ManifestForm))
)]
pub(super) async fn show_any(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let text = ask.segment("manifestId");
    let is_one = (BEGINNING_MIN..=36).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    // Whatever is no id is the id of nothing.
    let found = if is_one { desk.store.manifests().beginning(text, 2).await? } else { Vec::new() };
    let read = match found.as_slice() {
        [] => return Err(Refusal::not_found(NO_MANIFEST)),
        [read] => read,
        [_, ..] => {
            let message =
                format!("More than one manifest has an id that begins with {text}; write more of it.");
            return Err(Refusal::parameter("manifestId", message));
        }
    };
    let form = shown_now(&desk, read.uuid).await?;
    let cluster_resource_id = Some(read.document.cluster_path.clone());
    Ok(Answer::ok(&ManifestForm { cluster_resource_id, ..form }))
}

/// A manifest as it is at this moment.
pub(super) async fn shown_now(desk: &Desk, id: Uuid) -> Result<ManifestForm, Refusal> {
    let view = desk.store.manifests().view(id).await?.ok_or_else(|| Refusal::not_found(NO_MANIFEST))?;
    shown(desk, &[view]).await?.pop().ok_or_else(|| Refusal::not_found(NO_MANIFEST))
}

/// Removes a manifest with its history, whatever became of its cluster. One that runs must be cancelled first.
#[utoipa::path(
    delete, path = "/maintenancemanifests/{manifestId}", operation_id = "deleteManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "It is gone.", body = Object), (status = 409, description = "It runs, or has begun and rests."))
)]
pub(super) async fn delete(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let by = ask.by(None)?;
    let path = ask.resource_id()?.path;
    let read = find(&desk, &ask, |manifest| manifest.cluster_path.eq_ignore_ascii_case(&path)).await?;
    match desk.store.manifests().delete(&read, &by).await {
        Ok(()) => Ok(Answer::done()),
        Err(StoreError::WrongState { state, .. }) => {
            let how = if state == "Pending" { "has begun" } else { "runs" };
            let message = format!("The manifest {how}; cancel it and wait for its end before it is deleted.");
            Err(Refusal::conflict(message))
        }
        Err(StoreError::Gone { .. }) => Err(Refusal::not_found(NO_MANIFEST)),
        Err(other) => Err(other.into()),
    }
}

/// Lists what happened to a manifest, oldest first.
#[utoipa::path(
    get, path = "/maintenancemanifests/{manifestId}/history", operation_id = "getHistory", tag = "manifests",
    params(ClusterPath, Version, Paging, ("manifestId" = String, Path, description = "The manifest.")),
    responses((status = 200, description = "A page of entries.", body = Page<Entry>))
)]
pub(super) async fn history(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page::<i64>(LIMIT_DEFAULT)?;
    let id = cluster(&desk, &ask).await?.uuid;
    let manifest = find(&desk, &ask, |manifest| manifest.cluster == id).await?;
    let entries = desk.store.entries(manifest.uuid, from, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|(number, _)| *number);
    Ok(ask.paged(entries.into_iter().map(|(_, entry)| entry).collect(), next))
}

/// Cancels a manifest that waits, or asks for the end of one that runs.
#[utoipa::path(
    post, path = "/maintenancemanifests/{manifestId}/cancel", operation_id = "cancelManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    request_body = Option<CancelRequest>,
    responses(
        (status = 200, description = "It was waiting and is cancelled.", body = ManifestForm),
        (status = 202, description = "It runs and was asked to end.", body = ManifestForm),
        (status = 406, description = "It has ended."),
    )
)]
pub(super) async fn cancel(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let request: CancelRequest = ask.json_if_any()?;
    let by = ask.by(request.reason.as_deref())?;
    let id = cluster(&desk, &ask).await?.uuid;
    let read = find(&desk, &ask, |manifest| manifest.cluster == id).await?;
    let status = match desk.store.manifests().cancel(&read, &by).await {
        Ok(CancelOutcome::Cancelled) => StatusCode::OK,
        Ok(CancelOutcome::Requested) => StatusCode::ACCEPTED,
        Err(StoreError::WrongState { state, .. }) => {
            return Err(not_in(&format!("cannot cancel task in state {state}")));
        }
        Err(other) => return Err(other.into()),
    };
    Ok(Answer::of(status, &shown_now(&desk, read.uuid).await?))
}

/// Makes a manifest that waits the next of its cluster.
#[utoipa::path(
    post, path = "/maintenancemanifests/{manifestId}/expedite", operation_id = "expediteManifest", tag = "manifests",
    params(ClusterPath, Version, Reason, ("manifestId" = String, Path, description = "The manifest.")),
    responses(
        (status = 200, description = "It goes next.", body = ManifestForm),
        (status = 406, description = "It does not wait."),
    )
)]
pub(super) async fn expedite(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let request: CancelRequest = ask.json_if_any()?;
    let by = ask.by(request.reason.as_deref())?;
    let id = cluster(&desk, &ask).await?.uuid;
    let read = find(&desk, &ask, |manifest| manifest.cluster == id).await?;
    match desk.store.manifests().expedite(&read, &by).await {
        Ok(()) => Ok(Answer::ok(&shown_now(&desk, read.uuid).await?)),
        Err(StoreError::WrongState { state, .. }) => {
            Err(not_in(&format!("cannot expedite task in state {state}")))
        }
        Err(other) => Err(other.into()),
    }
}

fn not_in(message: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_ACCEPTABLE, Code::PropertyChangeNotAllowed, message)
}

/// Lists everything that waits, on all clusters, also what is not due yet.
#[utoipa::path(
    get, path = "/admin/maintenancemanifests/queued", operation_id = "listQueued", tag = "manifests",
    params(Version, Paging),
    responses((status = 200, description = "A page of manifests.", body = Page<ManifestForm>))
)]
pub(super) async fn queued(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, mut from } = ask.page::<Uuid>(LIMIT_DEFAULT)?;
    let mut pending = Vec::new();
    let next = loop {
        let live = desk.store.live(WorkKind::Manifest, from, limit).await?;
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
    let documents = desk.store.get_many(pending.clone()).await?;
    let mut manifests: Vec<_> =
        documents.iter().filter_map(|it| Some((forms::read::<Manifest>(it)?, it.created))).collect();
    manifests.sort_by_key(|(manifest, _)| manifest.id);
    let catalogue = desk.catalogue().await?;
    let names = desk.names(&catalogue, manifests.iter().map(|(manifest, _)| manifest.task_id));
    Ok(ask.paged(manifest_form::of_fleet(&desk.store, manifests, &names).await?, next))
}

/// What became of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Batch {
    /// So many were cancelled.
    cancelled: usize,
    /// So many could not be.
    errors: usize,
}

/// Cancels what a schedule has planned for later. What is due already is left.
#[utoipa::path(
    post, path = "/admin/maintenancemanifests/cancel", operation_id = "cancelOfSchedule", tag = "manifests",
    params(Version, Reason, ("scheduleID" = String, Query, description = "The schedule.")),
    responses((status = 200, description = "What became of them.", body = Batch))
)]
pub(super) async fn cancel_batch(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let request: CancelRequest = ask.json_if_any()?;
    let by = ask.by(request.reason.as_deref())?;
    let Some(schedule) = ask.query.one("scheduleID")? else {
        return Err(Refusal::parameter("scheduleID", "The query parameter scheduleID must name a schedule."));
    };
    let (schedule, now) = (schedule.to_lowercase(), desk.clock.now());
    let reason = Some(by.reason.as_str()).filter(|it| !it.is_empty());
    let result = WorkResult::cancelled(by.actor.clone(), reason);
    let (mut after, mut cancelled) = (None, 0);
    loop {
        let block = desk.store.pending_of(&schedule, after, BLOCK).await?;
        after = block.last().map(|work| work.id);
        let is_last = block.len() < BLOCK;
        let later: Vec<Uuid> = block.iter().filter(|work| work.run_after > now).map(|work| work.id).collect();
        cancelled += desk.store.manifests().withdraw(&later, result.clone(), &by).await?.len();
        if is_last {
            return Ok(Answer::ok(&Batch { cancelled, errors: 0 }));
        }
    }
}

/// The cluster in the path, as the maintenance routes see it.
pub(super) async fn cluster(desk: &Desk, ask: &Ask) -> Result<VersionedDocument<Cluster>, Refusal> {
    let found = desk.store.clusters().find(&ask.resource_id()?.path).await?;
    let read = found.ok_or_else(|| Refusal::not_found("cluster not found"))?;
    match read.document.provisioning_state {
        ProvisioningState::Deleting => Err(Refusal::not_found("cluster being deleted")),
        ProvisioningState::Creating
        | ProvisioningState::Updating
        | ProvisioningState::AdminUpdating
        | ProvisioningState::Succeeded
        | ProvisioningState::Failed => Ok(read),
    }
}

/// The manifest in the path, if it is one of that cluster.
pub(super) async fn find(
    desk: &Desk,
    ask: &Ask,
    belongs: impl Fn(&Manifest) -> bool,
) -> Result<VersionedDocument<Manifest>, Refusal> {
    let id = ask.uuid("manifestId", NO_MANIFEST)?;
    let found = desk.store.manifests().get(id).await?.filter(|read| belongs(&read.document));
    found.ok_or_else(|| Refusal::not_found(NO_MANIFEST))
}
