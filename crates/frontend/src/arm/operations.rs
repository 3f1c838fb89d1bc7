//! Asynchronous operations. Their end is told only once their cluster shows it: as long as a cluster carries an operation, that
//! operation is answered as it began.

use api::doc::{Cluster, Operation, ProvisioningState};
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{OperationStatus, OperationStep};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use steps::engine::Journal;
use store::{OperationView, WorkView};
use uuid::Uuid;

use super::params::{LocationPath, Version};
use super::{Desk, PROVIDER, empty, link, version};
use crate::wire::{Answer, Ask, Refusal};

const NO_OPERATION: &str = "The operation was not found.";

/// The paths by which an operation that begins is followed.
pub(super) struct Followed {
    pub(super) status: String,
    pub(super) result: String,
}

/// Where an operation is followed.
pub(super) fn paths(subscription: &str, location: &str, operation: Uuid) -> Followed {
    let path = |kind: &str| {
        format!("/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{kind}/{operation}")
    };
    Followed { status: path("operationsstatus"), result: path("operationresults") }
}

/// How long the caller should wait before it asks again.
pub(super) fn retry_after(desk: &Desk) -> HeaderValue {
    HeaderValue::from(desk.rules.retry_after)
}

/// Shows how an operation stands.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/operationsstatus/{operationId}",
    operation_id = "OperationsStatus_Get", tag = "resource manager",
    params(LocationPath, Version, ("operationId" = String, Path, format = Uuid, description = "The operation.")),
    responses((status = 200, description = "How it stands.", body = OperationStatus))
)]
pub(super) async fn status(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    version(&ask)?;
    let OperationView { operation, work } = find(&desk, &ask).await?;
    let operation = operation.document;
    let is_running = is_running(&desk, &operation).await?;
    let body = OperationStatus {
        id: ask.spelled().to_owned(),
        name: operation.id.to_string(),
        status: format!("{:?}", if is_running { operation.initial_status } else { operation.status }),
        start_time: operation.start_time.to_string(),
        end_time: operation.end_time.filter(|_| !is_running).map(|at| at.to_string()),
        error: operation.error.filter(|_| !is_running),
        properties: work.as_ref().filter(|_| is_running).map(step),
    };
    let mut response = Answer::ok(&body).into_response();
    if is_running {
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(&desk));
    }
    Ok(response)
}

/// How far the work is: which step, and how much of the plan is behind it.
fn step(work: &WorkView) -> OperationStep {
    let journal = Journal::read(work.checkpoint.as_ref());
    let Some(step) = journal.step() else {
        let message = if work.started.is_some() { "begun" } else { "waiting for its turn" };
        return OperationStep { message: message.to_owned(), ..OperationStep::default() };
    };
    let done = u64::from(step.index.saturating_sub(1)) * 100;
    let percent = done.checked_div(u64::from(step.of)).unwrap_or(0).min(100);
    OperationStep {
        step: step.name.clone(),
        percent: u8::try_from(percent).unwrap_or(100),
        message: journal.for_customer().to_owned(),
    }
}

/// Shows what an operation made.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/operationresults/{operationId}",
    operation_id = "OperationResults_Get", tag = "resource manager",
    params(LocationPath, Version, ("operationId" = String, Path, format = Uuid, description = "The operation.")),
    responses(
        (status = 200, description = "The cluster as it was at the end.", body = OpenShiftCluster),
        (status = 202, description = "It still runs."),
        (status = 204, description = "It has ended, and there is nothing to show."),
    )
)]
pub(super) async fn result(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    let version = version(&ask)?;
    let operation = find(&desk, &ask).await?.operation.document;
    if is_running(&desk, &operation).await? {
        let mut response = empty(StatusCode::ACCEPTED);
        let own = link::to(&ask, ask.spelled());
        if let Ok(own) = HeaderValue::from_str(&own) {
            response.headers_mut().insert(header::LOCATION, own);
        }
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(&desk));
        return Ok(response);
    }
    let copy =
        operation.snapshot.map(serde_json::from_value::<Cluster>).transpose().map_err(Refusal::internal)?;
    Ok(match copy {
        Some(cluster) => Answer::ok(&version.show(&cluster).without_status()).into_response(),
        None => empty(StatusCode::NO_CONTENT),
    })
}

/// The operation in the path, if it is one of that subscription.
async fn find(desk: &Desk, ask: &Ask) -> Result<OperationView, Refusal> {
    let id = ask.uuid("operationId", NO_OPERATION)?;
    let found = desk.store.operations().view(id).await?;
    let prefix = format!("/subscriptions/{}/", ask.segment("subscriptionId"));
    let is_theirs =
        |view: &OperationView| view.operation.document.cluster_path.to_ascii_lowercase().starts_with(&prefix);
    found.filter(is_theirs).ok_or_else(|| Refusal::not_found(NO_OPERATION))
}

/// Whether an operation is still to be shown as it began.
async fn is_running(desk: &Desk, operation: &Operation) -> Result<bool, Refusal> {
    let has_ended = matches!(operation.status, ProvisioningState::Succeeded | ProvisioningState::Failed);
    if !has_ended {
        return Ok(true);
    }
    let cluster = desk.reader().documents::<Cluster>().get(operation.cluster).await?;
    Ok(cluster.is_some_and(|read| read.document.operation == Some(operation.id)))
}
