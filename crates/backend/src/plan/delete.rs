//! How a cluster is removed, in whatever state it is: first whoever still makes something, then what others hold, then what is
//! in the group level by level, then what is elsewhere. What is not there is gone.

use steps::engine::Plan;

use super::{Drafting, teardown};
use crate::{Context, OperationTiming};

/// The plan that removes a cluster; `workload` when it works as managed identities.
pub fn delete(workload: bool, timing: OperationTiming) -> Plan<Context> {
    Drafting::at(timing)
        .enduring()
        // Before all else: an installer that goes on would make what is being removed.
        .action("stop-installer", teardown::stop_installer)
        .until(teardown::OWNED_BY, 10, teardown::ensure_group)
        .until("delete-dns", 10, teardown::names)
        .until("delete-private-endpoint", 10, teardown::private_endpoint)
        .action("delete-role-assignments", teardown::role_assignments)
        .until("delete-machines", 30, teardown::machines)
        .until("delete-resources", 30, teardown::resources)
        .until("detach-nsgs", 10, teardown::detach_security_groups)
        .until("delete-nsgs", 10, teardown::security_groups)
        .until("delete-resource-group", 30, teardown::resource_group)
        .when(workload, |draft| {
            draft
                .action("delete-federated-credentials", teardown::federated_credentials)
                .action("delete-cluster-msi-certificate", teardown::identity_certificate)
        })
        .action("delete-certificates", teardown::certificates)
        .action("delete-acr-token", teardown::registry_token)
        .action("end-billing", teardown::billing)
        .plan()
}
