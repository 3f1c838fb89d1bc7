//! The versions that can be installed.

use api::rest::{ArmPage, OpenShiftVersion, OpenShiftVersionProperties};
use axum::extract::State;
use http::StatusCode;

use super::params::{LocationPath, Version};
use super::{ArmState, PROVIDER, version};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code};

fn form(request: &ApiRequest, version: &str) -> OpenShiftVersion {
    let (subscription, location) = (request.path_param("subscriptionId"), request.path_param("location"));
    OpenShiftVersion {
        id: format!(
            "/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/openShiftVersions/{version}"
        ),
        name: version.to_owned(),
        kind: format!("{PROVIDER}/locations/openShiftVersions"),
        properties: OpenShiftVersionProperties { version: version.to_owned() },
    }
}

/// Lists the versions that can be installed.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/openshiftversions",
    operation_id = "OpenShiftVersions_List", tag = "resource manager",
    params(LocationPath, Version),
    responses((status = 200, description = "All of them, in ascending order.", body = ArmPage<OpenShiftVersion>))
)]
pub(super) async fn list(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    version(&request)?;
    let known = state.install_catalog.current();
    let value = known.enabled().map(|it| form(&request, &it.version)).collect();
    Ok(ApiResponse::ok(&ArmPage::<OpenShiftVersion> { value, next_link: None }))
}

/// Shows one version.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/locations/{location}/openshiftversions/{openShiftVersion}",
    operation_id = "OpenShiftVersions_Get", tag = "resource manager",
    params(LocationPath, Version, ("openShiftVersion" = String, Path, description = "The version.")),
    responses((status = 200, description = "The version.", body = OpenShiftVersion))
)]
pub(super) async fn show(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    version(&request)?;
    let wanted = request.path_param("openShiftVersion");
    let known = state.install_catalog.current();
    let found = known.enabled().find(|it| it.version.eq_ignore_ascii_case(wanted));
    let found = found.ok_or_else(|| {
        let message = format!("The version '{wanted}' was not found.");
        ApiError::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
    })?;
    Ok(ApiResponse::ok(&form(&request, &found.version)))
}
