//! Clusters, read: one, those of a subscription, those of a resource group.

use api::doc::Cluster;
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{ArmPage, External};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use store::{ListOptions, PageToken, VersionedDocument};

use super::params::{GroupPath, Paging, SubscriptionPath, Version};
use super::{Desk, is_admin, link, version};
use crate::admin::params::ClusterPath;
use crate::wire::{Answer, Ask, Code, PageAsk, Refusal, ResourceId};

/// The contract's pages are this long.
const PER_PAGE: usize = 10;

/// What page tokens are sealed for.
const PAGES: &str = "arm-page";

/// Shows one cluster.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Get", tag = "resource manager",
    params(ClusterPath, Version),
    responses((status = 200, description = "The cluster.", body = OpenShiftCluster))
)]
pub(super) async fn show(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    if is_admin(&ask) {
        return Ok(crate::admin::show_cluster(&desk.admin, &ask).await?.into_response());
    }
    let (version, id) = (version(&ask)?, ask.resource_id()?);
    if let Some((of, answer)) = desk.shown.last(version, &id.path)
        && desk.reader().version(&id.path).await? == Some(of)
    {
        return Ok(answer.into_response());
    }
    let read = find(&desk, &id).await?;
    let answer = Answer::ok(&version.show(&read.document)).etag(read.etag);
    desk.shown.keep(version, &id.path, (read.uuid, read.etag), &answer);
    Ok(answer.into_response())
}

/// The cluster of that id.
pub(super) async fn find(desk: &Desk, id: &ResourceId) -> Result<VersionedDocument<Cluster>, Refusal> {
    desk.store.clusters().find(&id.path).await?.ok_or_else(|| absent(id))
}

/// There is no such cluster.
pub(super) fn absent(id: &ResourceId) -> Refusal {
    let message = format!("The Resource '{}' was not found.", id.spelled);
    Refusal::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
}

/// Lists the clusters of a subscription.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "OpenShiftClusters_List", tag = "resource manager",
    params(SubscriptionPath, Version, Paging),
    responses((status = 200, description = "A page of clusters.", body = ArmPage<OpenShiftCluster>))
)]
pub(super) async fn list(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let scope = format!("/subscriptions/{}", ask.segment("subscriptionId"));
    let prefix = format!("{scope}/");
    page(&desk, &ask, scope, prefix).await
}

/// Lists the clusters of a resource group.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "OpenShiftClusters_ListByResourceGroup", tag = "resource manager",
    params(GroupPath, Version, Paging),
    responses((status = 200, description = "A page of clusters.", body = ArmPage<OpenShiftCluster>))
)]
pub(super) async fn list_in_group(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let scope = format!("/subscriptions/{}", ask.segment("subscriptionId"));
    // The slash keeps the group `a` from listing what is in `ab`.
    let prefix = format!("{scope}/resourcegroups/{}/", ask.segment("resourceGroupName"));
    page(&desk, &ask, scope, prefix).await
}

async fn page(desk: &Desk, ask: &Ask, scope: String, prefix: String) -> Result<Answer, Refusal> {
    let version = version(ask)?;
    let PageAsk { limit, from } = ask.page::<String>(PER_PAGE)?;
    let from = from.map(|token| opened(desk, &token)).transpose()?;
    let selection = ListOptions { scope: Some(scope), prefix: Some(prefix), from, limit };
    let page = desk.reader().documents::<Cluster>().list(selection).await?;
    let value: Vec<External> = page.items.iter().map(|read| version.show(&read.document)).collect();
    let next_link = match page.next {
        Some(next) => {
            let token = desk.reader().seal_text(PAGES, &next.to_string())?;
            Some(link::next_page(ask, &token))
        }
        None => None,
    };
    Ok(Answer::ok(&ArmPage { value, next_link }))
}

/// Where a list goes on, if that is a token which a list of ours answered.
fn opened(desk: &Desk, token: &str) -> Result<PageToken, Refusal> {
    // Base64 has a plus, which some clients do not escape; it arrives as a space then.
    let token = token.replace(' ', "+");
    let place = desk.reader().open_text(PAGES, &token).and_then(|text| text.parse().ok());
    place.ok_or_else(|| {
        Refusal::parameter("$skipToken", "The token is none that a list of this server answered.")
    })
}
