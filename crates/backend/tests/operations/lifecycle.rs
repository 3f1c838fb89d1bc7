//! Clusters from creation to deletion.

use api::doc::{
    Cluster, Document as _, Identity, ProvisioningState, Switch, Verb, WorkerPool, WorkerPoolStatus, secrets,
};
use api::install::InstallStage;
use cloud::{Identities as _, Infrastructure as _, Properties, ResourceId, ResourceKind, ResourceRequest};
use cloudsim::settings::{Denial, Rights, Setting};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use steps::engine::{Journal, progress};
use steps::lifecycle::certificates::object;
use store::{Secrets, StoreError};
use uuid::Uuid;

use crate::customer;
use crate::environment::{SUBSCRIPTION, TestEnvironment, eventually};
use crate::service::LOCATION;
use crate::service::service;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_updated_and_deleted_and_leaves_no_resources() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create("one").await;
    environment.succeeds(made).await;
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!((cluster.provisioning_state, cluster.operation), (ProvisioningState::Succeeded, None));
    let record = cluster.provisioned.as_ref().unwrap().record.clone();
    assert!(record.infra_id.is_some() && record.api_ip.is_some() && record.private_endpoint_ip.is_some());
    assert_eq!(record.running_version.as_deref(), Some("4.17.3"));
    assert_eq!(record.effective_outbound_ips.len(), 1);
    assert!(record.api_certificate_expires.is_some() && record.ingress_certificate_expires.is_some());
    for name in [secrets::KUBECONFIG, secrets::CUSTOMER_KUBECONFIG, secrets::KUBEADMIN_PASSWORD] {
        assert!(environment.store.secret(id, name).await.unwrap().is_some(), "{name}");
    }
    let managed = ResourceId::group(SUBSCRIPTION, "aro-one");
    let machines = environment.cloud.azure().list(&managed).await.unwrap();
    let count = machines.iter().filter(|it| it.properties.kind() == ResourceKind::Machine).count();
    assert_eq!(count, 6, "three masters, three workers and no bootstrap machine");
    let billing = format!("/billing/{id}");
    let billed = environment.store.billing().find(&billing).await.unwrap().unwrap().document;
    assert_eq!((billed.cluster_path, billed.deletion_time), (cluster.path(), None));
    assert_eq!(
        (billed.managed_resource_group, billed.infra_id),
        (cluster.managed_resource_group, record.infra_id.clone())
    );
    // Without a pull secret, samples and operators whose images cannot be pulled are disabled.
    let life = environment.life(id);
    let link = life.link().await.unwrap();
    let spec = async |version: &str, kind: &str| {
        let target = object(&link, version, kind, None, "cluster").await.unwrap();
        link.get(&target).await.unwrap().unwrap().data["spec"].clone()
    };
    assert_eq!(spec("samples.operator.openshift.io/v1", "Config").await["managementState"], "Removed");
    assert_eq!(spec("config.openshift.io/v1", "OperatorHub").await["sources"][1]["disabled"], true);
    assert_eq!(spec("operator.openshift.io/v1", "Console").await["customization"]["brand"], "azure");

    let changed = environment
        .change(id, Verb::Update, |wanted| {
            wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(3);
        })
        .await;
    environment.succeeds(changed).await;
    let after = environment.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    assert_eq!(after.effective_outbound_ips.len(), 3);
    assert_eq!(after.infra_id, record.infra_id);

    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert!(environment.cluster(id).await.is_none());
    assert_eq!(environment.remaining_resources("one", id, SUBSCRIPTION).await, Vec::<String>::new());
    assert!(
        environment.store.billing().find(&billing).await.unwrap().unwrap().document.deletion_time.is_some()
    );
    // The customer's own network is unchanged.
    let subnet = environment.cloud.azure().list(&ResourceId::group(SUBSCRIPTION, "one-rg")).await.unwrap();
    assert!(!subnet.is_empty());
    let gone = environment.finished(removed).await;
    assert_eq!((gone.status, gone.snapshot), (ProvisioningState::Succeeded, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_is_reported_and_can_be_deleted() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    environment.fail_installation("bad", InstallStage::ControlPlane).await;
    let (id, made) = environment.create("bad").await;
    let ended = environment.finished(made).await;
    assert_eq!(ended.status, ProvisioningState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.details[0].code.as_str()),
        ("DeploymentFailed", "ZonalAllocationFailed")
    );
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!(cluster.provisioning_state, ProvisioningState::Failed);
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Creating));
    assert!(environment.store.billing().find(&format!("/billing/{id}")).await.unwrap().is_none());
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert_eq!(environment.remaining_resources("bad", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_the_customer_can_fix_have_a_code_and_a_field() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (_, missing) = environment
        .create_as(SUBSCRIPTION, "lost", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.master.subnet_id.push_str("-elsewhere");
        })
        .await;
    let (_, overlapping) = environment
        .create_as(SUBSCRIPTION, "overlap", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.network.pod_cidr = "10.0.0.0/16".to_owned();
        })
        .await;
    let check = async |operation, code: &str, target: &str| {
        let error = environment.finished(operation).await.error.unwrap();
        assert_eq!((error.code.as_str(), error.target.as_deref()), (code, Some(target)));
    };
    // A NAT gateway that the service may not join.
    let network =
        ResourceId::group(SUBSCRIPTION, "natted-rg").sibling("Microsoft.Network", "virtualNetworks", "vnet");
    let gateway = network.sibling("Microsoft.Network", "natGateways", "way-out");
    let (natted, secrets) =
        customer::prepare(&environment.cloud, SUBSCRIPTION, "natted", environment.clock.now()).await.unwrap();
    let put = async |id: &ResourceId, properties| {
        let (location, id) = (LOCATION.to_owned(), id.clone());
        environment
            .cloud
            .azure()
            .put(ResourceRequest { id, location, tags: [].into(), properties })
            .await
            .unwrap();
    };
    put(&gateway, Properties::NatGateway {}).await;
    let worker = network.child("subnets", "worker");
    let mut properties = environment.cloud.azure().get(&worker).await.unwrap().unwrap().properties;
    if let Properties::Subnet { nat_gateway, .. } = &mut properties {
        *nat_gateway = Some(gateway.clone());
    }
    put(&worker, properties).await;
    let action = "Microsoft.Network/natGateways/join/action".to_owned();
    environment
        .cloud
        .deny(Denial { who: "service".to_owned(), action, scope: gateway, until: None })
        .await
        .unwrap();
    let (_, natted) =
        customer::create(&environment.store, &natted, &secrets, &*environment.clock).await.unwrap();
    // A missing identity of the cluster, and an operator's identity that is federated with another issuer.
    let now = environment.clock.now();
    let (mut nobody, none) =
        customer::prepare_workload(&environment.cloud, SUBSCRIPTION, "nobody", now).await.unwrap();
    if let Identity::Workload { resource_id, .. } = &mut nobody.provisioned.as_mut().unwrap().spec.identity {
        resource_id.push_str("-gone");
    }
    let (_, lost) = customer::create(&environment.store, &nobody, &none, &*environment.clock).await.unwrap();
    let (open, none) =
        customer::prepare_workload(&environment.cloud, SUBSCRIPTION, "open", now).await.unwrap();
    let identity = ResourceId::group(SUBSCRIPTION, "open-rg").sibling(
        "Microsoft.ManagedIdentity",
        "userAssignedIdentities",
        "image-registry",
    );
    let federated = [("https://oidc.elsewhere/them|image-registry".to_owned(), "subject".to_owned())].into();
    put(&identity, Properties::Identity { client_id: None, principal_id: None, tenant_id: None, federated })
        .await;
    let (_, shared) = customer::create(&environment.store, &open, &none, &*environment.clock).await.unwrap();
    let operators = "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities";
    check(lost, "InvalidClusterMSICount", "identity").await;
    check(
        shared,
        "PlatformWorkloadIdentityContainsInvalidCredential",
        &format!("{operators}.image-registry"),
    )
    .await;
    check(natted, "InvalidResourceProviderPermissions", "properties.workerProfiles[0].subnetId").await;
    check(missing, "InvalidLinkedSubnet", "properties.masterProfile.subnetId").await;
    check(overlapping, "InvalidLinkedVNet", "properties.masterProfile.subnetId").await;
}

/// Creates a resource of a customer.
pub(crate) async fn put(environment: &TestEnvironment, id: &ResourceId, properties: Properties) {
    let (location, id) = (LOCATION.to_owned(), id.clone());
    environment
        .cloud
        .azure()
        .put(ResourceRequest { id, location, tags: [].into(), properties })
        .await
        .unwrap();
}

/// The customer's virtual network for a cluster of this name.
fn network(name: &str) -> ResourceId {
    let group = ResourceId::group(SUBSCRIPTION, &format!("{name}-rg"));
    group.sibling("Microsoft.Network", "virtualNetworks", "vnet")
}

/// Code and field of the error of an operation.
pub(crate) async fn operation_error(environment: &TestEnvironment, operation: Uuid) -> (String, String) {
    let error = environment.finished(operation).await.error.unwrap();
    (error.code, error.target.unwrap_or_default())
}

pub(crate) fn pair(code: &str, target: &str) -> (String, String) {
    (code.to_owned(), target.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_encryption_sets_must_exist_and_ranges_must_not_overlap() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let prepare = async |name: &str| {
        customer::prepare(&environment.cloud, SUBSCRIPTION, name, environment.clock.now()).await.unwrap()
    };
    let create = async |(cluster, secrets): (Cluster, Secrets)| {
        customer::create(&environment.store, &cluster, &secrets, &*environment.clock).await.unwrap().1
    };
    let mut keyed = prepare("keyed").await;
    let set = network("keyed").sibling("Microsoft.Compute", "diskEncryptionSets", "gone");
    keyed.0.provisioned.as_mut().unwrap().spec.workers[0].disk_encryption_set_id = Some(set.to_string());
    let keyed = create(keyed).await;
    let mut ranges = prepare("ranges").await;
    ranges.0.provisioned.as_mut().unwrap().spec.network.service_cidr = "10.130.0.0/16".to_owned();
    let ranges = create(ranges).await;
    // The cluster's own identity may not manage an operator's identity.
    let now = environment.clock.now();
    let weak = customer::prepare_workload(&environment.cloud, SUBSCRIPTION, "weak", now).await.unwrap();
    let identities = |name: &str| {
        ResourceId::group(SUBSCRIPTION, "weak-rg").sibling(
            "Microsoft.ManagedIdentity",
            "userAssignedIdentities",
            name,
        )
    };
    let action =
        "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write".to_owned();
    let (who, scope) = (identities("cluster").key(), identities("machine-api"));
    environment.cloud.deny(Denial { who, action, scope, until: None }).await.unwrap();
    let weak = create(weak).await;

    let worker = "properties.workerProfiles[0]";
    assert_eq!(
        operation_error(&environment, keyed).await,
        pair("InvalidLinkedDiskEncryptionSet", &format!("{worker}.diskEncryptionSetId"))
    );
    assert_eq!(
        operation_error(&environment, ranges).await,
        pair("InvalidLinkedVNet", "properties.networkProfile")
    );
    let operators = "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities";
    let target = format!("{operators}.machine-api");
    assert_eq!(operation_error(&environment, weak).await, pair("InvalidClusterMSIPermissions", &target));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lack_of_capacity_is_reported_before_any_resource_is_created() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let feature = "Microsoft.Compute/EncryptionAtHost".to_owned();
    let location = || LOCATION.to_owned();
    // Each case in a subscription of its own.
    let absent = |cluster: &mut Cluster| "Standard_Nowhere".clone_into(&mut worker(cluster).vm_size);
    let encrypted = |cluster: &mut Cluster| worker(cluster).encryption_at_host = Switch::Enabled;
    let plain = |cluster: &mut Cluster| {
        encrypted(cluster);
        "Standard_D2s_v3".clone_into(&mut worker(cluster).vm_size);
    };
    type Row<'a> =
        (&'a str, Box<dyn Fn(String) -> Option<Setting>>, &'a dyn Fn(&mut Cluster), &'a str, &'a str);
    let (size, registered) = ("properties.workerProfiles[0].VMSize", Some(false));
    let rows: [Row<'_>; 6] = [
        ("absent", Box::new(|_| None), &absent, "InvalidParameter", size),
        (
            "restricted",
            Box::new(move |subscription| {
                let (size, reason) = ("Standard_D4s_v5".to_owned(), Some("NotAvailable".to_owned()));
                Some(Setting::Restrict { subscription, location: location(), size, reason })
            }),
            &|_| (),
            "InvalidParameter",
            size,
        ),
        (
            "capability",
            Box::new(|_| None),
            &plain,
            "InvalidParameter",
            "properties.workerProfiles[0].encryptionAtHost",
        ),
        (
            "feature",
            Box::new(move |subscription| {
                Some(Setting::Feature { subscription, feature: feature.clone(), registered })
            }),
            &encrypted,
            "InvalidParameter",
            "",
        ),
        (
            "quota",
            Box::new(move |subscription| {
                let quota = "virtualMachines".to_owned();
                Some(Setting::Quota { subscription, location: location(), quota, limit: 6 })
            }),
            &|_| (),
            "ResourceQuotaExceeded",
            "",
        ),
        (
            "provider",
            Box::new(|subscription| {
                let namespace = "Microsoft.Storage".to_owned();
                Some(Setting::Provider { subscription, namespace, registered: false })
            }),
            &|_| (),
            "ResourceProviderNotRegistered",
            "",
        ),
    ];
    for (at, (name, setting, edit, code, target)) in rows.into_iter().enumerate() {
        let subscription = format!("44444444-4444-4444-4444-44444444444{at}");
        if let Some(setting) = setting(subscription.clone()) {
            environment.cloud.arrange(setting).await.unwrap();
        }
        let (id, made) = environment.create_as(&subscription, name, edit).await;
        assert_eq!(operation_error(&environment, made).await, pair(code, target), "{name}");
        assert_eq!(
            environment.remaining_resources(name, id, &subscription).await,
            Vec::<String>::new(),
            "{name}"
        );
    }
}

fn worker(cluster: &mut Cluster) -> &mut WorkerPool {
    &mut cluster.provisioned.as_mut().unwrap().spec.workers[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dns_record_of_another_cluster_is_neither_changed_nor_removed() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (first, made) = environment.create("quay").await;
    environment.succeeds(made).await;
    let zone = service().zone_id("aro.example");
    let api = environment.cloud.azure().get(&zone.child("A", "api.quay")).await.unwrap().unwrap();
    // The store guarantees unique domains, except for clusters that an earlier release accepted.
    let same = |cluster: &mut Cluster| {
        let provisioned = cluster.provisioned.as_mut().unwrap();
        "quay".clone_into(&mut provisioned.spec.domain);
        provisioned.managed_domain = Some("quay.aro.example".to_owned());
    };
    let (mut wanted, secrets) =
        customer::prepare(&environment.cloud, SUBSCRIPTION, "other", environment.clock.now()).await.unwrap();
    same(&mut wanted);
    let taken = customer::create(&environment.store, &wanted, &secrets, &*environment.clock).await;
    assert!(matches!(taken, Err(StoreError::KeyTaken { key }) if key == "domain:quay.aro.example"));
    wanted.provisioned.as_mut().unwrap().managed_domain = None;
    let (second, made) =
        customer::create(&environment.store, &wanted, &secrets, &*environment.clock).await.unwrap();
    assert_eq!(
        operation_error(&environment, made).await,
        pair("DuplicateDomain", "properties.clusterProfile.domain")
    );
    let removed = environment.change(second, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert_eq!(environment.cloud.azure().get(&zone.child("A", "api.quay")).await.unwrap(), Some(api));
    let removed = environment.change(first, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert_eq!(environment.remaining_resources("quay", first, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_domain_in_the_services_zone_and_a_name_with_a_leading_digit_are_supported() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (whole, made_whole) = environment
        .create_as(SUBSCRIPTION, "whole", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.domain = "whole.aro.example".to_owned();
        })
        .await;
    let (digit, made_digit) = environment
        .create_as(SUBSCRIPTION, "1st", |cluster| {
            let provisioned = cluster.provisioned.as_mut().unwrap();
            provisioned.spec.domain = "first".to_owned();
            provisioned.managed_domain = Some("first.aro.example".to_owned());
        })
        .await;
    environment.succeeds(made_whole).await;
    environment.succeeds(made_digit).await;
    let zone = service().zone_id("aro.example");
    for record in ["api.whole", "*.apps.whole", "api.first"] {
        assert!(environment.cloud.azure().get(&zone.child("A", record)).await.unwrap().is_some(), "{record}");
    }
    let record = environment.cluster(whole).await.unwrap().document.provisioned.unwrap().record;
    assert!(record.api_certificate_expires.is_some());
    let record = environment.cluster(digit).await.unwrap().document.provisioned.unwrap().record;
    assert!(record.infra_id.unwrap().starts_with("c1st-"));
    let removed = environment.change(whole, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert_eq!(environment.remaining_resources("whole", whole, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_resource_group_is_rejected_and_left_unchanged() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let group = ResourceId::group(SUBSCRIPTION, "aro-held");
    put(&environment, &group, Properties::ResourceGroup { managed_by: None }).await;
    let address = group.sibling("Microsoft.Network", "publicIPAddresses", "theirs");
    put(&environment, &address, Properties::PublicIp { address: None }).await;
    let (id, made) = environment.create("held").await;
    let target = "properties.clusterProfile.resourceGroupId";
    assert_eq!(operation_error(&environment, made).await, pair("ClusterResourceGroupAlreadyExists", target));
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert!(
        environment.cloud.azure().get(&group).await.unwrap().is_some()
            && environment.cloud.azure().get(&address).await.unwrap().is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_records_the_workers_and_revokes_the_roles_of_a_replaced_principal() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create("fleet").await;
    environment.succeeds(made).await;
    let before = environment.cluster(id).await.unwrap().document.provisioned.unwrap();
    let counts = |workers: &[WorkerPoolStatus]| workers.iter().map(|it| it.count).sum::<u32>();
    assert_eq!((before.record.workers.len(), counts(&before.record.workers)), (3, 3), "one set in each zone");
    assert_eq!(before.record.workers[0].subnet_id.as_deref(), Some(&*before.spec.workers[0].subnet_id));
    // A user scales a MachineSet in the cluster.
    let link = environment.connections().link(id).await.unwrap();
    let (resource, _) = link.resolve("machine.openshift.io/v1beta1", "MachineSet").await.unwrap();
    let name = before.record.workers[0].name.clone();
    let namespace = Some("openshift-machine-api".to_owned());
    let target = kubelink::Target { resource, namespace, name: name.clone() };
    let change = kubelink::patch::Change::Merge(serde_json::json!({"spec": {"replicas": 4}}));
    kubelink::patch::patch(&link, &target, &change, None).await.unwrap();

    let scope = ResourceId::group(SUBSCRIPTION, "aro-fleet");
    let principals = async || {
        let given = environment.cloud.azure().role_assignments(&scope).await.unwrap();
        given.into_iter().map(|it| it.principal).collect::<Vec<String>>()
    };
    assert_eq!(principals().await, [before.record.service_principal_object_id.unwrap()]);
    let other = environment.cloud.create_principal("other", Rights::Everywhere).await.unwrap();
    let client_id = other.principal.client_id.clone();
    let secret =
        environment.store.seal(id, secrets::CLIENT_SECRET, other.secret.expose().as_bytes()).unwrap();
    environment.store.commit(store::Transaction::new().put_secret(secret)).await.unwrap();
    let changed = environment
        .change(id, Verb::Update, |wanted| {
            wanted.credential = Some(client_id.clone());
            wanted.provisioned.as_mut().unwrap().spec.identity = Identity::ServicePrincipal { client_id };
        })
        .await;
    environment.succeeds(changed).await;
    assert_eq!(principals().await, [other.principal.object_id]);
    let after = environment.cluster(id).await.unwrap().document.provisioned.unwrap().record.workers;
    let scaled = after.iter().find(|it| it.name == name).unwrap();
    assert_eq!((scaled.count, counts(&after)), (4, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_a_failed_update_are_removed_by_the_next_update() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create("spread").await;
    environment.succeeds(made).await;
    let update = async |count: u32| {
        environment
            .change(id, Verb::Update, |wanted| {
                wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(count);
            })
            .await
    };
    let held = async || {
        let all =
            environment.cloud.azure().list(&ResourceId::group(SUBSCRIPTION, "aro-spread")).await.unwrap();
        all.iter().filter(|it| it.id.name().contains("-outbound-pip-v4-")).count()
    };
    // The quota prevents the fourth additional address.
    let full = FaultRule::new(CloudFault::Quota { quota: "PublicIPAddresses".to_owned() })
        .about("outbound-pip-v4-5");
    environment.cloud.inject(full).await.unwrap();
    let failed = update(5).await;
    assert_eq!(environment.finished(failed).await.error.unwrap().code, "ResourceQuotaExceeded");
    assert_eq!(held().await, 3);
    environment.cloud.clear_faults().await.unwrap();
    let back = update(1).await;
    environment.succeeds(back).await;
    assert_eq!(held().await, 0);
    let record = environment.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    assert_eq!(record.effective_outbound_ips.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_are_federated_with_the_service_accounts_of_the_version_and_with_none_after_the_delete() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create_workload("federal").await;
    environment.succeeds(made).await;
    let subjects = async |operator: &str| {
        let group = ResourceId::group(SUBSCRIPTION, "federal-rg");
        let identity = group.sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", operator);
        let Properties::Identity { federated, .. } =
            environment.cloud.azure().get(&identity).await.unwrap().unwrap().properties
        else {
            panic!("{operator} has no identity")
        };
        federated.into_values().collect::<Vec<String>>()
    };
    let account = |it: &str| format!("system:serviceaccount:{it}");
    let registry = "openshift-image-registry";
    assert_eq!(
        subjects("image-registry").await,
        [
            account(&format!("{registry}:cluster-image-registry-operator")),
            account(&format!("{registry}:registry"))
        ]
    );
    assert_eq!(subjects("machine-api").await, [account("openshift-machine-api:machine-api-controllers")]);
    // Each identity has the roles of its role set, and an update restores a revoked one.
    let Identity::Workload { platform, .. } =
        environment.cluster(id).await.unwrap().document.provisioned.unwrap().spec.identity
    else {
        panic!("the cluster uses managed identities")
    };
    let scope = ResourceId::group(SUBSCRIPTION, "aro-federal");
    let machines = platform["machine-api"].object_id.clone().unwrap();
    let roles = async || {
        let given = environment.cloud.azure().role_assignments(&scope).await.unwrap();
        given.into_iter().filter(|it| it.principal == machines).collect::<Vec<_>>()
    };
    let given = roles().await;
    assert_eq!(given.len(), 1, "{given:?}");
    assert_ne!(given[0].role, "Contributor");
    environment.cloud.azure().revoke_role(&given[0].scope, &given[0].name).await.unwrap();
    let changed = environment.change(id, Verb::Update, |_| ()).await;
    environment.succeeds(changed).await;
    assert_eq!(roles().await, given);
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    for operator in ["image-registry", "machine-api"] {
        assert_eq!(subjects(operator).await, Vec::<String>::new(), "{operator}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_propagate_late_are_waited_for_at_a_short_poll_interval() {
    let environment = TestEnvironment::new().await;
    let mut deps = environment.deps();
    deps.config.operation_timing =
        backend::OperationTiming::with_poll_interval(std::time::Duration::from_millis(50));
    let (_stop, _backend) = environment.backend_with(deps);
    let (cluster, secrets) =
        customer::prepare(&environment.cloud, SUBSCRIPTION, "late", environment.clock.now()).await.unwrap();
    // Longer than the usual propagation timeout of tests.
    let until = environment.clock.now().checked_add(jiff::SignedDuration::from_secs(5)).unwrap();
    let action = "Microsoft.Network/virtualNetworks/subnets/join/action".to_owned();
    let denial = Denial { who: "service".to_owned(), action, scope: network("late"), until: Some(until) };
    environment.cloud.deny(denial).await.unwrap();
    let (_, made) =
        customer::create(&environment.store, &cluster, &secrets, &*environment.clock).await.unwrap();
    environment.succeeds(made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_faults_of_the_cloud_delay_a_create_and_do_not_fail_it() {
    let environment = TestEnvironment::new().await;
    let rules = [
        FaultRule::new(CloudFault::ThrottledBriefly { after_millis: 20 }).share(0.03),
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::After }).share(0.03),
        FaultRule::new(CloudFault::DelayedVisibility { millis: 100 }).share(0.1),
    ];
    let (_stop, _backend) = environment.backend();
    let created = environment.create("rough").await;
    for rule in rules {
        environment.cloud.inject(rule).await.unwrap();
    }
    environment.succeeds(created.1).await;
    environment.cloud.clear_faults().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_grows_and_a_shutdown_releases_the_operation() {
    let environment = TestEnvironment::new().await;
    // The installation is denied until the fault is cleared.
    environment.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("install")).await.unwrap();
    let (stop, backend) = environment.backend();
    let (_, made) = environment.create("slow").await;
    eventually("the operation has progressed", async || {
        let work = environment.store.work(made).await.ok()??;
        progress(&Journal::read(work.checkpoint.as_ref())).filter(|it| it.percent() > 10)
    })
    .await;
    stop.cancel();
    backend.await.unwrap();
    let work = environment.store.work(made).await.unwrap().unwrap();
    assert_eq!(work.state, api::work::WorkState::Pending, "released");
    environment.cloud.clear_faults().await.unwrap();
    let (_stop, _backend) = environment.backend();
    // A failed attempt may have left a retry delay; expedite ends it.
    environment.store.commit(store::Transaction::new().expedite(made)).await.ok();
    environment.succeeds(made).await;
}
