//! The managed identities that the platform's operators need, for each minor version. Old api-versions do not have them.

use api::doc::RoleSet;
use api::rest::{ArmPage, RoleForm, RoleSetForm, RoleSetProperties};
use axum::extract::State;
use http::StatusCode;

use super::params::{LocationPath, Version};
use super::{ArmState, PROVIDER, version};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code};

fn form(request: &ApiRequest, set: &RoleSet) -> RoleSetForm {
    let (subscription, location) = (request.path_param("subscriptionId"), request.path_param("location"));
    let name = &set.openshift_version;
    let kind = format!("{PROVIDER}/locations/platformWorkloadIdentityRoleSets");
    let role = |role: &api::doc::OperatorRole| RoleForm {
        operator_name: role.operator_name.clone(),
        role_definition_name: role.role_definition_name.clone(),
        role_definition_id: role.role_definition_id.clone(),
    };
    RoleSetForm {
        id: format!(
            "/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/platformWorkloadIdentityRoleSets/{name}"
        ),
        name: name.clone(),
        kind,
        properties: RoleSetProperties {
            open_shift_version: name.clone(),
            platform_workload_identity_roles: set.roles.iter().map(role).collect(),
        },
    }
}

/// Rejects api-versions without role sets.
fn check_version(request: &ApiRequest) -> Result<(), ApiError> {
    let version = version(request)?;
    if version.knows_identities() {
        return Ok(());
    }
    let message = format!("The api-version {} has no role sets.", version.as_str());
    Err(ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidResourceType, message).with_target("api-version"))
}

/// Lists the role sets.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/platformworkloadidentityrolesets",
    operation_id = "PlatformWorkloadIdentityRoleSets_List", tag = "resource manager",
    params(LocationPath, Version),
    responses((status = 200, description = "All of them, in ascending order.", body = ArmPage<RoleSetForm>))
)]
pub(super) async fn list(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    check_version(&request)?;
    let value: Vec<RoleSetForm> =
        state.install_catalog.current().role_sets.iter().map(|set| form(&request, set)).collect();
    Ok(ApiResponse::ok(&ArmPage { value, next_link: None }))
}

/// Shows the role set of one minor version.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/platformworkloadidentityrolesets/{openShiftMinorVersion}",
    operation_id = "PlatformWorkloadIdentityRoleSets_Get", tag = "resource manager",
    params(LocationPath, Version, ("openShiftMinorVersion" = String, Path, description = "As `4.19`.")),
    responses((status = 200, description = "The role set.", body = RoleSetForm))
)]
pub(super) async fn show(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    check_version(&request)?;
    let wanted = request.path_param("openShiftMinorVersion");
    let known = state.install_catalog.current();
    let found = known.role_sets.iter().find(|set| set.openshift_version == wanted).ok_or_else(|| {
        let message = format!("The role set of version '{wanted}' was not found.");
        ApiError::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
    })?;
    Ok(ApiResponse::ok(&form(&request, found)))
}
