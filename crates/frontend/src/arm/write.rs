//! A cluster is created or changed. Everything is looked at before anything is written; then the cluster, its operation, the
//! work and its secrets are written together, so that a crash leaves all of it or nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use api::doc::secrets::{CLIENT_SECRET, PULL_SECRET};
use api::doc::{Cluster, Identity, Operation, ProvisioningState, Subscription, Verb};
use api::domain;
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{
    ApiVersion, Draft, External, HiddenText, Semver, Wrong, check_unchanged, lay_over, match_roles, patched,
    replaced, validate,
};
use api::secret::Secret;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use store::{Etag, Secrets, StoreError, VersionedDocument};
use uuid::Uuid;

use super::gatekeeping::{Deed, check_state, check_subscription};
use super::headers::{IdentityHeaders, lay_system_data};
use super::params::Version;
use super::{BUILD, Desk, TURNS_MAX, checks, clusters, is_admin, link, operations, pause, version};
use crate::admin::params::{ClusterPath, IfMatch};
use crate::offer::Known;
use crate::wire::{Answer, Ask, Code, Refusal, ResourceId};

/// Where an operation is followed.
pub(super) const ASYNC_OPERATION: HeaderName = HeaderName::from_static("azure-asyncoperation");

/// How a body is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// PUT: the body is the whole.
    Replace,
    /// PATCH: the body is what changes.
    Merge,
}

/// Creates a cluster, or changes it to be as the body says.
#[utoipa::path(
    put, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_CreateOrUpdate", tag = "resource manager",
    params(ClusterPath, Version, IfMatch), request_body = OpenShiftCluster,
    responses(
        (status = 200, description = "It is being changed.", body = OpenShiftCluster),
        (status = 201, description = "It is being created.", body = OpenShiftCluster),
    )
)]
pub(super) async fn put(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    Box::pin(write(&desk, &ask, Manner::Replace)).await
}

/// Changes what the body says of a cluster.
#[utoipa::path(
    patch, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Update", tag = "resource manager",
    params(ClusterPath, Version, IfMatch), request_body = OpenShiftCluster,
    responses((status = 200, description = "It is being changed.", body = OpenShiftCluster))
)]
pub(super) async fn patch(State(desk): State<Desk>, ask: Ask) -> Result<Response, Refusal> {
    Box::pin(write(&desk, &ask, Manner::Merge)).await
}

async fn write(desk: &Desk, ask: &Ask, manner: Manner) -> Result<Response, Refusal> {
    let id = ask.resource_id()?;
    ask.check_media()?;
    if is_admin(ask) {
        let message = "Updates in the admin form are not served by this release.";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, Code::RequestNotAllowed, message));
    }
    let version = version(ask)?;
    for turn in 1..=TURNS_MAX {
        let subscription = check_subscription(desk, &id.subscription, Deed::Write).await?;
        let found = desk.store.clusters().find(&id.path).await?;
        ask.check_version(found.as_ref().map(|read| read.etag))?;
        let outcome = match &found {
            Some(read) => update(desk, ask, version, &id, read, manner).await,
            None if manner == Manner::Merge => return Err(clusters::absent(&id)),
            None => create(desk, ask, version, &id, &subscription).await,
        };
        match outcome {
            Ok(response) => return Ok(response),
            Err(Failed::Refused(refusal)) => return Err(*refusal),
            // Of a creation it may have been the subscription that changed; the next look tells.
            Err(Failed::Overtaken) if ask.has_precondition() && found.is_some() => {
                return Err(Refusal::stale());
            }
            // The whole is looked at again: what somebody else has written may change every answer.
            Err(Failed::Overtaken) => tokio::time::sleep(pause(turn)).await,
        }
    }
    Err(Refusal::internal("the cluster was changed by others again and again"))
}

/// Why a turn did not end well.
enum Failed {
    Refused(Box<Refusal>),
    /// Somebody else was quicker.
    Overtaken,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::Refused(Box::new(refusal))
    }
}

impl From<Wrong> for Failed {
    fn from(wrong: Wrong) -> Failed {
        Refusal::from(wrong).into()
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        match &error {
            StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. } => {
                Failed::Overtaken
            }
            StoreError::KeyTaken { key } => duplicate(key).into(),
            _ => Refusal::from(error).into(),
        }
    }
}

/// Which key of the cluster another one holds.
fn duplicate(key: &str) -> Refusal {
    let (code, message) = match key.split_once(':') {
        Some(("domain", domain)) => {
            let message = format!("The provided domain '{domain}' is already in use by another cluster.");
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, Code::DuplicateDomain, message);
            return refusal.at("properties.clusterProfile.domain");
        }
        Some(("resource-group", group)) => (
            Code::DuplicateResourceGroup,
            format!("The provided resource group '{group}' is already in use by another cluster."),
        ),
        Some((_, credential)) => (
            Code::DuplicateClientID,
            format!("The provided identity '{credential}' is already in use by another cluster."),
        ),
        None => (
            Code::DuplicateClientID,
            "The provided identity is already in use by another cluster.".to_owned(),
        ),
    };
    Refusal::new(StatusCode::BAD_REQUEST, code, message)
}

async fn create(
    desk: &Desk,
    ask: &Ask,
    version: ApiVersion,
    id: &ResourceId,
    subscription: &VersionedDocument<Subscription>,
) -> Result<Response, Failed> {
    let known = desk.offer.now();
    let body = with_default_version(ask.object()?, &known);
    if lacks_version(&body) {
        let why = "no version is the default, and a request names none; set one by PUT /admin/versions";
        return Err(Refusal::internal(why).into());
    }
    let external = version.read(body)?;
    let draft = external.draft();
    validate(&draft, &desk.ground(&id.spelled, None))?;
    if let Some(cloud) = &desk.cloud {
        checks::run(cloud, &draft, &id.subscription).await?;
    }
    let mut cluster = blank(id, desk.clock.now());
    lay_over(&draft, &mut cluster);
    let provisioned = cluster.provisioned.as_deref_mut().ok_or_else(no_properties)?;
    let zone = domain::zone_in(&cluster.location, desk.rules.zone.as_deref());
    provisioned.managed_domain = domain::managed(&provisioned.spec.domain, &zone);
    lay_system_data(ask, &mut provisioned.system_data);
    BUILD.clone_into(&mut provisioned.created_by);
    BUILD.clone_into(&mut provisioned.provisioned_by);
    provisioned.bucket = Uuid::new_v4().as_bytes()[0];
    identify(ask, &mut provisioned.spec.identity, Manner::Replace)?;
    match_roles(&provisioned.spec.identity, &provisioned.spec.version, &known.role_sets)?;
    check_enabled(&provisioned.spec.version, &known)?;
    let secrets = secrets(&draft);
    let operation = begin(desk, ask, &mut cluster, Uuid::now_v7(), id, Verb::Create);
    let by = ask.by(Some(""))?;
    let clusters = desk.store.clusters();
    let etag = clusters.begin_create_in(subscription, &cluster, &operation, &secrets, &by).await?;
    Ok(answer(desk, ask, version, StatusCode::CREATED, &cluster, operation.id, etag))
}

/// A cluster of that id that has nothing yet.
pub(super) fn blank(id: &ResourceId, now: Timestamp) -> Cluster {
    Cluster {
        id: id.spelled.clone(),
        subscription_id: id.subscription.clone(),
        name: id.name.clone(),
        location: String::new(),
        labels: BTreeMap::new(),
        provisioning_state: ProvisioningState::Creating,
        last_provisioning_state: None,
        failed_provisioning_state: None,
        operation: None,
        credential: None,
        managed_resource_group: None,
        imported: false,
        created_at: now,
        provisioned: None,
    }
}

fn no_properties() -> Refusal {
    Refusal::internal("a draft that has properties made a cluster that has none")
}

/// The body with the default version, if there is one, where it names none.
pub(super) fn with_default_version(mut body: Value, known: &Known) -> Value {
    if lacks_version(&body)
        && let Some(Value::Object(profile)) = body.pointer_mut(PROFILE)
        && let Some(default) = known.default_version()
    {
        profile.insert("version".to_owned(), Value::from(default.version.clone()));
    }
    body
}

const PROFILE: &str = "/properties/clusterProfile";

/// Whether a body has a profile that names no version.
fn lacks_version(body: &Value) -> bool {
    let profile = body.pointer(PROFILE).and_then(Value::as_object);
    let is_none = |version: &Value| version.is_null() || version == "";
    profile.is_some_and(|it| it.get("version").is_none_or(is_none))
}

/// Refuses a version that customers may not choose.
pub(super) fn check_enabled(version: &str, known: &Known) -> Result<(), Wrong> {
    let is_version = version.parse::<Semver>().is_ok();
    if is_version && known.enabled().any(|it| it.version == version) {
        return Ok(());
    }
    let shown: String = version.chars().filter(|letter| !letter.is_control()).take(100).collect();
    let message = format!("The requested OpenShift version '{shown}' is not supported.");
    Err(Wrong::parameter("properties.clusterProfile.version", message))
}

async fn update(
    desk: &Desk,
    ask: &Ask,
    version: ApiVersion,
    id: &ResourceId,
    read: &VersionedDocument<Cluster>,
    manner: Manner,
) -> Result<Response, Failed> {
    check_state(&read.document, Deed::Write)?;
    let body = ask.object()?;
    let external = proposed(version, &read.document, &body, manner)?;
    let draft = external.draft();
    validate(&draft, &desk.ground(&id.spelled, Some(&read.document)))?;
    check_unchanged(&version.show(&read.document).value(), &external.value())?;
    check_pull_secret(desk, read.uuid, &draft).await?;
    let mut cluster = read.document.clone();
    lay_over(&draft, &mut cluster);
    let installed = read.document.provisioned.as_deref().map(|it| it.spec.version.clone());
    let provisioned = cluster.provisioned.as_deref_mut().ok_or_else(no_properties)?;
    // What is shown is the version that runs; what was asked for stays as it was.
    provisioned.spec.version = installed.unwrap_or_default();
    lay_system_data(ask, &mut provisioned.system_data);
    identify(ask, &mut provisioned.spec.identity, manner)?;
    let running = provisioned.record.running_version.as_deref().unwrap_or(&provisioned.spec.version);
    match_roles(&provisioned.spec.identity, running, &desk.offer.now().role_sets)?;
    let secrets = secrets(&draft);
    let operation = begin(desk, ask, &mut cluster, read.uuid, id, Verb::Update);
    let by = ask.by(Some(""))?;
    let etag = desk.store.clusters().begin(read, &cluster, &operation, &secrets, &by).await?;
    Ok(answer(desk, ask, version, StatusCode::OK, &cluster, operation.id, etag))
}

/// What a cluster would be, in the form of the request's version.
pub(super) fn proposal(version: ApiVersion, stored: &Cluster, body: &Value) -> Result<External, Wrong> {
    proposed(version, stored, body, Manner::Replace)
}

fn proposed(version: ApiVersion, stored: &Cluster, body: &Value, manner: Manner) -> Result<External, Wrong> {
    let mut merged = match manner {
        Manner::Replace => replaced(version.skeleton(stored, body), body),
        Manner::Merge => patched(version.show(stored).stripped().value(), body),
    };
    // Whoever repeats the creation names the version that was asked for then, not the one that runs by now.
    if let Some(provisioned) = stored.provisioned.as_deref()
        && let Some(running) = &provisioned.record.running_version
        && let Some(named) = merged.pointer_mut("/properties/clusterProfile/version")
        && *named == provisioned.spec.version.as_str()
    {
        *named = Value::from(running.clone());
    }
    version.read(merged)
}

async fn check_pull_secret(desk: &Desk, cluster: Uuid, draft: &Draft<'_>) -> Result<(), Failed> {
    if sent_pull_secret(draft).is_none() {
        return Ok(());
    }
    let stored = desk.reader().secret(cluster, PULL_SECRET).await?;
    Ok(same_pull_secret(draft, stored.as_ref())?)
}

/// A pull secret that is sent must be the one that is there.
pub(super) fn same_pull_secret(draft: &Draft<'_>, stored: Option<&Secret<Vec<u8>>>) -> Result<(), Wrong> {
    match (sent_pull_secret(draft), stored) {
        (None, _) => Ok(()),
        (Some(sent), Some(stored)) if stored.expose() == sent.as_bytes() => Ok(()),
        (Some(_), _) => Err(Wrong::unchangeable("properties.clusterProfile.pullSecret")),
    }
}

fn sent_pull_secret<'a>(draft: &Draft<'a>) -> Option<&'a str> {
    let sent = draft.properties.as_ref().and_then(|it| it.pull_secret).map(HiddenText::expose);
    sent.filter(|it| !it.is_empty())
}

/// Notes where the credentials of a managed identity are fetched.
fn identify(ask: &Ask, identity: &mut Identity, manner: Manner) -> Result<(), Refusal> {
    let Identity::Workload { tenant_id, identity_url, .. } = identity else { return Ok(()) };
    let headers = IdentityHeaders::of(ask);
    if manner == Manner::Replace {
        headers.required()?;
    }
    for (field, said) in [(identity_url, headers.url), (tenant_id, headers.tenant)] {
        if let Some(said) = said {
            *field = Some(said.to_owned());
        }
    }
    Ok(())
}

/// The secrets that a request brings.
fn secrets(draft: &Draft<'_>) -> Secrets {
    let properties = draft.properties.as_ref();
    let pull_secret = properties.and_then(|it| it.pull_secret);
    let client_secret = properties.and_then(|it| it.service_principal?.client_secret.as_ref());
    [(PULL_SECRET, pull_secret), (CLIENT_SECRET, client_secret)]
        .into_iter()
        .filter_map(|(name, secret)| Some((name, secret.filter(|it| !it.expose().is_empty())?)))
        .map(|(name, secret)| (name, Secret::new(secret.expose().as_bytes().to_vec())))
        .collect()
}

/// Sets the cluster's state for an operation that begins.
fn begin(
    desk: &Desk,
    ask: &Ask,
    cluster: &mut Cluster,
    uuid: Uuid,
    id: &ResourceId,
    verb: Verb,
) -> Operation {
    let state = match verb {
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
        initial_status: state,
        status: state,
        start_time: desk.clock.now(),
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: Some(ask.correlation()),
        client_request_id: ask.client_request_id().map(str::to_owned),
    };
    if verb != Verb::Create {
        cluster.last_provisioning_state = Some(cluster.provisioning_state);
    }
    cluster.provisioning_state = state;
    cluster.operation = Some(operation.id);
    operation
}

fn answer(
    desk: &Desk,
    ask: &Ask,
    version: ApiVersion,
    status: StatusCode,
    cluster: &Cluster,
    operation: Uuid,
    etag: Etag,
) -> Response {
    let shown = version.show(cluster).without_status();
    let mut response = Answer::of(status, &shown).etag(etag).into_response();
    let paths = operations::paths(&cluster.subscription_id, &cluster.location, operation);
    if let Ok(url) = HeaderValue::from_str(&link::to(ask, &paths.status)) {
        response.headers_mut().insert(ASYNC_OPERATION, url);
    }
    response.headers_mut().insert(header::RETRY_AFTER, operations::retry_after(desk));
    response
}

/// The limit on what a request waits for the cloud.
pub(super) const CLOUD_TIME_MAX: Duration = Duration::from_secs(10);
