//! Parameters that several routes share, as the OpenAPI document describes them. Requests are read by `wire`; these types
//! only tell of it.
#![expect(dead_code, reason = "the fields are read by the macro that describes them")]

use utoipa::{IntoParams, ToSchema};

/// The path of a cluster under `/admin`.
pub(crate) const CLUSTER: &str = "/admin/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}";

/// Which cluster.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ClusterPath {
    /// The subscription.
    #[param(rename = "subscriptionId", format = Uuid)]
    subscription_id: String,
    /// The resource group.
    #[param(rename = "resourceGroupName", pattern = "^[-a-zA-Z0-9_().]{0,89}[-a-zA-Z0-9_()]$")]
    resource_group_name: String,
    /// The cluster's name.
    #[param(rename = "resourceName", pattern = "^[-a-zA-Z0-9_().]{0,89}[-a-zA-Z0-9_()]$")]
    resource_name: String,
}

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

/// The version of what is changed.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfMatch {
    /// Only if it still is at the version that this ETag names; 412 otherwise.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}
