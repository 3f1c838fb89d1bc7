//! Reads of clusters: one, those of a subscription, those of a resource group.

use api::doc::Cluster;
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{ArmPage, ExternalCluster};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use store::{ListOptions, PageToken, VersionedDocument};

use super::params::{GroupPath, Paging, SubscriptionPath, Version};
use super::{ArmState, is_admin, link, version};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, PageRequest, ResourceId};

/// Length of a page, as in the contract.
const PER_PAGE: usize = 10;

/// The purpose under which page tokens are sealed.
const PAGES: &str = "arm-page";

/// Shows one cluster.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Get", tag = "resource manager",
    params(ClusterPath, Version),
    responses((status = 200, description = "The cluster.", body = OpenShiftCluster))
)]
pub(super) async fn show(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    if is_admin(&request) {
        return Ok(state.cluster_forms.respond(&request).await?.into_response());
    }
    let (version, id) = (version(&request)?, request.resource_id()?);
    if let Some((of, response)) = state.responses.last(version, &id.path)
        && state.reader().version(&id.path).await? == Some(of)
    {
        return Ok(response.into_response());
    }
    let read = find(&state, &id).await?;
    let response = ApiResponse::ok(&version.show(&read.document)).with_etag(read.etag);
    state.responses.keep(version, &id.path, (read.uuid, read.etag), &response);
    Ok(response.into_response())
}

/// The cluster with this id.
pub(super) async fn find(state: &ArmState, id: &ResourceId) -> Result<VersionedDocument<Cluster>, ApiError> {
    state.store.clusters().find(&id.path).await?.ok_or_else(|| absent(id))
}

/// The error for an id that no cluster has.
pub(super) fn absent(id: &ResourceId) -> ApiError {
    let message = format!("The Resource '{}' was not found.", id.spelled);
    ApiError::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
}

/// Lists the clusters of a subscription.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "OpenShiftClusters_List", tag = "resource manager",
    params(SubscriptionPath, Version, Paging),
    responses((status = 200, description = "A page of clusters.", body = ArmPage<OpenShiftCluster>))
)]
pub(super) async fn list(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let scope = format!("/subscriptions/{}", request.path_param("subscriptionId"));
    let prefix = format!("{scope}/");
    page(&state, &request, scope, prefix).await
}

/// Lists the clusters of a resource group.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "OpenShiftClusters_ListByResourceGroup", tag = "resource manager",
    params(GroupPath, Version, Paging),
    responses((status = 200, description = "A page of clusters.", body = ArmPage<OpenShiftCluster>))
)]
pub(super) async fn list_in_group(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let scope = format!("/subscriptions/{}", request.path_param("subscriptionId"));
    // Without the slash, group `a` would list the clusters of `ab`.
    let prefix = format!("{scope}/resourcegroups/{}/", request.path_param("resourceGroupName"));
    page(&state, &request, scope, prefix).await
}

async fn page(
    state: &ArmState,
    request: &ApiRequest,
    scope: String,
    prefix: String,
) -> Result<ApiResponse, ApiError> {
    let version = version(request)?;
    let PageRequest { limit, from } = request.page::<String>(PER_PAGE)?;
    let from = from.map(|token| opened(state, &token)).transpose()?;
    let selection = ListOptions { scope: Some(scope), prefix: Some(prefix), from, limit };
    let page = state.reader().documents::<Cluster>().list(selection).await?;
    let value: Vec<ExternalCluster> = page.items.iter().map(|read| version.show(&read.document)).collect();
    let next_link = match page.next {
        Some(next) => {
            let token = state.reader().seal_text(PAGES, &next.to_string())?;
            Some(link::next_page(request, &token))
        }
        None => None,
    };
    Ok(ApiResponse::ok(&ArmPage { value, next_link }))
}

/// The position in a sealed page token.
fn opened(state: &ArmState, token: &str) -> Result<PageToken, ApiError> {
    // Some clients do not escape the plus of Base64, which then arrives as a space.
    let token = token.replace(' ', "+");
    let place = state.reader().open_text(PAGES, &token).and_then(|text| text.parse().ok());
    place.ok_or_else(|| {
        ApiError::invalid_parameter("$skipToken", "The token is not from a nextLink of this list.")
    })
}
