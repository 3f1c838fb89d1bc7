//! The end of a cluster.

use api::doc::{Cluster, Operation, ProvisioningState, Verb};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use store::{Secrets, StoreError};
use uuid::Uuid;

use super::gatekeeping::{Deed, check_state, check_subscription};
use super::params::Version;
use super::write::ASYNC_OPERATION;
use super::{Desk, TURNS_MAX, empty, is_admin, link, operations, pause, version};
use crate::admin::params::{ClusterPath, IfMatch};
use crate::wire::{Ask, Refusal};

/// Deletes a cluster with all that it has.
#[utoipa::path(
    delete, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Delete", tag = "resource manager",
    params(ClusterPath, Version, IfMatch),
    responses(
        (status = 202, description = "It is being deleted."),
        (status = 204, description = "There is no such cluster."),
    )
)]
pub(super) async fn delete(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    if !is_admin(&ask) {
        version(&ask)?;
    }
    let id = ask.resource_id()?;
    let by = ask.by(Some(""))?;
    for turn in 1..=TURNS_MAX {
        let Some(read) = desk.store.clusters().find(&id.path).await? else {
            ask.check_version(None)?;
            return Ok(empty(StatusCode::NO_CONTENT));
        };
        check_subscription(&desk, &id.subscription, Deed::Delete).await?;
        ask.check_version(Some(read.etag))?;
        check_state(&read.document, Deed::Delete)?;
        let operation = Operation {
            id: Uuid::now_v7(),
            cluster: read.uuid,
            cluster_path: id.path.clone(),
            verb: Verb::Delete,
            initial_status: ProvisioningState::Deleting,
            status: ProvisioningState::Deleting,
            start_time: desk.clock.now(),
            end_time: None,
            error: None,
            snapshot: None,
            correlation_id: Some(ask.correlation()),
            client_request_id: ask.client_request_id().map(str::to_owned),
        };
        let wanted = Cluster {
            provisioning_state: ProvisioningState::Deleting,
            last_provisioning_state: Some(read.document.provisioning_state),
            operation: Some(operation.id),
            ..read.document.clone()
        };
        match desk.store.clusters().begin(&read, &wanted, &operation, &Secrets::new(), &by).await {
            Ok(_) => return Ok(accepted(&desk, &ask, &wanted, operation.id)),
            Err(StoreError::Changed { .. } | StoreError::Gone { .. }) if ask.has_precondition() => {
                return Err(Refusal::stale());
            }
            Err(StoreError::Changed { .. } | StoreError::Gone { .. }) => {
                tokio::time::sleep(pause(turn)).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::internal("the cluster was changed by others again and again"))
}

fn accepted(desk: &Desk, ask: &Ask, cluster: &Cluster, operation: Uuid) -> Response {
    let paths = operations::paths(&cluster.subscription_id, &cluster.location, operation);
    let mut response = empty(StatusCode::ACCEPTED);
    let headers = response.headers_mut();
    for (name, path) in [(ASYNC_OPERATION, paths.status), (header::LOCATION, paths.result)] {
        if let Ok(url) = HeaderValue::from_str(&link::to(ask, &path)) {
            headers.insert(name, url);
        }
    }
    headers.insert(header::RETRY_AFTER, operations::retry_after(desk));
    response
}
