//! The operations of a cluster, with the history of each.

use std::collections::HashMap;

use api::admin::{Entry, OperationForm, Page};
use api::doc::Operation;
use axum::extract::State;
use steps::engine::Journal;
use store::{ListOptions, PageToken, WorkView};
use uuid::Uuid;

use super::params::{MaybeVersion, Paging};
use super::{AdminState, history_page};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, LIMIT_DEFAULT, PageRequest};

const NO_OPERATION: &str = "The operation was not found.";

/// Lists the operations of a cluster, in the order of their ids, which is that of their start.
#[utoipa::path(
    get, path = "/operations", operation_id = "listOperations", tag = "clusters",
    params(ClusterPath, MaybeVersion, Paging),
    responses((status = 200, description = "A page of operations.", body = Page<OperationForm>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<PageToken>(LIMIT_DEFAULT)?;
    let cluster = state.cluster_forms.find(&request.resource_id()?).await?;
    let selection =
        ListOptions { scope: Some(cluster.uuid.to_string()), from, limit, ..ListOptions::default() };
    let page = state.store.operations().list(selection).await?;
    let works = state.store.works(page.items.iter().map(|read| read.document.id).collect()).await?;
    let works: HashMap<Uuid, WorkView> = works.into_iter().map(|work| (work.id, work)).collect();
    let shown = page.items.iter().map(|read| form(&read.document, works.get(&read.document.id)));
    Ok(request.page_response(shown.collect(), page.next))
}

fn form(operation: &Operation, work: Option<&WorkView>) -> OperationForm {
    OperationForm {
        id: operation.id,
        verb: operation.verb,
        status: operation.status,
        start_time: operation.start_time,
        end_time: operation.end_time,
        error: operation.error.clone(),
        step: work.and_then(|work| Journal::read(work.checkpoint.as_ref()).step),
        attempt: work.map_or(0, |work| work.attempt),
    }
}

/// Lists the history of an operation, oldest first.
#[utoipa::path(
    get, path = "/operations/{operationId}/history", operation_id = "getOperationHistory", tag = "clusters",
    params(ClusterPath, MaybeVersion, Paging, ("operationId" = String, Path, description = "The operation.")),
    responses((status = 200, description = "A page of entries.", body = Page<Entry>))
)]
pub(super) async fn history(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let page = request.page(LIMIT_DEFAULT)?;
    let cluster = state.cluster_forms.find(&request.resource_id()?).await?;
    let id = request.uuid("operationId", NO_OPERATION)?;
    let found = state.store.operations().get(id).await?.filter(|read| read.document.cluster == cluster.uuid);
    found.ok_or_else(|| ApiError::not_found(NO_OPERATION))?;
    history_page(&state, &request, id, page).await
}
