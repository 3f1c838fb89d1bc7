//! Deletion of a cluster.

use api::doc::{Cluster, Verb};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use store::{Secrets, StoreError};
use uuid::Uuid;

use super::params::Version;
use super::state_rules::{ClusterAction, check_state, check_subscription};
use super::write::ASYNC_OPERATION;
use super::{ArmState, empty, is_admin, link, operations, retry_delay, version};
use crate::params::{ClusterPath, IfMatch};
use crate::wire::{ApiError, ApiRequest, WRITE_ATTEMPTS_MAX};

/// Deletes a cluster and its resources.
#[utoipa::path(
    delete, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Delete", tag = "resource manager",
    params(ClusterPath, Version, IfMatch),
    responses(
        (status = 202, description = "It is being deleted."),
        (status = 204, description = "There is no such cluster."),
    )
)]
pub(super) async fn delete(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    if !is_admin(&request) {
        version(&request)?;
    }
    let id = request.resource_id()?;
    let by = request.by(Some(""))?;
    for attempt in 1..=WRITE_ATTEMPTS_MAX {
        let Some(read) = state.store.clusters().find(&id.path).await? else {
            request.check_preconditions(None)?;
            return Ok(empty(StatusCode::NO_CONTENT));
        };
        check_subscription(&state, &id.subscription, ClusterAction::Delete).await?;
        request.check_preconditions(Some(read.etag))?;
        check_state(&read.document, ClusterAction::Delete)?;
        let mut cluster = read.document.clone();
        let operation = operations::start(&state, &request, &mut cluster, read.uuid, &id, Verb::Delete);
        match state.store.clusters().start_update(&read, &cluster, &operation, &Secrets::new(), &by).await {
            Ok(_) => return Ok(accepted(&state, &request, &cluster, operation.id)),
            Err(StoreError::Changed { .. } | StoreError::Gone { .. }) if request.has_precondition() => {
                return Err(ApiError::precondition_failed());
            }
            Err(StoreError::Changed { .. } | StoreError::Gone { .. }) => {
                tokio::time::sleep(retry_delay(attempt)).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Err(ApiError::internal("the cluster was changed by other requests several times"))
}

fn accepted(state: &ArmState, request: &ApiRequest, cluster: &Cluster, operation: Uuid) -> Response {
    let paths = operations::paths(&cluster.subscription_id, &cluster.location, operation);
    let mut response = empty(StatusCode::ACCEPTED);
    let headers = response.headers_mut();
    for (name, path) in [(ASYNC_OPERATION, paths.status), (header::LOCATION, paths.result)] {
        if let Ok(url) = HeaderValue::from_str(&link::to(request, &path)) {
            headers.insert(name, url);
        }
    }
    headers.insert(header::RETRY_AFTER, operations::retry_after(state));
    response
}
