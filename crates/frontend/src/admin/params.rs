//! Parameters that several routes share, as the OpenAPI document describes them. `wire` reads the requests; these types only describe
//! them.
#![expect(dead_code, reason = "the fields are read by the macro that describes them")]

use utoipa::{IntoParams, ToSchema};

/// The path of a cluster under `/admin`.
pub(crate) const CLUSTER: &str = "/admin/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}";

/// The version of the Admin API.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(crate) enum AdminVersion {
    /// The only version.
    Admin,
}

/// The required api-version.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Version {
    /// The version of the API.
    #[param(rename = "api-version", inline)]
    api_version: AdminVersion,
}

/// The optional api-version.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MaybeVersion {
    /// The version of the API.
    #[param(rename = "api-version", inline, nullable = false)]
    api_version: Option<AdminVersion>,
}

/// A page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Maximum number of items, up to 1000.
    #[param(minimum = 1, maximum = 4_294_967_295_i64)]
    limit: Option<i64>,
    /// The position from the `nextLink` of the page before.
    #[param(rename = "$skipToken")]
    skip_token: Option<String>,
}

/// The reason for a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Reason {
    /// The reason, for the history and the audit log.
    #[param(max_length = 2000)]
    reason: Option<String>,
}
