//! Parameters that several routes share, as the OpenAPI document describes them. Requests are read by `wire`; these types
//! only tell of it.
#![expect(dead_code, reason = "the fields are read by the macro that describes them")]

use utoipa::{IntoParams, ToSchema};

/// The path of a cluster under `/admin`.
pub(crate) const CLUSTER: &str = "/admin/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}";

/// The only version that the Admin API has.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(crate) enum AdminVersion {
    /// It.
    Admin,
}

/// Where the version must be named.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Version {
    /// The version of the API.
    #[param(rename = "api-version", inline)]
    api_version: AdminVersion,
}

/// Where the version may be named.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MaybeVersion {
    /// The version of the API.
    #[param(rename = "api-version", inline, nullable = false)]
    api_version: Option<AdminVersion>,
}

/// Which page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most so many items; 1000 at most.
    #[param(minimum = 1, maximum = 4_294_967_295_i64)]
    limit: Option<i64>,
    /// Where to go on: from the `nextLink` of the page before.
    #[param(rename = "$skipToken")]
    skip_token: Option<String>,
}

/// Why something is changed.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Reason {
    /// Why, for the history and the audit log.
    #[param(max_length = 2000)]
    reason: Option<String>,
}
