//! Parameters that several routes share, as the OpenAPI document describes them.
#![expect(dead_code, reason = "the fields are read by the macro that describes them")]

use utoipa::{IntoParams, ToSchema};

/// The versions that customers may name.
#[derive(ToSchema)]
pub(super) enum CustomerVersion {
    /// Before managed identities.
    #[schema(rename = "2023-11-22")]
    V2023_11_22,
    /// The newest.
    #[schema(rename = "2025-07-25")]
    V2025_07_25,
}

/// The api-version.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Version {
    /// The version of the API.
    #[param(rename = "api-version", inline)]
    api_version: CustomerVersion,
}

/// The subscription.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct SubscriptionPath {
    /// The subscription.
    #[param(rename = "subscriptionId", format = Uuid)]
    subscription_id: String,
}

/// The resource group.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct GroupPath {
    /// The subscription.
    #[param(rename = "subscriptionId", format = Uuid)]
    subscription_id: String,
    /// The resource group.
    #[param(rename = "resourceGroupName", pattern = "^[-a-zA-Z0-9_().]{0,89}[-a-zA-Z0-9_()]$")]
    resource_group_name: String,
}

/// A location of a subscription.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct LocationPath {
    /// The subscription.
    #[param(rename = "subscriptionId", format = Uuid)]
    subscription_id: String,
    /// The location.
    location: String,
}

/// A page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// Maximum number of items; 10 when absent.
    #[param(minimum = 1, maximum = 4_294_967_295_i64)]
    limit: Option<i64>,
    /// From the `nextLink` of the page before.
    #[param(rename = "$skipToken")]
    skip_token: Option<String>,
}
