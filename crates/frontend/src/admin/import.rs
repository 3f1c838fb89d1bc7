//! Imports a cluster by its kubeconfig, and removes it again.

use api::admin::{AdminCluster, ImportRequest};
use api::doc::{Cluster, ProvisioningState};
use api::secret::Secret;
use api::work::WorkState;
use axum::extract::State;
use http::StatusCode;
use kubelink::Kubeconfig;
use store::{AuditContext, DesiredState, KUBECONFIG, StoreError, Transaction, VersionedDocument};

use super::AdminState;
use super::clusters;
use super::params::{MaybeVersion, Reason};
use crate::cluster_form;
use crate::params::{ClusterPath, IfMatch};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, ResourceId, WRITE_ATTEMPTS_MAX, as_sentence};

/// Imports a cluster by its kubeconfig, or replaces an earlier import.
#[utoipa::path(
    put, path = "/import", operation_id = "importCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch), request_body = ImportRequest,
    responses(
        (status = 200, description = "An earlier import was replaced.", body = AdminCluster),
        (status = 201, description = "It was imported.", body = AdminCluster),
        (status = 409, description = "A cluster that was not imported has this id."),
    )
)]
pub(super) async fn import(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let id = request.resource_id()?;
    let body: ImportRequest = request.json()?;
    let by = request.by(body.reason.as_deref())?;
    clusters::check_labels(&body.labels, "labels.")?;
    let kubeconfig = Kubeconfig::parse(&body.kubeconfig, body.context.as_deref(), &state.allow)
        .map_err(|error| ApiError::invalid_parameter("kubeconfig", as_sentence(&error)))?;
    let cluster = Cluster {
        subscription_id: id.subscription.clone(),
        name: id.name.clone(),
        location: location(&state, body.location.as_deref())?,
        labels: body.labels.clone(),
        imported: true,
        ..Cluster::new(id.spelled.clone(), ProvisioningState::Succeeded, state.clock.now())
    };
    // Only the selected context is stored.
    let kept = Secret::new(kubeconfig.document().expose().clone().into_bytes());
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let found = state.store.clusters().find(&id.path).await?;
        request.check_preconditions(found.as_ref().map(|read| read.etag))?;
        if found.as_ref().is_some_and(|read| !read.document.imported) {
            let message = "The cluster was created here and not imported; it keeps its own credentials.";
            return Err(ApiError::conflict(message));
        }
        let written = match &found {
            Some(read) if request.has_precondition() => replace(&state, read, &cluster, &kept, &by).await,
            _ => state.store.clusters().import(&cluster, &kept, &by).await.map(|(_, _, is_new)| is_new),
        };
        match written {
            Ok(is_new) => return shown(&state, &id, is_new).await,
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// Replaces the import if the cluster has not changed since it was read.
async fn replace(
    state: &AdminState,
    read: &VersionedDocument<Cluster>,
    cluster: &Cluster,
    kubeconfig: &Secret<Vec<u8>>,
    by: &AuditContext,
) -> Result<bool, StoreError> {
    let wanted = Cluster { created_at: read.document.created_at, ..cluster.clone() };
    let sealed = state.store.seal(read.uuid, KUBECONFIG, kubeconfig.expose())?;
    let entry = by.entry("cluster.import", &read.document.id.to_lowercase(), None, None);
    let transaction =
        Transaction::new().update(read, &wanted, DesiredState::Changed, by)?.put_secret(sealed).audit(entry);
    state.store.commit(transaction).await.map(|_| false)
}

async fn shown(state: &AdminState, id: &ResourceId, is_new: bool) -> Result<ApiResponse, ApiError> {
    let read = state.cluster_forms.find(id).await?;
    Ok(ApiResponse::put(is_new, &state.cluster_forms.complete(read.uuid, &read.document).await?)
        .with_etag(read.etag))
}

fn location(state: &AdminState, wanted: Option<&str>) -> Result<String, ApiError> {
    let known = match wanted.filter(|wanted| !wanted.is_empty()) {
        None => state.locations.first(),
        Some(wanted) => state.locations.iter().find(|known| known.eq_ignore_ascii_case(wanted)),
    };
    known.cloned().ok_or_else(|| {
        let message = format!("The location must be one of: {}.", state.locations.join(", "));
        ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidLocation, message).with_target("location")
    })
}

/// Removes an imported cluster and its pending work from the store; the cluster itself is not changed.
#[utoipa::path(
    delete, path = "/import", operation_id = "forgetCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch),
    responses(
        (status = 200, description = "It was removed.", body = Object),
        (status = 409, description = "It has unfinished work, or was not imported."),
    )
)]
pub(super) async fn forget(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let id = request.resource_id()?;
    let by = request.by(None)?;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let read = state.cluster_forms.find(&id).await?;
        request.check_preconditions(Some(read.etag))?;
        if !read.document.imported {
            let message = "The cluster was created here and not imported; delete it instead.";
            return Err(ApiError::conflict(message));
        }
        match state.store.clusters().forget(&read, &by).await {
            Ok(()) => return Ok(ApiResponse::empty_object()),
            Err(StoreError::WrongState { work, state, .. }) => {
                let how = if state == WorkState::Pending { "has begun" } else { "runs" };
                let message = format!("Work {work} {how} on the cluster; cancel it or wait for its end.");
                return Err(ApiError::conflict(message));
            }
            Err(StoreError::Gone { .. }) => return Err(cluster_form::not_found(&id)),
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}
