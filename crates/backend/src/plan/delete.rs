//! The plan that deletes a cluster in any state: first the installation is stopped, then references from elsewhere are removed, then
//! the resources of the group level by level, then resources outside the group. A missing resource counts as deleted.

use steps::engine::Plan;

use super::{PlanBuilder, issuer, step_names, teardown};
use crate::{Context, OperationTiming};

/// The plan that deletes a cluster; `workload` if it uses managed identities.
pub fn delete(workload: bool, timing: OperationTiming) -> Plan<Context> {
    PlanBuilder::new(timing)
        .persistent()
        // First: a running installer would recreate what is being deleted.
        .action(step_names::STOP_INSTALLER, teardown::stop_installer)
        .wait(step_names::ENSURE_RESOURCE_GROUP, 10, teardown::ensure_group)
        .wait(step_names::DELETE_DNS, 10, teardown::names)
        .wait(step_names::DELETE_PRIVATE_ENDPOINT, 10, teardown::private_endpoint)
        .when(workload, |draft| draft.action(step_names::DELETE_OIDC, issuer::withdraw))
        .action(step_names::DELETE_ROLE_ASSIGNMENTS, teardown::role_assignments)
        .wait(step_names::DELETE_MACHINES, 30, teardown::machines)
        .wait(step_names::DELETE_RESOURCES, 30, teardown::resources)
        .wait(step_names::DETACH_NSGS, 10, teardown::detach_security_groups)
        .wait(step_names::DELETE_NSGS, 10, teardown::security_groups)
        .wait(step_names::DELETE_RESOURCE_GROUP, 30, teardown::resource_group)
        .when(workload, |draft| {
            draft
                .action(step_names::DELETE_FEDERATED_CREDENTIALS, teardown::federated_credentials)
                .action(step_names::DELETE_CLUSTER_MSI_CERTIFICATE, teardown::identity_certificate)
        })
        .action(step_names::DELETE_CERTIFICATES, teardown::certificates)
        .action(step_names::DELETE_ACR_TOKEN, teardown::registry_token)
        .action(step_names::END_BILLING, teardown::billing)
        .build()
}
