//! Parameters of routes of both APIs, as the OpenAPI document describes them. `wire` reads the requests; these types only describe
//! them.
#![expect(dead_code, reason = "the fields are read by the macro that describes them")]

use utoipa::IntoParams;

/// The cluster.
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

/// The expected version of a changed document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfMatch {
    /// The ETag that the document must still have; 412 otherwise.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}
