//! Names of the steps of operations. They are stored in checkpoints and used in metrics, so that a name, once released, stays.
//!
//! Plans accept these constants only, and the messages for customers about steps that took too long refer to the same constants:
//! a step that is renamed keeps its message.

use api::doc::StepName;

pub(crate) const API_SERVERS_READY: StepName = StepName::from_static("api-servers-ready");
pub(crate) const API_SERVERS_READY_WITHOUT_BOOTSTRAP: StepName =
    StepName::from_static("api-servers-ready-without-bootstrap");
pub(crate) const API_SERVERS_READY_WITH_CERTIFICATE: StepName =
    StepName::from_static("api-servers-ready-with-certificate");
pub(crate) const ATTACH_NSGS: StepName = StepName::from_static("attach-nsgs");
pub(crate) const CLUSTER_IDENTITY_IDS: StepName = StepName::from_static("cluster-identity-ids");
pub(crate) const CLUSTER_INSTALLATION_COMPLETE: StepName =
    StepName::from_static("cluster-installation-complete");
pub(crate) const CLUSTER_OPERATORS_HAVE_SETTLED: StepName =
    StepName::from_static("cluster-operators-have-settled");
pub(crate) const CLUSTER_SP_OBJECT_ID: StepName = StepName::from_static("cluster-sp-object-id");
pub(crate) const CLUSTER_VERSION_READY: StepName = StepName::from_static("cluster-version-ready");
pub(crate) const CONFIGURE_API_SERVER_CERTIFICATE: StepName =
    StepName::from_static("configure-api-server-certificate");
pub(crate) const CONFIGURE_CERTIFICATES: StepName = StepName::from_static("configure-certificates");
pub(crate) const CONFIGURE_INGRESS_CERTIFICATE: StepName =
    StepName::from_static("configure-ingress-certificate");
pub(crate) const CONFIGURE_PULL_SECRET: StepName = StepName::from_static("configure-pull-secret");
pub(crate) const CREATE_API_SERVER_PRIVATE_ENDPOINT: StepName =
    StepName::from_static("create-api-server-private-endpoint");
pub(crate) const CREATE_CERTIFICATES: StepName = StepName::from_static("create-certificates");
pub(crate) const CREATE_DNS: StepName = StepName::from_static("create-dns");
pub(crate) const CREATE_OIDC: StepName = StepName::from_static("create-oidc");
pub(crate) const CREATE_OR_UPDATE_CLUSTER_SERVICE_PRINCIPAL_RBAC: StepName =
    StepName::from_static("create-or-update-cluster-service-principal-rbac");
pub(crate) const CREATE_OR_UPDATE_ROUTER_IP_EARLY: StepName =
    StepName::from_static("create-or-update-router-ip-early");
pub(crate) const DELETE_ACR_TOKEN: StepName = StepName::from_static("delete-acr-token");
pub(crate) const DELETE_CERTIFICATES: StepName = StepName::from_static("delete-certificates");
pub(crate) const DELETE_CLUSTERS: StepName = StepName::from_static("delete-clusters");
pub(crate) const DELETE_CLUSTER_MSI_CERTIFICATE: StepName =
    StepName::from_static("delete-cluster-msi-certificate");
pub(crate) const DELETE_DNS: StepName = StepName::from_static("delete-dns");
pub(crate) const DELETE_FEDERATED_CREDENTIALS: StepName =
    StepName::from_static("delete-federated-credentials");
pub(crate) const DELETE_MACHINES: StepName = StepName::from_static("delete-machines");
pub(crate) const DELETE_NSGS: StepName = StepName::from_static("delete-nsgs");
pub(crate) const DELETE_OIDC: StepName = StepName::from_static("delete-oidc");
pub(crate) const DELETE_PRIVATE_ENDPOINT: StepName = StepName::from_static("delete-private-endpoint");
pub(crate) const DELETE_RESOURCES: StepName = StepName::from_static("delete-resources");
pub(crate) const DELETE_RESOURCE_GROUP: StepName = StepName::from_static("delete-resource-group");
pub(crate) const DELETE_ROLE_ASSIGNMENTS: StepName = StepName::from_static("delete-role-assignments");
pub(crate) const DEPLOY_BASE_RESOURCE_TEMPLATE: StepName =
    StepName::from_static("deploy-base-resource-template");
pub(crate) const DETACH_NSGS: StepName = StepName::from_static("detach-nsgs");
pub(crate) const DISABLE_OPERATOR_HUB_SOURCES: StepName =
    StepName::from_static("disable-operator-hub-sources");
pub(crate) const DISABLE_SAMPLES: StepName = StepName::from_static("disable-samples");
pub(crate) const DISABLE_UPDATES: StepName = StepName::from_static("disable-updates");
pub(crate) const END_BILLING: StepName = StepName::from_static("end-billing");
pub(crate) const ENSURE_ACR_TOKEN: StepName = StepName::from_static("ensure-acr-token");
pub(crate) const ENSURE_BILLING_RECORD: StepName = StepName::from_static("ensure-billing-record");
pub(crate) const ENSURE_CLUSTER_MSI_CERTIFICATE: StepName =
    StepName::from_static("ensure-cluster-msi-certificate");
pub(crate) const ENSURE_INFRA_ID: StepName = StepName::from_static("ensure-infra-id");
pub(crate) const ENSURE_PLATFORM_WORKLOAD_IDENTITY_RBAC: StepName =
    StepName::from_static("ensure-platform-workload-identity-rbac");
pub(crate) const ENSURE_RESOURCE_GROUP: StepName = StepName::from_static("ensure-resource-group");
pub(crate) const ENSURE_SERVICE_ENDPOINTS: StepName = StepName::from_static("ensure-service-endpoints");
pub(crate) const ENSURE_SSH_KEY: StepName = StepName::from_static("ensure-ssh-key");
pub(crate) const ENSURE_STORAGE_SUFFIX: StepName = StepName::from_static("ensure-storage-suffix");
pub(crate) const FEDERATE_IDENTITY_CREDENTIALS: StepName =
    StepName::from_static("federate-identity-credentials");
pub(crate) const FIXUP_CLUSTER_SP_OBJECT_ID: StepName = StepName::from_static("fixup-cluster-sp-object-id");
pub(crate) const GENERATE_KUBECONFIGS: StepName = StepName::from_static("generate-kubeconfigs");
pub(crate) const INGRESS_CONTROLLER_READY: StepName = StepName::from_static("ingress-controller-ready");
pub(crate) const MINIMUM_WORKER_NODES_READY: StepName = StepName::from_static("minimum-worker-nodes-ready");
pub(crate) const OPERATOR_CONSOLE_READY: StepName = StepName::from_static("operator-console-ready");
pub(crate) const PLATFORM_WORKLOAD_IDENTITY_IDS: StepName =
    StepName::from_static("platform-workload-identity-ids");
pub(crate) const POPULATE_MTU_SIZE: StepName = StepName::from_static("populate-mtu-size");
pub(crate) const RECONCILE_LOAD_BALANCER_PROFILE: StepName =
    StepName::from_static("reconcile-load-balancer-profile");
pub(crate) const REMOVE_BOOTSTRAP: StepName = StepName::from_static("remove-bootstrap");
pub(crate) const ROTATE_ACR_TOKEN_PASSWORD: StepName = StepName::from_static("rotate-acr-token-password");
pub(crate) const RUN_INSTALLER: StepName = StepName::from_static("run-installer");
pub(crate) const SET_MASTER_SUBNET_POLICIES: StepName = StepName::from_static("set-master-subnet-policies");
pub(crate) const START_VMS: StepName = StepName::from_static("start-vms");
pub(crate) const STOP_INSTALLER: StepName = StepName::from_static("stop-installer");
pub(crate) const UPDATE_API_IP_EARLY: StepName = StepName::from_static("update-api-ip-early");
pub(crate) const UPDATE_CLUSTER_DATA: StepName = StepName::from_static("update-cluster-data");
pub(crate) const UPDATE_CONSOLE_BRANDING: StepName = StepName::from_static("update-console-branding");
pub(crate) const UPDATE_OPENSHIFT_SECRET: StepName = StepName::from_static("update-openshift-secret");
pub(crate) const VALIDATE_RESOURCES: StepName = StepName::from_static("validate-resources");
pub(crate) const VALIDATE_ZONES: StepName = StepName::from_static("validate-zones");
