//! How a cluster is made: both phases of the reference in one plan, for every step is remembered.

use steps::engine::Plan;

use super::{Drafting, base, identities, inside, installation, network, offerings, prepare, validate};
use crate::{Context, OperationTiming};

/// The plan that makes a cluster; `workload` when it works as managed identities.
pub fn create(workload: bool, timing: OperationTiming) -> Plan<Context> {
    Drafting::at(timing)
        .when(workload, |draft| {
            draft
                .action("ensure-cluster-msi-certificate", identities::ensure_cluster_certificate)
                .action("platform-workload-identity-ids", identities::persist_platform_ids)
        })
        .every("validate-resources", 15, timing.propagation_interval, validate::resources_of_new)
        .action("validate-zones", prepare::zones)
        .when(workload, |draft| draft.action("cluster-identity-ids", identities::persist_cluster_ids))
        .when(!workload, |draft| draft.action("cluster-sp-object-id", identities::persist_object_id))
        .action("ensure-acr-token", prepare::registry_token)
        .action("ensure-infra-id", prepare::infra_id)
        .action("ensure-ssh-key", prepare::ssh_key)
        .action("ensure-storage-suffix", prepare::storage_suffix)
        .action("populate-mtu-size", prepare::mtu)
        .until("create-dns", 10, network::zone)
        .when(workload, |draft| draft.action("create-oidc", identities::create_issuer))
        .until("ensure-resource-group", 10, base::resource_group)
        .until("ensure-service-endpoints", 10, network::service_endpoints)
        .until("set-master-subnet-policies", 10, network::master_subnet_policies)
        .until("deploy-base-resource-template", 30, base::deploy)
        .when(workload, |draft| draft.until("federate-identity-credentials", 10, identities::federate))
        .until("attach-nsgs", 10, network::attach_security_groups)
        .until("update-api-ip-early", 10, network::api_address)
        .until("create-or-update-router-ip-early", 10, network::ingress_address)
        .until("create-api-server-private-endpoint", 10, network::private_endpoint)
        .until("create-certificates", 30, prepare::certificates)
        .action("run-installer", installation::order)
        // The real limit is the deadline that the step before left; this one is for who waits without one.
        .until("cluster-installation-complete", 120, installation::complete)
        .action("generate-kubeconfigs", installation::kubeconfigs)
        .action("ensure-billing-record", prepare::billing)
        .until("api-servers-ready", 30, inside::api_servers_ready)
        .until("remove-bootstrap", 15, installation::remove_bootstrap)
        .until("api-servers-ready-without-bootstrap", 30, inside::api_servers_ready)
        .action("configure-certificates", inside::certificates)
        .action("configure-api-server-certificate", inside::api_server_certificate)
        .until("api-servers-ready-with-certificate", 30, inside::api_servers_ready)
        .until("minimum-worker-nodes-ready", 30, inside::minimum_worker_nodes_ready)
        .action("update-console-branding", offerings::brand_console)
        .until("operator-console-ready", 20, inside::console_ready)
        .action("disable-samples", offerings::disable_samples)
        .action("disable-operator-hub-sources", offerings::disable_hub_sources)
        .action("disable-updates", inside::disable_updates)
        .until("cluster-version-ready", 30, inside::cluster_version_ready)
        .action("configure-pull-secret", inside::pull_secret)
        // Not every installer knows the credential.
        .when(!workload, |draft| draft.action("update-openshift-secret", inside::credentials))
        .action("update-cluster-data", inside::cluster_data)
        .action("configure-ingress-certificate", inside::ingress_certificate)
        .until("ingress-controller-ready", 30, inside::ingress_controller_ready)
        .until("cluster-operators-have-settled", 30, inside::operators_have_settled)
        .plan()
}
