//! Asynchronous operations. An operation is shown as running until its cluster shows the result: as long as the cluster refers to the
//! operation, the response has the initial status.

use api::doc::{Cluster, Operation, ProvisioningState, Verb};
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{OperationStatus, OperationStep};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use steps::engine::Journal;
use store::{OperationView, WorkView};
use uuid::Uuid;

use super::params::{LocationPath, Version};
use super::{ArmState, PROVIDER, empty, link, version};
use crate::wire::{ApiError, ApiRequest, ApiResponse, ResourceId};

const NO_OPERATION: &str = "The operation was not found.";

/// The paths to poll a new operation.
pub(super) struct OperationPaths {
    pub(super) status: String,
    pub(super) result: String,
}

/// The paths to poll an operation.
pub(super) fn paths(subscription: &str, location: &str, operation: Uuid) -> OperationPaths {
    let path = |kind: &str| {
        format!("/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{kind}/{operation}")
    };
    OperationPaths { status: path("operationsstatus"), result: path("operationresults") }
}

/// The wait before the caller polls again.
pub(super) fn retry_after(state: &ArmState) -> HeaderValue {
    HeaderValue::from(state.settings.retry_after)
}

/// Starts an operation: sets the provisioning state of the cluster and returns the operation's document.
pub(super) fn start(
    state: &ArmState,
    request: &ApiRequest,
    cluster: &mut Cluster,
    uuid: Uuid,
    id: &ResourceId,
    verb: Verb,
) -> Operation {
    let provisioning = match verb {
        Verb::Create => ProvisioningState::Creating,
        Verb::Update => ProvisioningState::Updating,
        Verb::AdminUpdate => ProvisioningState::AdminUpdating,
        Verb::Delete => ProvisioningState::Deleting,
    };
    let operation = Operation {
        id: Uuid::now_v7(),
        cluster: uuid,
        cluster_path: id.path.clone(),
        verb,
        initial_status: provisioning,
        status: provisioning,
        start_time: state.clock.now(),
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: Some(request.correlation()),
        client_request_id: request.client_request_id().map(str::to_owned),
    };
    if verb != Verb::Create {
        cluster.last_provisioning_state = Some(cluster.provisioning_state);
    }
    cluster.provisioning_state = provisioning;
    cluster.operation = Some(operation.id);
    operation
}

/// Shows the status of an operation.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/operationsstatus/{operationId}",
    operation_id = "OperationsStatus_Get", tag = "resource manager",
    params(LocationPath, Version, ("operationId" = String, Path, format = Uuid, description = "The operation.")),
    responses((status = 200, description = "The status.", body = OperationStatus))
)]
pub(super) async fn status(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    version(&request)?;
    let OperationView { operation, work } = find(&state, &request).await?;
    let operation = operation.document;
    let is_running = is_running(&state, &operation).await?;
    let body = OperationStatus {
        id: request.spelled().to_owned(),
        name: operation.id.to_string(),
        status: format!("{:?}", if is_running { operation.initial_status } else { operation.status }),
        start_time: operation.start_time.to_string(),
        end_time: operation.end_time.filter(|_| !is_running).map(|at| at.to_string()),
        error: operation.error.filter(|_| !is_running),
        properties: work.as_ref().filter(|_| is_running).map(step),
    };
    let mut response = ApiResponse::ok(&body).into_response();
    if is_running {
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(&state));
    }
    Ok(response)
}

/// The progress of the work: the current step and the completed part of the plan.
fn step(work: &WorkView) -> OperationStep {
    let journal = Journal::read(work.checkpoint.as_ref());
    let Some(step) = journal.step() else {
        let message = if work.started.is_some() { "begun" } else { "waiting for its turn" };
        return OperationStep { message: message.to_owned(), ..OperationStep::default() };
    };
    let done = u64::from(step.index.saturating_sub(1)) * 100;
    let percent = done.checked_div(u64::from(step.of)).unwrap_or(0).min(100);
    OperationStep {
        step: step.name.to_string(),
        percent: u8::try_from(percent).unwrap_or(100),
        message: journal.for_customer().to_owned(),
    }
}

/// Shows the result of an operation.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/operationresults/{operationId}",
    operation_id = "OperationResults_Get", tag = "resource manager",
    params(LocationPath, Version, ("operationId" = String, Path, format = Uuid, description = "The operation.")),
    responses(
        (status = 200, description = "The cluster as it was at the end.", body = OpenShiftCluster),
        (status = 202, description = "It is running."),
        (status = 204, description = "It is finished and has no result."),
    )
)]
pub(super) async fn result(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    let version = version(&request)?;
    let operation = find(&state, &request).await?.operation.document;
    if is_running(&state, &operation).await? {
        let mut response = empty(StatusCode::ACCEPTED);
        let own = link::to(&request, request.spelled());
        if let Ok(own) = HeaderValue::from_str(&own) {
            response.headers_mut().insert(header::LOCATION, own);
        }
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(&state));
        return Ok(response);
    }
    let copy =
        operation.snapshot.map(serde_json::from_value::<Cluster>).transpose().map_err(ApiError::internal)?;
    Ok(match copy {
        Some(cluster) => ApiResponse::ok(&version.show(&cluster).without_status()).into_response(),
        None => empty(StatusCode::NO_CONTENT),
    })
}

/// The operation in the path, if it belongs to the subscription.
async fn find(state: &ArmState, request: &ApiRequest) -> Result<OperationView, ApiError> {
    let id = request.uuid("operationId", NO_OPERATION)?;
    let found = state.store.operations().view(id).await?;
    let prefix = format!("/subscriptions/{}/", request.path_param("subscriptionId"));
    let is_theirs =
        |view: &OperationView| view.operation.document.cluster_path.to_ascii_lowercase().starts_with(&prefix);
    found.filter(is_theirs).ok_or_else(|| ApiError::not_found(NO_OPERATION))
}

/// Whether an operation is shown as running.
async fn is_running(state: &ArmState, operation: &Operation) -> Result<bool, ApiError> {
    let has_ended = matches!(operation.status, ProvisioningState::Succeeded | ProvisioningState::Failed);
    if !has_ended {
        return Ok(true);
    }
    let cluster = state.reader().documents::<Cluster>().get(operation.cluster).await?;
    Ok(cluster.is_some_and(|read| read.document.operation == Some(operation.id)))
}
