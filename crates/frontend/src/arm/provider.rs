//! The operations of the provider, from which the resource manager builds roles.

use api::rest::{ArmPage, OperationDisplay, OperationForm};

use super::PROVIDER;
use crate::wire::{ApiRequest, ApiResponse};

/// Name, resource, operation, description.
const OPERATIONS: [(&str, &str, &str, &str); 11] = [
    (
        "locations/operationresults/read",
        "locations/operationresults",
        "Read operation results",
        "Read the result of an asynchronous operation",
    ),
    (
        "locations/operationsstatus/read",
        "locations/operationsstatus",
        "Read operations status",
        "Read the status of an asynchronous operation",
    ),
    ("operations/read", "operations", "Read operations", "Read the operations of this provider"),
    ("openShiftClusters/read", "openShiftClusters", "Read OpenShift clusters", "Read any OpenShift cluster"),
    (
        "openShiftClusters/write",
        "openShiftClusters",
        "Write OpenShift clusters",
        "Write any OpenShift cluster",
    ),
    (
        "openShiftClusters/delete",
        "openShiftClusters",
        "Delete OpenShift clusters",
        "Delete any OpenShift cluster",
    ),
    (
        "openShiftClusters/listCredentials/action",
        "openShiftClusters",
        "List credentials",
        "List the credentials of an OpenShift cluster",
    ),
    (
        "openShiftClusters/listAdminCredentials/action",
        "openShiftClusters",
        "List admin credentials",
        "List the admin kubeconfig of an OpenShift cluster",
    ),
    (
        "openShiftClusters/detectors/read",
        "openShiftClusters/detectors",
        "Read detectors",
        "Read the detectors of an OpenShift cluster",
    ),
    (
        "locations/listPlatformWorkloadIdentityRoleSets/read",
        "locations/platformWorkloadIdentityRoleSets",
        "List role sets",
        "List the role sets of platform workload identities",
    ),
    (
        "locations/openshiftVersions/read",
        "locations/openshiftVersions",
        "List versions",
        "List the OpenShift versions that can be installed",
    ),
];

/// Lists the operations of the provider. Needs no api-version.
#[utoipa::path(
    get, path = "/providers/microsoft.redhatopenshift/operations",
    operation_id = "Operations_List", tag = "resource manager",
    responses((status = 200, description = "All of them.", body = ArmPage<OperationForm>))
)]
pub(super) async fn operations(_: ApiRequest) -> ApiResponse {
    let form = |(name, resource, operation, description): (&str, &str, &str, &str)| OperationForm {
        name: format!("{PROVIDER}/{name}"),
        display: OperationDisplay {
            provider: "Azure Red Hat OpenShift".to_owned(),
            resource: resource.to_owned(),
            operation: operation.to_owned(),
            description: description.to_owned(),
        },
        origin: "user,system".to_owned(),
    };
    ApiResponse::ok(&ArmPage { value: OPERATIONS.map(form).to_vec(), next_link: None })
}
