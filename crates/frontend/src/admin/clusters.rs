//! Clusters: lists, one, and their labels.

use std::collections::BTreeMap;

use api::admin::{AdminCluster, Page};
use api::doc::{Cluster, ProvisioningState};
use api::selector::ClusterAttributes;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use kubelink::Kubeconfig;
use serde::Serialize;
use store::{ListOptions, PageToken, StoreError, VersionedDocument};
use utoipa::ToSchema;
use uuid::Uuid;

use super::params::{ClusterPath, IfMatch, MaybeVersion, Paging, Reason, Version};
use super::{Desk, forms};
use crate::wire::{Answer, Ask, Code, PageAsk, Refusal, ResourceId};

/// The reference's pages of clusters are this long.
const CLUSTERS_PER_PAGE: usize = 10;

/// A cluster has no more labels than this, and none is longer.
const LABELS_MAX: usize = 64;
const LABEL_NAME_BYTES_MAX: usize = 253;
const LABEL_VALUE_BYTES_MAX: usize = 256;

/// Turns in which a change made meanwhile by somebody else is met.
pub(super) const TURNS_MAX: usize = 5;

/// Lists all clusters in the admin form.
#[utoipa::path(
    get, path = "/admin/providers/microsoft.redhatopenshift/openshiftclusters",
    operation_id = "listClusters", tag = "clusters",
    params(MaybeVersion, Paging),
    responses((status = 200, description = "A page of clusters.", body = Page<AdminCluster>))
)]
pub(super) async fn list(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let PageAsk { limit, from } = ask.page::<PageToken>(CLUSTERS_PER_PAGE)?;
    let page = desk.store.clusters().list(ListOptions { from, limit, ..ListOptions::default() }).await?;
    let health = forms::health(&desk.store, page.items.iter().map(|it| it.uuid).collect()).await?;
    let show =
        |read: &VersionedDocument<Cluster>| forms::cluster(read.uuid, &read.document, health.get(&read.uuid));
    Ok(ask.paged(page.items.iter().map(show).collect(), page.next))
}

/// One line of the overview.
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
    /// Where its life stands.
    #[schema(value_type = String)]
    provisioning_state: ProvisioningState,
    /// What it was doing when it failed.
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

/// Lists all clusters, a line for each, sorted by their ids and without pages.
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
pub(super) async fn overview(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let mut lines = Vec::new();
    let mut from = None;
    loop {
        let selection = ListOptions { from, limit: store::PAGE_MAX, ..ListOptions::default() };
        let page = desk.store.clusters().list(selection).await?;
        let health = forms::health(&desk.store, page.items.iter().map(|it| it.uuid).collect()).await?;
        for read in &page.items {
            let shown = forms::cluster(read.uuid, &read.document, health.get(&read.uuid));
            let line = line(read, shown.properties.version);
            if fits(&line, &ask)? {
                lines.push(line);
            }
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    lines.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Answer::ok(&lines))
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

fn fits(line: &ClusterLine, ask: &Ask) -> Result<bool, Refusal> {
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
        if ask.query.one(name)?.is_some_and(|wanted| !wanted.eq_ignore_ascii_case(value)) {
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
pub(super) async fn show_admin(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    show_one(&desk, &ask).await
}

pub(super) async fn show_one(desk: &Desk, ask: &Ask) -> Result<Answer, Refusal> {
    let read = find(desk, &ask.resource_id()?).await?;
    Ok(Answer::ok(&shown(desk, read.uuid, &read.document).await?).etag(read.etag))
}

/// One cluster with everything that is known of it; its API server's address is in its sealed kubeconfig.
pub(super) async fn shown(desk: &Desk, uuid: Uuid, cluster: &Cluster) -> Result<AdminCluster, Refusal> {
    let health = forms::health(&desk.store, vec![uuid]).await?;
    let mut form = forms::cluster(uuid, cluster, health.get(&uuid));
    if cluster.imported
        && let Some(sealed) = desk.store.clusters().kubeconfig(uuid).await?
    {
        let text = String::from_utf8_lossy(sealed.expose());
        let parsed = Kubeconfig::parse(&text, None, &desk.allow);
        form.properties.api_server = parsed.ok().map(|kubeconfig| kubeconfig.server().to_string());
    }
    Ok(form)
}

/// The cluster of that id.
pub(super) async fn find(desk: &Desk, id: &ResourceId) -> Result<VersionedDocument<Cluster>, Refusal> {
    desk.store.clusters().find(&id.path).await?.ok_or_else(|| absent(id))
}

/// There is no such cluster.
pub(super) fn absent(id: &ResourceId) -> Refusal {
    let message = format!("The cluster {} was not found.", id.spelled);
    Refusal::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
}

/// Shows a cluster as selectors see it.
#[utoipa::path(
    get, path = "/selectors", operation_id = "getSelectors", tag = "clusters",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "Every attribute that is known of it.", body = BTreeMap<String, String>),
        (status = 404, description = "There is no such cluster, or its subscription is not known."),
    )
)]
pub(super) async fn selectors(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let read = find(&desk, &ask.resource_id()?).await?;
    let path = format!("/subscriptions/{}", read.document.subscription_id);
    let subscription = desk.store.subscriptions().find(&path).await?.map(|it| it.document.state);
    // Nobody tells us of the subscription that imported clusters stand below.
    if subscription.is_none() && !read.document.imported {
        let message = format!("The subscription {} was not found.", read.document.subscription_id);
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message));
    }
    let health = desk.store.health(vec![read.uuid]).await?.pop();
    let version = health.as_ref().and_then(|it| it.details.version.clone());
    let attributes = ClusterAttributes::of(&read.document, subscription, version.as_deref());
    Answer::compact(attributes.as_map())
}

/// Replaces the labels of a cluster.
#[utoipa::path(
    put, path = "/labels", operation_id = "labelCluster", tag = "clusters",
    params(ClusterPath, MaybeVersion, Reason, IfMatch), request_body = BTreeMap<String, String>,
    responses(
        (status = 200, description = "The cluster.", body = AdminCluster),
        (status = 409, description = "It was changed at the same moment."),
    )
)]
pub(super) async fn label(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let id = ask.resource_id()?;
    let labels: BTreeMap<String, String> = ask.json()?;
    check_labels(&labels, "")?;
    let by = ask.by(None)?;
    for _ in 0..TURNS_MAX {
        let read = find(&desk, &id).await?;
        ask.check_version(Some(read.etag))?;
        let wanted = Cluster { labels: labels.clone(), ..read.document.clone() };
        match desk.store.clusters().update(&read, &wanted, &by).await {
            Ok(etag) => {
                return Ok(Answer::ok(&shown(&desk, read.uuid, &wanted).await?).etag(etag));
            }
            Err(StoreError::Changed { .. }) if ask.has_precondition() => return Err(Refusal::stale()),
            Err(StoreError::Changed { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(Refusal::contended())
}

/// Labels are words; what could not be written in a selector or on a line is refused. `within` is where they are.
pub(super) fn check_labels(labels: &BTreeMap<String, String>, within: &str) -> Result<(), Refusal> {
    if labels.len() > LABELS_MAX {
        let message = format!("A cluster has at most {LABELS_MAX} labels.");
        return Err(Refusal::parameter(within.trim_end_matches('.'), message));
    }
    for (name, value) in labels {
        let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if !(1..=LABEL_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(accepted) {
            let shown: String = name.chars().take(60).filter(|letter| !letter.is_control()).collect();
            let message = format!(
                "The label {shown:?} must have 1 to {LABEL_NAME_BYTES_MAX} letters, digits, hyphens, underscores, \
                 dots or slashes."
            );
            return Err(Refusal::parameter(format!("{within}{shown}"), message));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX || value.contains(char::is_control) {
            let message = format!(
                "The value of label {name:?} must have at most {LABEL_VALUE_BYTES_MAX} bytes without control characters."
            );
            return Err(Refusal::parameter(format!("{within}{name}"), message));
        }
    }
    Ok(())
}
