//! How a cluster is removed, in whatever state it is: first whoever still makes something, then what others hold, then what is
//! in the group level by level, then what is elsewhere. What is not there is gone.

use steps::engine::Plan;

use super::{Drafting, step_names, teardown};
use crate::{Context, OperationTiming};

/// The plan that removes a cluster; `workload` when it works as managed identities.
pub fn delete(workload: bool, timing: OperationTiming) -> Plan<Context> {
    Drafting::at(timing)
        .enduring()
        // Before all else: an installer that goes on would make what is being removed.
        .action(step_names::STOP_INSTALLER, teardown::stop_installer)
        .until(step_names::ENSURE_RESOURCE_GROUP, 10, teardown::ensure_group)
        .until(step_names::DELETE_DNS, 10, teardown::names)
        .until(step_names::DELETE_PRIVATE_ENDPOINT, 10, teardown::private_endpoint)
        .action(step_names::DELETE_ROLE_ASSIGNMENTS, teardown::role_assignments)
        .until(step_names::DELETE_MACHINES, 30, teardown::machines)
        .until(step_names::DELETE_RESOURCES, 30, teardown::resources)
        .until(step_names::DETACH_NSGS, 10, teardown::detach_security_groups)
        .until(step_names::DELETE_NSGS, 10, teardown::security_groups)
        .until(step_names::DELETE_RESOURCE_GROUP, 30, teardown::resource_group)
        .when(workload, |draft| {
            draft
                .action(step_names::DELETE_FEDERATED_CREDENTIALS, teardown::federated_credentials)
                .action(step_names::DELETE_CLUSTER_MSI_CERTIFICATE, teardown::identity_certificate)
        })
        .action(step_names::DELETE_CERTIFICATES, teardown::certificates)
        .action(step_names::DELETE_ACR_TOKEN, teardown::registry_token)
        .action(step_names::END_BILLING, teardown::billing)
        .plan()
}
