//! How a cluster is changed as its customer asked: only by the steps that the difference between what is wanted and what is
//! recorded calls for, and by those that look after what runs out.

use api::doc::{Cluster, Identity, OutboundType};
use steps::engine::Plan;

use super::{Drafting, base, identities, inside, installation, prepare, validate};
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
                .action("ensure-cluster-msi-certificate", identities::ensure_cluster_certificate)
                .action("platform-workload-identity-ids", identities::persist_platform_ids)
        })
        .every("validate-resources", 15, timing.propagation_interval, validate::resources)
        .when(workload, |draft| {
            draft
                .action("cluster-identity-ids", identities::persist_cluster_ids)
                .action("ensure-platform-workload-identity-rbac", base::assign_roles)
                .until("federate-identity-credentials", 10, identities::federate)
        })
        .when(!workload, |draft| {
            draft
                .action("fixup-cluster-sp-object-id", identities::persist_object_id)
                .action("create-or-update-cluster-service-principal-rbac", base::assign_roles)
        })
        .until("start-vms", 20, installation::start_machines)
        .until("api-servers-ready", 30, inside::api_servers_ready)
        .action("rotate-acr-token-password", prepare::rotate_registry_token)
        .when(certificates, |draft| {
            draft
                .action("configure-certificates", inside::certificates)
                .action("configure-api-server-certificate", inside::api_server_certificate)
                .action("configure-ingress-certificate", inside::ingress_certificate)
        })
        .when(outbound, |draft| draft.until("reconcile-load-balancer-profile", 20, base::reconcile_outbound))
        .action("configure-pull-secret", inside::pull_secret)
        .when(!workload, |draft| draft.action("update-openshift-secret", inside::credentials))
        .action("update-cluster-data", inside::cluster_data)
        .plan()
}
