//! The versions that can be installed, in the admin form.

use api::doc::Version;
use api::rest::Semver;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use store::{DesiredState, StoreError, Transaction, VersionedDocument};
use utoipa::ToSchema;
use uuid::Uuid;

use super::AdminState;
use super::params::{MaybeVersion, Reason};
use crate::wire::{ApiError, ApiRequest, ApiResponse, WRITE_ATTEMPTS_MAX};

/// A version in the admin form.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AdminOpenShiftVersion)]
pub(super) struct VersionForm {
    /// Its properties.
    properties: VersionProperties,
}

/// The properties of a version.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = AdminOpenShiftVersionProperties)]
pub(super) struct VersionProperties {
    /// The version, as `4.19.14`.
    version: String,
    /// The release image.
    open_shift_pullspec: String,
    /// The installer image.
    installer_pullspec: String,
    /// Whether customers may choose it.
    enabled: bool,
    /// Whether clusters get it when the customer names none.
    default: bool,
}

/// All versions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminOpenShiftVersionList)]
pub(super) struct VersionList {
    /// In ascending order.
    value: Vec<VersionForm>,
}

fn form(version: &Version) -> VersionForm {
    VersionForm {
        properties: VersionProperties {
            version: version.version.clone(),
            open_shift_pullspec: version.openshift_pullspec.clone(),
            installer_pullspec: version.installer_pullspec.clone().unwrap_or_default(),
            enabled: version.enabled,
            default: version.default,
        },
    }
}

/// Lists all versions, including those that customers may not choose.
#[utoipa::path(
    get, path = "/admin/versions", operation_id = "listVersions", tag = "versions",
    params(MaybeVersion),
    responses((status = 200, description = "All of them, in ascending order.", body = VersionList))
)]
pub(super) async fn list(State(state): State<AdminState>, _: ApiRequest) -> Result<ApiResponse, ApiError> {
    state.install_catalog.load().await?;
    let value = state.install_catalog.current().versions.iter().map(form).collect();
    Ok(ApiResponse::ok(&VersionList { value }))
}

/// Stores a version. At most one is the default: a new default replaces the previous one.
#[utoipa::path(
    put, path = "/admin/versions", operation_id = "putVersion", tag = "versions",
    params(MaybeVersion, Reason), request_body = VersionForm,
    responses(
        (status = 200, description = "It was changed.", body = VersionForm),
        (status = 201, description = "It was created.", body = VersionForm),
        (status = 409, description = "It was changed by another request at the same time."),
    )
)]
pub(super) async fn put(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let wanted = wanted(request.json::<VersionForm>()?.properties)?;
    let by = request.by(None)?;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let everything = store::ListOptions { limit: store::PAGE_MAX, ..store::ListOptions::default() };
        let all = state.store.versions().list(everything).await?.items;
        let found = all.iter().find(|read| read.document.version == wanted.version);
        if found.is_some_and(|read| read.document.default) && !wanted.enabled {
            return Err(disabled_default());
        }
        let mut transaction = match found {
            Some(read) => Transaction::new().update(read, &wanted, DesiredState::Changed, &by)?,
            None => Transaction::new().create(Uuid::now_v7(), &wanted, &by)?,
        };
        let is_other =
            |read: &&VersionedDocument<Version>| wanted.default && read.document.version != wanted.version;
        for read in all.iter().filter(is_other).filter(|read| read.document.default) {
            let plain = Version { default: false, ..read.document.clone() };
            transaction = transaction.update(read, &plain, DesiredState::Changed, &by)?;
        }
        match state.store.commit(transaction).await {
            Ok(_) => {
                state.install_catalog.load().await?;
                return Ok(ApiResponse::put(found.is_none(), &form(&wanted)));
            }
            Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(ApiError::contended())
}

fn disabled_default() -> ApiError {
    ApiError::invalid_parameter(
        "properties.enabled",
        "The default version cannot be disabled; make another the default first.",
    )
}

fn wanted(given: VersionProperties) -> Result<Version, ApiError> {
    for (name, value) in [
        ("version", &given.version),
        ("openShiftPullspec", &given.open_shift_pullspec),
        ("installerPullspec", &given.installer_pullspec),
    ] {
        if value.is_empty() {
            return Err(ApiError::invalid_parameter(format!("properties.{name}"), "Must be provided."));
        }
        if value.len() > 500 || value.contains(char::is_control) {
            let message = "Must be text of at most 500 bytes without control characters.";
            return Err(ApiError::invalid_parameter(format!("properties.{name}"), message));
        }
    }
    if given.version.parse::<Semver>().is_err() {
        return Err(ApiError::invalid_parameter("properties.version", "Must be a version such as 4.19.14."));
    }
    if given.default && !given.enabled {
        return Err(disabled_default());
    }
    Ok(Version {
        version: given.version,
        openshift_pullspec: given.open_shift_pullspec,
        installer_pullspec: Some(given.installer_pullspec),
        enabled: given.enabled,
        default: given.default,
    })
}
