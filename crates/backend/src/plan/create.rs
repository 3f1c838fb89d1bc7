//! How a cluster is made: both phases of the reference in one plan, for every step is remembered.

use steps::engine::Plan;

use super::{
    Drafting, base, identities, inside, installation, network, offerings, prepare, step_names, validate,
};
use crate::{Context, OperationTiming};

/// The plan that makes a cluster; `workload` when it works as managed identities.
pub fn create(workload: bool, timing: OperationTiming) -> Plan<Context> {
    Drafting::at(timing)
        .when(workload, |draft| {
            draft
                .action(step_names::ENSURE_CLUSTER_MSI_CERTIFICATE, identities::ensure_cluster_certificate)
                .action(step_names::PLATFORM_WORKLOAD_IDENTITY_IDS, identities::persist_platform_ids)
        })
        .every(step_names::VALIDATE_RESOURCES, 15, timing.propagation_interval, validate::resources_of_new)
        .action(step_names::VALIDATE_ZONES, prepare::zones)
        .when(workload, |draft| {
            draft.action(step_names::CLUSTER_IDENTITY_IDS, identities::persist_cluster_ids)
        })
        .when(!workload, |draft| {
            draft.action(step_names::CLUSTER_SP_OBJECT_ID, identities::persist_object_id)
        })
        .action(step_names::ENSURE_ACR_TOKEN, prepare::registry_token)
        .action(step_names::ENSURE_INFRA_ID, prepare::infra_id)
        .action(step_names::ENSURE_SSH_KEY, prepare::ssh_key)
        .action(step_names::ENSURE_STORAGE_SUFFIX, prepare::storage_suffix)
        .action(step_names::POPULATE_MTU_SIZE, prepare::mtu)
        .until(step_names::CREATE_DNS, 10, network::zone)
        .when(workload, |draft| draft.action(step_names::CREATE_OIDC, identities::create_issuer))
        .until(step_names::ENSURE_RESOURCE_GROUP, 10, base::resource_group)
        .until(step_names::ENSURE_SERVICE_ENDPOINTS, 10, network::service_endpoints)
        .until(step_names::SET_MASTER_SUBNET_POLICIES, 10, network::master_subnet_policies)
        .until(step_names::DEPLOY_BASE_RESOURCE_TEMPLATE, 30, base::deploy)
        .when(workload, |draft| {
            draft.until(step_names::FEDERATE_IDENTITY_CREDENTIALS, 10, identities::federate)
        })
        .until(step_names::ATTACH_NSGS, 10, network::attach_security_groups)
        .until(step_names::UPDATE_API_IP_EARLY, 10, network::api_address)
        .until(step_names::CREATE_OR_UPDATE_ROUTER_IP_EARLY, 10, network::ingress_address)
        .until(step_names::CREATE_API_SERVER_PRIVATE_ENDPOINT, 10, network::private_endpoint)
        .until(step_names::CREATE_CERTIFICATES, 30, prepare::certificates)
        .action(step_names::RUN_INSTALLER, installation::order)
        // The real limit is the deadline that the step before left; this one is for who waits without one.
        .until(step_names::CLUSTER_INSTALLATION_COMPLETE, 120, installation::complete)
        .action(step_names::GENERATE_KUBECONFIGS, installation::kubeconfigs)
        .action(step_names::ENSURE_BILLING_RECORD, prepare::billing)
        .until(step_names::API_SERVERS_READY, 30, inside::api_servers_ready)
        .until(step_names::REMOVE_BOOTSTRAP, 15, installation::remove_bootstrap)
        .until(step_names::API_SERVERS_READY_WITHOUT_BOOTSTRAP, 30, inside::api_servers_ready)
        .action(step_names::CONFIGURE_CERTIFICATES, inside::certificates)
        .action(step_names::CONFIGURE_API_SERVER_CERTIFICATE, inside::api_server_certificate)
        .until(step_names::API_SERVERS_READY_WITH_CERTIFICATE, 30, inside::api_servers_ready)
        .until(step_names::MINIMUM_WORKER_NODES_READY, 30, inside::minimum_worker_nodes_ready)
        .action(step_names::UPDATE_CONSOLE_BRANDING, offerings::brand_console)
        .until(step_names::OPERATOR_CONSOLE_READY, 20, inside::console_ready)
        .action(step_names::DISABLE_SAMPLES, offerings::disable_samples)
        .action(step_names::DISABLE_OPERATOR_HUB_SOURCES, offerings::disable_hub_sources)
        .action(step_names::DISABLE_UPDATES, inside::disable_updates)
        .until(step_names::CLUSTER_VERSION_READY, 30, inside::cluster_version_ready)
        .action(step_names::CONFIGURE_PULL_SECRET, inside::pull_secret)
        // Not every installer knows the credential.
        .when(!workload, |draft| draft.action(step_names::UPDATE_OPENSHIFT_SECRET, inside::credentials))
        .action(step_names::UPDATE_CLUSTER_DATA, inside::cluster_data)
        .action(step_names::CONFIGURE_INGRESS_CERTIFICATE, inside::ingress_certificate)
        .until(step_names::INGRESS_CONTROLLER_READY, 30, inside::ingress_controller_ready)
        .until(step_names::CLUSTER_OPERATORS_HAVE_SETTLED, 30, inside::operators_have_settled)
        .plan()
}
