//! Creates or changes a cluster. All checks come before the write, which stores the cluster, its operation, work and secrets in one
//! transaction.

use std::time::Duration;

use api::doc::secrets::{CLIENT_SECRET, PULL_SECRET};
use api::doc::{Cluster, Identity, ProvisioningState, Subscription, Verb};
use api::domain;
use api::rest::v2025_07_25::OpenShiftCluster;
use api::rest::{
    ApiVersion, Draft, ExternalCluster, FieldError, HiddenText, Semver, apply_draft, check_unchanged,
    match_roles, patched, replaced, validate,
};
use api::secret::Secret;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use store::{Etag, Secrets, StoreError, VersionedDocument};
use uuid::Uuid;

use super::headers::{IdentityHeaders, update_system_data};
use super::params::Version;
use super::state_rules::{ClusterAction, check_state, check_subscription};
use super::{ArmState, BUILD, cloud_checks, clusters, is_admin, link, operations, retry_delay, version};
use crate::install_catalog::InstallOptions;
use crate::params::{ClusterPath, IfMatch};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, ResourceId, WRITE_ATTEMPTS_MAX};

/// The header with the URL to poll an operation.
pub(super) const ASYNC_OPERATION: HeaderName = HeaderName::from_static("azure-asyncoperation");

/// The meaning of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// PUT: the body is the whole.
    Replace,
    /// PATCH: the body is what changes.
    Merge,
}

/// Creates a cluster, or replaces its properties.
#[utoipa::path(
    put, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_CreateOrUpdate", tag = "resource manager",
    params(ClusterPath, Version, IfMatch), request_body = OpenShiftCluster,
    responses(
        (status = 200, description = "It is being changed.", body = OpenShiftCluster),
        (status = 201, description = "It is being created.", body = OpenShiftCluster),
    )
)]
pub(super) async fn put(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    Box::pin(write(&state, &request, WriteMode::Replace)).await
}

/// Changes properties of a cluster.
#[utoipa::path(
    patch, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}",
    operation_id = "OpenShiftClusters_Update", tag = "resource manager",
    params(ClusterPath, Version, IfMatch), request_body = OpenShiftCluster,
    responses((status = 200, description = "It is being changed.", body = OpenShiftCluster))
)]
pub(super) async fn patch(State(state): State<ArmState>, request: ApiRequest) -> Result<Response, ApiError> {
    Box::pin(write(&state, &request, WriteMode::Merge)).await
}

async fn write(state: &ArmState, request: &ApiRequest, manner: WriteMode) -> Result<Response, ApiError> {
    let id = request.resource_id()?;
    request.check_media()?;
    if is_admin(request) {
        let message = "Updates in the admin form are not served by this release.";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, Code::RequestNotAllowed, message));
    }
    let version = version(request)?;
    for attempt in 1..=WRITE_ATTEMPTS_MAX {
        let subscription = check_subscription(state, &id.subscription, ClusterAction::Write).await?;
        let found = state.store.clusters().find(&id.path).await?;
        request.check_preconditions(found.as_ref().map(|read| read.etag))?;
        let outcome = match &found {
            Some(read) => update(state, request, version, &id, read, manner).await,
            None if manner == WriteMode::Merge => return Err(clusters::absent(&id)),
            None => create(state, request, version, &id, &subscription).await,
        };
        match outcome {
            Ok(response) => return Ok(response),
            Err(WriteError::Api(error)) => return Err(*error),
            // A creation may have failed because the subscription changed; the next attempt decides.
            Err(WriteError::Conflict) if request.has_precondition() && found.is_some() => {
                return Err(ApiError::precondition_failed());
            }
            // All checks are repeated, because the other write may change every result.
            Err(WriteError::Conflict) => tokio::time::sleep(retry_delay(attempt)).await,
        }
    }
    Err(ApiError::internal("the cluster was changed by other requests several times"))
}

/// Why an attempt failed.
enum WriteError {
    Api(Box<ApiError>),
    /// Another writer was faster.
    Conflict,
}

impl From<ApiError> for WriteError {
    fn from(error: ApiError) -> WriteError {
        WriteError::Api(Box::new(error))
    }
}

impl From<FieldError> for WriteError {
    fn from(wrong: FieldError) -> WriteError {
        ApiError::from(wrong).into()
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> WriteError {
        match &error {
            StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. } => {
                WriteError::Conflict
            }
            StoreError::KeyTaken { key } => duplicate(key).into(),
            _ => ApiError::from(error).into(),
        }
    }
}

/// The error for a unique key that another cluster has.
fn duplicate(key: &str) -> ApiError {
    let (code, message) = match key.split_once(':') {
        Some(("domain", domain)) => {
            let message = format!("The provided domain '{domain}' is already in use by another cluster.");
            let error = ApiError::new(StatusCode::BAD_REQUEST, Code::DuplicateDomain, message);
            return error.with_target("properties.clusterProfile.domain");
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
    ApiError::new(StatusCode::BAD_REQUEST, code, message)
}

async fn create(
    state: &ArmState,
    request: &ApiRequest,
    version: ApiVersion,
    id: &ResourceId,
    subscription: &VersionedDocument<Subscription>,
) -> Result<Response, WriteError> {
    let known = state.install_catalog.current();
    let body = with_default_version(request.object()?, &known);
    if lacks_version(&body) {
        let why = "no version is the default, and a request names none; set one by PUT /admin/versions";
        return Err(ApiError::internal(why).into());
    }
    let external = version.read(body)?;
    let draft = external.draft();
    validate(&draft, &state.validation_context(&id.spelled, None))?;
    if let Some(cloud) = &state.cloud {
        cloud_checks::run(cloud, &draft, &id.subscription).await?;
    }
    let mut cluster = blank(id, state.clock.now());
    apply_draft(&draft, &mut cluster);
    let provisioned = cluster.provisioned.as_deref_mut().ok_or_else(no_properties)?;
    let zone = domain::zone_in(&cluster.location, state.settings.zone.as_deref());
    provisioned.managed_domain = domain::managed(&provisioned.spec.domain, &zone);
    update_system_data(request, &mut provisioned.system_data);
    BUILD.clone_into(&mut provisioned.created_by);
    BUILD.clone_into(&mut provisioned.provisioned_by);
    provisioned.bucket = Uuid::new_v4().as_bytes()[0];
    identify(request, &mut provisioned.spec.identity, WriteMode::Replace)?;
    match_roles(&provisioned.spec.identity, &provisioned.spec.version, &known.role_sets)?;
    check_enabled(&provisioned.spec.version, &known)?;
    let secrets = secrets(&draft);
    let operation = operations::start(state, request, &mut cluster, Uuid::now_v7(), id, Verb::Create);
    let by = request.by(Some(""))?;
    let clusters = state.store.clusters();
    let etag = clusters.start_create_in(subscription, &cluster, &operation, &secrets, &by).await?;
    Ok(response(state, request, version, StatusCode::CREATED, &cluster, operation.id, etag))
}

/// A new cluster without properties.
pub(super) fn blank(id: &ResourceId, now: Timestamp) -> Cluster {
    Cluster::new(id.spelled.clone(), ProvisioningState::Creating, now)
}

fn no_properties() -> ApiError {
    ApiError::internal("a draft that has properties made a cluster that has none")
}

/// Adds the default version, if any, to a body that names none.
pub(super) fn with_default_version(mut body: Value, known: &InstallOptions) -> Value {
    if lacks_version(&body)
        && let Some(Value::Object(profile)) = body.pointer_mut(PROFILE)
        && let Some(default) = known.default_version()
    {
        profile.insert("version".to_owned(), Value::from(default.version.clone()));
    }
    body
}

const PROFILE: &str = "/properties/clusterProfile";

/// Whether a body has a cluster profile without a version.
fn lacks_version(body: &Value) -> bool {
    let profile = body.pointer(PROFILE).and_then(Value::as_object);
    let is_none = |version: &Value| version.is_null() || version == "";
    profile.is_some_and(|it| it.get("version").is_none_or(is_none))
}

/// Checks that customers may choose a version.
pub(super) fn check_enabled(version: &str, known: &InstallOptions) -> Result<(), FieldError> {
    let is_version = version.parse::<Semver>().is_ok();
    if is_version && known.enabled().any(|it| it.version == version) {
        return Ok(());
    }
    let shown: String = version.chars().filter(|letter| !letter.is_control()).take(100).collect();
    let message = format!("The requested OpenShift version '{shown}' is not supported.");
    Err(FieldError::parameter("properties.clusterProfile.version", message))
}

async fn update(
    state: &ArmState,
    request: &ApiRequest,
    version: ApiVersion,
    id: &ResourceId,
    read: &VersionedDocument<Cluster>,
    manner: WriteMode,
) -> Result<Response, WriteError> {
    check_state(&read.document, ClusterAction::Write)?;
    let body = request.object()?;
    let external = proposed(version, &read.document, &body, manner)?;
    let draft = external.draft();
    validate(&draft, &state.validation_context(&id.spelled, Some(&read.document)))?;
    check_unchanged(&version.show(&read.document).value(), &external.value())?;
    check_pull_secret(state, read.uuid, &draft).await?;
    let mut cluster = read.document.clone();
    apply_draft(&draft, &mut cluster);
    let installed = read.document.provisioned.as_deref().map(|it| it.spec.version.clone());
    let provisioned = cluster.provisioned.as_deref_mut().ok_or_else(no_properties)?;
    // Responses show the running version; the requested version stays unchanged.
    provisioned.spec.version = installed.unwrap_or_default();
    update_system_data(request, &mut provisioned.system_data);
    identify(request, &mut provisioned.spec.identity, manner)?;
    let running = provisioned.record.running_version.as_deref().unwrap_or(&provisioned.spec.version);
    match_roles(&provisioned.spec.identity, running, &state.install_catalog.current().role_sets)?;
    let secrets = secrets(&draft);
    let operation = operations::start(state, request, &mut cluster, read.uuid, id, Verb::Update);
    let by = request.by(Some(""))?;
    let etag = state.store.clusters().start_update(read, &cluster, &operation, &secrets, &by).await?;
    Ok(response(state, request, version, StatusCode::OK, &cluster, operation.id, etag))
}

/// The cluster after a PUT, in the form of the request's version.
pub(super) fn proposal(
    version: ApiVersion,
    stored: &Cluster,
    body: &Value,
) -> Result<ExternalCluster, FieldError> {
    proposed(version, stored, body, WriteMode::Replace)
}

fn proposed(
    version: ApiVersion,
    stored: &Cluster,
    body: &Value,
    manner: WriteMode,
) -> Result<ExternalCluster, FieldError> {
    let mut merged = match manner {
        WriteMode::Replace => replaced(version.skeleton(stored, body), body),
        WriteMode::Merge => patched(version.show(stored).stripped().value(), body),
    };
    // A repeated creation names the version that was requested then, not the one that runs now.
    if let Some(provisioned) = stored.provisioned.as_deref()
        && let Some(running) = &provisioned.record.running_version
        && let Some(named) = merged.pointer_mut("/properties/clusterProfile/version")
        && *named == provisioned.spec.version.as_str()
    {
        *named = Value::from(running.clone());
    }
    version.read(merged)
}

async fn check_pull_secret(state: &ArmState, cluster: Uuid, draft: &Draft<'_>) -> Result<(), WriteError> {
    if sent_pull_secret(draft).is_none() {
        return Ok(());
    }
    let stored = state.reader().secret(cluster, PULL_SECRET).await?;
    Ok(same_pull_secret(draft, stored.as_ref())?)
}

/// A pull secret in a request must be the stored one.
pub(super) fn same_pull_secret(
    draft: &Draft<'_>,
    stored: Option<&Secret<Vec<u8>>>,
) -> Result<(), FieldError> {
    match (sent_pull_secret(draft), stored) {
        (None, _) => Ok(()),
        (Some(sent), Some(stored)) if stored.expose() == sent.as_bytes() => Ok(()),
        (Some(_), _) => Err(FieldError::unchangeable("properties.clusterProfile.pullSecret")),
    }
}

fn sent_pull_secret<'a>(draft: &Draft<'a>) -> Option<&'a str> {
    let sent = draft.properties.as_ref().and_then(|it| it.pull_secret).map(HiddenText::expose);
    sent.filter(|it| !it.is_empty())
}

/// Stores the URL and tenant of a managed identity from the headers.
fn identify(request: &ApiRequest, identity: &mut Identity, manner: WriteMode) -> Result<(), ApiError> {
    let Identity::Workload { tenant_id, identity_url, .. } = identity else { return Ok(()) };
    let headers = IdentityHeaders::from_request(request);
    if manner == WriteMode::Replace {
        headers.required()?;
    }
    for (field, said) in [(identity_url, headers.url), (tenant_id, headers.tenant)] {
        if let Some(said) = said {
            *field = Some(said.to_owned());
        }
    }
    Ok(())
}

/// The secrets of a request.
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

fn response(
    state: &ArmState,
    request: &ApiRequest,
    version: ApiVersion,
    status: StatusCode,
    cluster: &Cluster,
    operation: Uuid,
    etag: Etag,
) -> Response {
    let shown = version.show(cluster).without_status();
    let mut response = ApiResponse::with_status(status, &shown).with_etag(etag).into_response();
    let paths = operations::paths(&cluster.subscription_id, &cluster.location, operation);
    if let Ok(url) = HeaderValue::from_str(&link::to(request, &paths.status)) {
        response.headers_mut().insert(ASYNC_OPERATION, url);
    }
    response.headers_mut().insert(header::RETRY_AFTER, operations::retry_after(state));
    response
}

/// Longest time that a request waits for the cloud.
pub(super) const CLOUD_TIME_MAX: Duration = Duration::from_secs(10);
