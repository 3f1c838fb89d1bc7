//! The plan that creates a cluster: both phases of the reference in one plan, because every completed step is checkpointed.

use steps::engine::Plan;

use super::{
    PlanBuilder, base, identities, in_cluster, installation, issuer, network, offerings, prepare, step_names,
    validate,
};
use crate::{Context, OperationTiming};

/// The plan that creates a cluster; `workload` if it uses managed identities.
pub fn create(workload: bool, timing: OperationTiming) -> Plan<Context> {
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
            validate::resources_before_create,
        )
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
        .wait(step_names::CREATE_DNS, 10, network::zone)
        .when(workload, |draft| draft.action(step_names::CREATE_OIDC, issuer::create))
        .wait(step_names::ENSURE_RESOURCE_GROUP, 10, base::resource_group)
        .wait(step_names::ENSURE_SERVICE_ENDPOINTS, 10, network::service_endpoints)
        .wait(step_names::SET_MASTER_SUBNET_POLICIES, 10, network::master_subnet_policies)
        .wait(step_names::DEPLOY_BASE_RESOURCE_TEMPLATE, 30, base::deploy)
        .when(workload, |draft| {
            draft.wait(step_names::FEDERATE_IDENTITY_CREDENTIALS, 10, identities::federate)
        })
        .wait(step_names::ATTACH_NSGS, 10, network::attach_security_groups)
        .wait(step_names::UPDATE_API_IP_EARLY, 10, network::api_address)
        .wait(step_names::CREATE_OR_UPDATE_ROUTER_IP_EARLY, 10, network::ingress_address)
        .wait(step_names::CREATE_API_SERVER_PRIVATE_ENDPOINT, 10, network::private_endpoint)
        .wait(step_names::CREATE_CERTIFICATES, 30, prepare::certificates)
        .action(step_names::RUN_INSTALLER, installation::start)
        // The step before records the effective deadline; this limit is for a checkpoint without one.
        .wait(step_names::CLUSTER_INSTALLATION_COMPLETE, 120, installation::complete)
        .action(step_names::GENERATE_KUBECONFIGS, installation::kubeconfigs)
        .action(step_names::ENSURE_BILLING_RECORD, prepare::billing)
        .wait(step_names::API_SERVERS_READY, 30, in_cluster::api_servers_ready)
        .wait(step_names::REMOVE_BOOTSTRAP, 15, installation::remove_bootstrap)
        .wait(step_names::API_SERVERS_READY_WITHOUT_BOOTSTRAP, 30, in_cluster::api_servers_ready)
        .action(step_names::CONFIGURE_CERTIFICATES, in_cluster::certificates)
        .action(step_names::CONFIGURE_API_SERVER_CERTIFICATE, in_cluster::api_server_certificate)
        .wait(step_names::API_SERVERS_READY_WITH_CERTIFICATE, 30, in_cluster::api_servers_ready)
        .wait(step_names::MINIMUM_WORKER_NODES_READY, 30, in_cluster::minimum_worker_nodes_ready)
        .action(step_names::UPDATE_CONSOLE_BRANDING, offerings::brand_console)
        .wait(step_names::OPERATOR_CONSOLE_READY, 20, in_cluster::console_ready)
        .action(step_names::DISABLE_SAMPLES, offerings::disable_samples)
        .action(step_names::DISABLE_OPERATOR_HUB_SOURCES, offerings::disable_hub_sources)
        .action(step_names::DISABLE_UPDATES, in_cluster::disable_updates)
        .wait(step_names::CLUSTER_VERSION_READY, 30, in_cluster::cluster_version_ready)
        .action(step_names::CONFIGURE_PULL_SECRET, in_cluster::pull_secret)
        // Not every installer writes the credential.
        .when(!workload, |draft| draft.action(step_names::UPDATE_OPENSHIFT_SECRET, in_cluster::credentials))
        .action(step_names::UPDATE_CLUSTER_DATA, in_cluster::cluster_data)
        .action(step_names::CONFIGURE_INGRESS_CERTIFICATE, in_cluster::ingress_certificate)
        .wait(step_names::INGRESS_CONTROLLER_READY, 30, in_cluster::ingress_controller_ready)
        .wait(step_names::CLUSTER_OPERATORS_HAVE_SETTLED, 30, in_cluster::operators_have_settled)
        .build()
}
