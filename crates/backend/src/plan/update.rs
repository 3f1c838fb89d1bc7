//! How a cluster is changed as its customer asked: only by the steps that the difference between what is wanted and what is
//! recorded calls for, and by those that look after what runs out.

use api::doc::{Cluster, Identity, OutboundType};
use steps::engine::Plan;

use super::{Drafting, base, identities, inside, installation, prepare, step_names, validate};
use crate::{Context, OperationTiming};

/// What an update has to deal with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Affected {
    /// It works as managed identities.
    pub workload: bool,
    /// Its traffic leaves through our load balancer. Always looked at: an update that failed may have left addresses that
    /// nothing records.
    pub outbound: bool,
    /// Its names are in the service's zone, so that its certificates are ours.
    pub certificates: bool,
}

impl Affected {
    /// What a cluster's document tells.
    pub fn of(cluster: &Cluster) -> Affected {
        let Some(provisioned) = &cluster.provisioned else { return Affected::default() };
        let spec = &provisioned.spec;
        Affected {
            workload: matches!(spec.identity, Identity::Workload { .. }),
            outbound: spec.network.outbound_type == OutboundType::Loadbalancer,
            certificates: provisioned.is_domain_managed(),
        }
    }

    /// All there is, for tests.
    pub fn everything() -> Affected {
        Affected { workload: true, outbound: true, certificates: true }
    }
}

/// The plan that changes a cluster.
pub fn update(affected: &Affected, timing: OperationTiming) -> Plan<Context> {
    let Affected { workload, outbound, certificates } = *affected;
    Drafting::at(timing)
        .when(workload, |draft| {
            draft
                .action(step_names::ENSURE_CLUSTER_MSI_CERTIFICATE, identities::ensure_cluster_certificate)
                .action(step_names::PLATFORM_WORKLOAD_IDENTITY_IDS, identities::persist_platform_ids)
        })
        .every(step_names::VALIDATE_RESOURCES, 15, timing.propagation_interval, validate::resources)
        .when(workload, |draft| {
            draft
                .action(step_names::CLUSTER_IDENTITY_IDS, identities::persist_cluster_ids)
                .action(step_names::ENSURE_PLATFORM_WORKLOAD_IDENTITY_RBAC, base::assign_roles)
                .until(step_names::FEDERATE_IDENTITY_CREDENTIALS, 10, identities::federate)
        })
        .when(!workload, |draft| {
            draft
                .action(step_names::FIXUP_CLUSTER_SP_OBJECT_ID, identities::persist_object_id)
                .action(step_names::CREATE_OR_UPDATE_CLUSTER_SERVICE_PRINCIPAL_RBAC, base::assign_roles)
        })
        .until(step_names::START_VMS, 20, installation::start_machines)
        .until(step_names::API_SERVERS_READY, 30, inside::api_servers_ready)
        .action(step_names::ROTATE_ACR_TOKEN_PASSWORD, prepare::rotate_registry_token)
        .when(certificates, |draft| {
            draft
                .action(step_names::CONFIGURE_CERTIFICATES, inside::certificates)
                .action(step_names::CONFIGURE_API_SERVER_CERTIFICATE, inside::api_server_certificate)
                .action(step_names::CONFIGURE_INGRESS_CERTIFICATE, inside::ingress_certificate)
        })
        .when(outbound, |draft| {
            draft.until(step_names::RECONCILE_LOAD_BALANCER_PROFILE, 20, base::reconcile_outbound)
        })
        .action(step_names::CONFIGURE_PULL_SECRET, inside::pull_secret)
        .when(!workload, |draft| draft.action(step_names::UPDATE_OPENSHIFT_SECRET, inside::credentials))
        .action(step_names::UPDATE_CLUSTER_DATA, inside::cluster_data)
        .plan()
}
