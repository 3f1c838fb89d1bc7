//! The role sets of platform workload identities in the admin form, and the supported VM sizes.

use api::doc::{OperatorRole, RoleSet};
use api::rest::{PoolRole, Semver, VmSize, vm_sizes};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AdminState;
use super::params::{MaybeVersion, Reason};
use crate::wire::{ApiError, ApiRequest, ApiResponse};

/// A role set in the admin form.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AdminRoleSet)]
pub(super) struct RoleSetForm {
    /// Its properties.
    properties: RoleSetProperties,
}

/// The properties of a role set.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = AdminRoleSetProperties)]
pub(super) struct RoleSetProperties {
    /// The minor version, as `4.19`.
    open_shift_version: String,
    /// The roles.
    platform_workload_identity_roles: Vec<RoleForm>,
}

/// The role of one operator.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = AdminRole)]
pub(super) struct RoleForm {
    /// The operator.
    operator_name: String,
    /// The role, in words.
    role_definition_name: String,
    /// The role's resource id.
    role_definition_id: String,
    /// The operator's service accounts.
    service_accounts: Vec<String>,
    /// Where the operator reads its identity.
    secret_location: SecretLocation,
}

/// Where a secret is.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecretLocation {
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
}

/// All role sets.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminRoleSetList)]
pub(super) struct RoleSetList {
    /// In ascending order.
    value: Vec<RoleSetForm>,
}

fn form(set: &RoleSet) -> RoleSetForm {
    let role = |role: &OperatorRole| RoleForm {
        operator_name: role.operator_name.clone(),
        role_definition_name: role.role_definition_name.clone(),
        role_definition_id: role.role_definition_id.clone(),
        service_accounts: role.service_accounts.clone(),
        secret_location: SecretLocation {
            namespace: role.secret_namespace.clone(),
            name: role.secret_name.clone(),
        },
    };
    RoleSetForm {
        properties: RoleSetProperties {
            open_shift_version: set.openshift_version.clone(),
            platform_workload_identity_roles: set.roles.iter().map(role).collect(),
        },
    }
}

/// Lists all role sets.
#[utoipa::path(
    get, path = "/admin/platformworkloadidentityrolesets", operation_id = "listRoleSets", tag = "versions",
    params(MaybeVersion),
    responses((status = 200, description = "All of them, in ascending order.", body = RoleSetList))
)]
pub(super) async fn list(State(state): State<AdminState>, _: ApiRequest) -> Result<ApiResponse, ApiError> {
    state.install_catalog.load().await?;
    let value = state.install_catalog.current().role_sets.iter().map(form).collect();
    Ok(ApiResponse::ok(&RoleSetList { value }))
}

/// Sets the role set of a minor version.
#[utoipa::path(
    put, path = "/admin/platformworkloadidentityrolesets", operation_id = "putRoleSet", tag = "versions",
    params(MaybeVersion, Reason), request_body = RoleSetForm,
    responses(
        (status = 200, description = "It was changed.", body = RoleSetForm),
        (status = 201, description = "It was created.", body = RoleSetForm),
        (status = 409, description = "It was changed by another request at the same time."),
    )
)]
pub(super) async fn put(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let wanted = wanted(request.json::<RoleSetForm>()?.properties)?;
    let by = request.by(None)?;
    let (_, _, is_new) = state.store.collection::<RoleSet>().put(&wanted, None, &by).await?;
    state.install_catalog.load().await?;
    Ok(ApiResponse::put(is_new, &form(&wanted)))
}

fn wanted(given: RoleSetProperties) -> Result<RoleSet, ApiError> {
    let missing = missing(&given);
    if !missing.is_empty() {
        return Err(ApiError::invalid_parameter(missing.join(", "), "Must be provided."));
    }
    if format!("{}.0", given.open_shift_version).parse::<Semver>().is_err() {
        return Err(ApiError::invalid_parameter(
            "properties.openShiftVersion",
            "Must be a minor version such as 4.19.",
        ));
    }
    let role = |role: RoleForm| OperatorRole {
        operator_name: role.operator_name,
        role_definition_name: role.role_definition_name,
        role_definition_id: role.role_definition_id,
        service_accounts: role.service_accounts,
        secret_namespace: role.secret_location.namespace,
        secret_name: role.secret_location.name,
    };
    let roles = given.platform_workload_identity_roles.into_iter().map(role).collect();
    Ok(RoleSet { openshift_version: given.open_shift_version, roles })
}

/// The paths of all members that are missing.
fn missing(given: &RoleSetProperties) -> Vec<String> {
    let mut missing = Vec::new();
    let mut need = |is_there: bool, path: String| {
        if !is_there {
            missing.push(path);
        }
    };
    const ROLES: &str = "properties.platformWorkloadIdentityRoles";
    need(!given.open_shift_version.is_empty(), "properties.openShiftVersion".to_owned());
    need(!given.platform_workload_identity_roles.is_empty(), ROLES.to_owned());
    for (at, role) in given.platform_workload_identity_roles.iter().enumerate() {
        let path = |name: &str| format!("{ROLES}[{at}].{name}");
        need(!role.operator_name.is_empty(), path("operatorName"));
        need(!role.role_definition_name.is_empty(), path("roleDefinitionName"));
        need(!role.role_definition_id.is_empty(), path("roleDefinitionId"));
        need(!role.service_accounts.is_empty(), path("serviceAccounts"));
        need(!role.secret_location.namespace.is_empty(), path("secretLocation.namespace"));
        need(!role.secret_location.name.is_empty(), path("secretLocation.name"));
    }
    missing
}

/// A supported VM size.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SizeForm {
    /// Its name.
    vm_size: String,
    /// The family whose quota it counts against.
    family: String,
    /// Its cores.
    core_count: u32,
    /// The first version that runs on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_version: Option<String>,
}

/// Lists the supported VM sizes of a role.
#[utoipa::path(
    get, path = "/admin/supportedvmsizes", operation_id = "listVmSizes", tag = "versions",
    params(MaybeVersion, ("vmRole" = String, Query, description = "`master` or `worker`.")),
    responses((status = 200, description = "All of them.", body = Vec<SizeForm>))
)]
pub(super) async fn sizes(_: State<AdminState>, request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let role = match request.query.get("vmRole")? {
        Some("master") => PoolRole::Master,
        Some("worker") => PoolRole::Worker,
        _ => return Err(ApiError::invalid_parameter("vmRole", "The role must be master or worker.")),
    };
    let form = |size: &VmSize| SizeForm {
        vm_size: size.name.clone(),
        family: size.family.to_owned(),
        core_count: size.cores,
        minimum_version: size.least_version.as_ref().map(ToString::to_string),
    };
    let sizes: Vec<SizeForm> = vm_sizes().iter().filter(|size| size.fits(role)).map(form).collect();
    Ok(ApiResponse::ok(&sizes))
}
