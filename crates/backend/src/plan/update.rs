//! The plan of an update: the steps that the difference between the desired and the recorded state requires, and those that
//! renew certificates and tokens before they expire.

use api::doc::{Cluster, Identity, OutboundType};
use steps::engine::Plan;

use super::{PlanBuilder, base, identities, in_cluster, installation, prepare, step_names, validate};
use crate::{Context, OperationTiming};

/// The parts of a cluster that an update includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpdateScope {
    /// The cluster uses managed identities.
    pub workload: bool,
    /// Outbound traffic uses the service's load balancer. Always reconciled: a failed update may have left addresses that are not
    /// recorded.
    pub outbound: bool,
    /// The cluster's DNS names are in the service's zone, so that the service issues its certificates.
    pub certificates: bool,
}

impl UpdateScope {
    /// The scope of an update of this cluster.
    pub fn from_cluster(cluster: &Cluster) -> UpdateScope {
        let Some(provisioned) = &cluster.provisioned else { return UpdateScope::default() };
        let spec = &provisioned.spec;
        UpdateScope {
            workload: matches!(spec.identity, Identity::Workload { .. }),
            outbound: spec.network.outbound_type == OutboundType::Loadbalancer,
            certificates: provisioned.is_domain_managed(),
        }
    }

    /// Every part, for tests.
    pub fn everything() -> UpdateScope {
        UpdateScope { workload: true, outbound: true, certificates: true }
    }
}

/// The plan that updates a cluster.
pub fn update(scope: &UpdateScope, timing: OperationTiming) -> Plan<Context> {
    let UpdateScope { workload, outbound, certificates } = *scope;
    PlanBuilder::new(timing)
        .when(workload, |draft| {
            draft
                .action(step_names::ENSURE_CLUSTER_MSI_CERTIFICATE, identities::ensure_cluster_certificate)
                .action(step_names::PLATFORM_WORKLOAD_IDENTITY_IDS, identities::persist_platform_ids)
        })
        .wait_with_interval(
            step_names::VALIDATE_RESOURCES,
            15,
            timing.propagation_interval,
            validate::resources,
        )
        .when(workload, |draft| {
            draft
                .action(step_names::CLUSTER_IDENTITY_IDS, identities::persist_cluster_ids)
                .action(step_names::ENSURE_PLATFORM_WORKLOAD_IDENTITY_RBAC, base::assign_roles)
                .wait(step_names::FEDERATE_IDENTITY_CREDENTIALS, 10, identities::federate)
        })
        .when(!workload, |draft| {
            draft
                .action(step_names::FIXUP_CLUSTER_SP_OBJECT_ID, identities::persist_object_id)
                .action(step_names::CREATE_OR_UPDATE_CLUSTER_SERVICE_PRINCIPAL_RBAC, base::assign_roles)
        })
        .wait(step_names::START_VMS, 20, installation::start_machines)
        .wait(step_names::API_SERVERS_READY, 30, in_cluster::api_servers_ready)
        .action(step_names::ROTATE_ACR_TOKEN_PASSWORD, prepare::rotate_registry_token)
        .when(certificates, |draft| {
            draft
                .action(step_names::CONFIGURE_CERTIFICATES, in_cluster::certificates)
                .action(step_names::CONFIGURE_API_SERVER_CERTIFICATE, in_cluster::api_server_certificate)
                .action(step_names::CONFIGURE_INGRESS_CERTIFICATE, in_cluster::ingress_certificate)
        })
        .when(outbound, |draft| {
            draft.wait(step_names::RECONCILE_LOAD_BALANCER_PROFILE, 20, base::reconcile_outbound)
        })
        .action(step_names::CONFIGURE_PULL_SECRET, in_cluster::pull_secret)
        .when(!workload, |draft| draft.action(step_names::UPDATE_OPENSHIFT_SECRET, in_cluster::credentials))
        .action(step_names::UPDATE_CLUSTER_DATA, in_cluster::cluster_data)
        .build()
}
