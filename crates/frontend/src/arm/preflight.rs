//! Preflight of a deployment: the validation rules that need neither a cloud nor a write. Nothing is stored.

use api::admin::ErrorBody;
use api::doc::Cluster;
use api::doc::secrets::PULL_SECRET;
use api::rest::{
    ApiVersion, CLUSTER_TYPE, FieldError, FieldErrorCode, PreflightStatus, apply_draft, check_unchanged,
    match_roles, validate,
};
use api::secret::Secret;
use axum::extract::State;
use serde_json::{Map, Value};

use super::params::{GroupPath, Version};
use super::{ArmState, version, write};
use crate::wire::{ApiError, ApiRequest, ApiResponse, ResourceId};

/// Checks the resources of a deployment. The status is 200 also when a check fails.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/deployments/{deploymentName}/preflight",
    operation_id = "Deployments_Preflight", tag = "resource manager",
    params(GroupPath, Version, ("deploymentName" = String, Path, description = "The deployment.")), request_body = Object,
    responses((status = 200, description = "Whether it would be accepted.", body = PreflightStatus))
)]
pub(super) async fn preflight(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    request.check_media()?;
    version(&request)?;
    let outcome = match request.object() {
        Ok(body) => look(&state, &request, &body).await?,
        Err(_) => Err(content("The body is not valid JSON.")),
    };
    let (status, error) = match outcome {
        Ok(()) => ("Succeeded", None),
        Err(FieldError { code, target, message }) => {
            ("Failed", Some(ErrorBody { code: code.as_str().to_owned(), message, target }))
        }
    };
    Ok(ApiResponse::ok(&PreflightStatus { status: status.to_owned(), error }))
}

fn content(message: &str) -> FieldError {
    FieldError::new(FieldErrorCode::InvalidRequestContent, "", message)
}

/// The first error in the resources.
async fn look(
    state: &ArmState,
    request: &ApiRequest,
    body: &Value,
) -> Result<Result<(), FieldError>, ApiError> {
    let Some(resources) = body["resources"].as_array() else {
        return Ok(Err(content("The member resources must be a list.")));
    };
    for resource in resources {
        let Value::Object(members) = resource else {
            return Ok(Err(content("Each of the resources must be an object.")));
        };
        let kind = resource["type"].as_str().unwrap_or_default();
        if kind.eq_ignore_ascii_case(CLUSTER_TYPE)
            && let Err(wrong) = one(state, request, members).await?
        {
            return Ok(Err(wrong));
        }
    }
    Ok(Ok(()))
}

/// The error in one cluster of a deployment.
async fn one(
    state: &ArmState,
    request: &ApiRequest,
    members: &Map<String, Value>,
) -> Result<Result<(), FieldError>, ApiError> {
    let word = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(version) = ApiVersion::named(word("apiVersion")) else {
        return Ok(Err(content("The member apiVersion of a cluster must name a version of this provider.")));
    };
    let path = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{CLUSTER_TYPE}/{}",
        request.path_param("subscriptionId"),
        request.path_param("resourceGroupName"),
        word("name")
    );
    let Ok(id) = ResourceId::within(&path) else {
        return Ok(Err(content("The member name of a cluster must be a valid name.")));
    };
    // Members of the template, not of the resource.
    let mut body = members.clone();
    for name in ["apiVersion", "dependsOn", "scope", "condition", "comments"] {
        body.remove(name);
    }
    let body = Value::Object(body);
    let stored = state.store.clusters().find(&id.path).await?;
    Ok(match &stored {
        Some(read) if read.document.provisioned.is_some() => {
            let secret = state.reader().secret(read.uuid, PULL_SECRET).await?;
            change(state, version, &id, &read.document, secret.as_ref(), &body)
        }
        _ => creation(state, version, &id, body),
    })
}

/// The validation of a PUT that creates this cluster, in the same order.
fn creation(state: &ArmState, version: ApiVersion, id: &ResourceId, body: Value) -> Result<(), FieldError> {
    let known = state.install_catalog.current();
    let external = version.read(write::with_default_version(body, &known))?;
    let draft = external.draft();
    validate(&draft, &state.validation_context(&id.spelled, None))?;
    let mut cluster = write::blank(id, state.clock.now());
    apply_draft(&draft, &mut cluster);
    let Some(spec) = cluster.provisioned.as_deref().map(|it| &it.spec) else { return Ok(()) };
    match_roles(&spec.identity, &spec.version, &known.role_sets)?;
    write::check_enabled(&spec.version, &known)
}

/// The validation of a PUT that changes this cluster, in the same order.
fn change(
    state: &ArmState,
    version: ApiVersion,
    id: &ResourceId,
    stored: &Cluster,
    pull_secret: Option<&Secret<Vec<u8>>>,
    body: &Value,
) -> Result<(), FieldError> {
    let external = write::proposal(version, stored, body)?;
    let draft = external.draft();
    validate(&draft, &state.validation_context(&id.spelled, Some(stored)))?;
    check_unchanged(&version.show(stored).value(), &external.value())?;
    write::same_pull_secret(&draft, pull_secret)?;
    let mut cluster = stored.clone();
    apply_draft(&draft, &mut cluster);
    let Some(spec) = cluster.provisioned.as_deref().map(|it| &it.spec) else { return Ok(()) };
    let running = stored.installed_version().unwrap_or_default();
    match_roles(&spec.identity, running, &state.install_catalog.current().role_sets)
}
