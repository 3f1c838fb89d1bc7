//! Clusters: lists, a single cluster, selectors and labels.

use std::collections::BTreeMap;

use api::admin::{AdminCluster, Page};
use api::doc::{Cluster, ProvisioningState};
use api::selector::ClusterAttributes;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use store::{ListOptions, PageToken, StoreError, VersionedDocument};
use utoipa::ToSchema;

use super::AdminState;
use super::params::{MaybeVersion, Paging, Reason, Version};
use crate::cluster_form;
use crate::params::{ClusterPath, IfMatch};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, PageRequest, WRITE_ATTEMPTS_MAX};

/// Length of a page of clusters, as in the reference.
const CLUSTERS_PER_PAGE: usize = 10;

/// Limits on the labels of a cluster.
const LABELS_MAX: usize = 64;
const LABEL_NAME_BYTES_MAX: usize = 253;
const LABEL_VALUE_BYTES_MAX: usize = 256;

/// Lists all clusters in the admin form.
#[utoipa::path(
    get, path = "/admin/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "listClusters", tag = "clusters",
    params(MaybeVersion, Paging),
    responses((status = 200, description = "A page of clusters.", body = Page<AdminCluster>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<PageToken>(CLUSTERS_PER_PAGE)?;
    let page = state.store.clusters().list(ListOptions { from, limit, ..ListOptions::default() }).await?;
    let health = cluster_form::health(&state.store, page.items.iter().map(|it| it.uuid).collect()).await?;
    let show = |read: &VersionedDocument<Cluster>| {
        cluster_form::form(read.uuid, &read.document, health.get(&read.uuid))
    };
    Ok(request.page_response(page.items.iter().map(show).collect(), page.next))
}

/// A cluster in the overview.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterLine {
    /// Its resource id in lower case.
    key: String,
    /// Its name.
    name: String,
    /// Its subscription.
    subscription: String,
    /// Its resource group.
    resource_group: String,
    /// Its resource id.
    resource_id: String,
    /// Its provisioning state.
    #[schema(value_type = String)]
    provisioning_state: ProvisioningState,
    /// The state in which it failed.
    #[schema(value_type = Option<String>)]
    failed_provisioning_state: Option<ProvisioningState>,
    /// The version that was last seen in it.
    version: String,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The build that created it.
    created_by: String,
    /// The build that last changed it.
    provisioned_by: String,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    last_modified: Timestamp,
}

/// Lists all clusters in a short form, sorted by id and without pages.
#[utoipa::path(
    get, path = "/admin/clusters", operation_id = "overviewOfClusters", tag = "clusters",
    params(
        MaybeVersion,
        ("name" = Option<String>, Query, description = "Only clusters of this name."),
        ("subscription" = Option<String>, Query, description = "Only clusters of this subscription."),
        ("version" = Option<String>, Query, description = "Only clusters of this version."),
        ("created_by" = Option<String>, Query, description = "Only clusters that this build created."),
        ("provisioned_by" = Option<String>, Query, description = "Only clusters that this build changed last."),
        ("state" = Option<String>, Query, description = "Only clusters in this provisioning state."),
    ),
    responses((status = 200, description = "Every cluster that fits.", body = Vec<ClusterLine>))
)]
pub(super) async fn overview(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let mut lines = Vec::new();
    let mut from = None;
    loop {
        let selection = ListOptions { from, limit: store::PAGE_MAX, ..ListOptions::default() };
        let page = state.store.clusters().list(selection).await?;
        let health =
            cluster_form::health(&state.store, page.items.iter().map(|it| it.uuid).collect()).await?;
        for read in &page.items {
            let shown = cluster_form::form(read.uuid, &read.document, health.get(&read.uuid));
            let line = line(read, shown.properties.version);
            if fits(&line, &request)? {
                lines.push(line);
            }
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    lines.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(ApiResponse::ok(&lines))
}

fn line(read: &VersionedDocument<Cluster>, version: Option<String>) -> ClusterLine {
    let document = &read.document;
    ClusterLine {
        key: document.id.to_lowercase(),
        name: document.name.clone(),
        subscription: document.subscription_id.clone(),
        resource_group: document.id.split('/').nth(4).unwrap_or_default().to_owned(),
        resource_id: document.id.clone(),
        provisioning_state: document.provisioning_state,
        failed_provisioning_state: document.failed_provisioning_state,
        version: version.unwrap_or_default(),
        created_at: document.created_at,
        created_by: String::new(),
        provisioned_by: String::new(),
        last_modified: read.changed,
    }
}

fn fits(line: &ClusterLine, request: &ApiRequest) -> Result<bool, ApiError> {
    let state = format!("{:?}", line.provisioning_state);
    let filters = [
        ("name", &line.name),
        ("subscription", &line.subscription),
        ("version", &line.version),
        ("created_by", &line.created_by),
        ("provisioned_by", &line.provisioned_by),
        ("state", &state),
    ];
    for (name, value) in filters {
        if request.query.get(name)?.is_some_and(|wanted| !wanted.eq_ignore_ascii_case(value)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Shows one cluster in the admin form.
#[utoipa::path(
    get, path = "/admin/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "getClusterAsAdmin", tag = "clusters",
    params(ClusterPath, MaybeVersion),
    responses((status = 200, description = "The cluster.", body = AdminCluster))
)]
pub(super) async fn show_admin(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    state.cluster_forms.respond(&request).await
}

/// Shows the attributes of a cluster that selectors can match.
#[utoipa::path(
    get, path = "/selectors", operation_id = "getSelectors", tag = "clusters",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "Every attribute that is known of it.", body = BTreeMap<String, String>),
        (status = 404, description = "There is no such cluster, or its subscription is not known."),
    )
)]
pub(super) async fn selectors(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let read = state.cluster_forms.find(&request.resource_id()?).await?;
    let path = format!("/subscriptions/{}", read.document.subscription_id);
    let subscription = state.store.subscriptions().find(&path).await?.map(|it| it.document.state);
    // The subscription of imported clusters is not registered.
    if subscription.is_none() && !read.document.imported {
        let message = format!("The subscription {} was not found.", read.document.subscription_id);
        return Err(ApiError::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message));
    }
    let health = state.store.health(vec![read.uuid]).await?.pop();
    let version = health.as_ref().and_then(|it| it.details.version.clone());
    let attributes = ClusterAttributes::of(&read.document, subscription, version.as_deref());
    ApiResponse::compact(attributes.as_map())
}

/// Replaces the labels of a cluster.
#[utoipa::path(
    put, path = "/labels", operation_id = "labelCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch), request_body = BTreeMap<String, String>,
    responses(
        (status = 200, description = "The cluster.", body = AdminCluster),
        (status = 409, description = "It was changed by another request at the same time."),
    )
)]
pub(super) async fn label(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let id = request.resource_id()?;
    let labels: BTreeMap<String, String> = request.json()?;
    check_labels(&labels, "")?;
    let by = request.by(None)?;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let read = state.cluster_forms.find(&id).await?;
        request.check_preconditions(Some(read.etag))?;
        let wanted = Cluster { labels: labels.clone(), ..read.document.clone() };
        match state.store.clusters().update(&read, &wanted, &by).await {
            Ok(etag) => {
                return Ok(
                    ApiResponse::ok(&state.cluster_forms.complete(read.uuid, &wanted).await?).with_etag(etag)
                );
            }
            Err(StoreError::Gone { .. }) => return Err(cluster_form::not_found(&id)),
            Err(error) => request.retry_unless_fatal(error)?,
        }
    }
    Err(ApiError::contended())
}

/// Validates labels: they must be usable in selectors. `within` is the prefix of error targets.
pub(super) fn check_labels(labels: &BTreeMap<String, String>, within: &str) -> Result<(), ApiError> {
    if labels.len() > LABELS_MAX {
        let message = format!("A cluster has at most {LABELS_MAX} labels.");
        return Err(ApiError::invalid_parameter(within.trim_end_matches('.'), message));
    }
    for (name, value) in labels {
        let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if !(1..=LABEL_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(accepted) {
            let shown: String = name.chars().take(60).filter(|letter| !letter.is_control()).collect();
            let message = format!(
                "The label {shown:?} must have 1 to {LABEL_NAME_BYTES_MAX} letters, digits, hyphens, underscores, \
                 dots or slashes."
            );
            return Err(ApiError::invalid_parameter(format!("{within}{shown}"), message));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX || value.contains(char::is_control) {
            let message = format!(
                "The value of label {name:?} must have at most {LABEL_VALUE_BYTES_MAX} bytes without control characters."
            );
            return Err(ApiError::invalid_parameter(format!("{within}{name}"), message));
        }
    }
    Ok(())
}
