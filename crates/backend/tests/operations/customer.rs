//! The customer's resources in the simulated cloud, and the documents that the frontend writes for their requests.

use std::collections::BTreeMap;

use api::clock::Clock;
use api::doc::{
    Cluster, Document as _, Identity, Ingress, MasterPool, NetworkSpec, Operation, OperatorRole,
    OutboundType, PlatformIdentity, Provisioned, ProvisioningState, Record, RoleSet, Spec, Switch,
    SystemData, Verb, Visibility, WorkerPool, secrets,
};
use api::secret::Secret;
use cloud::{CloudError, Infrastructure as _, Properties, ResourceId, ResourceRequest};
use cloudsim::SimClient;
use cloudsim::settings::Rights;
use store::{AuditContext, Secrets, Store, StoreError, VersionedDocument};
use uuid::Uuid;

use crate::service::{LOCATION, service};

/// Creates a customer's resources for a cluster of this name (a group, a network with two subnets, a principal), and returns the
/// cluster's document and secrets as the frontend writes them.
pub(crate) async fn prepare(
    cloud: &SimClient,
    subscription: &str,
    name: &str,
    now: jiff::Timestamp,
) -> Result<(Cluster, Secrets), CloudError> {
    let group = ResourceId::group(subscription, &format!("{name}-rg"));
    let network = group.sibling("Microsoft.Network", "virtualNetworks", "vnet");
    let subnet = |prefix: &str| Properties::Subnet {
        address_prefix: prefix.to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: true,
    };
    let (master, worker) = (network.child("subnets", "master"), network.child("subnets", "worker"));
    for (id, properties) in [
        (group.clone(), Properties::ResourceGroup { managed_by: None }),
        (network.clone(), Properties::VirtualNetwork { address_space: vec!["10.0.0.0/22".to_owned()] }),
        (master.clone(), subnet("10.0.0.0/23")),
        (worker.clone(), subnet("10.0.2.0/23")),
    ] {
        cloud
            .azure()
            .put(ResourceRequest { id, location: LOCATION.to_owned(), tags: [].into(), properties })
            .await?;
    }
    let principal = cloud.create_principal(name, Rights::Everywhere).await?;
    let client_id = principal.principal.client_id;
    let managed = ResourceId::group(subscription, &format!("aro-{name}"));
    let id = group.sibling("Microsoft.RedHatOpenShift", "openShiftClusters", name);
    let spec = Spec {
        domain: name.to_owned(),
        version: "4.17.3".to_owned(),
        resource_group_id: managed.to_string(),
        fips: Switch::Disabled,
        identity: Identity::ServicePrincipal { client_id: client_id.clone() },
        network: NetworkSpec {
            pod_cidr: "10.128.0.0/14".to_owned(),
            service_cidr: "172.30.0.0/16".to_owned(),
            outbound_type: OutboundType::Loadbalancer,
            preconfigured_nsg: Switch::Disabled,
            managed_outbound_ips: Some(1),
        },
        master: MasterPool {
            vm_size: "Standard_D8s_v5".to_owned(),
            subnet_id: master.to_string(),
            encryption_at_host: Switch::Disabled,
            disk_encryption_set_id: None,
        },
        workers: vec![WorkerPool {
            name: "worker".to_owned(),
            vm_size: "Standard_D4s_v5".to_owned(),
            disk_size_gb: 128,
            subnet_id: worker.to_string(),
            count: 3,
            encryption_at_host: Switch::Disabled,
            disk_encryption_set_id: None,
        }],
        api_visibility: Visibility::Public,
        ingress: vec![Ingress { name: "default".to_owned(), visibility: Visibility::Public }],
    };
    let cluster = Cluster {
        subscription_id: subscription.to_owned(),
        name: name.to_owned(),
        location: LOCATION.to_owned(),
        credential: Some(client_id),
        managed_resource_group: Some(managed.key()),
        provisioned: Some(Box::new(Provisioned {
            tags: [].into(),
            system_data: SystemData::default(),
            spec,
            managed_domain: api::domain::managed(name, &service().domain),
            record: Record::default(),
            created_by: "test".to_owned(),
            provisioned_by: String::new(),
            bucket: 0,
            last_admin_update_error: None,
        })),
        ..Cluster::new(id.to_string(), ProvisioningState::Creating, now)
    };
    let secret = Secret::new(principal.secret.expose().as_bytes().to_vec());
    Ok((cluster, Secrets::from([(secrets::CLIENT_SECRET, secret)])))
}

/// As [`prepare`], for a cluster with managed identities: one of its own, and one for each of two operators.
pub(crate) async fn prepare_workload(
    cloud: &SimClient,
    subscription: &str,
    name: &str,
    now: jiff::Timestamp,
) -> Result<(Cluster, Secrets), CloudError> {
    let (mut cluster, _) = prepare(cloud, subscription, name, now).await?;
    let group = ResourceId::group(subscription, &format!("{name}-rg"));
    let identity = async |who: &str| {
        let id = group.sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", who);
        let properties = Properties::Identity {
            client_id: None,
            principal_id: None,
            tenant_id: None,
            federated: [].into(),
        };
        let location = LOCATION.to_owned();
        cloud
            .azure()
            .put(ResourceRequest { id: id.clone(), location, tags: [].into(), properties })
            .await
            .map(|_| id)
    };
    let own = identity("cluster").await?;
    let mut platform = BTreeMap::new();
    for operator in ["image-registry", "machine-api"] {
        let resource_id = identity(operator).await?.to_string();
        let unresolved = PlatformIdentity { resource_id, client_id: None, object_id: None };
        platform.insert(operator.to_owned(), unresolved);
    }
    cluster.credential = Some(own.key());
    if let Some(provisioned) = &mut cluster.provisioned {
        provisioned.spec.identity = Identity::Workload {
            resource_id: own.to_string(),
            tenant_id: None,
            identity_url: None,
            platform,
            upgradeable_to: None,
        };
    }
    Ok((cluster, Secrets::new()))
}

/// Writes the role sets with the service accounts of the identities of [`prepare_workload`].
pub(crate) async fn write_role_sets(store: &Store) -> Result<(), StoreError> {
    let role = |operator: &str, title: &str, accounts: &[&str]| OperatorRole {
        operator_name: operator.to_owned(),
        role_definition_name: format!("Azure Red Hat OpenShift {title} Operator"),
        role_definition_id: format!("/providers/Microsoft.Authorization/roleDefinitions/{operator}"),
        service_accounts: accounts.iter().map(|it| format!("system:serviceaccount:{it}")).collect(),
        secret_namespace: format!("openshift-{operator}"),
        secret_name: "cloud-credentials".to_owned(),
    };
    let registry =
        ["openshift-image-registry:cluster-image-registry-operator", "openshift-image-registry:registry"];
    let set = RoleSet {
        openshift_version: "4.17".to_owned(),
        roles: vec![
            role("image-registry", "Image Registry", &registry),
            role("machine-api", "Machine API", &["openshift-machine-api:machine-api-controllers"]),
        ],
    };
    store.collection::<RoleSet>().put(&set, None, &AuditContext::service("test")).await.map(drop)
}

fn operation(cluster: Uuid, path: String, verb: Verb, clock: &dyn Clock) -> Operation {
    let status = match verb {
        Verb::Create => ProvisioningState::Creating,
        Verb::Update => ProvisioningState::Updating,
        Verb::AdminUpdate => ProvisioningState::AdminUpdating,
        Verb::Delete => ProvisioningState::Deleting,
    };
    Operation {
        id: Uuid::now_v7(),
        cluster,
        cluster_path: path,
        verb,
        initial_status: status,
        status,
        start_time: clock.now(),
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: None,
        client_request_id: None,
    }
}

/// Requests a cluster as a PUT does; returns the cluster and its operation.
pub(crate) async fn create(
    store: &Store,
    cluster: &Cluster,
    secrets: &Secrets,
    clock: &dyn Clock,
) -> Result<(Uuid, Uuid), StoreError> {
    let uuid = Uuid::now_v7();
    let operation = operation(uuid, cluster.path(), Verb::Create, clock);
    let cluster = Cluster { operation: Some(operation.id), ..cluster.clone() };
    store.clusters().start_create(&cluster, &operation, secrets, &AuditContext::service("test")).await?;
    Ok((uuid, operation.id))
}

/// Requests an update or a delete of a cluster; returns its operation.
pub(crate) async fn change(
    store: &Store,
    read: &VersionedDocument<Cluster>,
    verb: Verb,
    clock: &dyn Clock,
    edit: impl FnOnce(&mut Cluster),
) -> Result<Uuid, StoreError> {
    let operation = operation(read.uuid, read.document.path(), verb, clock);
    let mut wanted = read.document.clone();
    edit(&mut wanted);
    wanted.provisioning_state = operation.initial_status;
    wanted.last_provisioning_state = Some(read.document.provisioning_state);
    wanted.operation = Some(operation.id);
    store
        .clusters()
        .start_update(read, &wanted, &operation, &Secrets::new(), &AuditContext::service("test"))
        .await?;
    Ok(operation.id)
}
