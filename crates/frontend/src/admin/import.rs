//! Import of a cluster by its kubeconfig, and the forgetting of it.

use api::admin::{AdminCluster, ImportRequest};
use api::doc::{Cluster, ProvisioningState};
use api::secret::Secret;
use axum::extract::State;
use http::StatusCode;
use kubelink::Kubeconfig;
use store::{AuditContext, DesiredState, KUBECONFIG, StoreError, Transaction, VersionedDocument};

use super::Desk;
use super::clusters::{self, TURNS_MAX};
use super::params::{ClusterPath, IfMatch, MaybeVersion, Reason};
use crate::wire::{Answer, Ask, Code, Refusal, ResourceId, sentence};

/// Imports a cluster by its kubeconfig, or imports it anew.
#[utoipa::path(
    put, path = "/import", operation_id = "importCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch), request_body = ImportRequest,
    responses(
        (status = 200, description = "It was there and is imported anew.", body = AdminCluster),
        (status = 201, description = "It is imported.", body = AdminCluster),
        (status = 409, description = "A cluster that was not imported has this id."),
    )
)]
pub(super) async fn import(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let id = ask.resource_id()?;
    let request: ImportRequest = ask.json()?;
    let by = ask.by(request.reason.as_deref())?;
    clusters::check_labels(&request.labels, "labels.")?;
    let kubeconfig = Kubeconfig::parse(&request.kubeconfig, request.context.as_deref(), &desk.allow)
        .map_err(|error| Refusal::parameter("kubeconfig", sentence(&error)))?;
    let cluster = Cluster {
        id: id.spelled.clone(),
        subscription_id: id.subscription.clone(),
        name: id.name.clone(),
        location: location(&desk, request.location.as_deref())?,
        labels: request.labels.clone(),
        provisioning_state: ProvisioningState::Succeeded,
        last_provisioning_state: None,
        failed_provisioning_state: None,
        operation: None,
        credential: None,
        managed_resource_group: None,
        imported: true,
        provisioned: None,
        created_at: desk.clock.now(),
    };
    // Only the chosen context is kept.
    let kept = Secret::new(kubeconfig.document().expose().clone().into_bytes());
    for _ in 0..TURNS_MAX {
        let found = desk.store.clusters().find(&id.path).await?;
        ask.check_version(found.as_ref().map(|read| read.etag))?;
        if found.as_ref().is_some_and(|read| !read.document.imported) {
            let message = "The cluster was created here and not imported; it keeps its own credentials.";
            return Err(Refusal::conflict(message));
        }
        let written = match &found {
            Some(read) if ask.has_precondition() => replace(&desk, read, &cluster, &kept, &by).await,
            _ => desk.store.clusters().import(&cluster, &kept, &by).await.map(|(_, _, is_new)| is_new),
        };
        match written {
            Ok(is_new) => return shown(&desk, &id, is_new).await,
            Err(StoreError::Changed { .. } | StoreError::Exists { .. }) if ask.has_precondition() => {
                return Err(Refusal::stale());
            }
            Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::contended())
}

/// Imports anew what is still as it was read.
async fn replace(
    desk: &Desk,
    read: &VersionedDocument<Cluster>,
    cluster: &Cluster,
    kubeconfig: &Secret<Vec<u8>>,
    by: &AuditContext,
) -> Result<bool, StoreError> {
    let wanted = Cluster { created_at: read.document.created_at, ..cluster.clone() };
    let sealed = desk.store.seal(read.uuid, KUBECONFIG, kubeconfig.expose())?;
    let entry = by.entry("cluster.import", &read.document.id.to_lowercase(), None, None);
    let transaction =
        Transaction::new().update(read, &wanted, DesiredState::Changed, by)?.put_secret(sealed).audit(entry);
    desk.store.commit(transaction).await.map(|_| false)
}

async fn shown(desk: &Desk, id: &ResourceId, is_new: bool) -> Result<Answer, Refusal> {
    let read = clusters::find(desk, id).await?;
    Ok(Answer::put(is_new, &clusters::shown(desk, read.uuid, &read.document).await?).etag(read.etag))
}

fn location(desk: &Desk, wanted: Option<&str>) -> Result<String, Refusal> {
    let known = match wanted.filter(|wanted| !wanted.is_empty()) {
        None => desk.locations.first(),
        Some(wanted) => desk.locations.iter().find(|known| known.eq_ignore_ascii_case(wanted)),
    };
    known.cloned().ok_or_else(|| {
        let message = format!("The location must be one of: {}.", desk.locations.join(", "));
        Refusal::new(StatusCode::BAD_REQUEST, Code::InvalidLocation, message).at("location")
    })
}

/// Forgets an imported cluster with what was still to be done on it; nothing in the cluster is touched.
#[utoipa::path(
    delete, path = "/import", operation_id = "forgetCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch),
    responses(
        (status = 200, description = "It is forgotten.", body = Object),
        (status = 409, description = "Work runs on it or has begun, or it was not imported."),
    )
)]
pub(super) async fn forget(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let id = ask.resource_id()?;
    let by = ask.by(None)?;
    for _ in 0..TURNS_MAX {
        let read = clusters::find(&desk, &id).await?;
        ask.check_version(Some(read.etag))?;
        if !read.document.imported {
            let message = "The cluster was created here and not imported; delete it instead.";
            return Err(Refusal::conflict(message));
        }
        match desk.store.clusters().forget(&read, &by).await {
            Ok(()) => return Ok(Answer::done()),
            Err(StoreError::WrongState { work, state, .. }) => {
                let how = if state == "Pending" { "has begun" } else { "runs" };
                let message = format!("Work {work} {how} on the cluster; cancel it or wait for its end.");
                return Err(Refusal::conflict(message));
            }
            Err(StoreError::Gone { .. }) => return Err(clusters::absent(&id)),
            Err(StoreError::Changed { .. }) if ask.has_precondition() => return Err(Refusal::stale()),
            Err(StoreError::Changed { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::contended())
}
